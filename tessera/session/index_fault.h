// What a user is told of an index that stopped a step: where in the data it lies, and which ones its operator has.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/executor/executor.h"

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

}  // namespace tessera::session
