// FigureCurve: how a number went over the steps of a training, in a bounded number of points: where there is no room
// for one more, every second point goes, and from then on only every second one of those that come is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::cluster {

class FigureCurve {
 public:
  // A curve of fewer than two points has two.
  explicit FigureCurve(size_t most_points) : most_(most_points < 2 ? 2 : most_points) {}

  // A training that has gone back, as after a loss, goes on from there: points of this and later steps are forgotten.
  void add(int64_t step, double value);
  // In the order of the steps; the newest is among them.
  std::vector<std::pair<int64_t, double>> points() const;

 private:
  size_t most_;
  size_t stride_ = 1;       // one of so many points is kept
  size_t num_skipped_ = 0;  // since the last that was kept
  std::vector<std::pair<int64_t, double>> kept_;
  std::vector<std::pair<int64_t, double>> newest_;  // the newest point, where it is not kept
};

}  // namespace tessera::cluster
