#include "tessera/train/modes/stages/update_order.h"

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::train {

using Message = ServerExchange::Message;

bool may_begin(std::span<const int64_t> applied, int worker, int64_t step, const ServerStaleness& staleness) {
  if (applied[static_cast<size_t>(worker)] < step - 1) return false;
  if (!staleness.is_bounded()) return true;
  return std::ranges::all_of(applied, [&](int64_t count) { return count >= step - 1 - staleness.bound(); });
}

UpdateOrder::UpdateOrder(int num_workers, const ServerStaleness& staleness)
    : staleness_(staleness),
      applied_(static_cast<size_t>(num_workers), 0),
      pushes_(static_cast<size_t>(num_workers)),
      has_ended_(static_cast<size_t>(num_workers)),
      has_come_(static_cast<size_t>(num_workers)),
      stopped_(static_cast<size_t>(num_workers), 0) {}

std::optional<UpdateOrder::Missing> UpdateOrder::find_missing(int64_t step, int64_t training) const {
  for (int worker = 0; worker < std::ssize(applied_); ++worker) {
    const auto index = static_cast<size_t>(worker);
    if (num_pushed(worker) >= step) continue;
    if (training > 0 && stopped_[index] == training) return Missing{worker, Absence::kStopped};
    if (has_ended_[index]) return Missing{worker, Absence::kEnded};
    if (has_come_[index]) return Missing{worker, Absence::kMet};
  }
  return std::nullopt;
}

int64_t UpdateOrder::num_pushed(int worker) const {
  const auto index = static_cast<size_t>(worker);
  return applied_[index] + static_cast<int64_t>(pushes_[index].size());
}

std::optional<int> UpdateOrder::awaited() const {
  if (!order_.empty()) return order_.front();
  if (std::ranges::any_of(pushes_, [](const auto& of_worker) { return !of_worker.empty(); })) return std::nullopt;
  return static_cast<int>(std::ranges::min_element(applied_) - applied_.begin());
}

std::optional<int> UpdateOrder::find_not_met() const {
  const auto found = std::ranges::find(has_come_, false);
  if (found == has_come_.end()) return std::nullopt;
  return static_cast<int>(found - has_come_.begin());
}

int64_t UpdateOrder::num_applied_by_all() const { return std::ranges::min(applied_); }

void UpdateOrder::add_push(Message push) {
  const auto worker = static_cast<size_t>(push.worker);
  pushes_[worker].push_back(std::move(push));
}

std::optional<Message> UpdateOrder::take_push() {
  if (order_.empty()) return std::nullopt;
  const auto worker = static_cast<size_t>(order_.front());
  if (pushes_[worker].empty()) return std::nullopt;
  Message push = std::move(pushes_[worker].front());
  pushes_[worker].pop_front();
  order_.pop_front();
  check_equal(push.head.step, ++applied_[worker], "the step of a worker's next push");
  auto& [sum, rows] = losses_[push.head.step];
  sum += push.head.loss * static_cast<double>(push.head.rows);
  rows += static_cast<double>(push.head.rows);
  return push;
}

std::optional<Message> UpdateOrder::take_pull() {
  const auto found = std::ranges::find_if(
      pulls_, [&](const Message& pull) { return may_begin(applied_, pull.worker, pull.head.step, staleness_); });
  if (found == pulls_.end()) return std::nullopt;
  Message pull = std::move(*found);
  pulls_.erase(found);
  return pull;
}

double UpdateOrder::take_loss(int64_t step) {
  const auto found = losses_.extract(step);
  check(!found.empty(), "a server knows the losses of a step whose updates it has applied");
  return found.mapped().sum / found.mapped().rows;
}

}  // namespace tessera::train
