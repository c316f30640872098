// WantedRows: which rows of a table a worker asks a parameter server for, each of them once, and where they go in what
// the worker looks up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/mesh/mesh.h"

namespace tessera::train {

struct WantedRows {
  // A place of the lookup gets the row that has this number in `rows`.
  struct PlaceOfRow {
    int64_t place = 0;
    int64_t row = 0;
    bool operator==(const PlaceOfRow&) const = default;
  };
  std::vector<int64_t> rows;  // of those that the server gives, in the order in which they are first looked up
  std::vector<PlaceOfRow> places;
};

struct WantedOfServers {
  std::vector<WantedRows> servers;
  std::optional<size_t> unknown;  // the first place whose row no server gives; what comes behind it is not looked at
};

// `numbers`: the rows that are looked up, one for each place. `given`: by server, the rows of the table that it gives.
WantedOfServers wanted_rows(std::span<const int64_t> numbers, std::span<const mesh::Range> given);

}  // namespace tessera::train
