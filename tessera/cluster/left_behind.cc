#include "tessera/cluster/left_behind.h"

#include <fmt/format.h>

namespace tessera::cluster {
namespace {

// A program that is about to notice the end of its generation has so long for it.
constexpr int64_t kNoticeMs = 1000;

}  // namespace

std::string LeftBehind::look(const RankGlance& glance, bool is_over, int64_t now_ms) {
  const auto& progress = glance.progress;
  if (!changed_ms_ || progress.count != count_) changed_ms_ = now_ms;
  count_ = progress.count;
  if (!is_over) return "";
  if (!over_ms_) over_ms_ = now_ms;
  const bool may_take_long = progress.piece.what.empty() && (progress.phase == comm::RankProgress::kSave ||
                                                             progress.phase == comm::RankProgress::kCompilation);
  if (!glance.waits.empty() || may_take_long || progress.doing().empty()) return "";
  if (now_ms - *changed_ms_ < timeout_ms_ || now_ms - *over_ms_ < kNoticeMs) return "";
  return fmt::format("it hangs: it has come no further for {} ms: {}; its generation has ended, and the others wait",
                     now_ms - *changed_ms_, progress.words());
}

}  // namespace tessera::cluster
