#include "tessera/data/sets/mnist.h"

#include <algorithm>
#include <limits>
#include <span>

#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/mapped_guard.h"
#include "tessera/base/strings.h"

namespace tessera::data {
namespace {

constexpr uint32_t kImagesMagic = 2051;
constexpr uint32_t kLabelsMagic = 2049;

// An IDX file: the sizes of its dims, and its bytes.
struct Idx {
  std::unique_ptr<ReadableFile> file;
  std::unique_ptr<MappedGuard> guard;  // asked after each look at the bytes
  std::vector<int64_t> sizes;
  const uint8_t* bytes = nullptr;
};

uint32_t big_endian(std::span<const std::byte> bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(bytes[at + i]);
  return value;
}

// Throws InvalidArgument unless the file begins with `magic` and has the bytes that its header says.
Idx open_idx(FileSystem& files, const std::string& path, uint32_t magic) {
  const size_t num_dims = magic & 0xFFU;
  const size_t header = 4 + 4 * num_dims;
  Idx idx{.file = files.open(path)};
  const auto bytes = idx.file->bytes();
  idx.guard = std::make_unique<MappedGuard>(bytes, path);
  const bool has_header = bytes.size() >= header;
  if (!has_header || big_endian(bytes, 0) != magic) {
    idx.guard->require_whole();
    throw InvalidArgument(
        "mnist file \"{}\" ({} bytes): must begin with the number {} and the sizes of {} dims; it is compressed, "
        "truncated or of another format",
        path, bytes.size(), magic, num_dims);
  }
  uint64_t wanted = 1;
  for (size_t i = 0; i < num_dims; ++i) {
    const uint32_t size = big_endian(bytes, 4 + 4 * i);
    idx.sizes.push_back(size);
    // What is more than a number counts is more than the file.
    if (__builtin_mul_overflow(wanted, uint64_t{size}, &wanted)) wanted = std::numeric_limits<uint64_t>::max();
  }
  if (wanted == 0 || bytes.size() - header != wanted) {
    throw InvalidArgument("mnist file \"{}\": its header says {}, which is {} bytes, but {} follow it", path,
                          fmt::join(idx.sizes, " x "), wanted, bytes.size() - header);
  }
  idx.bytes = reinterpret_cast<const uint8_t*>(bytes.data()) + header;
  return idx;
}

class Mnist : public Source {
 public:
  Mnist(FileSystem& files, const std::string& directory, const std::string& usage) : usage_(usage) {
    if (!files.exists(directory) || !files.is_directory(directory)) {
      throw InvalidArgument("mnist \"{}\": no such directory; it must hold {} and such files of labels and of t10k",
                            directory, images_name("train"));
    }
    if (usage != "test") add(files, directory, "train");
    if (usage != "train") add(files, directory, "t10k");
  }
  const std::vector<Column>& columns() const override { return columns_; }
  int64_t size() const override { return first_.back(); }
  std::string to_string() const override { return "mnist " + usage_; }
  uint64_t content_hash() const override {
    uint32_t hash = 0;
    for (const Idx& labels : labels_) {
      hash = crc32c(std::as_bytes(std::span(labels.bytes, static_cast<size_t>(labels.sizes[0]))), hash);
      labels.guard->require_whole();
    }
    return hash;
  }

  void read(const SampleRef& sample, std::span<const TensorView> outputs) const override {
    const auto part =
        static_cast<size_t>(std::upper_bound(first_.begin(), first_.end(), sample.index) - first_.begin() - 1);
    const int64_t at = sample.index - first_[part];
    const int64_t pixels = columns_[0].type.shape.num_elements();
    std::copy_n(images_[part].bytes + at * pixels, pixels, outputs[0].as<uint8_t>());
    *outputs[1].as<uint32_t>() = labels_[part].bytes[at];
    images_[part].guard->require_whole();
    labels_[part].guard->require_whole();
  }

 private:
  static std::string images_name(const std::string& part) { return part + "-images-idx3-ubyte"; }
  static std::string labels_name(const std::string& part) { return part + "-labels-idx1-ubyte"; }

  void add(FileSystem& files, const std::string& directory, const std::string& part) {
    for (const auto& name : {images_name(part), labels_name(part)}) {
      if (!files.exists(join_path(directory, name))) {
        throw InvalidArgument("mnist \"{}\": {} missing; usage \"{}\" needs it{}", directory, name, usage_,
                              files.exists(join_path(directory, name + ".gz")) ? "; unpack its .gz" : "");
      }
    }
    const std::string images_path = join_path(directory, images_name(part));
    Idx images = open_idx(files, images_path, kImagesMagic);
    Idx labels = open_idx(files, join_path(directory, labels_name(part)), kLabelsMagic);
    if (images.sizes[0] != labels.sizes[0]) {
      throw InvalidArgument("mnist \"{}\": {} has {} images, {} has {} labels", directory, images_name(part),
                            images.sizes[0], labels_name(part), labels.sizes[0]);
    }
    const Shape shape{images.sizes[1], images.sizes[2], 1};
    if (!images_.empty() && !(columns_[0].type.shape == shape)) {
      throw InvalidArgument("mnist \"{}\": images of train are {}, of t10k {}", directory, columns_[0].type.shape,
                            shape);
    }
    columns_ = {{"image", {DType::kU8, shape}}, {"label", {DType::kU32, {}}}};
    first_.push_back(first_.back() + images.sizes[0]);
    images_.push_back(std::move(images));
    labels_.push_back(std::move(labels));
  }

  std::string usage_;
  std::vector<Column> columns_;
  std::vector<Idx> images_;  // of each part
  std::vector<Idx> labels_;
  std::vector<int64_t> first_{0};  // sample of each part, and the number of all
};

}  // namespace

Dataset mnist(FileSystem& files, const std::string& directory, const MnistOptions& options) {
  const std::string usage = options.usage.empty() ? "all" : options.usage;
  if (usage != "all" && usage != "train" && usage != "test") {
    throw InvalidArgument("mnist \"{}\": usage must be \"train\", \"test\", \"all\" or empty, got \"{}\"", directory,
                          usage);
  }
  return {std::make_shared<Mnist>(files, directory, usage),
          {.num_samples = options.num_samples,
           .shuffle = options.shuffle,
           .num_shards = options.num_shards,
           .shard_id = options.shard_id,
           .seed = options.seed}};
}

Dataset mnist(const std::string& directory, const MnistOptions& options) {
  return mnist(FileSystem::local(), directory, options);
}

}  // namespace tessera::data
