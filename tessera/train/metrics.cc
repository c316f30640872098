#include "tessera/train/metrics.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::train {
namespace {

// Class numbers of labels that may be distributions.
std::vector<int64_t> classes_of(const Tensor& label) {
  const auto values = label.to_doubles();
  if (label.ndim() < 2) {
    std::vector<int64_t> classes;
    for (const double v : values) classes.push_back(static_cast<int64_t>(v));
    return classes;
  }
  const auto width = static_cast<size_t>(label.shape().back());
  std::vector<int64_t> classes;
  for (size_t row = 0; row * width < values.size(); ++row) {
    const auto begin = values.begin() + static_cast<int64_t>(row * width);
    classes.push_back(std::max_element(begin, begin + static_cast<int64_t>(width)) - begin);
  }
  return classes;
}

class TopK : public Metric {
 public:
  TopK(std::string name, int64_t k) : Metric(std::move(name)), k_(k) {
    if (k < 1) throw InvalidArgument("top-k accuracy: k must be at least 1, got {}", k);
  }
  void update(const Tensor& output, const Tensor& label, double, int64_t) override {
    if (output.ndim() != 2) throw InvalidArgument("{}: logits must be [n,c], got {}", name(), output.type());
    const auto logits = output.to_doubles();
    const auto labels = classes_of(label);
    const auto width = static_cast<size_t>(output.shape()[1]);
    check_equal(labels.size() * width, logits.size(), "labels and logits of a metric");
    for (size_t row = 0; row < labels.size(); ++row) {
      const double* values = logits.data() + row * width;
      const auto truth = static_cast<size_t>(labels[row]);
      count_ += 1;
      if (truth >= width) continue;
      // Of equal logits the first comes first, as in argmax.
      int64_t before = 0;
      for (size_t c = 0; c < width; ++c) {
        before += values[c] > values[truth] || (values[c] == values[truth] && c < truth) ? 1 : 0;
      }
      if (before < k_) sum_ += 1;
    }
  }

 private:
  int64_t k_;
};

class MeanLoss : public Metric {
 public:
  MeanLoss() : Metric("loss") {}
  bool is_global() const override { return true; }
  void update(const Tensor&, const Tensor&, double loss, int64_t loss_rows) override {
    sum_ += loss * static_cast<double>(loss_rows);
    count_ += static_cast<double>(loss_rows);
  }
};

}  // namespace

std::shared_ptr<Metric> accuracy() { return std::make_shared<TopK>("accuracy", 1); }
std::shared_ptr<Metric> top_k_accuracy(int64_t k) {
  return std::make_shared<TopK>(fmt::format("top_{}_accuracy", k), k);
}
std::shared_ptr<Metric> mean_loss() { return std::make_shared<MeanLoss>(); }

std::shared_ptr<Metric> make_metric(const std::string& name) {
  if (name == "accuracy" || name == "acc") return accuracy();
  if (name == "top_1_accuracy") return top_k_accuracy(1);
  if (name == "top_5_accuracy") return top_k_accuracy(5);
  if (name == "loss") return mean_loss();
  throw InvalidArgument("unknown metric \"{}\"; known: accuracy, top_1_accuracy, top_5_accuracy, loss", name);
}

}  // namespace tessera::train
