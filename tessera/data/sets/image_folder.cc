#include "tessera/data/sets/image_folder.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/mapped_guard.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"
#include "tessera/data/image_file.h"

namespace tessera::data {
namespace {

std::vector<std::string> sorted_names(FileSystem& files, const std::string& directory) {
  std::vector<std::string> names = files.list(directory);
  std::sort(names.begin(), names.end());
  return names;
}

// Whether a file of that name counts.
bool has_extension(const std::string& name, const std::vector<std::string>& extensions) {
  const auto dot = name.rfind('.');
  return extensions.empty() || (dot != std::string::npos &&
                                std::find(extensions.begin(), extensions.end(), name.substr(dot)) != extensions.end());
}

class ImageFolder : public Source {
 public:
  ImageFolder(FileSystem& files, const std::string& directory, const ImageFolderOptions& options)
      : files_(files), directory_(directory) {
    for (const auto& [name, label] : image_classes(files, directory, options)) {
      const std::string folder = join_path(directory, name);
      for (const auto& file : sorted_names(files, folder)) {
        const std::string path = join_path(folder, file);
        if (has_extension(file, options.extensions) && !files.is_directory(path)) paths_.push_back(path);
      }
      labels_.resize(paths_.size(), label);
    }
    if (paths_.empty()) {
      throw InvalidArgument("image folder \"{}\": its folders have no files{}", printable(directory),
                            options.extensions.empty()
                                ? ""
                                : fmt::format(" whose names end with {}", fmt::join(options.extensions, ", ")));
    }
  }
  const std::vector<Column>& columns() const override { return columns_; }
  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  std::string to_string() const override { return fmt::format("image folder \"{}\"", printable(directory_)); }

  // Of the names within the directory, which may be another one on each host.
  uint64_t content_hash() const override {
    uint32_t hash = 0;
    for (const std::string& path : paths_) {
      hash = crc32c(std::as_bytes(std::span(path).subspan(directory_.size())), hash);
    }
    return hash;
  }

  std::string sample_name(const SampleRef& sample) const override {
    return printable(paths_[static_cast<size_t>(sample.index)]);
  }

  void read(const SampleRef& sample, std::span<const TensorView> outputs) const override {
    *outputs[1].as<int32_t>() = labels_[static_cast<size_t>(sample.index)];
  }
  Tensor read_any_size(const SampleRef& sample, size_t column) const override {
    check_equal(column, size_t{0}, "column of any size");
    const auto& path = paths_[static_cast<size_t>(sample.index)];
    require_image_size(files_.size_bytes(path), sample_name(sample));  // before it takes address space
    const auto file = files_.open(path);
    const auto bytes = file->bytes();
    const MappedGuard guard(bytes, printable(path));
    require_image_size(std::ssize(bytes), sample_name(sample));
    Tensor value(DType::kU8, {static_cast<int64_t>(bytes.size())});
    if (!bytes.empty()) std::memcpy(value.values<uint8_t>().data(), bytes.data(), bytes.size());
    guard.require_whole();
    return value;
  }

 private:
  FileSystem& files_;
  std::string directory_;
  std::vector<Column> columns_{{"image", {DType::kU8, {kAnySize}}}, {"label", {DType::kI32, {}}}};
  std::vector<std::string> paths_;
  std::vector<int32_t> labels_;
};

}  // namespace

std::map<std::string, int32_t> image_classes(FileSystem& files, const std::string& directory,
                                             const ImageFolderOptions& options) {
  if (!files.exists(directory) || !files.is_directory(directory)) {
    throw InvalidArgument("image folder \"{}\": no such directory", printable(directory));
  }
  std::map<std::string, int32_t> classes;
  for (const auto& name : sorted_names(files, directory)) {
    if (files.is_directory(join_path(directory, name))) classes.emplace(name, static_cast<int32_t>(classes.size()));
  }
  if (classes.empty()) {
    throw InvalidArgument("image folder \"{}\": has no folders; it needs one for each class", printable(directory));
  }
  if (options.class_indexing.empty()) return classes;
  for (const auto& [name, label] : options.class_indexing) {
    if (!classes.contains(name)) {
      throw InvalidArgument("image folder \"{}\": class_indexing names \"{}\", but there is no such folder",
                            printable(directory), printable(name));
    }
  }
  return options.class_indexing;
}

Dataset image_folder(FileSystem& files, const std::string& directory, const ImageFolderOptions& options) {
  return {std::make_shared<ImageFolder>(files, directory, options),
          {.num_samples = options.num_samples,
           .shuffle = options.shuffle,
           .num_shards = options.num_shards,
           .shard_id = options.shard_id,
           .seed = options.seed}};
}

Dataset image_folder(const std::string& directory, const ImageFolderOptions& options) {
  return image_folder(FileSystem::local(), directory, options);
}

}  // namespace tessera::data
