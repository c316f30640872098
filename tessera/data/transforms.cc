#include <algorithm>
#include <cmath>

#include "tessera/base/strings.h"
#include "tessera/data/image_kernels.h"
#include "tessera/data/image_transforms.h"
#include "tessera/data/source.h"

namespace tessera::data {
namespace {

void require_image(const char* who, const Type& input) {
  if (input.shape.ndim() != 3 || input.shape.num_elements() == 0) {
    throw InvalidArgument("{}: needs an image [height, width, channels] that is not empty, got {}", who, input);
  }
}

void require_u8_or_f32(const char* who, const Type& input) {
  if (input.dtype != DType::kU8 && input.dtype != DType::kF32) {
    throw InvalidArgument("{}: needs u8 or f32, got {}; put type_cast before it", who, input);
  }
}

std::string list(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + shortest(value);
  return "{" + text + "}";
}

int64_t pixel_bytes(const TensorView& image) { return image.shape[2] * static_cast<int64_t>(size_bytes(image.dtype)); }

// Calls row(pointers to `n` elements in, out, ...) with in as f32 or u8.
void finish_any(const TensorView& input, int64_t offset, int64_t n, const Finish& finish, float* out) {
  if (input.dtype == DType::kU8) {
    finish_u8(static_cast<const uint8_t*>(input.data) + offset, n, finish, out);
  } else {
    finish_f32(static_cast<const float*>(input.data) + offset, n, finish, out);
  }
}

class TypeCast : public TransformOp {
 public:
  explicit TypeCast(DType dtype) : dtype_(dtype) {}
  std::string to_string() const override { return fmt::format("type_cast({})", dtype_); }
  Type output_type(const Type& input) const override { return {dtype_, input.shape}; }
  void apply(const TensorView& input, const TensorView& output, const Draws&) const override {
    copy_elements(input, output);
  }

 private:
  DType dtype_;
};

class Custom : public TransformOp {
 public:
  Custom(std::string name, std::function<Type(const Type&)> output_type,
         std::function<void(const TensorView&, const TensorView&, const Draws&)> apply)
      : name_(std::move(name)), output_type_(std::move(output_type)), apply_(std::move(apply)) {
    if (!output_type_ || !apply_) throw InvalidArgument("custom transform \"{}\": needs both functions", name_);
  }
  std::string to_string() const override { return name_ + "()"; }
  Type output_type(const Type& input) const override {
    if (has_any_size(input)) {
      throw InvalidArgument("{}: takes images of one size; put a resize or crop to one size before it", name_);
    }
    return output_type_(input);
  }
  void apply(const TensorView& input, const TensorView& output, const Draws& draws) const override {
    apply_(input, output, draws);
  }

 private:
  std::string name_;
  std::function<Type(const Type&)> output_type_;
  std::function<void(const TensorView&, const TensorView&, const Draws&)> apply_;
};

}  // namespace

Tensor TransformOp::make(const TensorView& input, const Draws& draws) const {
  Tensor output(output_type({input.dtype, input.shape}));
  apply(input, output.view(), draws);
  return output;
}

Tensor Transform::operator()(const Tensor& input, const Draws& draws) const { return op_->make(input.view(), draws); }

std::string RandomCrop::to_string() const {
  return fmt::format("random_crop({}x{}, padding {} {} {} {})", size.height, size.width, padding.left, padding.top,
                     padding.right, padding.bottom);
}

Type RandomCrop::output_type(const Type& input) const {
  require_image("random_crop", input);
  const int64_t height = input.shape[0] + padding.top + padding.bottom;
  const int64_t width = input.shape[1] + padding.left + padding.right;
  if (has_any_size(input)) return {input.dtype, {size.height, size.width, input.shape[2]}};
  if (size.height > height || size.width > width) {
    throw InvalidArgument(
        "random_crop: window {}x{} does not fit the padded image {}x{}; give more padding "
        "(pad_if_needed is not supported)",
        size.height, size.width, height, width);
  }
  return {input.dtype, {size.height, size.width, input.shape[2]}};
}

RandomCrop::Corner RandomCrop::draw(const Shape& image, const Draws& draws) const {
  const int64_t rows = image[0] + padding.top + padding.bottom - size.height + 1;
  const int64_t columns = image[1] + padding.left + padding.right - size.width + 1;
  return {draws.below(0, rows) - padding.top, draws.below(1, columns) - padding.left};
}

void RandomCrop::apply(const TensorView& input, const TensorView& output, const Draws& draws) const {
  const Corner corner = draw(input.shape, draws);
  cut_window(static_cast<const uint8_t*>(input.data), input.shape[0], input.shape[1], pixel_bytes(input),
             {.top = corner.top, .left = corner.left, .height = size.height, .width = size.width},
             static_cast<uint8_t*>(output.data));
}

std::string RandomHorizontalFlip::to_string() const {
  return fmt::format("random_horizontal_flip({})", shortest(prob));
}

Type RandomHorizontalFlip::output_type(const Type& input) const {
  require_image("random_horizontal_flip", input);
  return input;
}

void RandomHorizontalFlip::apply(const TensorView& input, const TensorView& output, const Draws& draws) const {
  cut_window(static_cast<const uint8_t*>(input.data), input.shape[0], input.shape[1], pixel_bytes(input),
             {.height = input.shape[0], .width = input.shape[1], .flip = draw(draws)},
             static_cast<uint8_t*>(output.data));
}

std::string Resize::to_string() const {
  return shorter_side > 0 ? fmt::format("resize_shorter_side({})", shorter_side)
                          : fmt::format("resize({}x{})", size.height, size.width);
}

Type Resize::output_type(const Type& input) const {
  require_image("resize", input);
  require_u8_or_f32("resize", input);
  ImageSize to = size;
  if (shorter_side > 0) {
    const int64_t height = input.shape[0];
    const int64_t width = input.shape[1];
    if (has_any_size(input)) return {input.dtype, {kAnySize, kAnySize, input.shape[2]}};
    to = height < width ? ImageSize(shorter_side, shorter_side * width / height)
                        : ImageSize(shorter_side * height / width, shorter_side);
  }
  return {input.dtype, {to.height, to.width, input.shape[2]}};
}

void Resize::apply(const TensorView& input, const TensorView& output, const Draws&) const {
  const int64_t channels = input.shape[2];
  const int64_t row = input.shape[1] * channels;
  const int64_t out_row = output.shape[1] * channels;
  const std::vector<Tap> columns = make_taps(input.shape[1], output.shape[1]);
  const std::vector<Tap> rows = make_taps(input.shape[0], output.shape[0]);
  std::vector<float> source(static_cast<size_t>(row));
  std::vector<float> wide(static_cast<size_t>(input.shape[0] * out_row));
  for (int64_t y = 0; y < input.shape[0]; ++y) {
    const float* from = source.data();
    if (input.dtype == DType::kU8) {
      to_float(static_cast<const uint8_t*>(input.data) + y * row, row, source.data());
    } else {
      from = static_cast<const float*>(input.data) + y * row;
    }
    resample_row(from, columns.data(), output.shape[1], channels, wide.data() + y * out_row);
  }
  for (int64_t y = 0; y < output.shape[0]; ++y) {
    const Tap& tap = rows[static_cast<size_t>(y)];
    const float* a = wide.data() + tap.first * out_row;
    const float* b = wide.data() + tap.second * out_row;
    if (input.dtype == DType::kU8) {
      blend_u8(a, b, tap.weight, out_row, static_cast<uint8_t*>(output.data) + y * out_row);
    } else {
      blend_f32(a, b, tap.weight, out_row, static_cast<float*>(output.data) + y * out_row);
    }
  }
}

std::string Rescale::to_string() const { return fmt::format("rescale({}, {})", shortest(scale), shortest(shift)); }

Type Rescale::output_type(const Type& input) const {
  require_u8_or_f32("rescale", input);
  return {DType::kF32, input.shape};
}

void Rescale::apply(const TensorView& input, const TensorView& output, const Draws&) const {
  constexpr int64_t kBlock = 256;
  constexpr std::array<float, kBlock> zeros{};
  std::array<float, kBlock> ones;
  ones.fill(1);
  const Finish finish{static_cast<float>(scale), static_cast<float>(shift), zeros.data(), ones.data()};
  const int64_t n = input.num_elements();
  for (int64_t i = 0; i < n; i += kBlock) {
    finish_any(input, i, std::min(kBlock, n - i), finish, static_cast<float*>(output.data) + i);
  }
}

Normalize::Normalize(std::vector<double> mean, std::vector<double> std, bool channels_first)
    : mean(std::move(mean)), std(std::move(std)), channels_first(channels_first) {
  if (this->mean.size() != this->std.size() || this->mean.empty()) {
    throw InvalidArgument("normalize: needs one mean and one std per channel, or one for all, got {} and {} numbers",
                          this->mean.size(), this->std.size());
  }
  for (const double value : this->std) {
    if (!(value > 0)) throw InvalidArgument("normalize: std must be positive, got {}", shortest(value));
    inverse_std_f32.push_back(static_cast<float>(1 / value));
  }
  for (const double value : this->mean) mean_f32.push_back(static_cast<float>(value));
}

std::string Normalize::to_string() const {
  return fmt::format("normalize({}, {}{})", list(mean), list(std), channels_first ? ", channels_first" : "");
}

Type Normalize::output_type(const Type& input) const {
  require_image("normalize", input);
  require_u8_or_f32("normalize", input);
  const int64_t channels = input.shape[channels_first ? 0 : 2];
  if (mean.size() != 1 && channels != static_cast<int64_t>(mean.size())) {
    throw InvalidArgument("normalize: {} means for the {} channels of {}, which it takes for [{}]{}", mean.size(),
                          channels, input, channels_first ? "c, h, w" : "h, w, c",
                          channels_first ? "" : "; put hwc2chw after it, or say channels_first");
  }
  return {DType::kF32, input.shape};
}

void Normalize::apply(const TensorView& input, const TensorView& output, const Draws&) const {
  const int64_t row = input.shape[1] * input.shape[2];
  const auto channels = static_cast<size_t>(input.shape[2]);
  std::vector<float> means(static_cast<size_t>(row));
  std::vector<float> inverses(static_cast<size_t>(row));
  for (int64_t y = 0; y < input.shape[0]; ++y) {
    for (size_t i = 0; i < means.size() && (y == 0 || channels_first); ++i) {
      const size_t channel = channels_first ? static_cast<size_t>(y) : i % channels;
      means[i] = mean_of(channel);
      inverses[i] = inverse_std_of(channel);
    }
    const Finish finish{1, 0, means.data(), inverses.data()};
    finish_any(input, y * row, row, finish, static_cast<float*>(output.data) + y * row);
  }
}

Type Hwc2Chw::output_type(const Type& input) const {
  require_image("hwc2chw", input);
  return {input.dtype, {input.shape[2], input.shape[0], input.shape[1]}};
}

void Hwc2Chw::apply(const TensorView& input, const TensorView& output, const Draws&) const {
  const int64_t width = input.shape[1];
  const int64_t channels = input.shape[2];
  copy_elements({input.data, input.dtype, output.shape, {1, width * channels, channels}}, output);
}

Transform random_crop(ImageSize size, Padding padding) {
  if (size.height < 1 || size.width < 1) {
    throw InvalidArgument("random_crop: size must be positive, got {}x{}", size.height, size.width);
  }
  if (std::min({padding.left, padding.top, padding.right, padding.bottom}) < 0) {
    throw InvalidArgument("random_crop: padding must not be negative, got {} {} {} {}", padding.left, padding.top,
                          padding.right, padding.bottom);
  }
  return Transform(std::make_shared<RandomCrop>(size, padding));
}

Transform random_horizontal_flip(double prob) {
  if (std::isnan(prob) || prob < 0 || prob > 1) {
    throw InvalidArgument("random_horizontal_flip: prob must be in [0, 1], got {}", shortest(prob));
  }
  return Transform(std::make_shared<RandomHorizontalFlip>(prob));
}

Transform resize(ImageSize size) {
  if (size.height < 1 || size.width < 1) {
    throw InvalidArgument("resize: size must be positive, got {}x{}", size.height, size.width);
  }
  return Transform(std::make_shared<Resize>(size, 0));
}

Transform resize_shorter_side(int64_t side) {
  if (side < 1) throw InvalidArgument("resize_shorter_side: side must be positive, got {}", side);
  return Transform(std::make_shared<Resize>(ImageSize(), side));
}

Transform rescale(double rescale, double shift) { return Transform(std::make_shared<Rescale>(rescale, shift)); }

Transform normalize(std::vector<double> mean, std::vector<double> std, bool channels_first) {
  return Transform(std::make_shared<Normalize>(std::move(mean), std::move(std), channels_first));
}

Transform hwc2chw() { return Transform(std::make_shared<Hwc2Chw>()); }

Transform type_cast(DType dtype) { return Transform(std::make_shared<TypeCast>(dtype)); }

Transform custom(std::string name, std::function<Type(const Type&)> output_type,
                 std::function<void(const TensorView&, const TensorView&, const Draws&)> apply) {
  return Transform(std::make_shared<Custom>(std::move(name), std::move(output_type), std::move(apply)));
}

}  // namespace tessera::data
