// How fast a checkpoint of one process is saved and loaded: GB/s of values, saved ones synced. The limits write and
// read the same bytes by the same blocks, on one thread, and do nothing else.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "benchmarks/measured_directory.h"
#include "benchmarks/protocol.h"
#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/checkpoint/format/element_hash.h"
#include "tessera/checkpoint/format/record_writer.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/checkpoint/write/commit.h"
#include "tessera/checkpoint/write/save.h"

namespace tessera::checkpoint {
namespace {

constexpr size_t kBlockBytes = 1 << 20;  // as RecordWriter's

// The parameters of Transformer layers of width 1024, as many as there is room for; peers/torch_checkpoint.py has the
// same.
std::vector<Entry> make_model(int64_t bytes) {
  const std::array<std::pair<const char*, Shape>, 8> layer = {{{"attention.qkv", {3072, 1024}},
                                                               {"attention.qkv_bias", {3072}},
                                                               {"attention.out", {1024, 1024}},
                                                               {"norm.scale", {1024}},
                                                               {"norm.shift", {1024}},
                                                               {"mlp.in", {4096, 1024}},
                                                               {"mlp.in_bias", {4096}},
                                                               {"mlp.out", {1024, 4096}}}};
  std::vector<Entry> entries;
  uint32_t next = 1;
  for (int64_t i = 0; bytes > 0; ++i) {
    for (const auto& [name, shape] : layer) {
      Tensor tensor(DType::kF32, shape);
      for (float& value : tensor.values<float>()) {
        next = next * 1664525U + 1013904223U;
        value = static_cast<float>(next) * 1e-9F;
      }
      bytes -= tensor.size_bytes();
      entries.emplace_back(fmt::format("layer{}.{}", i, name), std::move(tensor));
    }
  }
  return entries;
}

// Writes the values one after the other, and syncs.
void write_plainly(const std::string& path, const std::vector<Entry>& entries) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  check(fd >= 0, "the file can be made");
  for (const auto& entry : entries) {
    auto left = std::span<const std::byte>(entry.owner.bytes());
    while (!left.empty()) {
      const auto block = left.first(std::min(kBlockBytes, left.size()));
      check(::write(fd, block.data(), block.size()) == std::ssize(block), "a block was written");
      left = left.subspan(block.size());
    }
  }
  check(::fsync(fd) == 0 && ::close(fd) == 0, "the file is on the disk");
}

enum class Sums { kNone, kCrc, kCrcAndHash };

// The values as save() writes them, but with fewer sums: what is left out is what it costs.
void write_with(FileSystem& files, const std::string& path, const std::vector<Entry>& entries, Sums sums) {
  write_durably(files, path, 0644, [&](WritableFile& file) {
    RecordWriter records(file, {.checksums = sums != Sums::kNone});
    for (const auto& entry : entries) {
      const Shape& shape = entry.value.shape;
      RegionHash hash(Region::whole(shape), shape, static_cast<int64_t>(size_bytes(entry.value.dtype)));
      records.add({.name = entry.name,
                   .type_name = ckpt_type_name(entry.value.dtype),
                   .dims = std::span(shape.begin(), shape.end()),
                   .size_bytes = entry.value.size_bytes()},
                  sums == Sums::kCrcAndHash ? &hash : nullptr,
                  [&](CkptWriter::Sink sink) { stream_row_major(entry.value, sink); });
      check((hash.sum() != 0) == (sums == Sums::kCrcAndHash), "the hash is taken where it is measured");
    }
    records.finish();
    check((records.crc32c() != 0) == (sums != Sums::kNone), "the checksum is taken where it is measured");
    return Manifest{};
  });
}

void read_plainly(const std::string& path, std::vector<Tensor>& to) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(fd >= 0, "the file is there");
  for (auto& tensor : to) {
    auto left = tensor.bytes();
    while (!left.empty()) {
      const ssize_t count = ::read(fd, left.data(), std::min(kBlockBytes, left.size()));
      check(count > 0, "the file is as long as it was written");
      left = left.subspan(static_cast<size_t>(count));
    }
  }
  ::close(fd);
}

// As a model does when it goes on with its training.
void load_into(FileSystem& files, const std::string& path, std::vector<Tensor>& to) {
  const auto checkpoint = GlobalCheckpoint::open(files, path);
  std::vector<GlobalCheckpoint::Wanted> wanted;
  for (size_t i = 0; i < to.size(); ++i) {
    wanted.push_back({checkpoint.entries()[i].name, Region::whole(to[i].shape()), to[i].view()});
  }
  const auto report = checkpoint.read(wanted);
  check_equal(report.slices_verified, std::ssize(to), "values that were compared with the manifest");
}

int run(int argc, char** argv) {
  int64_t mebibytes = 1024;
  bool reads = false;
  bool cold = false;
  bool raw = false;
  std::string sums;
  std::string prefix = "build/checkpoint";
  CLI::App app("Speed of saving and loading a checkpoint; see benchmarks/README.md");
  app.add_option("--mib", mebibytes, "size of the checkpoint")->check(CLI::Range(1, 1 << 20));
  app.add_option("--directory", prefix, "for the files, on the disk that is measured");
  app.add_flag("--load", reads, "load, instead of saving");
  app.add_flag("--cold", cold, "load from the disk, not from the page cache");
  app.add_flag("--raw", raw, "the limit: nothing but reading or writing");
  app.add_option("--sums", sums, "save the values alone, and of their sums only these")
      ->check(CLI::IsMember({"none", "crc", "crc+hash"}));
  CLI11_PARSE(app, argc, argv);
  const Sums which = sums == "none" ? Sums::kNone : sums == "crc" ? Sums::kCrc : Sums::kCrcAndHash;

  auto& files = FileSystem::local();
  const benchmarks::MeasuredDirectory directory(prefix);
  const auto path = directory.path() + "/net.ckpt";
  const auto entries = make_model(mebibytes << 20);
  int64_t bytes = 0;
  for (const auto& entry : entries) bytes += entry.owner.size_bytes();

  const auto write = [&] {
    if (raw) {
      write_plainly(path, entries);
    } else if (!sums.empty()) {
      write_with(files, path, entries, which);
    } else {
      save(files, {.path = path}, entries, {});
    }
  };
  std::vector<Tensor> loaded;
  if (reads) {
    for (const auto& entry : entries) loaded.push_back(Tensor::zeros(entry.owner.type()));
    write();
  }
  const auto read = [&] {
    if (raw) {
      read_plainly(path, loaded);
    } else {
      load_into(files, path, loaded);
    }
  };
  const auto check_loaded = [&] {
    for (size_t i = 0; i < loaded.size(); ++i) check(bit_equal(loaded[i], entries[i].owner), "the values came back");
  };
  if (reads) {
    directory.fetch();
    read();
    check_loaded();
  }
  benchmarks::serve_rounds("GB/s", fmt::format("{} tensors, {} MiB", entries.size(), bytes >> 20), [&] {
    if (cold) directory.forget();
    const int64_t begin = Clock::system().monotonic_ns();
    if (reads) {
      read();
    } else {
      write();
    }
    const auto seconds = static_cast<double>(Clock::system().monotonic_ns() - begin) * 1e-9;
    if (!reads) {
      directory.clear();
      ::sync();  // what the disk has to do for that is nobody's next round
    }
    return static_cast<double>(bytes) * 1e-9 / seconds;
  });
  return 0;
}

}  // namespace
}  // namespace tessera::checkpoint

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::checkpoint::run); }
