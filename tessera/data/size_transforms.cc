// Transforms that bring images of different sizes to one: what folders of images need.
#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/data/image_file.h"
#include "tessera/data/image_kernels.h"
#include "tessera/data/image_transforms.h"
#include "tessera/data/source.h"

namespace tessera::data {
namespace {

void require_decoded_image(const char* who, const Type& input) {
  if (input.shape.ndim() != 3 || input.shape.num_elements() == 0) {
    throw InvalidArgument(
        "{}: needs an image [height, width, channels] that is not empty, got {}; put decode before it", who, input);
  }
}

ImageSize require_size(const char* who, ImageSize size) {
  if (size.height < 1 || size.width < 1) {
    throw InvalidArgument("{}: size must be positive, got {}x{}", who, size.height, size.width);
  }
  return size;
}

class Decode : public TransformOp {
 public:
  std::string to_string() const override { return "decode()"; }
  Type output_type(const Type& input) const override {
    if (input.dtype != DType::kU8 || input.shape.ndim() != 1) {
      throw InvalidArgument("decode: needs the bytes u8[size] of a file, got {}", input);
    }
    return {DType::kU8, {kAnySize, kAnySize, 3}};
  }
  void apply(const TensorView&, const TensorView&, const Draws&) const override {
    check(false, "decode() makes a tensor of its own");
  }
  Tensor make(const TensorView& input, const Draws&) const override {
    output_type({input.dtype, input.shape});
    return decode_image({static_cast<const std::byte*>(input.data), static_cast<size_t>(input.num_elements())});
  }
};

class CenterCrop : public TransformOp {
 public:
  explicit CenterCrop(ImageSize size) : size_(require_size("center_crop", size)) {}
  std::string to_string() const override { return fmt::format("center_crop({}x{})", size_.height, size_.width); }
  Type output_type(const Type& input) const override {
    require_decoded_image("center_crop", input);
    return {input.dtype, {size_.height, size_.width, input.shape[2]}};
  }
  void apply(const TensorView& input, const TensorView& output, const Draws&) const override {
    cut_window(static_cast<const uint8_t*>(input.data), input.shape[0], input.shape[1],
               input.shape[2] * static_cast<int64_t>(size_bytes(input.dtype)),
               {.top = first(input.shape[0], size_.height),
                .left = first(input.shape[1], size_.width),
                .height = size_.height,
                .width = size_.width},
               static_cast<uint8_t*>(output.data));
  }

 private:
  // Halves are cut off, the smaller one in front; of missing pixels the larger half is in front.
  static int64_t first(int64_t has, int64_t wanted) {
    return has >= wanted ? (has - wanted) / 2 : -((wanted - has + 1) / 2);
  }
  ImageSize size_;
};

class RandomResizedCrop : public TransformOp {
 public:
  RandomResizedCrop(ImageSize size, const ResizedCropOptions& options)
      : size_(require_size("random_resized_crop", size)), options_(options), resize_(size, 0) {
    const auto are_bounds = [](double low, double high) { return low > 0 && low <= high && std::isfinite(high); };
    if (!are_bounds(options.min_area, options.max_area) || !are_bounds(options.min_ratio, options.max_ratio) ||
        options.max_attempts < 1) {
      throw InvalidArgument(
          "random_resized_crop: bounds of area and ratio must be positive and in order, and max_attempts at least 1; "
          "got "
          "{} to {}, {} to {}, and {}",
          shortest(options.min_area), shortest(options.max_area), shortest(options.min_ratio),
          shortest(options.max_ratio), options.max_attempts);
    }
  }
  std::string to_string() const override {
    return fmt::format("random_resized_crop({}x{}, area {} {}, ratio {} {}, attempts {})", size_.height, size_.width,
                       shortest(options_.min_area), shortest(options_.max_area), shortest(options_.min_ratio),
                       shortest(options_.max_ratio), options_.max_attempts);
  }
  Type output_type(const Type& input) const override {
    require_decoded_image("random_resized_crop", input);
    return resize_.output_type(input);
  }
  void apply(const TensorView& input, const TensorView& output, const Draws& draws) const override {
    const ImageWindow window = draw(input.shape[0], input.shape[1], draws);
    Tensor cut(input.dtype, {window.height, window.width, input.shape[2]});
    cut_window(static_cast<const uint8_t*>(input.data), input.shape[0], input.shape[1],
               input.shape[2] * static_cast<int64_t>(size_bytes(input.dtype)), window,
               static_cast<uint8_t*>(cut.view().data));
    resize_.apply(cut.view(), output, draws);
  }

 private:
  ImageWindow draw(int64_t height, int64_t width, const Draws& draws) const {
    const double area = static_cast<double>(height) * static_cast<double>(width);
    const auto between = [](double low, double high, float part) { return low + (high - low) * double{part}; };
    for (int attempt = 0; attempt < options_.max_attempts; ++attempt) {
      Draws own = draws;  // of the attempt
      own.stream.stream ^= hash_name(fmt::format("attempt{}", attempt));
      const double part = area * between(options_.min_area, options_.max_area, own.uniform(0));
      const double ratio =
          std::exp(between(std::log(options_.min_ratio), std::log(options_.max_ratio), own.uniform(1)));
      const auto w = static_cast<int64_t>(std::lround(std::sqrt(part * ratio)));
      const auto h = static_cast<int64_t>(std::lround(std::sqrt(part / ratio)));
      if (w < 1 || h < 1 || w > width || h > height) continue;
      return {.top = own.below(2, height - h + 1), .left = own.below(3, width - w + 1), .height = h, .width = w};
    }
    const double ratio = static_cast<double>(width) / static_cast<double>(height);
    int64_t w = width;
    int64_t h = height;
    if (ratio < options_.min_ratio) h = std::lround(static_cast<double>(width) / options_.min_ratio);
    if (ratio > options_.max_ratio) w = std::lround(static_cast<double>(height) * options_.max_ratio);
    w = std::clamp<int64_t>(w, 1, width);
    h = std::clamp<int64_t>(h, 1, height);
    return {.top = (height - h) / 2, .left = (width - w) / 2, .height = h, .width = w};
  }

  ImageSize size_;
  ResizedCropOptions options_;
  Resize resize_;
};

}  // namespace

Transform decode() { return Transform(std::make_shared<Decode>()); }

Transform center_crop(ImageSize size) { return Transform(std::make_shared<CenterCrop>(size)); }

Transform random_resized_crop(ImageSize size, const ResizedCropOptions& options) {
  return Transform(std::make_shared<RandomResizedCrop>(size, options));
}

}  // namespace tessera::data
