// Does a checkpoint belong to a network? Its entries are compared with the network's parameters before the first one is
// copied, so that a load is whole or leaves everything untouched.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/checkpoint/read/load.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

struct MatchOptions {
  bool allow_missing = false;     // parameters that the checkpoint lacks keep their values
  bool allow_unexpected = false;  // entries that the network lacks are left out, as for evaluation without an optimizer
  bool convert_dtypes = false;    // float to float, integer to integer
};

// A parameter or state of the network: where its value goes.
struct Destination {
  std::string name;
  TensorView value;  // data may be null where only types are compared
};

struct Match {
  struct Difference {
    std::string name;
    std::string in_checkpoint;  // "f32[2,3]"
    std::string in_network;
  };
  std::vector<std::string> missing;     // in the network only
  std::vector<std::string> unexpected;  // in the checkpoint only, with their types
  std::vector<Difference> differences;  // in both, with another shape or dtype
  std::string hint;                     // a prefix by which all names differ, or ""

  bool fits(const MatchOptions& options) const;
  // The lists of what the options do not allow, each cut after `max_names` names.
  std::string describe(const MatchOptions& options = {}, size_t max_names = 20) const;
};

// Appended values (epoch_num, step_num) and texts are no parameters and not compared. A parameter without elements is
// not missing: the file has no place for it.
Match compare(std::span<const StoredEntry> entries, std::span<const Destination> network,
              const MatchOptions& options = {});
Match compare(const Checkpoint& checkpoint, std::span<const Destination> network, const MatchOptions& options = {});

// Throws InvalidArgument naming `path` and listing missing, unexpected and different names where those are not allowed.
void require_fit(const std::string& path, const Match& match, const MatchOptions& options);

// Copies every entry to the destination of its name. Returns the comparison, which names what the options allowed to be
// left out. Throws InvalidArgument naming the file and listing missing, unexpected and different names; then no
// destination was written to.
Match load_into(const Checkpoint& checkpoint, std::span<const Destination> network, const MatchOptions& options = {});

}  // namespace tessera::checkpoint
