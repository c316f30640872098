// What a disk gives at best: GB/s of reading a file that is not in the page cache, by so many reads at a time of so
// many bytes, by way of the cache or past it. Each read goes to memory that is used again and again; nobody looks at
// it.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/measured_directory.h"
#include "benchmarks/protocol.h"
#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/thread.h"

namespace tessera::benchmarks {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kHugePage = 2 * kMiB;

struct Reads {
  int in_flight = 4;
  int64_t block_kib = 4096;
  bool direct = false;  // past the page cache

  int64_t block_bytes() const { return block_kib << 10; }
};

using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;
Memory aligned_memory(int64_t bytes) {
  const int64_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(kHugePage, static_cast<size_t>(rounded))), std::free);
  check(memory != nullptr, "there is memory for the blocks");
  std::fill_n(memory.get(), rounded, std::byte{1});
  return memory;
}

void write_file(const std::string& path, int64_t bytes) {
  const auto file = FileSystem::local().create(path);
  std::mt19937_64 random(1);
  std::vector<uint64_t> block(static_cast<size_t>(kMiB) / sizeof(uint64_t));
  for (int64_t written = 0; written < bytes; written += kMiB) {
    for (auto& word : block) word = random();
    file->append(std::as_bytes(std::span(block)));
  }
  file->sync();
  file->close();
}

double gigabytes_per_second(const MeasuredDirectory& directory, const std::string& path, int64_t bytes,
                            const Reads& reads) {
  directory.forget();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (reads.direct ? O_DIRECT : 0));
  check(fd >= 0, "the file can be opened that way");
  std::vector<Memory> blocks;
  for (int i = 0; i < reads.in_flight; ++i) blocks.push_back(aligned_memory(reads.block_bytes()));
  std::atomic<int64_t> next = 0;
  std::atomic<bool> is_whole = true;
  const auto work = [&](std::byte* block) {
    for (int64_t at = next.fetch_add(reads.block_bytes()); at < bytes; at = next.fetch_add(reads.block_bytes())) {
      const int64_t size = std::min(reads.block_bytes(), bytes - at);
      if (::pread(fd, block, static_cast<size_t>(size), at) != size) is_whole = false;
    }
  };
  const int64_t begin = Clock::system().monotonic_ns();
  ThreadGroup threads;
  for (const auto& block : blocks) {
    threads.start("reading the disk", [&work, memory = block.get()] { work(memory); });
  }
  threads.join();
  const auto seconds = static_cast<double>(Clock::system().monotonic_ns() - begin) * 1e-9;
  ::close(fd);
  check(is_whole, "all blocks were read");
  return static_cast<double>(bytes) * 1e-9 / seconds;
}

// Of ways that this disk may like, the one that was fastest twice in turn.
Reads best_reads(const MeasuredDirectory& directory, const std::string& path, int64_t bytes) {
  Reads best;
  double best_speed = 0;
  for (const int64_t block_kib : {1024, 4096}) {
    for (const int in_flight : {1, 2, 4, 8, 16, 32}) {
      const Reads reads{in_flight, block_kib, /*direct=*/true};
      const double once = gigabytes_per_second(directory, path, bytes, reads);
      const double speed = std::min(once, gigabytes_per_second(directory, path, bytes, reads));
      if (speed > best_speed) {
        best_speed = speed;
        best = reads;
      }
    }
  }
  return best;
}

void print_table(const MeasuredDirectory& directory, const std::string& path, int64_t bytes, int num_rounds) {
  constexpr int kInFlight[] = {1, 2, 4, 8, 16};
  constexpr int64_t kBlockKib[] = {256, 512, 1024, 2048, 4096};
  std::vector<Reads> ways;
  for (const bool direct : {true, false}) {
    for (const int64_t block_kib : kBlockKib) {
      for (const int in_flight : kInFlight) ways.push_back({in_flight, block_kib, direct});
    }
  }
  std::vector<std::vector<double>> values(ways.size());
  for (int round = 0; round < num_rounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) values[i].push_back(gigabytes_per_second(directory, path, bytes, ways[i]));
  }
  fmt::print("| GB/s | 1 in flight | 2 | 4 | 8 | 16 |\n|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < ways.size(); ++i) {
    if (ways[i].in_flight == kInFlight[0]) {
      fmt::print("| {}, {} KiB |", ways[i].direct ? "past the page cache" : "by way of it", ways[i].block_kib);
    }
    auto& rounds = values[i];
    std::nth_element(rounds.begin(), rounds.begin() + std::ssize(rounds) / 2, rounds.end());
    fmt::print(" {:.2f} |{}", rounds[rounds.size() / 2], ways[i].in_flight == kInFlight[4] ? "\n" : "");
  }
}

int run(int argc, char** argv) {
  int64_t mebibytes = 1024;
  Reads reads;
  bool finds_best = false;
  int table_rounds = 0;
  std::string prefix = "build/disk";
  CLI::App app("What a disk gives at best; see benchmarks/README.md");
  app.add_option("--mib", mebibytes, "size of the file")->check(CLI::Range(1, 1 << 20));
  app.add_option("--directory", prefix, "for the file, on the disk that is measured");
  app.add_option("--in_flight", reads.in_flight, "reads at a time")->check(CLI::Range(1, 256));
  app.add_option("--block_kib", reads.block_kib, "of a read")->check(CLI::Range(4, 1 << 20));
  app.add_flag("--direct", reads.direct, "past the page cache");
  app.add_flag("--best", finds_best, "past the page cache, with the number and size of reads that are fastest here");
  app.add_option("--table", table_rounds, "print the medians of so many rounds for 1 to 16 reads of 256 KiB to 4 MiB")
      ->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);

  const MeasuredDirectory directory(prefix);
  const auto path = directory.path() + "/bytes";
  write_file(path, mebibytes * kMiB);
  if (table_rounds > 0) {
    print_table(directory, path, mebibytes * kMiB, table_rounds);
    return 0;
  }
  if (finds_best) reads = best_reads(directory, path, mebibytes * kMiB);
  const auto about = fmt::format("{} in flight of {} KiB{}", reads.in_flight, reads.block_kib,
                                 reads.direct ? ", past the page cache" : "");
  serve_rounds("GB/s", about, [&] { return gigabytes_per_second(directory, path, mebibytes * kMiB, reads); });
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
