// A Chain is the transforms of one column, compiled for one input type: intermediate types are known, and neighbours
// that work on images ([random_crop] [random_horizontal_flip] [resize] then [rescale] [normalize] [hwc2chw], u8 with
// three channels in, f32 out) run in one pass over the pixels. The result is bit-equal to running them one by one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/data/image_kernels.h"
#include "tessera/data/image_transforms.h"

namespace tessera::data {

// A transform and the name of its draws: RandomStream::stream.
struct ChainLink {
  Transform transform;
  uint64_t stream = 0;
};

// Which sample, for the random transforms.
struct SampleKey {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t position = 0;
};

class Chain {
 public:
  // What one thread needs beside the chain; no memory is allocated while samples are made.
  struct Workspace {
    std::vector<Tensor> values;  // the input of each step but the first, and a dense output
    std::vector<uint8_t> window;
    std::vector<float> row, wide_row, wide;
  };

  // Throws InvalidArgument when a transform does not take the type that it meets.
  Chain(const Type& input, std::vector<ChainLink> links);

  const Type& output_type() const { return output_; }
  bool empty() const { return steps_.empty(); }
  // How many passes over a sample are made; 1 when everything is fused.
  int num_steps() const { return static_cast<int>(steps_.size()); }
  Workspace make_workspace() const;
  // `input` is dense; `output` may have any strides. Must not be called on an empty chain.
  void run(const TensorView& input, const TensorView& output, const SampleKey& key, Workspace& workspace) const;

 private:
  struct ImagePass {
    const RandomCrop* crop = nullptr;
    const RandomHorizontalFlip* flip = nullptr;
    const Resize* resize = nullptr;
    const Rescale* rescale = nullptr;
    const Normalize* normalize = nullptr;
    const Hwc2Chw* hwc2chw = nullptr;
    uint64_t crop_stream = 0, flip_stream = 0;
    ImageSize cut, size;  // after crop; after resize
    std::vector<Tap> rows, columns;
    std::vector<char> row_used;
    float scale = 1, shift = 0;
    // The tables for an output row of 3 x width pixels, interleaved, and for the rows of the three planes, one after
    // the other.
    std::vector<float> mean, inverse_std, planar_mean, planar_inverse_std;
  };
  struct Step {
    Type input, output;
    ChainLink link;                         // when it is one transform
    std::shared_ptr<const ImagePass> pass;  // when it is several
  };

  // The step made of links [begin, ...), and how many it takes; 0 when they cannot be fused.
  static size_t match_image_pass(const std::vector<ChainLink>& links, size_t begin, const Type& input, Step& step);
  static void run_image_pass(const Step& step, const TensorView& input, const TensorView& output, const SampleKey& key,
                             Workspace& workspace);
  static void finish_rows(const ImagePass& pass, const uint8_t* pixels, const TensorView& output, Workspace& workspace);
  static void resize_rows(const ImagePass& pass, const uint8_t* pixels, const TensorView& output, Workspace& workspace);

  Type input_, output_;
  std::vector<ChainLink> links_;  // owns the transforms that passes point to
  std::vector<Step> steps_;
};

}  // namespace tessera::data
