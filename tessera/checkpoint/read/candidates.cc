#include "tessera/checkpoint/read/candidates.h"

#include <algorithm>

#include "tessera/base/logging.h"
#include "tessera/checkpoint/read/rank_folders.h"

namespace tessera::checkpoint {

Candidates::Candidates(FileSystem& files, const std::string& path, const std::string& prefix)
    : is_of_directory_(files.is_directory(path)) {
  if (!is_of_directory_) {
    list_.push_back({.entry = {.path = path}});
    return;
  }
  for (const auto& folder : folders_of_checkpoints(files, path)) {
    for (auto& entry : checkpoints_newest_first(files, folder, prefix)) {
      if (!entry.names_step && !entry.has_manifest) continue;
      const size_t place = list_.size();
      list_.push_back({.entry = std::move(entry), .place = place});
    }
  }
  std::stable_partition(list_.begin(), list_.end(), [](const Candidate& one) { return one.entry.has_manifest; });
}

Candidates::Verdict Candidates::verdict_of(const Error& error, bool has_next) {
  const bool lacks_room = dynamic_cast<const NoRoom*>(&error) != nullptr;
  return {.goes_on = has_next && !lacks_room, .is_of_disk = dynamic_cast<const IoError*>(&error) != nullptr};
}

bool Candidates::choose(FunctionRef<void(const DirectoryEntry&)> use,
                        FunctionRef<Verdict(const Error&, bool has_next)> judge) {
  for (; present_ < list_.size(); ++present_) {
    auto& present = list_[present_];
    try {
      use(present.entry);
      return true;
    } catch (const InternalError&) {
      throw;
    } catch (const Error& error) {
      const auto verdict = judge(error, present_ + 1 < list_.size());
      if (!is_of_directory_ || dynamic_cast<const NoRoom*>(&error) != nullptr) throw;
      present.problem = error.what();
      present.is_of_disk = verdict.is_of_disk;
      if (!verdict.goes_on) break;
    }
  }
  present_ = list_.size();
  return false;
}

std::vector<SkippedCheckpoint> Candidates::skipped() const {
  const bool is_chosen = present_ < list_.size();
  std::vector<std::pair<size_t, SkippedCheckpoint>> found;
  for (const auto& one : list_) {
    const auto& path = one.entry.path;
    if (is_chosen && one.place >= list_[present_].place) continue;
    if (!one.problem.empty()) {
      found.push_back({one.place, {path, one.problem, one.is_of_disk}});
    } else if (is_chosen && chosen().has_manifest && !one.entry.has_manifest) {
      found.push_back({one.place, {path, without_manifest(path)}});
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<SkippedCheckpoint> skipped;
  for (auto& [place, one] : found) skipped.push_back(std::move(one));
  return skipped;
}

void Candidates::warn() const {
  for (const auto& one : skipped()) log_warning("{}; {} is taken instead", one.reason, chosen().path);
}

namespace {

// What is said of a checkpoint, but for its path.
std::string reason_of_any(const SkippedCheckpoint& one) {
  std::string text = one.reason;
  for (size_t at = text.find(one.path); at != std::string::npos; at = text.find(one.path, at)) {
    text.erase(at, one.path.size());
  }
  return text;
}

// One line, of a checkpoint that is older than the newest: what differs from a network may be hundreds of names.
std::string in_one_line(const SkippedCheckpoint& one, const SkippedCheckpoint& newest) {
  const size_t end = one.reason.find('\n');
  if (end == std::string::npos) return one.reason;
  const bool is_same = reason_of_any(one) == reason_of_any(newest);
  return one.reason.substr(0, end) + (is_same ? ": the same as above" : ": other differences than above");
}

}  // namespace

void Candidates::give_up() const { refuse_all(skipped()); }

void refuse_all(const std::vector<SkippedCheckpoint>& skipped) {
  constexpr size_t kMaxShown = 10;
  check(!skipped.empty(), "none could be used of those that there are");
  auto text = parent_path(skipped[0].path) + ": ";
  text += skipped.size() == 1 ? "the only checkpoint there cannot be used:"
                              : fmt::format("none of the {} checkpoints there can be used:", skipped.size());
  text += "\n    " + skipped[0].reason;
  for (size_t i = 1; i < std::min(kMaxShown, skipped.size()); ++i) {
    text += "\n    " + in_one_line(skipped[i], skipped[0]);
  }
  if (skipped.size() > kMaxShown) text += fmt::format("\n    and {} more", skipped.size() - kMaxShown);
  if (std::any_of(skipped.begin(), skipped.end(), [](const auto& one) { return one.is_of_disk; })) throw IoError(text);
  throw NoUsableCheckpoint(text);
}

}  // namespace tessera::checkpoint
