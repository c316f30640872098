#include "tessera/cluster/dashboard/figure_curve.h"

namespace tessera::cluster {

void FigureCurve::add(int64_t step, double value) {
  newest_.clear();
  if (!kept_.empty() && kept_.back().first >= step) {
    while (!kept_.empty() && kept_.back().first >= step) kept_.pop_back();
    num_skipped_ = stride_ - 1;
  }
  if (!kept_.empty() && ++num_skipped_ < stride_) {
    newest_.emplace_back(step, value);
    return;
  }
  num_skipped_ = 0;
  if (kept_.size() == most_) {
    for (size_t i = 1; 2 * i < kept_.size(); ++i) kept_[i] = kept_[2 * i];
    kept_.resize((most_ + 1) / 2);
    stride_ *= 2;
  }
  kept_.emplace_back(step, value);
}

std::vector<std::pair<int64_t, double>> FigureCurve::points() const {
  std::vector<std::pair<int64_t, double>> points = kept_;
  points.insert(points.end(), newest_.begin(), newest_.end());
  return points;
}

}  // namespace tessera::cluster
