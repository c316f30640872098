// Occupied memory over time: which bytes are taken at which steps, asked for the lowest place that is free for a while.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::compiler {

class Occupied {
 public:
  // It covers the steps 0 to num_steps - 1.
  explicit Occupied(int num_steps);

  // The lowest place of so many bytes that is free in all steps from `first` to `last`, both included.
  int64_t lowest_place(int64_t bytes, int first, int last) const;
  // Those bytes are taken in these steps.
  void take(int64_t at, int64_t bytes, int first, int last);

 private:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  // Disjoint, ascending; no two touch.
  using Ranges = std::vector<Range>;
  // Of so many steps, a power of two, which halve into those of its children.
  struct Span {
    Ranges throughout;  // what was taken in all of its steps at once
    Ranges sometime;    // what is taken in any of its steps
  };
  struct Steps {
    int first = 0;
    int last = 0;
  };
  static void add(Ranges& ranges, Range range);
  // In the span `index`, which is of the steps `own`.
  void take(size_t index, Steps own, Range range, Steps steps);
  // Calls visit(ranges) with what is taken in some of these steps: all of it is in one of them.
  template <typename Visit>
  void collect(size_t index, Steps own, Steps steps, const Visit& visit) const;

  int num_leaves_ = 1;
  std::vector<Span> spans_;  // a heap: the children of i are 2i and 2i + 1, the root is 1
};

}  // namespace tessera::compiler
