// Transform: what a data set's map() does to one column of one sample: a function of one tensor and, for the random
// ones, of draws that depend only on (seed, epoch, position of the sample, transform), never on a thread or an order.
// A Transform is an immutable value; any number of threads may call it.
//
// Images are [height, width, channels], u8 or f32, until hwc2chw turns them into [channels, height, width].
// Each transform can be called alone:  Tensor small = resize({8, 8})(image);
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/random.h"
#include "tessera/tensor/tensor.h"

namespace tessera::data {

// The random numbers of one transform for one sample.
struct Draws {
  static constexpr uint64_t kPerSample = 4;  // a transform may use numbers 0 .. 3

  RandomStream stream;    // seed, transform, epoch
  uint64_t position = 0;  // where the sample stands in its epoch, over all shards

  // Uniform in [0, n).
  int64_t below(uint64_t number, int64_t n) const { return random_below(stream, position * kPerSample + number, n); }
  // Uniform in [0, 1).
  float uniform(uint64_t number) const { return random_uniform(stream, position * kPerSample + number); }
};

class TransformOp {
 public:
  virtual ~TransformOp() = default;
  // The text of the transform, as it would be written: "resize(224, 224)".
  virtual std::string to_string() const = 0;
  // Throws InvalidArgument, the transform's name first, when it does not take such a tensor. Sizes of `input` may be
  // kAnySize, and those of the result where they follow from the tensor itself.
  virtual Type output_type(const Type& input) const = 0;
  // Both views are dense and of the types above; they do not overlap.
  virtual void apply(const TensorView& input, const TensorView& output, const Draws& draws) const = 0;
  // The result in a tensor of its own; to be overridden where apply() cannot know its size.
  virtual Tensor make(const TensorView& input, const Draws& draws) const;
};

class Transform {
 public:
  explicit Transform(std::shared_ptr<const TransformOp> op) : op_(std::move(op)) {}

  // A new tensor. Throws InvalidArgument when the transform does not take the input's type.
  Tensor operator()(const Tensor& input, const Draws& draws = {}) const;
  Type output_type(const Type& input) const { return op_->output_type(input); }
  std::string to_string() const { return op_->to_string(); }
  const TransformOp& op() const { return *op_; }

 private:
  std::shared_ptr<const TransformOp> op_;
};

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;

  ImageSize() = default;
  ImageSize(int64_t height, int64_t width) : height(height), width(width) {}
  ImageSize(int64_t side) : height(side), width(side) {}  // NOLINT: implicit, random_crop(32) is a square
};

// Padding counts rows and columns of zeros, in the reference's order.
struct Padding {
  int64_t left = 0;
  int64_t top = 0;
  int64_t right = 0;
  int64_t bottom = 0;
};

// Pads the image with zeros, then cuts a window of `size` out of it at a place drawn uniformly. Any dtype. Throws
// InvalidArgument where the padded image is smaller than the window (the reference's pad_if_needed is not supported).
Transform random_crop(ImageSize size, Padding padding = {});
// Mirrors left and right with probability `prob` in [0, 1]. Any dtype.
Transform random_horizontal_flip(double prob = 0.5);
// Bilinear, pixel centres at half integers, no antialiasing: torch.nn.functional.interpolate(mode="bilinear",
// align_corners=False), OpenCV's INTER_LINEAR. u8 stays u8, rounded to nearest; f32 stays f32.
Transform resize(ImageSize size);
// The same with the shorter side made `side` long and the aspect ratio kept (the longer side rounded down).
Transform resize_shorter_side(int64_t side);
// A file's bytes u8[size] -> the image u8[height, width, 3], as decode_image() reads it.
Transform decode();
// The window of `size` in the middle, zeros where the image is smaller. Any dtype.
Transform center_crop(ImageSize size);
struct ResizedCropOptions {
  // Bounds of the window's part of the image's area, and of its width over its height.
  double min_area = 0.08, max_area = 1;
  double min_ratio = 3.0 / 4, max_ratio = 4.0 / 3;
  int max_attempts = 10;
};
// A window of a size, shape and place drawn at random, resized to `size`: Szegedy et al., "Going deeper with
// convolutions", 2015. Where no drawn window fits, the largest in the middle whose ratio is within the bounds.
Transform random_resized_crop(ImageSize size, const ResizedCropOptions& options = {});
// x * rescale + shift, to f32, from u8 or f32 of any shape.
Transform rescale(double rescale, double shift);
// (x - mean[c]) / std[c] for channel c of an image [h, w, c], or [c, h, w] with `channels_first`, to f32, from u8 or
// f32. Throws InvalidArgument unless mean and std have one number per channel, or one for all, and every std is
// positive.
Transform normalize(std::vector<double> mean, std::vector<double> std, bool channels_first = false);
// [h, w, c] -> [c, h, w], any dtype.
Transform hwc2chw();
// Converts to another dtype, of any shape, as copy_elements does.
Transform type_cast(DType dtype);
// A function of one's own. `output_type` says what `apply` writes for an input; `apply` is called by several threads at
// once and draws its random numbers from `draws`.
Transform custom(std::string name, std::function<Type(const Type&)> output_type,
                 std::function<void(const TensorView& input, const TensorView& output, const Draws& draws)> apply);

}  // namespace tessera::data
