// Metrics: numbers that Model::eval computes over a whole data set, summed over all ranks.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::train {

// Counts on this rank; the model adds up the ranks' counts and makes one number of them.
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
  virtual void clear() { sum_ = count_ = 0; }
  // What is added up over the ranks, of one size on all of them: by default a sum and a count.
  virtual std::vector<double> counts() const { return {sum_, count_}; }
  // What the totals of all ranks say: by default their quotient, 0 for nothing counted.
  virtual double value(std::span<const double> totals) const { return totals[1] > 0 ? totals[0] / totals[1] : 0; }

 protected:
  double sum_ = 0;
  double count_ = 0;

 private:
  std::string name_;
};

// The part of rows whose largest logit is the label's. logits f32[n,c]; label [n] class numbers, or [n,c]
// distributions. A row with a logit that is NaN has no largest one, and is a miss; so it is for the metrics below.
// update() throws InvalidArgument for logits that are not [n,c], and for one column, whose accuracy would always be 1.
std::shared_ptr<Metric> accuracy();
// The part of rows whose label is among the k largest logits: all rows where there are k classes. Throws
// InvalidArgument for k < 1.
std::shared_ptr<Metric> top_k_accuracy(int64_t k);
// The mean loss per row.
std::shared_ptr<Metric> mean_loss();
// The sum of |output - label|, or of (output - label)^2, over the number of rows. Both of one size.
std::shared_ptr<Metric> mean_absolute_error();
std::shared_ptr<Metric> mean_squared_error();
// Averages over the classes: of the rows that the largest logit gives a class, the part that has it (precision); of the
// rows that have it, the part that is given it (recall); the harmonic mean of the two (f1). A class that no row has and
// no row is given counts 0. logits f32[n,num_classes]; labels as accuracy takes them. Throws InvalidArgument for fewer
// than one class; update() throws it for logits of another width and for a label that is no class.
std::shared_ptr<Metric> precision(int64_t num_classes);
std::shared_ptr<Metric> recall(int64_t num_classes);
std::shared_ptr<Metric> f1(int64_t num_classes);
// The same of as many classes as the first logits have columns.
std::shared_ptr<Metric> precision();
std::shared_ptr<Metric> recall();
std::shared_ptr<Metric> f1();
// The area under the ROC curve: how likely a row of class 1 has a higher score than one of class 0, equal scores
// counted half. Scores are compared as bfloat16, so that what ranks add up are counts, and the area is that of all rows
// on any number of ranks. Output floating [n] or [n,1], the score; or [n,2], logits, whose difference is. Labels 0 and
// 1, [n] or [n,1], or distributions [n,2]. A score that is NaN is ranked wrong. update() throws InvalidArgument for
// other shapes and labels, value() where rows of one class only were counted; it is 0 for nothing counted.
std::shared_ptr<Metric> auc();
// Returns the metric of the name "accuracy" (or "acc"), "top_K_accuracy" (K a number), "precision", "recall", "f1",
// "auc", "loss", "mae", "mse". Throws InvalidArgument listing them.
std::shared_ptr<Metric> make_metric(const std::string& name);

}  // namespace tessera::train
