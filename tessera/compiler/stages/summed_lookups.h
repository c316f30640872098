// In a job with parameter servers, gradients of rows that workers have looked up: each worker adds up those that belong
// to one row of the table, and sends one in their place.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

// A row of no more bytes is sent faster than it is found among the others: a line of the cache.
inline constexpr int64_t kBytesOfSmallRow = 64;

// The rows of a batch, as the first data input that has a dim says; 0 where none has.
int64_t rows_of_batch(const ir::Graph& micro);
// Whether workers share the rows of a lookup as they share those of the batch, by the first dim of the rows' numbers,
// and each row has more than `small_row_bytes`.
bool is_shared_lookup(const Type& rows, const Type& ids, int64_t rows_of_batch, int64_t small_row_bytes);
// Where the workers' parts of such a lookup begin along the first dim of its numbers, and where the last one ends.
Ints bounds_of_workers(const Type& ids, int64_t rows_of_batch, int num_workers);

struct SummedLookups {
  // Accumulators of the parameters that servers keep, by name, with these parameters.
  std::map<std::string, std::string> accumulators = {};
  int num_workers = 1;  // which share the rows of a micro-batch
  // Whether what is behind a worker's last sum is 0, where more than updates of rows look at it; else it is undefined.
  bool clears = false;
};

// The graph of a micro-batch that place_for_servers() has placed, in which accumulators of rows and of their numbers
// get what add_up_rows makes of them. It adds up by workers: of each what it has looked up, in the order of its rows.
// Left as they are: tables that are looked up in several places, rows of kBytesOfSmallRow or less, rows in half types,
// and rows whose numbers do not go with those of the batch.
ir::Graph sum_lookups(const ir::Graph& micro, const SummedLookups& lookups);

}  // namespace tessera::compiler
