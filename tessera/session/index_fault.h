// What a user is told of values of the data that stopped a step: where an index lies and which ones its operator has,
// and where numbers lie that are not finite.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/compiler/compile.h"
#include "tessera/executor/executor.h"
#include "tessera/tensor/tensor.h"

namespace tessera::session {

// A DataPiece is what a graph's input holds of the data.
struct DataPiece {
  std::string name;                // of the data input
  std::vector<mesh::Range> slice;  // of the graph's global input, on this rank: one range per dim
  int64_t first_row = 0;           // of the graph's global input, in the data input
};
// nullopt for an input that holds no data.
using FindData = std::function<std::optional<DataPiece>(const ir::Input& input)>;

// `column "tokens": row 5 holds 50257 at [5, 17]; an index of gather "embedding" must be from 0 to 50256`, in places of
// the data input, where operators that only move elements lead from a data input to the index; else
// `gather "embedding": an index is 7; it must be from 0 to 4`. `noun`: what a data input is called.
std::string describe_bad_index(const compiler::Compiled& compiled, const executor::BadIndex& bad,
                               const FindData& find_data, const std::string& noun);

// Every rank says what is wrong with an index of its own, or "". Throws executor::InvalidIndex on all of them where one
// has met any, in the words of the first that has: `rank 3: column "tokens": row 5 holds ...`. One all_reduce of a word
// where none has. Collective.
void throw_first_bad_index(comm::Communicator& ranks, const std::string& of_this_rank);

// `column "label": row 33 holds nan at [33, 0]` for the first number of `held` that is not finite; "" where all are.
// `held`: what this rank has of the data input, in memory of the host.
std::string describe_non_finite(const DataPiece& data, const TensorView& held, const std::string& noun);

}  // namespace tessera::session
