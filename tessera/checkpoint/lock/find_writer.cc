#include "tessera/checkpoint/lock/find_writer.h"

#include <memory>
#include <string_view>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files/random_id.h"
#include "tessera/checkpoint/lock/share_outcome.h"

namespace tessera::checkpoint {
namespace {

constexpr std::string_view kProbePrefix = ".tessera-";
constexpr size_t kIdLength = 32;  // of random_id()

// A file that a rank puts into its directory for a moment; gone however the call ends. It is locked as long as its
// process lives: what nobody has locked was left by one that was killed.
class Probe {
 public:
  Probe(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}
  ~Probe() {
    if (!lock_) return;
    try {
      files_.remove(path_);
    } catch (const Error&) {  // what made the call end is said already
    }
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  void make() {
    // Another job may take it for left over before it is locked, and hold it while it removes it.
    for (int attempt = 0; attempt < kAttempts && !lock_; ++attempt) lock_ = files_.try_lock(path_);
    if (!lock_) throw IoError("{}: another process keeps holding it", path_);
  }
  void remove() {
    files_.remove(path_);
    lock_.reset();
  }

 private:
  static constexpr int kAttempts = 10'000;

  FileSystem& files_;
  std::string path_;
  std::unique_ptr<FileLock> lock_;
};

// ".tessera-ID-RANK"
bool is_probe(std::string_view name) {
  if (!name.starts_with(kProbePrefix)) return false;
  name.remove_prefix(kProbePrefix.size());
  const auto dash = name.find('-');
  const auto consists_of = [](std::string_view text, std::string_view characters) {
    return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
  };
  return dash == kIdLength && consists_of(name.substr(0, dash), "0123456789abcdef") &&
         consists_of(name.substr(dash + 1), "0123456789");
}

// What ranks that were killed while they looked have left in the directory.
void remove_left_probes(FileSystem& files, const std::string& directory, const std::string& own_id) {
  for (const auto& name : files.list(directory)) {
    if (!is_probe(name) || name.find(own_id) != std::string::npos) continue;
    try {
      const auto path = join_path(directory, name);
      if (const auto lock = files.try_lock(path)) files.remove(path);
    } catch (const IoError&) {  // another user's, or another rank was faster
    }
  }
}

}  // namespace

int find_writer(FileSystem& files, Barrier& barrier, const std::string& directory) {
  // Drawn for this call: what another job, or one that was killed while looking, has put there is no rank of this one.
  const auto id = barrier.exchange(barrier.rank() == 0 ? random_id() : "").front();
  const auto probe_of = [&](int rank) { return join_path(directory, fmt::format("{}{}-{}", kProbePrefix, id, rank)); };
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
    remove_left_probes(files, directory, id);
    probe.make();
  });
  step([&] {
    while (writer < barrier.rank() && !files.exists(probe_of(writer))) ++writer;
  });
  step([&] { probe.remove(); });  // all have looked
  return writer;
}

}  // namespace tessera::checkpoint
