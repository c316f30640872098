// What differs between two checkpoints, whatever ranks and splits they were saved with: whole tensors are compared,
// piece by piece. `tessera ckpt diff A B`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint {

struct TensorDifference {
  std::string name;
  std::string left;  // "f32[2,3]"; "" where it is missing
  std::string right;
  // Where the types are equal:
  int64_t num_elements = 0;
  int64_t num_different = 0;
  double largest = 0;  // absolute difference; infinite where only one is NaN
};

// What one side was made of.
struct DiffSide {
  std::vector<std::string> paths;  // the paths of its files
  bool is_part = false;            // one rank's file, compared as it is
};

struct CheckpointDiff {
  DiffSide left;
  DiffSide right;
  int64_t num_equal = 0;    // values that have the same bits
  int64_t num_by_hash = 0;  // how many of these were compared by the manifests' hashes only
  std::vector<TensorDifference> differences;
};

// Each side is a .ckpt or .safetensors file, or a directory: see open_checkpoint(). The files of several ranks are
// joined: those of folders rank_N by a strategy file, or by their manifests where it is "", those that were saved
// together always by their manifest. The file of one folder rank_N is taken as it is. Tensors whose slices have equal
// hashes in the manifests of both sides are equal; the values of others, or with `read_all` of all, are compared.
// Throws InvalidArgument when a side cannot be joined.
CheckpointDiff diff_checkpoints(FileSystem& files, const std::string& left, const std::string& right,
                                const std::string& left_strategy_file = "", const std::string& right_strategy_file = "",
                                bool read_all = false);
// "comparing A with B": which files were taken.
std::string diff_sides(const CheckpointDiff& diff);
std::string diff_table(const CheckpointDiff& diff);
std::string diff_json(const CheckpointDiff& diff);

}  // namespace tessera::checkpoint
