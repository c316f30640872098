#include "tessera/cluster/report/figures_reporter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

namespace tessera::cluster {
namespace {

constexpr int64_t kLeastMs = 1000;
// So often also where nothing is new: who is silent for longer does not run.
constexpr int64_t kMostMs = 5000;

}  // namespace

void FiguresReporter::report(const TrainingFigures& figures) {
  const std::lock_guard lock(mutex_);
  TrainingFigures newest = figures;
  newest.doing = figures_.doing;
  newest.waits_for = figures_.waits_for;
  newest.waits_in = figures_.waits_in;
  newest.slow_rank = figures_.slow_rank;
  newest.slow_percent = figures_.slow_percent;
  figures_ = std::move(newest);
  has_figures_ = true;
  say_if_due(/*is_new=*/true, /*at_once=*/!figures.ended.empty());
}

void FiguresReporter::look(const RankGlance& glance) {
  const std::lock_guard lock(mutex_);
  const auto note = [](auto& member, auto value) {
    const bool is_other = member != value;
    member = std::move(value);
    return is_other;
  };
  const bool waits = !glance.waits.empty();
  bool is_new = note(figures_.doing, glance.progress.doing());
  is_new = note(figures_.waits_for, waits ? glance.waits[0].peer : -1) || is_new;
  is_new = note(figures_.waits_in, waits ? glance.waits[0].place : std::string()) || is_new;
  is_new = note(figures_.slow_rank, glance.slow ? glance.slow->rank : -1) || is_new;
  is_new = note(figures_.slow_percent, glance.slow ? glance.slow->percent : 0) || is_new;
  say_if_due(is_new, /*at_once=*/false);
}

std::string FiguresReporter::latest() const {
  const std::lock_guard lock(mutex_);
  return has_figures_ ? print_figures(figures_) : "";
}

void FiguresReporter::say_if_due(bool is_new, bool at_once) {
  is_unsaid_ = is_unsaid_ || is_new;
  if (fd_ < 0) return;
  const int64_t now_ms = clock_.monotonic_ns() / 1'000'000;
  const int64_t pause_ms = is_unsaid_ ? kLeastMs : kMostMs;
  if (!at_once && said_ms_ >= 0 && now_ms - said_ms_ < pause_ms) return;
  // At once or not at all: it is shorter than what a pipe takes as a whole.
  const std::string line = fmt::format("{} {}\n", rank_, print_figures(figures_));
  if (write(fd_, line.data(), line.size()) < 0) return;
  is_unsaid_ = false;
  said_ms_ = now_ms;
}

}  // namespace tessera::cluster
