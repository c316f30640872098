// SourceFile: what a checkpoint file holds and where in it, without its values. The file is not kept open or mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/format/ckpt_reader.h"
#include "tessera/checkpoint/format/region.h"
#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/checkpoint/read/choose.h"
#include "tessera/checkpoint/read/content_reader.h"

namespace tessera::checkpoint {

struct SourceTensor {
  std::string name;
  bool is_text = false;
  bool appended = false;
  DType dtype = DType::kF32;  // a text has none: meaningless, as is the shape
  Shape shape;                // the shape of what this file holds
  int64_t size_bytes = 0;
  std::vector<Extent> pieces;  // where the content lies, in order
  // Where it lies in the global value, when the manifest says that it is only a part of that.
  std::optional<GlobalRegion> part;
  std::optional<uint32_t> crc32c;  // the checksum of the content, where there is a manifest
  std::optional<uint64_t> hash;    // its share of the tensor's layout-free hash, when the manifest has it

  // What the file holds of the global value, and that value's shape.
  Region region() const { return part ? part->region : Region::whole(shape); }
  const Shape& global() const { return part ? part->global : shape; }
  std::string type_text() const { return is_text ? "str" : Type{dtype, shape}.to_string(); }
};

class SourceFile {
 public:
  // This one file, also where it is one of several of a checkpoint: see open_all(). Reads headers and manifest, not the
  // values. A name that ends in .safetensors is read as such. Throws InvalidArgument naming file and tensor when the
  // file is no whole checkpoint or its manifest describes another one, IoError when it cannot be read.
  static SourceFile open(FileSystem& files, const std::string& path);
  // The files of a checkpoint, NAME.ckpt first; more than that one where ranks saved into one directory. `path` is
  // NAME.ckpt, or the file of any of these ranks. Throws InvalidArgument naming a file that is missing, too, and for a
  // file of several that no manifest describes.
  static std::vector<SourceFile> open_all(FileSystem& files, const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }
  // The tensors in the order of the file; with a manifest, tensors without elements are here too.
  const std::vector<SourceTensor>& tensors() const { return tensors_; }
  const SourceTensor* find(const std::string& name) const;
  // What the manifest says of the training; absent where there is none.
  const std::optional<CheckpointInfo>& info() const { return info_; }
  // The checksum of the whole file, as the manifest has it.
  std::optional<uint32_t> crc32c() const { return crc32c_; }
  bool holds_parts() const;
  // Whether its manifest describes files of other ranks beside it.
  bool is_one_of_several() const { return is_one_of_several_; }
  // From now on each tensor is taken for a whole one.
  void forget_parts();

 private:
  SourceFile(const CkptFile& file, const std::optional<Manifest>& manifest);
  SourceFile() = default;
  void add(SourceTensor tensor);

  std::string path_;
  int64_t size_bytes_ = 0;
  std::vector<SourceTensor> tensors_;
  std::unordered_map<std::string, size_t> index_;
  std::optional<CheckpointInfo> info_;
  std::optional<uint32_t> crc32c_;
  bool is_one_of_several_ = false;
};

// Throws InvalidArgument naming both unless `other` is of the same save as `first`, by their manifests: of its step,
// its number of ranks and its job. `first` has a manifest.
void require_same_save(const SourceFile& first, const SourceFile& other);

// The value of a text, as UTF-8: of its file only the values' beginnings are looked at. Throws IoError when the file
// has changed since it was opened.
std::string read_text(FileSystem& files, const SourceFile& source, const std::string& name);

// Rank N's folder is called rank_N; nullopt for other names.
std::optional<int64_t> rank_of_folder(const std::string& name);

}  // namespace tessera::checkpoint
