#include "tessera/executor/task_orders.h"

namespace tessera::executor {
namespace {

bool overlap(const std::vector<ByteRange>& a, const std::vector<ByteRange>& b) {
  for (const ByteRange& x : a) {
    for (const ByteRange& y : b) {
      const bool both = x.bytes > 0 && y.bytes > 0;
      if (both && x.begin < y.begin + y.bytes && y.begin < x.begin + x.bytes) return true;
    }
  }
  return false;
}

bool have_order(const Touched& a, const Touched& b) {
  return overlap(a.writes, b.writes) || overlap(a.writes, b.reads) || overlap(a.reads, b.writes);
}

}  // namespace

ByteRange range_of(const TensorView& view) {
  if (view.num_elements() == 0) return {};
  int64_t last = 0;
  for (int d = 0; d < view.shape.ndim(); ++d) last += (view.shape[d] - 1) * view.strides[d];
  return {reinterpret_cast<uintptr_t>(view.data), static_cast<size_t>(last + 1) * size_bytes(view.dtype)};
}

std::vector<std::vector<int>> orders_of(const std::vector<Touched>& tasks) {
  std::vector<std::vector<int>> after(tasks.size());
  std::vector<std::vector<bool>> follows(tasks.size());  // all that a task follows, through others, too
  for (size_t i = 0; i < tasks.size(); ++i) {
    follows[i].resize(i);
    for (size_t j = i; j-- > 0;) {
      if (follows[i][j] || !have_order(tasks[i], tasks[j])) continue;
      after[i].push_back(static_cast<int>(j));
      follows[i][j] = true;
      for (size_t k = 0; k < j; ++k) {
        if (follows[j][k]) follows[i][k] = true;
      }
    }
  }
  return after;
}

}  // namespace tessera::executor
