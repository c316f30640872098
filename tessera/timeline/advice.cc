#include "tessera/timeline/advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/printable.h"
#include "tessera/base/strings.h"

namespace tessera::timeline {
namespace {

constexpr size_t kMostAdvice = 5;
// Of the step. What takes less is not worth a look.
constexpr double kLeastShare = 0.01;
// An operator that reaches so much of its limit is as fast as it gets.
constexpr double kGoodShareOfLimit = 0.8;
// A rank is late, and not by chance, where it was waited for in so much of what all were.
constexpr double kLateShare = 0.5;

std::string place_of(const OperatorTime& time) {
  return printable(time.line.empty() ? time.text : fmt::format("{} ({})", time.text, time.line));
}

class Adviser {
 public:
  explicit Adviser(const TimelineSummary& summary) : summary_(summary) {}

  std::vector<Advice> find() {
    late_rank();
    transfer();
    batches();
    operators();
    copies();
    simple();
    std::ranges::stable_sort(found_, std::greater{}, &Advice::seconds);
    if (found_.size() > kMostAdvice) found_.resize(kMostAdvice);
    return found_;
  }

 private:
  double seconds(TimeUse use) const { return summary_.seconds[static_cast<size_t>(use)]; }
  void add(double seconds, std::string text) {
    if (seconds < kLeastShare * summary_.rank_step_seconds) return;
    found_.push_back({std::move(text), seconds});
  }

  void late_rank() {
    double all = 0;
    for (const RankTime& rank : summary_.ranks) all += rank.waited_for_seconds;
    if (all <= 0) return;
    const RankTime& latest = *std::ranges::max_element(summary_.ranks, {}, &RankTime::waited_for_seconds);
    if (latest.waited_for_seconds >= kLateShare * all && summary_.ranks.size() > 1) {
      add(seconds(TimeUse::kLateRank) * latest.waited_for_seconds / all,
          fmt::format("find out why rank {}{} is late: the others wait for it; compare its operators and its batches "
                      "with theirs, and what else runs on its host",
                      latest.rank, latest.host.empty() ? "" : fmt::format(" on {}", printable(latest.host))));
    } else {
      add(seconds(TimeUse::kLateRank),
          "give the ranks more even work: they take turns at being late; split batches and stages evenly, and give "
          "each rank cores of its own");
    }
  }

  void transfer() {
    std::string longest;
    double most = 0;
    for (const CollectiveTime& time : summary_.collectives) {
      if (time.seconds - time.late_seconds <= most) continue;
      most = time.seconds - time.late_seconds;
      longest = fmt::format("; {}, {}, takes {} a step", printable(time.text), format_bytes(time.bytes),
                            format_seconds(most));
    }
    add(seconds(TimeUse::kTransfer),
        fmt::format("send less, or hide it: computing stands still while bytes travel; larger batches a rank, gradient "
                    "accumulation, or a plan that `tessera plan` finds{}",
                    longest));
  }

  void batches() {
    add(seconds(TimeUse::kBatch),
        "have more threads prepare the data (num_workers): a step waits for its batch, or copies it");
  }

  void operators() {
    bool has_limits = false;
    for (const OperatorTime& time : summary_.operators) {
      if (!time.limit_seconds) continue;
      has_limits = true;
      if (*time.limit_seconds >= kGoodShareOfLimit * time.seconds) continue;
      add(time.seconds - *time.limit_seconds,
          fmt::format("make {} faster: it takes {} and this machine could do it in {} ({:.0f} %); other shapes, "
                      "kernels chosen by measuring, or a half type",
                      place_of(time), format_seconds(time.seconds), format_seconds(*time.limit_seconds),
                      100 * *time.limit_seconds / time.seconds));
    }
    if (has_limits || summary_.operators.empty()) return;
    const OperatorTime& longest = summary_.operators.front();
    add(longest.seconds,
        fmt::format("look at {}: no operator takes longer, {:.0f} % of the step; --profile, with what `tessera "
                    "calibrate` writes, says how fast it could be",
                    place_of(longest), 100 * longest.share));
  }

  void copies() {
    add(seconds(TimeUse::kCopy), "lay values out so that they need not be copied: operators want other orders of dims");
  }

  void simple() {
    add(seconds(TimeUse::kSave),
        "save less often, or in the background (async_save): training stands still while a checkpoint is written");
    add(seconds(TimeUse::kEvaluation), "evaluate less often, or on fewer batches");
    add(seconds(TimeUse::kCompilation),
        "keep the shapes of batches the same: a step was compiled while the training was under way");
    add(seconds(TimeUse::kCallbacks), "do less in callbacks: log every so many steps");
    add(seconds(TimeUse::kDevice), "give the device more to do at a time, if it is not the one that is busy");
    add(seconds(TimeUse::kOther),
        "make steps larger: this time is spent between operators, which costs the less the more each has to do");
  }

  const TimelineSummary& summary_;
  std::vector<Advice> found_;
};

}  // namespace

std::vector<Advice> find_advice(const TimelineSummary& summary) { return Adviser(summary).find(); }

}  // namespace tessera::timeline
