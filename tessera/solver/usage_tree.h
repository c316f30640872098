// What is in use at each time point, where choices change one at a time: adding over a range and finding the largest
// take time logarithmic in the number of points.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::solver {

class UsageTree {
 public:
  explicit UsageTree(int num_points);

  // Adds to the points first <= p < last.
  void add(int first, int last, int64_t amount);
  // Over all points; 0 where there is none.
  int64_t largest() const { return num_points_ > 0 ? most_[1] : 0; }
  // The first point of the largest usage; -1 where there is none.
  int where() const;
  int64_t at(int point) const;

 private:
  // What each node of the tree holds: what was added to its whole range, and the largest usage in the range with that.
  std::vector<int64_t> added_;
  std::vector<int64_t> most_;
  int num_points_;
  int size_ = 1;  // a power of two
};

}  // namespace tessera::solver
