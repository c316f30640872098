// The manifest: what Tessera writes beside a checkpoint so that it can be verified, resumed exactly and, where it is
// sharded, put together: checksums, sizes, layouts, step, data position, random state. JSON text under a checksum of
// its own; the page docs/checkpoint_format.md gives every field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/tensor/type.h"

namespace tessera::checkpoint {

// Where training stood. Counts begin at 1; 0 is "before the first".
struct CheckpointInfo {
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
  int64_t step = 0;         // since the beginning of training
  int64_t saved_at_ms = 0;  // since 1970-01-01 UTC; negative where a clock stands before that
  std::string job_id;       // names the processes that saved it: another id after each start
  std::string job_name;     // names the training, which goes on under it; "": it has no name
  std::string training_id;  // the id of the training, random; a job that resumes goes on under it. "": not known
  int world_size = 1;
  std::string network_name;
  std::string network_hash;  // a hash of what the network computes, see train/saving/network_identity.h; "": not known
  std::string network_operators;  // "add 2, matmul 2": how often it has each operator; "": not known
  std::string optimizer;          // "Momentum"; "": none, or not known
  // Where the values are those of one stage of a pipeline. Nothing writes it yet.
  struct Stage {
    int64_t index = 0;
    int64_t count = 1;
    bool operator==(const Stage&) const = default;
  };
  std::optional<Stage> stage;
  // How often the ranks of a job have been put together anew. Nothing counts it yet.
  std::optional<int64_t> generation;
  uint64_t seed = 0;
  std::string random_state;    // opaque: whoever gave it reads it
  std::string data_position;   // opaque likewise
  int64_t rows_per_batch = 0;  // of all ranks, that data_position counts in; 0: not known
  // So many values of the save are in files of other directories only: those of a pipeline's other stages.
  int64_t values_elsewhere = 0;
  bool operator==(const CheckpointInfo&) const = default;
};

struct ManifestFile {
  std::string name;  // in the manifest's directory
  int64_t size_bytes = 0;
  uint32_t crc32c = 0;  // the checksum of all its bytes
  // What encryption_mode_of() returns; then the slices have no checksums, which would tell of the values. "" for plain
  // files.
  std::string encryption = {};
  bool operator==(const ManifestFile&) const = default;
};

// A block of a tensor's global value, as one file holds it.
struct ManifestSlice {
  int file = 0;  // index into Manifest::files
  Shape offset;  // where its first element lies in the global value
  Shape shape;
  int64_t size_bytes = 0;
  uint32_t crc32c = 0;  // the checksum of its content, row-major
  // Its share of the tensor's layout-free hash, see element_hash.h; absent for texts and in older manifests.
  std::optional<uint64_t> hash;
  bool operator==(const ManifestSlice&) const = default;
};

struct ManifestTensor {
  std::string name;
  bool is_text = false;   // then dtype and shape mean nothing
  bool appended = false;  // information, not a parameter
  DType dtype = DType::kF32;
  Shape shape;  // global
  std::vector<ManifestSlice> slices;
  bool operator==(const ManifestTensor&) const = default;
};

struct Manifest {
  CheckpointInfo info;
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;
  bool operator==(const Manifest&) const = default;
};

// "d/CKP-1_4.ckpt" -> "d/CKP-1_4.ckpt.manifest".
std::string manifest_path(const std::string& checkpoint_path);
// Where a manifest waits until the file it describes is in place; see save.h.
std::string pending_manifest_path(const std::string& checkpoint_path);

// Where a file of that name lies that a manifest describes: in the directory of its checkpoint.
std::string path_beside(const std::string& checkpoint_path, const std::string& name);

// Throws InvalidArgument when a string is not UTF-8.
std::string to_text(const Manifest& manifest);
// Throws InvalidArgument naming `path` and the field ("tensors[3].slices[0].size_bytes"): not JSON, nested deeper or
// larger than a manifest can be, checksum wrong, field missing, ill-typed or contradicting another one.
Manifest parse_manifest(std::string_view text, const std::string& path);

// The manifest at `path`. Throws as parse_manifest() does, also for a file that is too large, of which nothing is read,
// and for a link, which no writer makes; IoError when it cannot be read.
Manifest read_manifest(FileSystem& files, const std::string& path);

}  // namespace tessera::checkpoint
