#include "tessera/checkpoint/barrier.h"

#include <exception>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera::checkpoint {

void require_success(Barrier& barrier, const std::string& failure) {
  const auto failures = barrier.exchange(failure);
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (!failures[rank].empty()) throw IoError("rank {}: {}", rank, failures[rank]);
  }
}

std::vector<std::string> run_together(Barrier& barrier, const char* what_fails, FunctionRef<std::string()> part) {
  constexpr char kFailed = '!';
  std::exception_ptr own;
  std::string outcome;
  try {
    barrier.run_long([&] { outcome = "=" + part(); });
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

namespace {

// What a run that was killed while looking left behind would be taken for a rank of this one.
void remove_stale(FileSystem& files, const std::string& directory, const std::string& prefix) {
  for (const auto& name : files.list(directory)) {
    if (!name.starts_with(prefix)) continue;
    try {
      files.remove(join_path(directory, name));
    } catch (const IoError&) {  // another rank was faster
      if (files.exists(join_path(directory, name))) throw;
    }
  }
}

}  // namespace

int find_writer(FileSystem& files, Barrier& barrier, const std::string& directory, const std::string& job_id) {
  const auto prefix = fmt::format(".tessera-{:016x}-", hash_name(job_id));
  const auto probe = [&](int rank) { return join_path(directory, fmt::format("{}{}", prefix, rank)); };
  std::string failure;
  try {
    files.create_directories(directory);
    remove_stale(files, directory, prefix);
  } catch (const Error& error) {
    failure = error.what();
  }
  require_success(barrier, failure);
  try {
    files.create(probe(barrier.rank()))->close();
  } catch (const Error& error) {
    failure = error.what();
  }
  require_success(barrier, failure);
  int writer = 0;
  while (writer < barrier.rank() && !files.exists(probe(writer))) ++writer;
  barrier.exchange("");  // all have looked
  files.remove(probe(barrier.rank()));
  return writer;
}

}  // namespace tessera::checkpoint
