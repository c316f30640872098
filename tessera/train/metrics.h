// Metrics: numbers that Model::eval computes over a whole data set, summed over all ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::train {

// Accumulates (sum, count) on this rank; the model adds up the ranks' and divides.
class Metric {
 public:
  explicit Metric(std::string name) : name_(std::move(name)) {}
  virtual ~Metric() = default;
  const std::string& name() const { return name_; }
  // output: this rank's rows of the network's result; label: those of the last column; loss: the batch's loss, over
  // `loss_rows` rows in all.
  virtual void update(const Tensor& output, const Tensor& label, double loss, int64_t loss_rows) = 0;
  // Whether every rank counts the same (the loss of a global batch) instead of its own rows.
  virtual bool is_global() const { return false; }
  void clear() { sum_ = count_ = 0; }
  double sum() const { return sum_; }
  double count() const { return count_; }

 protected:
  double sum_ = 0;
  double count_ = 0;

 private:
  std::string name_;
};

// The part of rows whose largest logit is the label's. logits f32[n,c]; label [n] class numbers, or [n,c]
// distributions.
std::shared_ptr<Metric> accuracy();
// The part of rows whose label is among the k largest logits. Throws InvalidArgument for k < 1.
std::shared_ptr<Metric> top_k_accuracy(int64_t k);
// The mean loss per row.
std::shared_ptr<Metric> mean_loss();
// By the names "accuracy" (or "acc"), "top_1_accuracy", "top_5_accuracy", "loss". Throws InvalidArgument listing them.
std::shared_ptr<Metric> make_metric(const std::string& name);

}  // namespace tessera::train
