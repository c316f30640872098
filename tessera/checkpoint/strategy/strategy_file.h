// The strategy file: how each operator and each parameter of a run was split, so that a later run can repeat the split
// and a checkpoint of slices can be put together. In the reference's two forms, Protocol Buffers (any name, usually
// .ckpt) and JSON (.json), both byte-compatible with its release 2.10; docs/checkpoint_format.md gives every byte.
//
// The data is plain: it knows no Mesh and no Sharding, and holds what the file holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint {

// How one operator was split.
struct NodeStrategy {
  std::string node;   // operator and its first parameter: "MatMul_fc.weight"
  int64_t stage = 0;  // pipeline stage, from 0
  // Per input, how many parts each of its dims is split into, all >= 1: {{2, 1}, {1, 4}}.
  std::vector<std::vector<int64_t>> inputs;
  bool operator==(const NodeStrategy&) const = default;
};

// How one parameter (or optimizer state) lies on the devices of its stage.
struct ParameterLayout {
  // "fc.weight"; in a file merged from all stages of a pipeline "STAGE-NAME", "1-fc.weight".
  std::string name;
  // The stage's devices as a grid, outermost axis first, all >= 1. Their product is the number of devices: axes over
  // which the parameter repeats are there too.
  std::vector<int64_t> device_matrix;
  // Per dim, the axes of device_matrix that split it, outermost first, counted from the right (0 is the last axis).
  // {} is a dim that is whole. No axis occurs twice.
  std::vector<std::vector<int64_t>> tensor_map;
  // Global. Held by the JSON form only: {} where it came from the other.
  std::vector<int64_t> tensor_shape;
  // Sizes and offsets of the parts where the parameter was split by hand; else {}. Equal lengths.
  std::vector<int64_t> param_split_shape;
  std::vector<int64_t> indices_offset;
  int64_t field = 0;  // field size of an embedding table; 0: none
  // Optimizer shards: each slice is cut further, on dim 0, over `opt_weight_shard_size` ranks that lie
  // `opt_weight_shard_step` apart. Size -1 is all ranks that hold the slice; either being 0, it is not cut.
  int64_t opt_weight_shard_step = 0;
  int64_t opt_weight_shard_size = 0;

  // Into how many parts the optimizer's shards cut a slice: 1 when they do not.
  int64_t num_optimizer_shards() const;
  bool operator==(const ParameterLayout&) const = default;
};

struct StrategyFile {
  int64_t current_stage = 1;  // the reference counts the saves of a process here; no pipeline stage
  std::vector<NodeStrategy> strategies;
  std::vector<ParameterLayout> layouts;
  bool operator==(const StrategyFile&) const = default;
};

// Throws InvalidArgument, naming `where` and the item, unless every field is as described above, names are UTF-8 and
// not empty, no layout's name and no (node, stage) occurs twice, and numbers fit their fields.
void check_strategy(const StrategyFile& strategy, const std::string& where);

// Checks one layout in the same way.
void check_layout(const ParameterLayout& layout, const std::string& where);

// The file's bytes; items sorted by name, as the reference has them. Throw InvalidArgument as check_strategy does.
// The JSON form also needs node names that differ between stages.
std::string strategy_to_protobuf(const StrategyFile& strategy);
std::string strategy_to_json(const StrategyFile& strategy);

// Either form: JSON when the first character that is not white space is { or [. Items in the order of the file (JSON:
// sorted by name). Fields of later versions are skipped. A file without items is fine: the lists are empty.
// Throws InvalidArgument naming `path` and the byte or the member for anything else, an empty file among it. Needs no
// more memory than a small multiple of the size of `bytes`, which is at most 64 MiB.
StrategyFile parse_strategy_file(std::string_view bytes, const std::string& path);

// Reads and parses the file. Throws IoError when it cannot be read.
StrategyFile read_strategy_file(FileSystem& files, const std::string& path);

enum class StrategyForm { kBySuffix, kProtobuf, kJson };
// Replaces the file atomically, readable and writable by its owner only; makes the directories above it. kBySuffix:
// JSON for a path that ends with ".json", else Protocol Buffers.
void write_strategy_file(FileSystem& files, const std::string& path, const StrategyFile& strategy,
                         StrategyForm form = StrategyForm::kBySuffix);

}  // namespace tessera::checkpoint
