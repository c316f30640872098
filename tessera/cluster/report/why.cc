#include "tessera/cluster/report/why.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/json/bounded_json.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/ranks/rank_words.h"

namespace tessera::cluster {
namespace {

// The most bytes of a text of others in a line, and of a row's last column.
constexpr size_t kMaxInLine = 400;
constexpr size_t kMaxInRow = 110;
// A wait or a standstill of so long is no everyday one, as the ranks' warnings have it.
constexpr int64_t kLongMs = 5000;
// The most groups of waiting ranks that a sentence names.
constexpr size_t kMaxWaitsTold = 3;

// Text of others as part of a line.
std::string in_line(std::string_view text, size_t most = kMaxInLine) {
  std::string shown = printable(text.substr(0, 4 * most));
  std::ranges::replace_if(
      shown, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  if (shown.size() <= most) return shown;
  while ((static_cast<unsigned char>(shown[most]) & 0xC0U) == 0x80U) --most;
  return shown.substr(0, most) + " ...";
}

std::string first_line(std::string_view text) { return in_line(text.substr(0, text.find('\n'))); }

// `all_reduce "fc"` of `all_reduce "fc" #12 of group "world"`.
std::string without_number(std::string_view call) {
  const size_t group = call.rfind(" of group \"");
  const size_t number = call.substr(0, group).rfind(" #");
  return in_line(number == std::string_view::npos ? call : call.substr(0, number));
}

std::string made_by(const std::string& line) { return line.empty() ? "" : ", made by " + in_line(line); }

std::string in_step(int64_t step) { return step > 0 ? fmt::format(" in step {}", step) : ""; }

// What a rank was at.
std::string at(const RankReport& report) {
  const std::string script = report.script.empty() ? "" : ", at " + in_line(report.script);
  return (report.doing.empty() ? "" : ", in " + in_line(report.doing) + made_by(report.line)) + script;
}

bool is_fault(const std::string& signal) {
  static const std::set<std::string> kFaults = {"SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL", "SIGBUS"};
  return kFaults.contains(signal);
}

// A rank's error says that it has waited for another one in vain (comm/transport.cc).
bool is_of_wait(const std::string& error) {
  return error.find(" heard nothing from rank ") != std::string::npos ||
         error.find(" waits for rank ") != std::string::npos;
}

// A rank's error without the name of its class, as Python puts it before.
std::string_view words_of(std::string_view error) {
  const size_t end = error.find(": ");
  const auto is_of_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; };
  const bool has_name = end != std::string_view::npos && end > 0 &&
                        std::isupper(static_cast<unsigned char>(error[0])) != 0 &&
                        std::ranges::all_of(error.substr(0, end), is_of_name);
  return has_name ? error.substr(end + 2) : error;
}

// The number behind `before`, where `after` follows it; -1 where there is none.
int number_between(std::string_view text, std::string_view before, std::string_view after) {
  const size_t found = text.find(before);
  if (found == std::string_view::npos) return -1;
  text.remove_prefix(found + before.size());
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_one = error == std::errc() && number >= 0 && number < kMaxReportedRanks;
  return is_one && text.substr(static_cast<size_t>(end - text.data())).starts_with(after) ? number : -1;
}

// The rank with whose failure this one's error began, as a call says that another failure has ended
// (comm/transport.cc); -1 where the error is its own.
int stopped_by(std::string_view error) {
  const size_t begin = error.find("stopped in ");
  return begin == std::string_view::npos ? -1 : number_between(error.substr(begin), " because rank ", " failed");
}

// Two ranks that wait for each other in calls that are not the same one, as the first to see that says
// (comm/transport.cc), or another one that repeats it.
struct CrossedCalls {
  int rank = -1;
  std::string call;
  int other = -1;
  std::string others_call;
};

// Nothing where the error tells of none.
std::optional<CrossedCalls> crossed_in(std::string_view error) {
  constexpr std::string_view kFailed = " failed: ";
  const size_t end = error.find(": neither goes on");
  const std::string_view told = error.substr(0, end);
  const size_t behind = told.find(", which waits for rank ");
  const size_t begin = told.substr(0, behind).rfind(": rank ");
  if (end == std::string_view::npos || behind == std::string_view::npos || begin == std::string_view::npos) {
    return std::nullopt;
  }
  const size_t in = told.find(" in ", behind);
  if (in == std::string_view::npos) return std::nullopt;
  std::string_view call = told.substr(0, begin);
  const size_t failed = stopped_by(error) < 0 ? std::string_view::npos : call.rfind(kFailed);
  if (failed != std::string_view::npos) call.remove_prefix(failed + kFailed.size());
  CrossedCalls crossed{.rank = number_between(told.substr(begin), ": rank ", " waits for rank "),
                       .call = std::string(words_of(call)),
                       .other = number_between(told.substr(begin), " waits for rank ", ", which waits"),
                       .others_call = std::string(told.substr(in + 4))};
  if (crossed.rank < 0 || crossed.other < 0) return std::nullopt;
  return crossed;
}

// The call in which another rank's failure has stopped this one; "" where it was in none.
std::string stopped_call(std::string_view error) {
  constexpr std::string_view kStopped = "stopped in ";
  const size_t begin = error.find(kStopped);
  if (begin == std::string_view::npos) return "";
  error.remove_prefix(begin + kStopped.size());
  const size_t end = error.find(" because rank ");
  return end == std::string_view::npos ? "" : std::string(error.substr(0, end));
}

// The rank that cannot do its part of what ranks do together, as the others say (checkpoint/lock/share_outcome.cc).
int cannot_by(std::string_view error) {
  const std::string_view words = words_of(error);
  return words.starts_with("rank ") ? number_between(words, "rank ", ": cannot ") : -1;
}

// What the system says of a full disk, and how that is said here.
struct FullDisk {
  std::string_view words;
  const char* said;
};
constexpr FullDisk kFullDisks[] = {{"No space left on device", "is full"},
                                   {"Disk quota exceeded", "has no room left for this user"}};

// The folder that a path in an error is in, before what went wrong, as `/data/a.ckpt: cannot write: ...`, or behind it,
// as Python says it; "" where there is none.
std::string folder_in(std::string_view before, std::string_view behind) {
  if (behind.starts_with(": '")) {
    behind = behind.substr(3, behind.find('\'', 3) - 3);
    const size_t slash = behind.rfind('/');
    return slash == std::string_view::npos ? "" : std::string(behind.substr(0, std::max<size_t>(slash, 1)));
  }
  while (!before.empty()) {
    const size_t begin = before.rfind(": ");
    std::string_view part = begin == std::string_view::npos ? before : before.substr(begin + 2);
    while (part.starts_with('"')) part.remove_prefix(1);
    const size_t slash = part.rfind('/');
    if (slash != std::string_view::npos) return std::string(part.substr(0, std::max<size_t>(slash, 1)));
    before = begin == std::string_view::npos ? "" : before.substr(0, begin);
  }
  return "";
}

// What to do about a full disk; "" where the words tell of none.
std::string way_out(std::string_view words) {
  for (const FullDisk& full : kFullDisks) {
    const size_t found = words.find(full.words);
    if (found == std::string_view::npos) continue;
    const std::string folder = in_line(folder_in(words.substr(0, found), words.substr(found + full.words.size())));
    return fmt::format(
        "; the disk {}{}: remove there what is not needed, as old checkpoints and logs, or write elsewhere",
        folder.empty() ? "" : "of " + folder + " ", full.said);
  }
  return "";
}

bool contains(const std::vector<int>& ranks, int rank) { return std::ranges::find(ranks, rank) != ranks.end(); }

class Reasons {
 public:
  explicit Reasons(const JobReport& job) : job_(job), size_(job.size()) {
    // A signal that comes while those save that a loss has left has not ended the job.
    for (const LauncherReport& launcher : job_.launchers) {
      if (!launcher.signal.empty() && !job_.has_last_generation()) signal_ = launcher.signal;
    }
  }

  Verdict find() const {
    const std::string end = job_.has_last_generation() ? "the job has ended: " + end_by_loss() : "";
    const std::optional<int> first = origin();
    if (!first) return end.empty() ? of_living() : Verdict{"failed", {}, end};
    Verdict verdict = of_failure(*first);
    if (job_.went_on()) verdict.text += "; the job went on" + (end.empty() ? end_of_job() : "");
    if (!end.empty()) verdict.text += "; " + end;
    return verdict;
  }

 private:
  Verdict of_failure(int first) const {
    if (auto found = non_finite(first)) return *found;
    if (auto found = different_calls(first)) return *found;
    if (auto found = crossed_calls(first)) return *found;
    const RankEnding* ending = own_ending(first);
    const RankReport* own = report(first);
    const bool is_killed = ending != nullptr && !ending->signal.empty();
    if (is_killed || (own != nullptr && own->event == ReportEvent::kCrashed)) return killed(first);
    if (own != nullptr && own->cause == first && is_of_wait(own->error)) {
      if (const ReportedWait* wait = wait_of(*own)) return stood_still(first, wait->waits_for, /*is_over=*/true);
    }
    return failed(first_with_error(first));
  }

  // ", and failed then: rank 1 (node1, pid 4713): exit code 1", of a job that has gone on and of whose end no rank
  // tells.
  std::string end_of_job() const {
    const RankEnding* last = nullptr;
    std::string host;
    for (const LauncherReport& launcher : job_.launchers) {
      for (const RankEnding& ending : launcher.endings) {
        if (ending.rank != launcher.first_failed || ending.went_on || ending.is_last || !ending.has_failed()) continue;
        last = &ending;
        host = launcher.host;
      }
    }
    if (last == nullptr) return "";
    return fmt::format(", and failed then: rank {} ({}, pid {}): {}", last->rank, in_line(host, 100), last->pid,
                       in_line(last->words));
  }

  // What the last generation says of the loss that has ended the job, and of what it has saved. Where none of its ranks
  // says so, how the first of them has ended that has failed.
  std::string end_by_loss() const {
    constexpr size_t kMostBytes = 1000;  // where it goes on from, too
    for (const auto& [rank, own] : job_.last_ranks) {
      if (own.event == ReportEvent::kLeft) return in_line(words_of(own.error), kMostBytes);
    }
    std::string how;
    const RankReport* first = nullptr;
    for (const auto& [rank, own] : job_.last_ranks) {
      const bool has_failed = own.event == ReportEvent::kFailed || own.event == ReportEvent::kCrashed;
      if (has_failed && (first == nullptr || own.time_ms < first->time_ms)) first = &own;
    }
    if (first != nullptr) {
      how = fmt::format(": rank {} of them ({}, pid {}) {}", first->rank, in_line(first->host, 100), first->pid,
                        first->event == ReportEvent::kCrashed ? "crashed by " + in_line(first->signal)
                                                              : "failed: " + first_line(first->error));
    }
    for (const LauncherReport& launcher : job_.launchers) {
      for (const RankEnding& ending : launcher.endings) {
        if (!how.empty() || !ending.is_last || ending.is_told || !ending.has_failed()) continue;
        how = fmt::format(": rank {} of them ({}, pid {}): {}", ending.rank, in_line(launcher.host, 100), ending.pid,
                          in_line(ending.words));
      }
    }
    return "the ranks that were left have not said that what they had kept is saved" + how;
  }

  const RankReport* report(int rank) const {
    const auto found = job_.ranks.find(rank);
    return found == job_.ranks.end() ? nullptr : &found->second;
  }
  // How the rank's process has ended by itself; null where its launcher has ended it.
  const RankEnding* own_ending(int rank) const {
    const RankEnding* ending = job_.ending_of(rank);
    return ending == nullptr || ending->is_told ? nullptr : ending;
  }

  std::string name(int rank) const {
    std::vector<std::string> of;
    const RankReport* own = report(rank);
    const LauncherReport* launcher = job_.launcher_of(rank);
    const std::string host = own != nullptr ? own->host : launcher != nullptr ? launcher->host : "";
    if (!host.empty()) of.push_back(in_line(host, 100));
    const RankEnding* ending = job_.ending_of(rank);
    const int64_t pid = own != nullptr ? own->pid : ending != nullptr ? ending->pid : 0;
    if (pid > 0) of.push_back(fmt::format("pid {}", pid));
    return of.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, fmt::join(of, ", "));
  }
  std::string name(const std::vector<int>& ranks) const {
    return ranks.size() == 1 ? name(ranks[0]) : name_ranks(ranks, size_);
  }

  // When the rank failed, as far as that is known.
  int64_t failed_ms(int rank) const {
    const RankReport* own = report(rank);
    const bool has_failed =
        own != nullptr && (own->event == ReportEvent::kFailed || own->event == ReportEvent::kCrashed);
    if (has_failed) return own->time_ms;
    const RankEnding* ending = own_ending(rank);
    return ending != nullptr && ending->has_failed() ? ending->time_ms : std::numeric_limits<int64_t>::max();
  }

  // The rank that failed first, as most have heard; nothing where none has failed.
  std::optional<int> origin() const {
    if (!signal_.empty()) return std::nullopt;
    std::map<int, int> votes;
    for (const auto& [rank, own] : job_.ranks) {
      if (own.cause >= 0) ++votes[own.cause];
    }
    for (const LauncherReport& launcher : job_.launchers) {
      if (launcher.first_failed >= 0) ++votes[launcher.first_failed];
      for (const RankEnding& ending : launcher.endings) {
        if (own_ending(ending.rank) == &ending && ending.has_failed()) votes.try_emplace(ending.rank, 0);
      }
    }
    std::optional<int> first;
    for (const auto& [rank, count] : votes) {
      const bool is_before =
          !first || count > votes[*first] || (count == votes[*first] && failed_ms(rank) < failed_ms(*first));
      if (is_before) first = rank;
    }
    return first;
  }

  // The wait of a rank that has not gone on since.
  const ReportedWait* wait_of(const RankReport& own) const {
    const bool waits_for_nobody =
        own.event == ReportEvent::kGoesOn || own.event == ReportEvent::kStandsStill || own.event == ReportEvent::kEnded;
    if (waits_for_nobody) return nullptr;
    for (const ReportedWait& wait : own.waits) {
      if (wait.waits_for >= 0 && !wait.is_mismatch) return &wait;
    }
    return nullptr;
  }

  // The wait of a rank for one of these; null where there is none.
  static const ReportedWait* find_wait(const RankReport& own, const std::vector<int>& ranks) {
    if (own.event == ReportEvent::kGoesOn || own.event == ReportEvent::kEnded) return nullptr;
    for (const ReportedWait& wait : own.waits) {
      const auto meets = [&](int one) { return contains(wait.ranks, one); };
      const bool is_for_them = contains(ranks, wait.waits_for) || std::ranges::any_of(ranks, meets);
      if (!wait.is_mismatch && is_for_them) return &wait;
    }
    return nullptr;
  }

  // "; ranks 0, 1, 3 waited for it in all_reduce "fc", made by model.py:41".
  std::string waiting_for(const std::vector<int>& ranks, bool is_over) const {
    std::vector<std::pair<std::string, std::vector<int>>> groups;
    for (const auto& [rank, own] : job_.ranks) {
      const ReportedWait* wait = contains(ranks, rank) ? nullptr : find_wait(own, ranks);
      if (wait == nullptr) continue;
      const std::string where = without_number(wait->call) + made_by(wait->line);
      auto group = std::ranges::find(groups, where, &std::pair<std::string, std::vector<int>>::first);
      if (group == groups.end()) group = groups.insert(group, {where, {}});
      group->second.push_back(rank);
    }
    std::string text;
    for (size_t i = 0; i < std::min(groups.size(), kMaxWaitsTold); ++i) {
      const auto& [where, who] = groups[i];
      const char* verb = is_over ? "waited" : who.size() == 1 ? "waits" : "wait";
      text +=
          fmt::format("; {} {} for {} in {}", name_ranks(who, size_), verb, ranks.size() == 1 ? "it" : "them", where);
    }
    if (groups.size() > kMaxWaitsTold) text += fmt::format("; others {} elsewhere", is_over ? "waited" : "wait");
    return text;
  }

  // In which step the rank was; where it has not said so, the first one in which somebody waits for it.
  int64_t step_of(int rank) const {
    const RankReport* own = report(rank);
    if (own != nullptr && own->event != ReportEvent::kGoesOn) return own->step;
    int64_t step = 0;
    for (const auto& [other, theirs] : job_.ranks) {
      const auto meets = [&](const ReportedWait& wait) { return contains(wait.ranks, rank); };
      const bool waits_now = other != rank && theirs.event != ReportEvent::kGoesOn && theirs.step > 0;
      if (!waits_now || std::ranges::none_of(theirs.waits, meets)) continue;
      step = step == 0 ? theirs.step : std::min(step, theirs.step);
    }
    return step;
  }

  // The ranks of its process: more than one where they are threads.
  std::vector<int> ranks_of_process(int rank) const {
    const RankEnding* ending = job_.ending_of(rank);
    const LauncherReport* launcher = job_.launcher_of(rank);
    std::vector<int> ranks = {rank};
    if (ending == nullptr || ending->pid == 0) return ranks;
    for (const RankEnding& other : launcher->endings) {
      if (other.pid == ending->pid && !contains(ranks, other.rank)) ranks.push_back(other.rank);
    }
    std::ranges::sort(ranks);
    return ranks;
  }

  // By SIGSTOP, as its launcher has seen, or a watch of its process.
  bool is_stopped(int rank) const {
    const RankEnding* ending = job_.ending_of(rank);
    const RankReport* own = report(rank);
    return (ending != nullptr && ending->doing.find("stopped") != std::string::npos) ||
           (own != nullptr && own->thread.find("stopped") != std::string::npos);
  }

  Verdict killed(int rank) const {
    const RankReport* own = report(rank);
    const RankEnding* ending = own_ending(rank);
    const bool has_crashed = own != nullptr && own->event == ReportEvent::kCrashed;
    const std::vector<int> ranks = has_crashed ? std::vector{rank} : ranks_of_process(rank);
    const std::string signal = in_line(ending != nullptr ? ending->signal : own->signal);
    const bool is_own_fault = has_crashed || is_fault(signal);
    const char* verb = is_own_fault ? "crashed by" : ranks.size() == 1 ? "was killed by" : "were killed by";
    std::string text = fmt::format("{} {} {}{}", name(ranks), verb, signal, in_step(step_of(rank)));
    if (has_crashed) text += at(*own);
    const size_t guess = ending == nullptr ? std::string::npos : ending->words.find(", likely ");
    if (guess != std::string::npos) text += in_line(std::string_view(ending->words).substr(guess));
    return {is_own_fault ? "crashed" : "killed", ranks, text + waiting_for(ranks, /*is_over=*/true)};
  }

  // What the rank says that it failed of itself; "" where it says nothing, or that another one's failure has stopped
  // it.
  std::string_view own_words(const RankReport* own) const {
    const bool has_failed =
        own != nullptr && (own->event == ReportEvent::kFailed || own->event == ReportEvent::kStopped);
    return has_failed && stopped_by(own->error) < 0 ? std::string_view(own->error) : "";
  }

  // Of errors that repeat each other's words the shortest is the first one's, as of a save that one rank cannot do.
  int first_with_error(int rank) const {
    const std::string_view own = words_of(own_words(report(rank)));
    if (own.empty()) return rank;
    for (const auto& [other, theirs] : job_.ranks) {
      const std::string_view words = words_of(own_words(&theirs));
      const bool is_part = !words.empty() && words.size() < own.size() && own.find(words) != std::string::npos;
      if (other != rank && is_part) return other;
    }
    const int blamed = cannot_by(own);
    return blamed >= 0 && blamed < size_ ? blamed : rank;
  }

  // What others say of what a rank cannot do that says nothing itself.
  const RankReport* teller_of(int rank) const {
    for (const auto& [other, theirs] : job_.ranks) {
      if (cannot_by(own_words(&theirs)) == rank) return &theirs;
    }
    return nullptr;
  }

  // The last line that the rank's process has written; "" where its launcher knows of none.
  static std::string last_line(const RankEnding& ending) {
    return ending.last_lines.empty() ? "" : std::string(trim(ending.last_lines.back()));
  }

  // Whether the rank has ended with exit code 0, as it says itself, or as its launcher has seen where it says nothing.
  bool has_ended(int rank) const {
    if (const RankReport* own = report(rank)) return own->event == ReportEvent::kEnded;
    const RankEnding* ending = own_ending(rank);
    return ending != nullptr && !ending->has_failed();
  }

  // The ranks that wait, or have waited, for one of these.
  std::vector<int> waiting_ranks(const std::vector<int>& ranks) const {
    std::vector<int> waiting;
    for (const auto& [rank, own] : job_.ranks) {
      if (!contains(ranks, rank) && find_wait(own, ranks) != nullptr) waiting.push_back(rank);
    }
    return waiting;
  }

  // A rank has ended with exit code 0, and others waited for it.
  Verdict ended(int rank) const {
    const RankReport* own = report(rank);
    const bool says_so = own != nullptr && own->event == ReportEvent::kEnded;
    std::vector<int> ranks;
    for (int other = 0; other < size_; ++other) {
      const RankReport* theirs = report(other);
      const bool is_alike = says_so ? theirs != nullptr && theirs->step == own->step : theirs == nullptr;
      if (other == rank || (is_alike && has_ended(other))) ranks.push_back(other);
    }
    if (!says_so || own->step > 0) {
      // In the midst of a training, or without having left the job.
      const std::string where = says_so ? in_step(own->step) + at(*own) : in_step(step_of(rank));
      const char* how = says_so ? "" : ", without a word to the others";
      return {"ended", ranks,
              fmt::format("{} ended with exit code 0{}{}{}", name(ranks), where, how, waiting_for(ranks, true))};
    }
    std::vector<int> waiting = waiting_ranks(ranks);
    int64_t step = 0;
    for (const int other : waiting) step = std::max(step, report(other)->step);
    const std::string when = step > 0 ? fmt::format(" when others were in step {}", step) : "";
    const std::string text = fmt::format(
        "the ranks did not make the same calls: {} had ended with exit code 0{}{}; every rank must make the same "
        "calls, "
        "of train, eval, predict or save, in the same order",
        name(ranks), when, waiting_for(ranks, /*is_over=*/true));
    // Those who are fewer are likely the ones; of as many, all.
    if (waiting.size() == ranks.size()) {
      ranks.insert(ranks.end(), waiting.begin(), waiting.end());
      std::ranges::sort(ranks);
    } else if (!waiting.empty() && waiting.size() < ranks.size()) {
      ranks = waiting;
    }
    return {"different calls", ranks, text};
  }

  Verdict failed(int rank) const {
    const RankReport* own = report(rank);
    if (own != nullptr && own->event == ReportEvent::kEnded) return ended(rank);
    const RankEnding* ending = own_ending(rank);
    std::string text = name(rank);
    std::vector<int> ranks = {rank};
    const RankReport* teller = own_words(own).empty() ? teller_of(rank) : nullptr;
    std::string out;
    if (const std::string_view words = own_words(own); !words.empty()) {
      for (const auto& [other, theirs] : job_.ranks) {
        if (other != rank && own_words(&theirs) == words) ranks.push_back(other);
      }
      std::ranges::sort(ranks);
      text = fmt::format("{} failed{}{}: {}", name(ranks), in_step(own->step), at(*own), first_line(words));
      out = way_out(words);
    } else if (teller != nullptr) {
      const std::string_view said = words_of(own_words(teller));
      text += fmt::format(" failed{}: {}", in_step(teller->step), first_line(said.substr(said.find(": ") + 2)));
      out = way_out(said);
    } else if (own != nullptr && own->event == ReportEvent::kToldToEnd) {
      text += fmt::format(" was told to end, by {}{}", in_line(own->signal), in_step(own->step));
    } else if (ending != nullptr && ending->has_failed()) {
      const std::string last = last_line(*ending);
      const int origin = stopped_by(last);
      const RankEnding* first = origin >= 0 && origin != rank && own == nullptr ? own_ending(origin) : nullptr;
      // It has never joined, and says who has not come either.
      if (first != nullptr && !first->has_failed() && first->time_ms <= ending->time_ms) return ended(origin);
      text += fmt::format(" ended with {}{}", in_line(ending->words), in_step(step_of(rank)));
      if (!last.empty()) text += "; its last line: " + in_line(last);
      out = way_out(last);
    } else if (ending != nullptr) {
      return ended(rank);
    } else if (is_stopped(rank)) {
      text += fmt::format(" was stopped (SIGSTOP){}", in_step(step_of(rank)));
    } else {
      text +=
          fmt::format(" ended without a word{}: its process was killed, or its host is gone", in_step(step_of(rank)));
    }
    return {out.empty() ? "failed" : "full disk", ranks, text + out + waiting_for(ranks, /*is_over=*/true)};
  }

  std::optional<Verdict> non_finite(int first) const {
    const RankReport* own = report(first);
    if (own == nullptr || own->event != ReportEvent::kFailed || !own->non_finite) return std::nullopt;
    std::vector<int> ranks;
    const comm::NonFiniteResult* least = nullptr;
    for (const auto& [rank, theirs] : job_.ranks) {
      if (!theirs.non_finite || theirs.step != own->step) continue;
      if (least != nullptr && theirs.non_finite->number > least->number) continue;
      if (least == nullptr || theirs.non_finite->number < least->number) ranks.clear();
      least = &*theirs.non_finite;
      ranks.push_back(rank);
    }
    const std::string text = fmt::format("the loss{} is not finite: the first result that is not is of {}{}, on {}",
                                         own->step > 0 ? fmt::format(" of step {}", own->step) : "",
                                         in_line(least->piece.what), made_by(least->piece.line), name(ranks));
    return Verdict{"non-finite", ranks, text};
  }

  std::optional<Verdict> different_calls(int first) const {
    std::map<int, int> accused;
    std::set<int> involved;
    const RankReport* witness = nullptr;
    const auto mismatch_of = [](const RankReport& own) {
      return std::ranges::find_if(own.waits, [](const auto& wait) { return wait.is_mismatch && wait.waits_for >= 0; });
    };
    for (const auto& [rank, own] : job_.ranks) {
      const auto wait = mismatch_of(own);
      // A rank that another failure has stopped is no witness of this one.
      if (wait == own.waits.end() || own.error.empty()) continue;
      ++accused[wait->waits_for];
      involved.insert({rank, wait->waits_for});
      if (witness == nullptr) witness = &own;
    }
    if (witness == nullptr || !involved.contains(first)) return std::nullopt;
    const auto most = std::ranges::max_element(accused, {}, [](const auto& one) { return one.second; });
    const auto has_most = [&](const auto& one) { return one.second == most->second; };
    std::vector<int> ranks(involved.begin(), involved.end());
    if (most->second > 1 && std::ranges::count_if(accused, has_most) == 1) ranks = {most->first};
    for (const auto& [rank, own] : job_.ranks) {
      const auto wait = mismatch_of(own);
      if (wait == own.waits.end() || wait->waits_for != ranks[0] || own.error.empty()) continue;
      witness = &own;
      break;
    }
    return Verdict{
        "different calls", ranks,
        fmt::format("{} made {}{}: {}{}", name(ranks),
                    ranks.size() == 1 ? "another call than the others" : "different calls", in_step(witness->step),
                    first_line(words_of(witness->error)), lines_of_scripts(involved))};
  }

  // Two ranks waited for each other, each in another call: the calls that all were stopped in say whose is the odd one.
  std::optional<Verdict> crossed_calls(int first) const {
    std::optional<CrossedCalls> crossed;
    if (const RankReport* own = report(first)) crossed = crossed_in(own->error);
    for (const auto& [rank, own] : job_.ranks) {
      if (!crossed && own.cause == first) crossed = crossed_in(own.error);
    }
    if (!crossed || std::max(crossed->rank, crossed->other) >= size_) return std::nullopt;
    std::map<int, std::string> calls{{crossed->rank, crossed->call}, {crossed->other, crossed->others_call}};
    for (const auto& [rank, own] : job_.ranks) {
      if (const std::string call = stopped_call(own.error); !call.empty()) calls.try_emplace(rank, call);
    }
    const auto ranks_in = [&](const std::string& call) {
      std::vector<int> ranks;
      for (const auto& [rank, its] : calls) {
        if (its == call) ranks.push_back(rank);
      }
      return ranks;
    };
    std::vector<int> fewer = ranks_in(crossed->call);
    std::vector<int> more = ranks_in(crossed->others_call);
    if (fewer.size() > more.size()) std::swap(fewer, more);
    std::vector<int> guilty = fewer;
    const bool is_odd_one_known = fewer.size() < more.size();
    if (!is_odd_one_known) guilty.insert(guilty.end(), more.begin(), more.end());
    std::ranges::sort(guilty);
    std::set<int> involved(fewer.begin(), fewer.end());
    involved.insert(more.begin(), more.end());
    const char* what = !is_odd_one_known    ? "made different calls"
                       : guilty.size() == 1 ? "made another call than the others"
                                            : "made other calls than the others";
    const auto where = [&](const std::vector<int>& ranks) {
      return fmt::format("{} waited in {}", name_ranks(ranks, size_), without_number(calls.at(ranks[0])));
    };
    return Verdict{"different calls", guilty,
                   fmt::format("{} {}{}: {}, {}, and neither went on; every rank must make the same calls, of train, "
                               "eval, predict or save, in the same order{}",
                               name(guilty), what, in_step(step_of(guilty[0])), where(fewer), where(more),
                               lines_of_scripts(involved))};
  }

  // "; rank 1 was at train.py:9 in <module>, rank 0 at train.py:8 in <module>", of those that say where their scripts
  // were left.
  std::string lines_of_scripts(const std::set<int>& ranks) const {
    std::vector<std::pair<std::string, std::vector<int>>> places;
    for (const int rank : ranks) {
      const RankReport* own = report(rank);
      if (own == nullptr || own->script.empty()) continue;
      auto place = std::ranges::find(places, own->script, &std::pair<std::string, std::vector<int>>::first);
      if (place == places.end()) place = places.insert(place, {own->script, {}});
      place->second.push_back(rank);
    }
    std::string text;
    for (size_t i = 0; i < std::min(places.size(), kMaxWaitsTold); ++i) {
      const char* verb = i > 0 ? "" : places[i].second.size() == 1 ? " was" : " were";
      text += fmt::format("{}{}{} at {}", i == 0 ? "; " : ", ", name_ranks(places[i].second, size_), verb,
                          in_line(places[i].first));
    }
    return text;
  }

  // Rank `from` waits, or has waited, for `to`: who is it that all wait for?
  Verdict stood_still(int from, int to, bool is_over) const {
    std::vector<int> path = {from};
    const RankReport* first = report(from);
    const ReportedWait* before = first == nullptr ? nullptr : wait_of(*first);
    bool is_late = false;
    while (!contains(path, to)) {
      const RankReport* own = report(to);
      const ReportedWait* wait = own == nullptr ? nullptr : wait_of(*own);
      if (wait == nullptr) break;
      // Who has come to the same call when the others had waited for long is late, and waits for nobody.
      is_late = before != nullptr && wait->call == before->call && wait->waited_ms < before->waited_ms / 2;
      if (is_late) break;
      before = wait;
      path.push_back(to);
      to = wait->waits_for;
    }
    if (contains(path, to)) return in_a_circle({std::ranges::find(path, to), path.end()}, is_over);
    const std::string waiting = waiting_for({to}, is_over);
    const RankReport* own = report(to);
    if (own != nullptr && own->event == ReportEvent::kEnded) return ended(to);
    if (is_stopped(to)) {
      const char* verb = is_over ? "was" : "is";
      return {
          "stopped", {to}, fmt::format("{} {} stopped (SIGSTOP){}{}", name(to), verb, in_step(step_of(to)), waiting)};
    }
    // It has heard of the failure where it came to, and so does not hang.
    if (is_late || (own != nullptr && own->event == ReportEvent::kStopped && !own->error.empty())) {
      return {"late", {to}, fmt::format("{} came too late{}{}", name(to), in_step(own->step), waiting)};
    }
    // A process ends when one of its threads has failed.
    const RankEnding* own_end = ranks_of_process(to).size() == 1 ? own_ending(to) : nullptr;
    if (own_end != nullptr && !own_end->signal.empty()) return killed(to);
    if (own_end != nullptr && own_end->has_failed()) return failed(to);
    if (own_end != nullptr) return ended(to);
    // What it has said before it went on is none of this.
    if (own == nullptr || own->event == ReportEvent::kGoesOn) {
      if (!is_over) {
        return {"waits",
                {to},
                fmt::format("{} is waited for{}, and has not said yet what it does: a rank that hangs says so within "
                            "some seconds, one that is stopped or whose host is gone never{}",
                            name(to), in_step(step_of(to)), waiting)};
      }
      const char* guess = "its process was stopped, or its host is gone";
      return {"silent", {to}, fmt::format("{} said nothing{}: {}{}", name(to), in_step(step_of(to)), guess, waiting)};
    }
    const std::string how_long = own->doing_ms >= 1000 ? fmt::format(" for {} s", own->doing_ms / 1000) : "";
    const std::string what = own->thread.empty() ? "" : fmt::format(" ({})", in_line(own->thread));
    return {"stands still",
            {to},
            fmt::format("{} {} still{}{}{}{}{}", name(to), is_over ? "stood" : "stands", how_long, in_step(own->step),
                        at(*own), what, waiting)};
  }

  Verdict in_a_circle(std::vector<int> ranks, bool is_over) const {
    std::vector<std::string> where;
    for (const int rank : ranks) {
      const ReportedWait* wait = wait_of(*report(rank));
      where.push_back(fmt::format("rank {} in {}{}", rank, in_line(wait->call), made_by(wait->line)));
    }
    std::ranges::sort(ranks);
    return {"wait for each other", ranks,
            fmt::format("{} {} for each other{}: {}{}", name_ranks(ranks, size_), is_over ? "waited" : "wait",
                        in_step(step_of(ranks[0])), fmt::join(where, ", "), waiting_for(ranks, is_over))};
  }

  // No rank has failed.
  Verdict of_living() const {
    const std::string ended = signal_.empty() ? "" : fmt::format("{} ended the job: ", in_line(signal_));
    const auto with_words = [&](Verdict verdict) {
      verdict.text = ended + verdict.text + (ended.empty() ? "; no rank has failed" : "");
      return verdict;
    };
    // Who is told to end says what it was at, which need not be long.
    const auto is_long = [](const RankReport& own, int64_t ms) {
      return own.event != ReportEvent::kToldToEnd || ms >= kLongMs;
    };
    for (const auto& [rank, own] : job_.ranks) {
      const ReportedWait* wait = wait_of(own);
      if (wait != nullptr && is_long(own, wait->waited_ms))
        return with_words(stood_still(rank, wait->waits_for, !signal_.empty()));
    }
    for (const auto& [rank, own] : job_.ranks) {
      const bool is_still = own.event == ReportEvent::kStandsStill || own.event == ReportEvent::kToldToEnd;
      if (is_still && is_long(own, own.doing_ms)) return with_words(stood_still(-1, rank, !signal_.empty()));
    }
    for (const auto& [rank, own] : job_.ranks) {
      if (own.warnings.empty()) continue;
      return {
          "slow",
          {},
          fmt::format("{}no rank has failed; rank {} has warned: {}", ended, rank, first_line(own.warnings.back()))};
    }
    std::string lost;
    for (const LauncherReport& launcher : job_.launchers) {
      for (const RankEnding& ending : launcher.endings) {
        if (!ending.went_on) continue;
        lost = fmt::format("; rank {} ({}, pid {}) was lost ({}), and the job went on", ending.rank,
                           in_line(launcher.host, 100), ending.pid, in_line(ending.words));
      }
    }
    return {signal_.empty() ? "none" : "told to end", {}, ended + "no rank has failed" + lost};
  }

  const JobReport& job_;
  int size_;
  std::string signal_;  // that has ended a launcher's job
};

std::string state_of(const RankReport* own, const RankEnding* ending) {
  // The exit code is then that of the job, which failed later.
  if (own != nullptr && own->event == ReportEvent::kEnded) return std::string(name_of(own->event));
  if (ending != nullptr && ending->has_failed()) {
    return in_line(ending->words, 60) + (ending->is_told ? ", told to end" : ending->went_on ? ", replaced" : "");
  }
  if (own != nullptr) return std::string(name_of(own->event));
  return ending == nullptr ? "no report" : "ended";
}

std::string doing_of(const RankReport* own, const RankEnding* ending) {
  if (own == nullptr) return ending == nullptr ? "" : in_line(ending->doing, kMaxInRow);
  if (own->event == ReportEvent::kEnded) {
    return own->script.empty() ? "" : in_line("its script was left at " + own->script, kMaxInRow);
  }
  if (!own->waits.empty() && own->event != ReportEvent::kGoesOn) {
    const ReportedWait& wait = own->waits[0];
    const std::string whom = wait.waits_for >= 0 ? fmt::format(" for rank {}", wait.waits_for) : "";
    const std::string what = wait.is_mismatch ? "makes another call than rank " + std::to_string(wait.waits_for)
                                              : fmt::format("waited {} ms{}", wait.waited_ms, whom);
    return in_line(fmt::format("{} in {}{}", what, wait.call, made_by(wait.line)), kMaxInRow);
  }
  if (own->event == ReportEvent::kFailed && own->doing.empty()) return in_line(own->error, kMaxInRow);
  return in_line(own->doing + made_by(own->line), kMaxInRow);
}

// The last lines that the rank has written: of its output, where a launcher has them, else of its log.
std::vector<std::string> last_lines_of(const JobReport& report, int rank) {
  const RankEnding* ending = report.ending_of(rank);
  if (ending != nullptr && !ending->last_lines.empty()) return ending->last_lines;
  const auto own = report.ranks.find(rank);
  return own == report.ranks.end() ? std::vector<std::string>() : own->second.log;
}

}  // namespace

Verdict find_verdict(const JobReport& report) { return Reasons(report).find(); }

std::string why_text(const JobReport& report) {
  const Verdict verdict = find_verdict(report);
  std::string text = verdict.text + "\n\n";
  size_t host_width = 4;
  size_t state_width = 5;
  struct Row {
    int rank;
    std::string host, pid, step, state, doing;
  };
  std::vector<Row> rows;
  std::vector<int> unknown;
  for (int rank = 0; rank < report.size(); ++rank) {
    const auto found = report.ranks.find(rank);
    const RankReport* own = found == report.ranks.end() ? nullptr : &found->second;
    const RankEnding* ending = report.ending_of(rank);
    if (own == nullptr && ending == nullptr) {
      unknown.push_back(rank);
      continue;
    }
    const LauncherReport* launcher = report.launcher_of(rank);
    const int64_t pid = own != nullptr ? own->pid : ending != nullptr ? ending->pid : 0;
    rows.push_back({.rank = rank,
                    .host = in_line(own != nullptr        ? own->host
                                    : launcher != nullptr ? launcher->host
                                                          : "-",
                                    40),
                    .pid = pid > 0 ? std::to_string(pid) : "-",
                    .step = own != nullptr && own->step > 0 ? std::to_string(own->step) : "-",
                    .state = state_of(own, ending),
                    .doing = doing_of(own, ending)});
    host_width = std::max(host_width, rows.back().host.size());
    state_width = std::max(state_width, rows.back().state.size());
  }
  text += fmt::format("{:>5}  {:<{}}  {:>8}  {:>6}  {:<{}}  {}\n", "rank", "host", host_width, "pid", "step", "state",
                      state_width, "what it did");
  for (const Row& row : rows) {
    std::string line = fmt::format("{:>5}  {:<{}}  {:>8}  {:>6}  {:<{}}  {}", row.rank, row.host, host_width, row.pid,
                                   row.step, row.state, state_width, row.doing);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  if (!unknown.empty()) {
    text += fmt::format("{} wrote no report, and no launcher tells of {}\n", name_ranks(unknown, report.size()),
                        unknown.size() == 1 ? "it" : "them");
  }
  if (!verdict.ranks.empty()) {
    const auto lines = last_lines_of(report, verdict.ranks[0]);
    if (!lines.empty()) text += fmt::format("\nthe last lines of rank {}:\n", verdict.ranks[0]);
    for (const std::string& line : lines) text += "    " + in_line(line) + "\n";
  }
  for (const auto& [rank, own] : report.ranks) {
    for (const std::string& warning : own.warnings)
      text += fmt::format("\nrank {} has warned: {}", rank, in_line(warning));
    if (!own.warnings.empty()) text += "\n";
  }
  if (!report.left_out.empty()) text += "\nleft out:\n";
  for (const std::string& file : report.left_out) text += "    " + in_line(file) + "\n";
  return text;
}

std::string why_json(const JobReport& report) {
  using Json = nlohmann::ordered_json;
  const auto json_of = [](const auto& one) {
    return parse_bounded_json<Json>(print_report(one), "", {.name = "report"});
  };
  const Verdict verdict = find_verdict(report);
  Json json = {{"verdict", {{"kind", verdict.kind}, {"ranks", verdict.ranks}, {"text", verdict.text}}},
               {"size", report.size()},
               {"ranks", Json::array()},
               {"last_ranks", Json::array()},
               {"launchers", Json::array()},
               {"left_out", report.left_out}};
  for (const auto& [rank, own] : report.ranks) json["ranks"].push_back(json_of(own));
  for (const auto& [rank, own] : report.last_ranks) json["last_ranks"].push_back(json_of(own));
  for (const auto& launcher : report.launchers) json["launchers"].push_back(json_of(launcher));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tessera::cluster
