#include "tessera/data/mixed_source.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::data {
namespace {

double open_uniform(const Draws& draws, uint64_t number) {
  return random_open_uniform(draws.stream, draws.position * Draws::kPerSample + number);
}

// From Beta(alpha, alpha), of two uniform numbers and without rejection: Devroye, "Random variate generation in one
// line of code", WSC 1996. Where the power overflows, the weight is an end of [0, 1].
double draw_weight(double alpha, double u, double v) {
  const double cosine = std::cos(2 * std::numbers::pi * v);
  const double ratio = (std::pow(u, -1 / alpha) - 1) * cosine * cosine;
  return 0.5 + std::copysign(0.5, cosine) / std::sqrt(1 + 1 / ratio);
}

// Numbers of a row's draws.
enum : uint64_t { kOther, kWeightRadius, kWeightAngle };
enum : uint64_t { kRow, kColumn };  // of the window's

void mix(const TensorView& one, const TensorView& other, float weight, const TensorView& output) {
  const auto* a = static_cast<const float*>(one.data);
  const auto* b = static_cast<const float*>(other.data);
  auto* out = static_cast<float*>(output.data);
  const float rest = 1 - weight;
  for (int64_t i = 0; i < output.num_elements(); ++i) out[i] = weight * a[i] + rest * b[i];
}

}  // namespace

MixedSource::MixedSource(std::shared_ptr<const Recipe> base, MixOptions options)
    : base_(std::move(base)),
      options_(std::move(options)),
      window_stream_(hash_name(fmt::format("{}.window", options_.stream))) {
  const auto& name = options_.name;
  if (!(options_.alpha > 0) || !std::isfinite(options_.alpha)) {
    throw InvalidArgument("{}: alpha must be a number above 0, got {}", name, options_.alpha);
  }
  if (options_.num_classes < 0) {
    throw InvalidArgument("{}: num_classes must be 0, where labels are f32, or positive, got {}", name,
                          options_.num_classes);
  }
  if (base_->repeat_count != 1) {
    throw InvalidArgument("{}: stands after repeat; put it before repeat, where an epoch has one order", name);
  }
  if (base_->order->options().num_shards > 1 && base_->num_samples() != base_->order->size()) {
    throw InvalidArgument(
        "{}: stands after take or skip of one of {} shards, whose rows would be mixed among themselves; put it before "
        "them, or leave num_shards out: training gives each rank its rows of the global batch",
        name, base_->order->options().num_shards);
  }
  for (size_t i = 0; i < base_->chains.size(); ++i) {
    columns_.push_back({base_->source->columns()[i].name, base_->column_type(i)});
    require_one_size(name, columns_.back());
  }
  if (columns_.size() < 2) {
    throw InvalidArgument("{}: needs columns to mix and, as the last, the label; the data set has {}", name,
                          columns_[0].name);
  }
  check_inputs();
  check_label();
}

void MixedSource::check_inputs() const {
  const auto& name = options_.name;
  if (!options_.cuts) {
    for (size_t i = 0; i + 1 < columns_.size(); ++i) {
      if (columns_[i].type.dtype == DType::kF32) continue;
      throw InvalidArgument(
          "{}: column \"{}\" is {}, and means are taken of f32: map it before, as by rescale, normalize or type_cast; "
          "or leave it out, with project",
          name, columns_[i].name, columns_[i].type);
    }
    return;
  }
  const Type& type = columns_[0].type;
  if (columns_.size() != 2 || type.shape.ndim() != 3) {
    throw InvalidArgument("{}: needs an image and a label, and column \"{}\" of {} is {}; project chooses columns",
                          name, columns_[0].name, columns_.size(), type);
  }
  // An image of a few channels the other way round would be cut through all of its height or width.
  constexpr int64_t kMostChannels = 4;
  const int64_t channels = type.shape[options_.has_channels_first ? 0 : 2];
  const int64_t other_end = type.shape[options_.has_channels_first ? 2 : 0];
  if (channels <= kMostChannels || other_end > kMostChannels) return;
  throw InvalidArgument("{}: column \"{}\" is {}, which looks like an image [{}]: say channels_first={}", name,
                        columns_[0].name, type, options_.has_channels_first ? "h,w,c" : "c,h,w",
                        !options_.has_channels_first);
}

void MixedSource::check_label() {
  Column& label = columns_.back();
  if (options_.num_classes > 0) {
    if (is_floating(label.type.dtype) || label.type.dtype == DType::kBool || label.type.shape.ndim() != 0) {
      throw InvalidArgument(
          "{}: num_classes is of labels that are class numbers, integers of shape []; the last column, \"{}\", is {}{}",
          options_.name, label.name, label.type,
          label.type.dtype == DType::kF32 ? ": leave num_classes out, it is mixed as it is" : "");
    }
    label.type = {DType::kF32, {options_.num_classes}};
    return;
  }
  if (label.type.dtype == DType::kF32) return;
  throw InvalidArgument(
      "{}: the last column, the label \"{}\", is {}: where it is a class number, num_classes says how many there are; "
      "else it must be f32",
      options_.name, label.name, label.type);
}

// Of the rows of the epoch: where stages only change their order, of all shards, else of those that are left.
SampleRef MixedSource::other_row(const SampleRef& sample, const Draws& draws) const {
  if (base_->num_samples() == base_->order->size()) {
    return base_->order->at(sample.epoch, draws.below(kOther, base_->order->num_positions()));
  }
  return base_->sample({sample.epoch, draws.below(kOther, base_->num_samples())});
}

// As wide and high a part of the image as leaves the weight to the first row, around a drawn place; what would stand
// over the edges is cut off.
MixedSource::Window MixedSource::draw_window(double weight, const Draws& draws) const {
  const Shape& shape = columns_[0].type.shape;
  const auto dim = static_cast<int>(height_dim());
  const double half = 0.5 * std::sqrt(1 - weight);
  const auto range = [&](int64_t size, uint64_t number) {
    const int64_t middle = draws.below(number, size);
    const auto reach = static_cast<int64_t>(half * static_cast<double>(size));
    const int64_t begin = std::max<int64_t>(middle - reach, 0);
    return std::pair(begin, std::min(middle + reach, size) - begin);
  };
  const auto [top, height] = range(shape[dim], kRow);
  const auto [left, width] = range(shape[dim + 1], kColumn);
  return {top, left, height, width};
}

int64_t MixedSource::class_of(const Tensor& label, const SampleRef& sample) const {
  const double number = label.to_doubles()[0];
  if (number < 0 || number >= static_cast<double>(options_.num_classes)) {
    throw InvalidArgument("{}: {}: label \"{}\" is {}, it must be in [0, {}), as num_classes says", options_.name,
                          sample_name(sample), columns_.back().name, number, options_.num_classes);
  }
  return static_cast<int64_t>(number);
}

void MixedSource::read(const SampleRef& sample, std::span<const TensorView> outputs) const {
  const uint64_t seed = base_->order->options().seed;
  const auto draws_of = [&](uint64_t stream) {
    return Draws{{seed, stream, static_cast<uint64_t>(sample.epoch)}, static_cast<uint64_t>(sample.position)};
  };
  const Draws draws = draws_of(options_.stream);
  const SampleRef other_sample = other_row(sample, draws);
  const std::vector<Tensor> one = base_->make_sample(sample);
  const std::vector<Tensor> other = base_->make_sample(other_sample);
  double weight = draw_weight(options_.alpha, open_uniform(draws, kWeightRadius), open_uniform(draws, kWeightAngle));
  const size_t last = outputs.size() - 1;
  if (options_.cuts) {
    const Window window = draw_window(weight, draws_of(window_stream_));
    copy_elements(one[0].view(), outputs[0]);
    const auto part_of = [&](TensorView image) {
      const auto dim = static_cast<int>(height_dim());
      const int64_t offset = window.top * image.strides[dim] + window.left * image.strides[dim + 1];
      image.data = static_cast<std::byte*>(image.data) + offset * static_cast<int64_t>(size_bytes(image.dtype));
      image.shape[dim] = window.height;
      image.shape[dim + 1] = window.width;
      return image;
    };
    const int64_t pixels = window.height * window.width;
    if (pixels > 0) copy_elements(part_of(other[0].view()), part_of(outputs[0]));
    const Shape& shape = columns_[0].type.shape;
    const auto dim = static_cast<int>(height_dim());
    weight = 1 - static_cast<double>(pixels) / static_cast<double>(shape[dim] * shape[dim + 1]);
  }
  const auto part = static_cast<float>(weight);
  for (size_t i = 0; i < last && !options_.cuts; ++i) mix(one[i].view(), other[i].view(), part, outputs[i]);
  if (options_.num_classes == 0) {
    mix(one[last].view(), other[last].view(), part, outputs[last]);
    return;
  }
  auto* probabilities = static_cast<float*>(outputs[last].data);
  std::fill_n(probabilities, options_.num_classes, 0.0F);
  const int64_t its_class = class_of(one[last], sample);
  const int64_t other_class = class_of(other[last], other_sample);
  probabilities[other_class] = 1 - part;
  probabilities[its_class] = its_class == other_class ? 1 : part;
}

}  // namespace tessera::data
