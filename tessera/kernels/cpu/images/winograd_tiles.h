// The transforms of Winograd's convolution F(2x2, 3x3): four neighbouring pixels of a 3x3 convolution without strides
// out of 16 products where the definition takes 36 (S. Winograd, "Arithmetic Complexity of Computations"; A. Lavin and
// S. Gray, "Fast Algorithms for Convolutional Neural Networks").
//
// A tile is 2x2 pixels of the convolution's result; it sees 4x4 pixels of the convolution's image. A transformed tile
// has 16 numbers for each channel, each in a plane of its own: planes[p][tile][channel]. Images are float32 and
// channels-last. Vectorised for the best instruction set at run time.
#pragma once

#include <array>
#include <cstdint>

namespace tessera::kernels::cpu {

constexpr int64_t kWinogradPlanes = 16;
// Channels must be a multiple of this.
constexpr int64_t kWinogradChannels = 16;

// Where the tiles of a batch of images stand. Tiles are counted line by line, image by image.
struct WinogradTiles {
  int64_t channels = 0;
  std::array<int64_t, 2> image{};   // pixels, height first
  std::array<int64_t, 2> origin{};  // of the first tile's first pixel: 0, or what padding comes before, negated
  int64_t per_line = 0, per_image = 0;
};

// A run of tiles, and where their planes lie: `planes` is the first tile's place in the first plane, `stride` the
// elements from one plane to the next.
struct WinogradRun {
  int64_t first = 0, last = 0;
  float* planes = nullptr;
  int64_t stride = 0;
};

// The 4x4 pixels that each tile sees, transformed: B^T d B. Pixels outside of the image are 0.
void winograd_seen(const WinogradTiles& tiles, const float* images, const WinogradRun& run);
// The 2x2 pixels of each tile out of the sums of products: A^T m A. Pixels outside of the image are left out.
void winograd_result(const WinogradTiles& tiles, const WinogradRun& run, float* images);
// The adjoint of winograd_result: A y A^T.
void winograd_result_gradient(const WinogradTiles& tiles, const float* images, const WinogradRun& run);

// A weight [co, ci, 3, 3], and the elements from one of its planes [co, ci] to the next.
struct WinogradWeight {
  int64_t co = 0, ci = 0;
  int64_t stride = 0;
};
// G g G^T of the kernels of output channels [first, last), with `turned` of those turned by 180 degrees, into
// planes[p][co][ci].
void winograd_weight(const WinogradWeight& weight, const float* kernels, bool turned, int64_t first, int64_t last,
                     float* planes);
// The adjoint of winograd_weight: G^T u G.
void winograd_weight_gradient(const WinogradWeight& weight, const float* planes, int64_t first, int64_t last,
                              float* kernels);

}  // namespace tessera::kernels::cpu
