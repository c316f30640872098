#include "tessera/train/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/tensor/half.h"

namespace tessera::train {
namespace {

// The first of the largest.
int64_t place_of_largest(std::span<const double> values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

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
    classes.push_back(place_of_largest({values.data() + row * width, width}));
  }
  return classes;
}

// A row with a logit that is NaN has no largest ones.
bool is_ordered(std::span<const double> logits) {
  return std::none_of(logits.begin(), logits.end(), [](double v) { return std::isnan(v); });
}

class TopK : public Metric {
 public:
  TopK(std::string name, int64_t k, int64_t least_width = 1)
      : Metric(std::move(name)), k_(k), least_width_(least_width) {
    if (k < 1) throw InvalidArgument("top-k accuracy: k must be at least 1, got {}", k);
  }
  void update(const Tensor& output, const Tensor& label, double, int64_t) override {
    if (output.ndim() != 2) {
      throw InvalidArgument("{}: logits must be [n,c], a column per class, got {} with labels {}", name(),
                            output.type(), label.type());
    }
    const auto logits = output.to_doubles();
    if (output.shape()[1] < least_width_) {
      throw InvalidArgument(
          "{}: needs a column per class, got logits {}, whose largest column is always the first; end the network with "
          "a column for each class (two for yes and no), or use a metric of your own",
          name(), output.type());
    }
    const auto labels = classes_of(label);
    const auto width = static_cast<size_t>(output.shape()[1]);
    check_equal(labels.size() * width, logits.size(), "labels and logits of a metric");
    for (size_t row = 0; row < labels.size(); ++row) {
      const double* values = logits.data() + row * width;
      const auto truth = static_cast<size_t>(labels[row]);
      count_ += 1;
      if (truth >= width || !is_ordered({values, width})) continue;
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
  int64_t least_width_;
};

// The places of the largest logits of each row, the first of equals; -1 where a row has none.
std::vector<int64_t> largest_of(const Tensor& logits, const std::string& who) {
  if (logits.ndim() != 2) throw InvalidArgument("{}: logits must be [n,c], got {}", who, logits.type());
  const auto values = logits.to_doubles();
  const auto width = static_cast<size_t>(logits.shape()[1]);
  std::vector<int64_t> places;
  for (size_t row = 0; row * width < values.size(); ++row) {
    const std::span<const double> of_row(values.data() + row * width, width);
    places.push_back(is_ordered(of_row) ? place_of_largest(of_row) : -1);
  }
  return places;
}

// Mean of a power of |output - label|.
class MeanError : public Metric {
 public:
  MeanError(std::string name, bool squared) : Metric(std::move(name)), squared_(squared) {}
  void update(const Tensor& output, const Tensor& label, double, int64_t) override {
    const auto given = output.to_doubles();
    const auto wanted = label.to_doubles();
    if (given.size() != wanted.size() || output.ndim() == 0) {
      throw InvalidArgument("{}: output and label must be rows of one size, got {} and {}", name(), output.type(),
                            label.type());
    }
    for (size_t i = 0; i < given.size(); ++i) {
      const double apart = std::abs(given[i] - wanted[i]);
      sum_ += squared_ ? apart * apart : apart;
    }
    count_ += static_cast<double>(output.shape()[0]);
  }

 private:
  bool squared_;
};

// What a class's rows are counted as.
struct ClassCounts {
  double hits = 0;   // have it and are given it
  double given = 0;  // by the largest logit
  double had = 0;    // by the label
};

class OfClasses : public Metric {
 public:
  using Score = double (*)(const ClassCounts&);
  // Of as many classes as the first logits have columns.
  OfClasses(std::string name, Score score) : Metric(std::move(name)), score_(score) {}
  OfClasses(std::string name, int64_t num_classes, Score score) : OfClasses(std::move(name), score) {
    if (num_classes < 1) throw InvalidArgument("{}: num_classes must be at least 1, got {}", this->name(), num_classes);
    classes_.resize(static_cast<size_t>(num_classes));
  }
  void clear() override { std::fill(classes_.begin(), classes_.end(), ClassCounts()); }
  void update(const Tensor& output, const Tensor& label, double, int64_t) override {
    const auto given = largest_of(output, name());
    const auto had = classes_of(label);
    if (classes_.empty()) classes_.resize(static_cast<size_t>(output.shape()[1]));
    if (output.shape()[1] != static_cast<int64_t>(classes_.size()) || given.size() != had.size()) {
      throw InvalidArgument("{}: has {} classes, got logits {} and labels {}", name(), classes_.size(), output.type(),
                            label.type());
    }
    for (size_t row = 0; row < had.size(); ++row) {
      if (had[row] < 0 || had[row] >= static_cast<int64_t>(classes_.size())) {
        throw InvalidArgument("{}: label of row {} must be in [0, {}), got {}", name(), row, classes_.size(), had[row]);
      }
      ClassCounts& own = classes_[static_cast<size_t>(had[row])];
      own.had += 1;
      own.hits += given[row] == had[row] ? 1 : 0;
      if (given[row] >= 0) classes_[static_cast<size_t>(given[row])].given += 1;
    }
  }
  std::vector<double> counts() const override {
    std::vector<double> all;
    for (const ClassCounts& of : classes_) all.insert(all.end(), {of.hits, of.given, of.had});
    return all;
  }
  double value(std::span<const double> totals) const override {
    double sum = 0;
    for (size_t i = 0; i < totals.size(); i += 3) sum += score_({totals[i], totals[i + 1], totals[i + 2]});
    return classes_.empty() ? 0 : sum / static_cast<double>(classes_.size());
  }

 private:
  Score score_;
  std::vector<ClassCounts> classes_;
};

// Places of bfloat16 numbers in their order, from -infinity to infinity. Both zeros have one place.
constexpr size_t kNumPlaces = size_t{2} << 15;
size_t place_of(double score) {
  const uint32_t bits = BFloat16(static_cast<float>(score) + 0.0F).bits;
  const bool is_negative = (bits & 0x8000) != 0;
  const size_t magnitude = bits & 0x7fff;
  return is_negative ? kNumPlaces / 2 - magnitude : kNumPlaces / 2 + magnitude;
}

class AreaUnderCurve : public Metric {
 public:
  AreaUnderCurve() : Metric("auc") { clear(); }
  // By place how many rows of class 0 have that score, then how many of class 1.
  void clear() override { counts_.assign(2 * kNumPlaces, 0); }
  void update(const Tensor& output, const Tensor& label, double, int64_t) override {
    const bool is_column = output.ndim() == 1 || (output.ndim() == 2 && output.shape()[1] == 1);
    const bool is_pair = output.ndim() == 2 && output.shape()[1] == 2;
    if (!is_column && !is_pair) {
      throw InvalidArgument("auc: output must be [n], [n,1] or [n,2], the scores of two classes, got {}",
                            output.type());
    }
    const auto values = output.to_doubles();
    const auto rows = static_cast<size_t>(output.shape()[0]);
    const bool is_distribution = label.ndim() == 2 && label.shape()[1] == 2;
    const auto labels = is_distribution ? std::vector<double>() : label.to_doubles();
    const auto classes = is_distribution ? classes_of(label) : std::vector<int64_t>();
    const size_t num_labels = is_distribution ? classes.size() : labels.size();
    if (num_labels != rows) {
      throw InvalidArgument("auc: needs a label for each row, got output {} and labels {}", output.type(),
                            label.type());
    }
    for (size_t row = 0; row < rows; ++row) {
      const double given = is_distribution ? static_cast<double>(classes[row]) : labels[row];
      if (given != 0 && given != 1) throw InvalidArgument("auc: label of row {} must be 0 or 1, got {}", row, given);
      const bool is_positive = given == 1;
      const double score = is_column ? values[row] : values[2 * row + 1] - values[2 * row];
      const size_t wrong = is_positive ? 0 : kNumPlaces - 1;
      counts_[(is_positive ? kNumPlaces : 0) + (std::isnan(score) ? wrong : place_of(score))] += 1;
    }
  }
  std::vector<double> counts() const override { return counts_; }
  double value(std::span<const double> totals) const override {
    double negatives = 0;  // with a lower score
    double positives = 0;
    double won = 0;
    for (size_t place = 0; place < kNumPlaces; ++place) {
      const double tied = totals[place];
      const double here = totals[kNumPlaces + place];
      won += here * (negatives + tied / 2);
      negatives += tied;
      positives += here;
    }
    if (negatives + positives == 0) return 0;
    if (negatives == 0 || positives == 0) {
      throw InvalidArgument("auc: needs rows of both classes, all {:.0f} have label {}", negatives + positives,
                            negatives == 0 ? 1 : 0);
    }
    return won / negatives / positives;
  }

 private:
  std::vector<double> counts_;
};

double quotient(double part, double whole) { return whole > 0 ? part / whole : 0; }

double score_precision(const ClassCounts& of) { return quotient(of.hits, of.given); }
double score_recall(const ClassCounts& of) { return quotient(of.hits, of.had); }
double score_f1(const ClassCounts& of) { return quotient(2 * of.hits, of.given + of.had); }

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

std::shared_ptr<Metric> accuracy() { return std::make_shared<TopK>("accuracy", 1, /*least_width=*/2); }
std::shared_ptr<Metric> top_k_accuracy(int64_t k) {
  return std::make_shared<TopK>(fmt::format("top_{}_accuracy", k), k);
}
std::shared_ptr<Metric> mean_loss() { return std::make_shared<MeanLoss>(); }

std::shared_ptr<Metric> mean_absolute_error() { return std::make_shared<MeanError>("mae", /*squared=*/false); }
std::shared_ptr<Metric> mean_squared_error() { return std::make_shared<MeanError>("mse", /*squared=*/true); }
std::shared_ptr<Metric> precision(int64_t num_classes) {
  return std::make_shared<OfClasses>("precision", num_classes, score_precision);
}
std::shared_ptr<Metric> recall(int64_t num_classes) {
  return std::make_shared<OfClasses>("recall", num_classes, score_recall);
}
std::shared_ptr<Metric> f1(int64_t num_classes) { return std::make_shared<OfClasses>("f1", num_classes, score_f1); }
std::shared_ptr<Metric> precision() { return std::make_shared<OfClasses>("precision", score_precision); }
std::shared_ptr<Metric> recall() { return std::make_shared<OfClasses>("recall", score_recall); }
std::shared_ptr<Metric> f1() { return std::make_shared<OfClasses>("f1", score_f1); }
std::shared_ptr<Metric> auc() { return std::make_shared<AreaUnderCurve>(); }

namespace {

// K of "top_K_accuracy"; 0 for another name.
int64_t k_of(std::string_view name) {
  constexpr std::string_view kBegin = "top_";
  constexpr std::string_view kEnd = "_accuracy";
  if (name.size() <= kBegin.size() + kEnd.size() || !name.starts_with(kBegin) || !name.ends_with(kEnd)) return 0;
  const auto digits = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  int64_t k = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), k);
  return error == std::errc() && end == digits.data() + digits.size() ? k : 0;
}

}  // namespace

std::shared_ptr<Metric> make_metric(const std::string& name) {
  if (name == "accuracy" || name == "acc") return accuracy();
  if (const int64_t k = k_of(name); k > 0) return top_k_accuracy(k);
  if (name == "precision") return precision();
  if (name == "recall") return recall();
  if (name == "f1") return f1();
  if (name == "auc") return auc();
  if (name == "loss") return mean_loss();
  if (name == "mae") return mean_absolute_error();
  if (name == "mse") return mean_squared_error();
  throw InvalidArgument(
      "unknown metric \"{}\"; known: accuracy, top_K_accuracy (K a number), precision, recall, f1, auc, loss, mae, mse",
      name);
}

}  // namespace tessera::train
