#include "tessera/cluster/report/why.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/printable.h"
#include "tessera/cluster/ranks/rank_words.h"

namespace tessera::cluster {
namespace {

// The most bytes of a text of others in a line, and of a row's last column.
constexpr size_t kMaxInLine = 400;
constexpr size_t kMaxInRow = 110;
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

bool contains(const std::vector<int>& ranks, int rank) { return std::ranges::find(ranks, rank) != ranks.end(); }

class Reasons {
 public:
  explicit Reasons(const JobReport& job) : job_(job), size_(job.size()) {
    for (const LauncherReport& launcher : job_.launchers) {
      if (!launcher.signal.empty()) signal_ = launcher.signal;
    }
  }

  Verdict find() const {
    const std::optional<int> first = origin();
    if (!first) return of_living();
    Verdict verdict = of_failure(*first);
    if (job_.went_on()) verdict.text += "; the job went on";
    return verdict;
  }

 private:
  Verdict of_failure(int first) const {
    if (auto found = non_finite(first)) return *found;
    if (auto found = different_calls(first)) return *found;
    const RankEnding* ending = own_ending(first);
    const RankReport* own = report(first);
    const bool is_killed = ending != nullptr && !ending->signal.empty();
    if (is_killed || (own != nullptr && own->event == ReportEvent::kCrashed)) return killed(first);
    if (own != nullptr && own->cause == first && is_of_wait(own->error)) {
      if (const ReportedWait* wait = wait_of(*own)) return stood_still(first, wait->waits_for, /*is_over=*/true);
    }
    return failed(first_with_error(first));
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
    if (own.event == ReportEvent::kGoesOn || own.event == ReportEvent::kStandsStill) return nullptr;
    for (const ReportedWait& wait : own.waits) {
      if (wait.waits_for >= 0 && !wait.is_mismatch) return &wait;
    }
    return nullptr;
  }

  // "; ranks 0, 1, 3 waited for it in all_reduce "fc", made by model.py:41".
  std::string waiting_for(const std::vector<int>& ranks, bool is_over) const {
    std::vector<std::pair<std::string, std::vector<int>>> groups;
    for (const auto& [rank, own] : job_.ranks) {
      if (contains(ranks, rank) || own.event == ReportEvent::kGoesOn) continue;
      const auto is_for_them = [&](const ReportedWait& wait) {
        const auto meets = [&](int one) { return contains(wait.ranks, one); };
        return !wait.is_mismatch && (contains(ranks, wait.waits_for) || std::ranges::any_of(ranks, meets));
      };
      const auto wait = std::ranges::find_if(own.waits, is_for_them);
      if (wait == own.waits.end()) continue;
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
    return {is_own_fault ? "crashed" : "killed", ranks, text + waiting_for(ranks, /*is_over=*/true)};
  }

  // Of errors that repeat each other's words the shortest is the first one's, as of a save that one rank cannot do.
  int first_with_error(int rank) const {
    const RankReport* own = report(rank);
    if (own == nullptr || own->error.empty()) return rank;
    for (const auto& [other, theirs] : job_.ranks) {
      const bool is_part = !theirs.error.empty() && theirs.error.size() < own->error.size() &&
                           own->error.find(theirs.error) != std::string::npos;
      if (other != rank && is_part) return other;
    }
    return rank;
  }

  Verdict failed(int rank) const {
    const RankReport* own = report(rank);
    const RankEnding* ending = own_ending(rank);
    std::string text = name(rank);
    std::vector<int> ranks = {rank};
    if (own != nullptr && own->event == ReportEvent::kFailed && !own->error.empty()) {
      for (const auto& [other, theirs] : job_.ranks) {
        const bool is_alike = theirs.event == ReportEvent::kFailed && theirs.error == own->error;
        if (other != rank && is_alike) ranks.push_back(other);
      }
      std::ranges::sort(ranks);
      text = fmt::format("{} failed{}{}: {}", name(ranks), in_step(own->step), at(*own), first_line(own->error));
    } else if (ending != nullptr && ending->has_failed()) {
      text += fmt::format(" ended with {}{}", in_line(ending->words), in_step(step_of(rank)));
    } else if (is_stopped(rank)) {
      text += fmt::format(" was stopped (SIGSTOP){}", in_step(step_of(rank)));
    } else {
      text +=
          fmt::format(" ended without a word{}: its process was killed, or its host is gone", in_step(step_of(rank)));
    }
    return {"failed", ranks, text + waiting_for(ranks, /*is_over=*/true)};
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
    return Verdict{"different calls", ranks,
                   fmt::format("{} made {}{}: {}", name(ranks),
                               ranks.size() == 1 ? "another call than the others" : "different calls",
                               in_step(witness->step), first_line(witness->error))};
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
    if (own_end != nullptr) {
      return {"failed", {to}, name(to) + " has ended without making the call in which others waited for it" + waiting};
    }
    if (own == nullptr) {
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
            fmt::format("{} {} for each other{}: {}", name_ranks(ranks, size_), is_over ? "waited" : "wait",
                        in_step(step_of(ranks[0])), fmt::join(where, ", "))};
  }

  // No rank has failed.
  Verdict of_living() const {
    const std::string ended = signal_.empty() ? "" : fmt::format("{} ended the job: ", in_line(signal_));
    const auto with_words = [&](Verdict verdict) {
      verdict.text = ended + verdict.text + (ended.empty() ? "; no rank has failed" : "");
      return verdict;
    };
    for (const auto& [rank, own] : job_.ranks) {
      const ReportedWait* wait = wait_of(own);
      if (wait != nullptr) return with_words(stood_still(rank, wait->waits_for, !signal_.empty()));
    }
    for (const auto& [rank, own] : job_.ranks) {
      const bool is_still = own.event == ReportEvent::kStandsStill || own.event == ReportEvent::kToldToEnd;
      if (is_still && own.doing_ms >= 1000) return with_words(stood_still(-1, rank, !signal_.empty()));
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
  if (ending != nullptr && ending->has_failed()) {
    return in_line(ending->words, 60) + (ending->is_told ? ", told to end" : ending->went_on ? ", replaced" : "");
  }
  if (own != nullptr) return std::string(name_of(own->event));
  return ending == nullptr ? "no report" : "ended";
}

std::string doing_of(const RankReport* own, const RankEnding* ending) {
  if (own == nullptr) return ending == nullptr ? "" : in_line(ending->doing, kMaxInRow);
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
  const Verdict verdict = find_verdict(report);
  Json json = {{"verdict", {{"kind", verdict.kind}, {"ranks", verdict.ranks}, {"text", verdict.text}}},
               {"size", report.size()},
               {"ranks", Json::array()},
               {"launchers", Json::array()},
               {"left_out", report.left_out}};
  for (const auto& [rank, own] : report.ranks) json["ranks"].push_back(Json::parse(print_report(own)));
  for (const auto& launcher : report.launchers) json["launchers"].push_back(Json::parse(print_report(launcher)));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tessera::cluster
