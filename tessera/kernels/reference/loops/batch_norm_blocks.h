// Walks through the images of batch normalisation in blocks: some channels of one group of rows. The reference kernels
// share it.
#pragma once

#include <algorithm>
#include <cmath>

#include "tessera/kernels/reference/loops/walk.h"
#include "tessera/tensor/kernel.h"

namespace tessera::kernels::reference {

// Channels that are computed together: neighbours in memory where images are channels-last.
inline constexpr int64_t kChannels = 16;

// A view [n,c,...] with up to three dims of pixels.
template <typename T>
struct Images {
  T* data;
  int64_t row_stride;
  int64_t channel_stride;
  int64_t sizes[3] = {1, 1, 1};
  int64_t strides[3] = {0, 0, 0};

  explicit Images(const TensorView& view)
      : data(view.as<T>()), row_stride(view.strides[0]), channel_stride(view.strides[1]) {
    for (int dim = 2; dim < view.shape.ndim(); ++dim) {
      sizes[dim - 2] = view.shape[dim];
      strides[dim - 2] = view.strides[dim];
    }
  }
  int64_t pixels() const { return sizes[0] * sizes[1] * sizes[2]; }
};

// One piece of the work: a block of channels of one group of rows.
struct Block {
  int64_t group;
  int64_t first_row;
  int64_t last_row;
  int64_t first_channel;
  int64_t channels;
  double count;  // what the group's sums are divided by

  // Where channel `c` of the block stands in statistics [c] or [G,c].
  int64_t offset_in(const TensorView& statistics, int64_t c) const {
    const int last = statistics.shape.ndim() - 1;
    return (last == 1 ? group * statistics.strides[0] : 0) + (first_channel + c) * statistics.strides[last];
  }
};

// Calls body(block) for every block of `image`. A statistic is summed by one thread in the order of rows and pixels.
template <typename F>
void for_each_block(const KernelArgs& args, const TensorView& image, F&& body) {
  const Ints& counts = args.attributes.get_ints("counts");
  const bool grouped = args.attributes.get_bool("grouped");
  const int64_t pixels = dims_between(image.shape, 2, image.shape.ndim()).num_elements();
  const int64_t blocks = (image.shape[1] + kChannels - 1) / kChannels;
  const auto groups = static_cast<int64_t>(counts.size());
  args.parallel_for(groups * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      Block block{.group = item / blocks, .first_row = 0, .last_row = image.shape[0]};
      const int64_t count = counts[static_cast<size_t>(block.group)];
      block.count = static_cast<double>(count);
      if (grouped) {
        for (int64_t g = 0; g < block.group; ++g) block.first_row += counts[static_cast<size_t>(g)] / pixels;
        block.last_row = block.first_row + count / pixels;
      }
      block.first_channel = item % blocks * kChannels;
      block.channels = std::min(kChannels, image.shape[1] - block.first_channel);
      body(block);
    }
  });
}

// Calls f(channel of the block, element of each image) for the elements of a block; the images have equal shapes.
template <typename T, typename F, typename... More>
void for_each_element(const Block& block, F&& f, const Images<T>& first, const More&... more) {
  const auto offset = [&](const Images<T>& image, int64_t n, int64_t z, int64_t y, int64_t x) {
    return n * image.row_stride + block.first_channel * image.channel_stride + z * image.strides[0] +
           y * image.strides[1] + x * image.strides[2];
  };
  for (int64_t n = block.first_row; n < block.last_row; ++n) {
    for (int64_t z = 0; z < first.sizes[0]; ++z) {
      for (int64_t y = 0; y < first.sizes[1]; ++y) {
        for (int64_t x = 0; x < first.sizes[2]; ++x) {
          for (int64_t c = 0; c < block.channels; ++c) {
            f(c, first.data[offset(first, n, z, y, x) + c * first.channel_stride],
              more.data[offset(more, n, z, y, x) + c * more.channel_stride]...);
          }
        }
      }
    }
  }
}

// The values of a block's channels, of statistics or of a vector [c].
struct PerChannel {
  double values[kChannels] = {};
  PerChannel() = default;
  PerChannel(const Block& block, const TensorView& view) {
    for (int64_t c = 0; c < block.channels; ++c) values[c] = load_element(view, block.offset_in(view, c));
  }
  double& operator[](int64_t c) { return values[c]; }
  double operator[](int64_t c) const { return values[c]; }
};

inline PerChannel inverse_deviation(const Block& block, const TensorView& variance, double eps) {
  PerChannel result(block, variance);
  for (double& value : result.values) value = 1 / std::sqrt(value + eps);
  return result;
}

inline void store(const Block& block, const TensorView& view, const PerChannel& values, double divisor = 1) {
  for (int64_t c = 0; c < block.channels; ++c) store_element(view, block.offset_in(view, c), values[c] / divisor);
}

}  // namespace tessera::kernels::reference
