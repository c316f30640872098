// MixedSource: a source each of whose rows is made of two rows of another data set, as Dataset::mixup() and cutmix()
// say. Internal to data/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/data/recipe.h"

namespace tessera::data {

struct MixOptions {
  std::string name;                 // "mixup" or "cutmix": for messages
  uint64_t stream = 0;              // the name of its draws
  double alpha = 1;                 // of the distribution of weights
  int64_t num_classes = 0;          // of labels that are class numbers; 0: labels are f32
  bool cuts = false;                // takes a window of the other row instead of a mean
  bool has_channels_first = false;  // what is cut is [c,h,w], not [h,w,c]
};

class MixedSource : public Source {
 public:
  // Throws InvalidArgument for options and columns that do not fit.
  MixedSource(std::shared_ptr<const Recipe> base, MixOptions options);

  const std::vector<Column>& columns() const override { return columns_; }
  int64_t size() const override { return base_->source->size(); }
  std::string to_string() const override { return base_->source->to_string(); }
  SourceState* own_state() const override { return base_->source->own_state(); }
  uint64_t content_hash() const override { return base_->source->content_hash(); }
  std::string sample_name(const SampleRef& sample) const override { return base_->source->sample_name(sample); }
  void read(const SampleRef& sample, std::span<const TensorView> outputs) const override;

 private:
  struct Window {
    int64_t top = 0, left = 0, height = 0, width = 0;
  };

  void check_inputs() const;
  void check_label();
  SampleRef other_row(const SampleRef& sample, const Draws& draws) const;
  Window draw_window(double weight, const Draws& draws) const;
  // The label's class. Throws InvalidArgument where it is none.
  int64_t class_of(const Tensor& label, const SampleRef& sample) const;
  size_t height_dim() const { return options_.has_channels_first ? 1 : 0; }

  std::shared_ptr<const Recipe> base_;
  MixOptions options_;
  std::vector<Column> columns_;
  uint64_t window_stream_;
};

}  // namespace tessera::data
