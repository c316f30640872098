// How fast a checkpoint of 8 ranks becomes one of others, from the page cache to the disk: GB/s of values, everything
// synced. The limit is what the shell takes to write the same bytes into one file.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "benchmarks/measured_directory.h"
#include "benchmarks/protocol.h"
#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/checkpoint/convert/diff.h"
#include "tessera/checkpoint/convert/transform.h"
#include "tessera/checkpoint/format/ckpt_writer.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/checkpoint/write/commit.h"

namespace tessera::checkpoint {
namespace {

constexpr int64_t kFrom = 8;

// Square tensors of f32.
struct Tensors {
  int64_t count;
  int64_t side;
  int64_t bytes() const { return count * side * side * 4; }
};

// Every other tensor is split by columns.
ParameterLayout layout_of(const Tensors& tensors, int64_t tensor, int64_t num_ranks) {
  ParameterLayout layout{.name = fmt::format("layer{}.weight", tensor), .device_matrix = {num_ranks}};
  layout.tensor_map = {{0}, {}};
  if (tensor % 2 == 1) std::swap(layout.tensor_map[0], layout.tensor_map[1]);
  layout.tensor_shape = {tensors.side, tensors.side};
  return layout;
}

void write_strategy(FileSystem& files, const std::string& path, const Tensors& tensors, int64_t num_ranks) {
  StrategyFile strategy;
  for (int64_t i = 0; i < tensors.count; ++i) strategy.layouts.push_back(layout_of(tensors, i, num_ranks));
  write_strategy_file(files, path, strategy);
}

// Writes rank by rank, without holding more than a tensor.
void write_source(FileSystem& files, const std::string& directory, const Tensors& tensors) {
  const int64_t side = tensors.side;
  std::vector<uint32_t> values(static_cast<size_t>(side * side / kFrom));
  for (int64_t rank = 0; rank < kFrom; ++rank) {
    commit(files, fmt::format("{}/rank_{}/src{}.ckpt", directory, rank, rank), 0644, [&](WritableFile& file) {
      Manifest manifest{.info = {.world_size = static_cast<int>(kFrom)}};
      CkptWriter writer(file);
      for (int64_t i = 0; i < tensors.count; ++i) {
        for (size_t k = 0; k < values.size(); ++k) {
          values[k] = static_cast<uint32_t>((k * 2654435761U) ^ static_cast<size_t>(rank * 1000 + i));
        }
        const bool by_rows = i % 2 == 0;
        const Type type{DType::kF32, by_rows ? Shape{side / kFrom, side} : Shape{side, side / kFrom}};
        const auto name = layout_of(tensors, i, kFrom).name;
        const auto written =
            writer.add(name, type, [&](CkptWriter::Sink sink) { sink(std::as_bytes(std::span(values))); });
        ManifestTensor tensor{.name = name, .shape = {side, side}};
        tensor.slices.push_back({.offset = by_rows ? Shape{rank * side / kFrom, 0} : Shape{0, rank * side / kFrom},
                                 .shape = type.shape,
                                 .size_bytes = written.size_bytes,
                                 .crc32c = written.crc32c});
        manifest.tensors.push_back(tensor);
      }
      writer.finish();
      manifest.files.push_back(
          {.name = fmt::format("src{}.ckpt", rank), .size_bytes = writer.size_bytes(), .crc32c = writer.crc32c()});
      return manifest;
    });
  }
}

// What this process has asked the system to read so far.
int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  int64_t value = 0;
  file >> name >> value;
  check(name == "rchar:", "/proc/self/io begins with rchar");
  return value;
}

int run(int argc, char** argv) {
  int64_t to = 3;
  int64_t mebibytes = 1024;
  int64_t side = 2048;
  bool cat = false;
  bool no_verify = false;
  TransformOptions options;
  std::string prefix = "build/reshard";
  CLI::App app("Speed of converting a checkpoint; see benchmarks/README.md");
  app.add_option("--to", to, "ranks of the destination")->check(CLI::Range(1, 1024));
  app.add_option("--mib", mebibytes, "size of the checkpoint")->check(CLI::Range(16, 1 << 20));
  app.add_option("--side", side, "of the tensors, in elements: smaller ones are more, which is what memory grows with")
      ->check(CLI::Range(8, 1 << 14));
  app.add_option("--threads", options.num_threads, "that copy values; 0: four")->check(CLI::Range(0, 256));
  app.add_option("--directory", prefix, "for the files, on the disk that is measured");
  app.add_flag("--no_verify", no_verify, "without comparing the source with its checksums");
  app.add_flag("--cat", cat, "the limit: the shell's cat and sync");
  CLI11_PARSE(app, argc, argv);
  options.verify = !no_verify;

  auto& files = FileSystem::local();
  side -= side % kFrom;
  const Tensors tensors{.count = (mebibytes << 20) / (side * side * 4), .side = side};
  const benchmarks::MeasuredDirectory measured(prefix);
  const std::string& directory = measured.path();
  const auto source = directory + "/src";
  const auto target = directory + "/dst";
  write_source(files, source, tensors);
  write_strategy(files, directory + "/from.json", tensors, kFrom);
  write_strategy(files, directory + "/to.json", tensors, to);

  const auto convert = [&] {
    transform_checkpoints(files, source, target, "dst", directory + "/from.json", directory + "/to.json", options);
  };
  double read_ratio = 0;
  const auto concatenate = [&] {
    const auto command = fmt::format("cat {0}/rank_*/*.ckpt > {1} && sync", source, target);
    check(std::system(command.c_str()) == 0, "cat failed");
  };
  if (!cat) {
    const int64_t before = bytes_read();
    convert();
    read_ratio = static_cast<double>(bytes_read() - before) / static_cast<double>(tensors.bytes());
    check(diff_checkpoints(files, source, target).differences.empty(), "the conversion changed values");
  }
  const auto about =
      cat ? "one file" : fmt::format("{} files, manifests, fsync; reads {:.3f} of what it writes", to, read_ratio);
  const auto remove_target = [&] {
    files.remove_directory_tree(target);
    ::sync();  // what the disk has to do for that is nobody's next round
  };
  remove_target();
  benchmarks::serve_rounds("GB/s", about, [&] {
    const int64_t begin = Clock::system().monotonic_ns();
    if (cat) {
      concatenate();
    } else {
      convert();
    }
    const auto seconds = static_cast<double>(Clock::system().monotonic_ns() - begin) * 1e-9;
    remove_target();
    return static_cast<double>(tensors.bytes()) * 1e-9 / seconds;
  });
  return 0;
}

}  // namespace
}  // namespace tessera::checkpoint

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::checkpoint::run); }
