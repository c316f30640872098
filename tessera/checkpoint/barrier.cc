#include "tessera/checkpoint/barrier.h"

#include <exception>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/random_id.h"

namespace tessera::checkpoint {

std::vector<std::string> share_outcome(Barrier& barrier, const char* what_fails, FunctionRef<std::string()> part) {
  constexpr char kFailed = '!';
  std::exception_ptr own;
  std::string outcome;
  try {
    outcome = "=" + part();
  } catch (const std::exception& error) {
    own = std::current_exception();
    outcome = kFailed + std::string(error.what());
  }
  auto outcomes = barrier.exchange(outcome);
  if (own) std::rethrow_exception(own);
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].front() == kFailed) throw IoError("rank {}: {}: {}", rank, what_fails, outcomes[rank].substr(1));
    outcomes[rank].erase(0, 1);
  }
  return outcomes;
}

std::vector<std::string> run_together(Barrier& barrier, const char* what_fails, FunctionRef<std::string()> part) {
  return share_outcome(barrier, what_fails, [&] {
    std::string result;
    barrier.run_long([&] { result = part(); });
    return result;
  });
}

namespace {

// A file that a rank puts into its directory for a moment; gone however the call ends.
class Probe {
 public:
  Probe(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}
  ~Probe() {
    if (!is_there_) return;
    try {
      files_.remove(path_);
    } catch (const Error&) {  // what made the call end is said already
    }
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  void make() {
    const auto file = files_.create(path_);
    is_there_ = true;
    file->close();
  }
  void remove() {
    is_there_ = false;
    files_.remove(path_);
  }

 private:
  FileSystem& files_;
  std::string path_;
  bool is_there_ = false;
};

}  // namespace

int find_writer(FileSystem& files, Barrier& barrier, const std::string& directory) {
  // Drawn for this call: what another job, or one that was killed while looking, has put there is no rank of this one.
  const auto id = barrier.exchange(barrier.rank() == 0 ? random_id() : "").front();
  const auto probe_of = [&](int rank) { return join_path(directory, fmt::format(".tessera-{}-{}", id, rank)); };
  Probe probe(files, probe_of(barrier.rank()));
  int writer = 0;
  const auto step = [&](FunctionRef<void()> work) {
    run_together(barrier, "cannot write there", [&] {
      work();
      return std::string();
    });
  };
  step([&] {
    files.create_directories(directory);
    probe.make();
  });
  step([&] {
    while (writer < barrier.rank() && !files.exists(probe_of(writer))) ++writer;
  });
  step([&] { probe.remove(); });  // all have looked
  return writer;
}

}  // namespace tessera::checkpoint
