// The image transforms' settings, for chain.cc, which runs several of them in one pass.
#pragma once

#include <vector>

#include "tessera/data/transforms.h"

namespace tessera::data {

class RandomCrop : public TransformOp {
 public:
  RandomCrop(ImageSize size, Padding padding) : size(size), padding(padding) {}
  std::string to_string() const override;
  Type output_type(const Type& input) const override;
  void apply(const TensorView& input, const TensorView& output, const Draws& draws) const override;
  // The window's first row and column in the unpadded image; may be negative.
  struct Corner {
    int64_t top, left;
  };
  Corner draw(const Shape& image, const Draws& draws) const;

  ImageSize size;
  Padding padding;
};

class RandomHorizontalFlip : public TransformOp {
 public:
  explicit RandomHorizontalFlip(double prob) : prob(prob) {}
  std::string to_string() const override;
  Type output_type(const Type& input) const override;
  void apply(const TensorView& input, const TensorView& output, const Draws& draws) const override;
  bool draw(const Draws& draws) const { return draws.uniform(0) < prob; }

  double prob;
};

class Resize : public TransformOp {
 public:
  // Takes either `size`, or `shorter_side` > 0.
  Resize(ImageSize size, int64_t shorter_side) : size(size), shorter_side(shorter_side) {}
  std::string to_string() const override;
  Type output_type(const Type& input) const override;
  void apply(const TensorView& input, const TensorView& output, const Draws& draws) const override;

  ImageSize size;
  int64_t shorter_side;
};

class Rescale : public TransformOp {
 public:
  Rescale(double scale, double shift) : scale(scale), shift(shift) {}
  std::string to_string() const override;
  Type output_type(const Type& input) const override;
  void apply(const TensorView& input, const TensorView& output, const Draws& draws) const override;

  double scale, shift;
};

class Normalize : public TransformOp {
 public:
  Normalize(std::vector<double> mean, std::vector<double> std, bool channels_first);
  std::string to_string() const override;
  Type output_type(const Type& input) const override;
  void apply(const TensorView& input, const TensorView& output, const Draws& draws) const override;

  // Of one channel, where the number is that of all.
  float mean_of(size_t channel) const { return mean_f32[mean_f32.size() == 1 ? 0 : channel]; }
  float inverse_std_of(size_t channel) const { return inverse_std_f32[inverse_std_f32.size() == 1 ? 0 : channel]; }

  std::vector<double> mean, std;
  std::vector<float> mean_f32, inverse_std_f32;
  bool channels_first;
};

class Hwc2Chw : public TransformOp {
 public:
  std::string to_string() const override { return "hwc2chw()"; }
  Type output_type(const Type& input) const override;
  void apply(const TensorView& input, const TensorView& output, const Draws& draws) const override;
};

}  // namespace tessera::data
