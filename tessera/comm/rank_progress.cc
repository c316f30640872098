#include "tessera/comm/rank_progress.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace tessera::comm {
namespace {

// More pieces than any schedule has.
constexpr uint64_t kMostPieces = uint64_t{1} << 32;

}  // namespace

RankProgress::Run::Run(RankProgress* progress, const Pieces& pieces)
    : progress_(progress), num_exceptions_(std::uncaught_exceptions()) {
  if (progress_ == nullptr) return;
  const std::lock_guard lock(progress_->mutex_);
  outer_ = std::exchange(progress_->pieces_, &pieces);
  outer_begin_ = progress_->begin_;
  outer_at_ = progress_->at_.load(std::memory_order_relaxed);
  // Each run has numbers of its own, so that whoever looks twice sees that it is another one.
  progress_->begin_ = (outer_at_ / kMostPieces + 1) * kMostPieces;
  progress_->at_.store(progress_->begin_, std::memory_order_relaxed);
  progress_->failed_piece_ = {};
}

RankProgress::Run::~Run() {
  if (progress_ == nullptr) return;
  const std::lock_guard lock(progress_->mutex_);
  const uint64_t at = progress_->at_.load(std::memory_order_relaxed);
  if (std::uncaught_exceptions() > num_exceptions_) {
    try {
      progress_->failed_piece_ = progress_->pieces_->piece_name(static_cast<int>(at - progress_->begin_));
    } catch (const std::exception&) {  // no memory for it: the exception that ends the run says more
      progress_->failed_piece_ = {};
    }
  }
  progress_->pieces_ = outer_;
  progress_->begin_ = outer_begin_;
  progress_->at_.store(outer_ == nullptr ? (at / kMostPieces + 1) * kMostPieces : outer_at_, std::memory_order_relaxed);
}

RankProgress::Phase::Phase(RankProgress* progress, const char* what) : progress_(progress) {
  if (progress_ == nullptr) return;
  outer_ = progress_->phase_.exchange(what, std::memory_order_relaxed);
  progress_->num_phases_.fetch_add(1, std::memory_order_relaxed);
}

RankProgress::Phase::~Phase() {
  if (progress_ == nullptr) return;
  progress_->phase_.store(outer_, std::memory_order_relaxed);
  progress_->num_phases_.fetch_add(1, std::memory_order_relaxed);
}

void RankProgress::set_non_finite(NonFiniteResult result) {
  const std::lock_guard lock(mutex_);
  non_finite_ = std::move(result);
}

std::string RankProgress::Glance::words() const {
  std::string text = step > 0 ? fmt::format("step {}", step) : "";
  if (!doing().empty()) text += (text.empty() ? "" : ", ") + doing();
  if (!piece.line.empty()) text += ", made by " + piece.line;
  return text;
}

RankProgress::Glance RankProgress::glance() const {
  Glance found;
  found.count = count();
  found.step = step_.load(std::memory_order_relaxed);
  if (const char* phase = phase_.load(std::memory_order_relaxed)) found.phase = phase;
  const std::lock_guard lock(mutex_);
  found.failed_piece = failed_piece_;
  const uint64_t at = at_.load(std::memory_order_relaxed);
  if (pieces_ != nullptr && at >= begin_ && at - begin_ < kMostPieces) {
    found.piece = pieces_->piece_name(static_cast<int>(at - begin_));
  }
  found.non_finite = non_finite_;
  return found;
}

uint64_t RankProgress::count() const {
  return at_.load(std::memory_order_relaxed) + num_phases_.load(std::memory_order_relaxed) +
         static_cast<uint64_t>(step_.load(std::memory_order_relaxed));
}

std::string RankProgress::line_of_call(std::string_view call) const {
  const std::lock_guard lock(mutex_);
  return pieces_ == nullptr ? "" : pieces_->line_of_call(call);
}

}  // namespace tessera::comm
