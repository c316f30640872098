#include "tessera/comm/wire/mpi.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"

namespace tessera::comm {
namespace {

// MPI has no wait that ends at a deadline: we ask again and again, at first awake, then ever less often, since on a
// full machine the peer needs the core.
constexpr int kSpins = 200;
constexpr int kYields = 200;
constexpr std::chrono::microseconds kNap{50};
constexpr int kMaxTag = 32767;          // MPI promises no larger one
constexpr int kBroadcastTag = kMaxTag;  // before there are groups
constexpr int64_t kMaxText = 1024;

std::vector<std::string> plugin_places(const std::string& directory) {
  if (!directory.empty()) return {join_path(directory, kTesseraMpiFile)};
  // The program, or the shared library (a Python module) that this code is linked into.
  Dl_info info{};
  std::string own;
  if (dladdr(reinterpret_cast<const void*>(&plugin_places), &info) != 0 && info.dli_fname != nullptr) {
    own = info.dli_fname;
  }
  char program[4096] = {};
  const ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
  std::vector<std::string> places;
  for (const std::string& file : {own, std::string(program, length > 0 ? static_cast<size_t>(length) : 0)}) {
    if (file.find('/') == std::string::npos) continue;
    const std::string folder = parent_path(file);
    places.push_back(join_path(folder, kTesseraMpiFile));
    places.push_back(join_path(folder, std::string("../lib/") + kTesseraMpiFile));
  }
  return places;
}

// Tests an operation until it is done, failed, or `is_over` says so.
template <typename F>
int32_t poll_operation(const TesseraMpiPlugin& plugin, int64_t operation, bool spin, F&& is_over) {
  for (int64_t round = spin ? 0 : kSpins;; ++round) {
    const int32_t result = plugin.test(operation);
    if (result != 0) return result;
    if (round < kSpins) {
      __builtin_ia32_pause();
      continue;
    }
    if (is_over()) return 0;
    if (round < kSpins + kYields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

class MpiOperation final : public Wire::Operation {
 public:
  MpiOperation(std::shared_ptr<Mpi> mpi, JobState& job, bool spin) : mpi_(std::move(mpi)), job_(job), spin_(spin) {}

  void send(const void* data, int64_t bytes, int peer, int tag) override {
    peer_ = peer;
    number_ = mpi_->plugin().send(data, bytes, peer, tag);
  }
  void receive(void* data, int64_t bytes, int peer, int tag) override {
    peer_ = peer;
    number_ = mpi_->plugin().receive(data, bytes, peer, tag);
  }

  Wire::End wait(int64_t timeout_ms, WatchedWait& watch) override {
    using Clock = std::chrono::steady_clock;
    if (number_ < 0) return Wire::End::kLost;
    const auto start = Clock::now();
    auto deadline = start + std::chrono::milliseconds(timeout_ms);
    Wire::End end = Wire::End::kLate;
    const int32_t result = poll_operation(mpi_->plugin(), number_, spin_, [&] {
      if (job_.failed()) {
        end = Wire::End::kFailed;
        return true;
      }
      if (end == Wire::End::kLate && job_.has_left(peer_)) {
        end = Wire::End::kLeft;
        deadline = std::min(deadline, Clock::now() + std::chrono::milliseconds(kLeftGraceMs));
      }
      watch.look(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count());
      return Clock::now() >= deadline;
    });
    if (result > 0) return Wire::End::kDone;
    return result < 0 ? Wire::End::kLost : end;
  }
  std::string reason() const override { return "MPI reports an error"; }

 private:
  std::shared_ptr<Mpi> mpi_;
  JobState& job_;
  bool spin_;
  int peer_ = -1;
  int64_t number_ = -1;
};

class MpiWire final : public Wire {
 public:
  MpiWire(std::shared_ptr<Mpi> mpi, JobState& job, const WaitOptions& wait)
      : mpi_(std::move(mpi)), job_(job), spin_(wait.spin) {}
  std::string name() const override { return "mpi"; }
  std::unique_ptr<Operation> make_operation() override { return std::make_unique<MpiOperation>(mpi_, job_, spin_); }
  int max_tag() const override { return kMaxTag; }

 private:
  std::shared_ptr<Mpi> mpi_;
  JobState& job_;
  bool spin_;
};

}  // namespace

Mpi::Mpi(const std::string& directory, int rank, int size) : rank_(rank), size_(size) {
  const std::vector<std::string> places = plugin_places(directory);
  std::string reason = "no such file";
  void* library = nullptr;
  for (const std::string& place : places) {
    if (access(place.c_str(), R_OK) != 0) continue;
    // Global: MPI's own components look for its symbols in the program. Never unloaded, as MPI keeps threads.
    library = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library != nullptr) break;
    reason = dlerror();
  }
  if (library == nullptr) {
    throw IoError("cannot load the MPI plugin: {}; sought at {}; build with TESSERA_MPI=ON where an MPI is installed",
                  reason, fmt::join(places, ", "));
  }
  using Entry = const TesseraMpiPlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "tessera_mpi_plugin"));
  plugin_ = entry == nullptr ? nullptr : entry();
  if (plugin_ == nullptr || plugin_->version != kTesseraMpiVersion) {
    throw IoError("the MPI plugin belongs to another version of Tessera");
  }
  char error[256] = {};
  int32_t mpi_rank = 0;
  int32_t mpi_size = 0;
  if (plugin_->start(&mpi_rank, &mpi_size, error, sizeof(error)) != 0) throw IoError("MPI: {}", error);
  if (mpi_rank != rank || mpi_size != size) {
    throw InvalidArgument(
        "MPI takes this for rank {} of {}, the job for rank {} of {}; start the "
        "program by mpirun",
        mpi_rank, mpi_size, rank, size);
  }
}

std::string Mpi::broadcast(const std::string& text, int64_t timeout_ms) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  std::vector<char> buffer(kMaxText, '\0');
  std::vector<int64_t> operations;
  if (rank_ == 0) {
    check(text.size() < buffer.size(), "a text that MPI hands round is short");
    text.copy(buffer.data(), text.size());
    for (int peer = 1; peer < size_; ++peer) {
      operations.push_back(plugin_->send(buffer.data(), kMaxText, peer, kBroadcastTag));
    }
  } else {
    operations.push_back(plugin_->receive(buffer.data(), kMaxText, 0, kBroadcastTag));
  }
  for (const int64_t operation : operations) {
    const bool is_done = operation >= 0 && poll_operation(*plugin_, operation, false, [&] {
                                             return std::chrono::steady_clock::now() >= deadline;
                                           }) > 0;
    if (!is_done) throw IoError("rank {} cannot meet its peers by MPI within {} ms", rank_, timeout_ms);
  }
  return buffer.data();
}

std::shared_ptr<Wire> make_mpi_wire(std::shared_ptr<Mpi> mpi, JobState& job, const WaitOptions& wait) {
  return std::make_shared<MpiWire>(std::move(mpi), job, wait);
}

}  // namespace tessera::comm
