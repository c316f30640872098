#include "tessera/solver/usage_tree.h"

#include <algorithm>
#include <limits>

namespace tessera::solver {

UsageTree::UsageTree(int num_points) : num_points_(num_points) {
  while (size_ < num_points) size_ *= 2;
  added_.assign(static_cast<size_t>(2 * size_), 0);
  most_.assign(static_cast<size_t>(2 * size_), 0);
  // Points behind the last never count; half the range leaves room for adding.
  for (int p = num_points; p < size_; ++p) {
    most_[static_cast<size_t>(size_ + p)] = std::numeric_limits<int64_t>::min() / 2;
  }
  for (int i = size_ - 1; i >= 1; --i) {
    most_[static_cast<size_t>(i)] = std::max(most_[static_cast<size_t>(2 * i)], most_[static_cast<size_t>(2 * i + 1)]);
  }
}

void UsageTree::add(int first, int last, int64_t amount) {
  if (first >= last || amount == 0) return;
  // Bottom-up: the nodes that together are the range take the amount, their ancestors are computed anew.
  const auto apply = [&](int i) {
    added_[static_cast<size_t>(i)] += amount;
    most_[static_cast<size_t>(i)] += amount;
  };
  const int low = first + size_;
  const int high = last - 1 + size_;
  for (int l = low, r = high + 1; l < r; l /= 2, r /= 2) {
    if (l % 2 == 1) apply(l++);
    if (r % 2 == 1) apply(--r);
  }
  const auto rebuild = [&](int i) {
    for (i /= 2; i >= 1; i /= 2) {
      const auto n = static_cast<size_t>(i);
      most_[n] = std::max(most_[2 * n], most_[2 * n + 1]) + added_[n];
    }
  };
  rebuild(low);
  rebuild(high);
}

int UsageTree::where() const {
  if (num_points_ == 0) return -1;
  int i = 1;
  while (i < size_) {
    i *= 2;
    if (most_[static_cast<size_t>(i + 1)] > most_[static_cast<size_t>(i)]) ++i;
  }
  return i - size_;
}

int64_t UsageTree::at(int point) const {
  int64_t usage = most_[static_cast<size_t>(point + size_)];
  for (int i = (point + size_) / 2; i >= 1; i /= 2) usage += added_[static_cast<size_t>(i)];
  return usage;
}

}  // namespace tessera::solver
