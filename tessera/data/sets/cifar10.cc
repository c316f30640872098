#include "tessera/data/sets/cifar10.h"

#include <algorithm>
#include <span>

#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/mapped_guard.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/data/image_kernels.h"

namespace tessera::data {
namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kPlane = kSide * kSide;
constexpr int64_t kRecord = 1 + 3 * kPlane;
constexpr int kNumTrainFiles = 5;
// A file of CIFAR-10 has 10000 records. All labels are looked at, which takes minutes where a file has far more.
constexpr int64_t kMostRecords = 1'000'000;

// The files of `usage` that are there, in order. Throws when none is.
std::vector<std::string> file_names(FileSystem& files, const std::string& directory, const std::string& usage) {
  if (!files.exists(directory) || !files.is_directory(directory)) {
    throw InvalidArgument(
        "cifar10 \"{}\": no such directory; it must hold data_batch_1.bin .. data_batch_5.bin and "
        "test_batch.bin",
        directory);
  }
  std::vector<std::string> names;
  if (usage != "test") {
    for (int i = 1; i <= kNumTrainFiles || files.exists(join_path(directory, fmt::format("data_batch_{}.bin", i)));
         ++i) {
      names.push_back(fmt::format("data_batch_{}.bin", i));
    }
  }
  if (usage != "train") names.emplace_back("test_batch.bin");
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!files.exists(join_path(directory, name))) missing.push_back(name);
  }
  if (missing.size() == names.size()) {
    throw InvalidArgument("cifar10 \"{}\": {} missing; usage \"{}\" needs one of {} at least", directory,
                          fmt::join(missing, ", "), usage, fmt::join(names, ", "));
  }
  if (!missing.empty()) {
    log_warning("cifar10 \"{}\": {} missing: the other files are read", directory, fmt::join(missing, ", "));
    std::erase_if(names, [&](const std::string& name) { return std::ranges::find(missing, name) != missing.end(); });
  }
  return names;
}

class Cifar10 : public Source {
 public:
  Cifar10(FileSystem& files, const std::string& directory, const std::string& usage) : usage_(usage) {
    for (const std::string& name : file_names(files, directory, usage)) add(files, join_path(directory, name));
  }
  const std::vector<Column>& columns() const override { return columns_; }
  int64_t size() const override { return first_.back(); }
  std::string to_string() const override { return "cifar10 " + usage_; }
  uint64_t content_hash() const override {
    std::vector<uint8_t> labels;
    for (size_t file = 0; file < records_.size(); ++file) {
      for (int64_t i = 0; i < first_[file + 1] - first_[file]; ++i) labels.push_back(records_[file][i * kRecord]);
      guards_[file]->require_whole();
    }
    return crc32c(std::as_bytes(std::span(labels)));
  }

  void read(const SampleRef& sample, std::span<const TensorView> outputs) const override {
    const auto file = std::upper_bound(first_.begin(), first_.end(), sample.index) - first_.begin() - 1;
    const auto* record =
        records_[static_cast<size_t>(file)] + (sample.index - first_[static_cast<size_t>(file)]) * kRecord;
    const uint8_t* pixels = record + 1;
    interleave3(pixels, pixels + kPlane, pixels + 2 * kPlane, kPlane, outputs[0].as<uint8_t>());
    *outputs[1].as<uint32_t>() = *record;
    guards_[static_cast<size_t>(file)]->require_whole();
  }

 private:
  static void require_size(int64_t size, const std::string& path) {
    if (size == 0 || size % kRecord != 0) {
      throw InvalidArgument(
          "cifar10 file \"{}\": size must be a positive multiple of {} bytes, got {} bytes = {} "
          "records and {} bytes; it is truncated or of another format",
          path, kRecord, size, size / kRecord, size % kRecord);
    }
    if (size / kRecord > kMostRecords) {
      throw InvalidArgument(
          "cifar10 file \"{}\": must hold at most {} records, its {} bytes would be {}; it is of another "
          "format, or must be cut into several files",
          path, kMostRecords, size, size / kRecord);
    }
  }

  void add(FileSystem& files, const std::string& path) {
    require_size(files.size_bytes(path), path);  // what is far too large may have no room in the address space
    auto file = files.open(path);
    const auto bytes = file->bytes();
    const auto size = static_cast<int64_t>(bytes.size());
    require_size(size, path);
    auto guard = std::make_unique<MappedGuard>(bytes, path);
    const auto* records = reinterpret_cast<const uint8_t*>(bytes.data());
    for (int64_t i = 0; i < size / kRecord; ++i) {
      if (records[i * kRecord] > 9) {
        throw InvalidArgument(
            "cifar10 file \"{}\" ({} bytes): label of record {} must be in [0, 9], got {}; it is "
            "damaged or of another format",
            path, size, i, records[i * kRecord]);
      }
    }
    guard->require_whole();  // zeros in the place of what was cut off are labels, too
    first_.push_back(first_.back() + size / kRecord);
    records_.push_back(records);
    files_.push_back(std::move(file));
    guards_.push_back(std::move(guard));
  }

  std::string usage_;
  std::vector<Column> columns_{{"image", {DType::kU8, {kSide, kSide, 3}}}, {"label", {DType::kU32, {}}}};
  std::vector<std::unique_ptr<ReadableFile>> files_;
  std::vector<std::unique_ptr<MappedGuard>> guards_;  // of each file; asked after each look at its records
  std::vector<const uint8_t*> records_;               // of each file
  std::vector<int64_t> first_{0};                     // sample of each file, and the number of all
};

}  // namespace

Dataset cifar10(FileSystem& files, const std::string& directory, const Cifar10Options& options) {
  const std::string usage = options.usage.empty() ? "all" : options.usage;
  if (usage != "all" && usage != "train" && usage != "test") {
    throw InvalidArgument("cifar10 \"{}\": usage must be \"train\", \"test\", \"all\" or empty, got \"{}\"", directory,
                          usage);
  }
  return {std::make_shared<Cifar10>(files, directory, usage),
          {.num_samples = options.num_samples,
           .shuffle = options.shuffle,
           .num_shards = options.num_shards,
           .shard_id = options.shard_id,
           .seed = options.seed}};
}

Dataset cifar10(const std::string& directory, const Cifar10Options& options) {
  return cifar10(FileSystem::local(), directory, options);
}

}  // namespace tessera::data
