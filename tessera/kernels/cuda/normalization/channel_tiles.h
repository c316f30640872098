// ChannelTiles: how the elements of images [n,c,...] are dealt to the threads of a kernel that does something for each
// channel. A thread keeps a few neighbouring channels, a pack, and walks over positions (n and pixels); so what it
// knows of its channels stays in registers. Where images are channels-last in memory, a pack is read at once.
#pragma once

#include <string>
#include <vector>

#include "tessera/kernels/cuda/core/device_program.h"

namespace tessera::cuda {

// An image among a request's operands or results, and the names of the variables that hold a pack of it.
struct TileImage {
  std::string pointer;  // "in0"
  std::string name;     // "x": x[v] is an element, as it is stored
  TensorView view;
  bool is_result = false;
};

class ChannelTiles {
 public:
  // `images`: all of one shape; statistics of `groups` of rows as the attributes counts and grouped say. `sums`:
  // whether something is added up over positions, for which few large blocks are better.
  ChannelTiles(const KernelRequest& request, const Gpu& gpu, std::vector<TileImage> images, bool sums);

  int64_t channels() const { return channels_; }
  int64_t groups() const { return static_cast<int64_t>(counts_.size()); }
  int64_t chunks() const { return chunks_; }
  int pack() const { return pack_; }
  int64_t blocks() const { return bands_ * chunks_ * groups(); }
  static constexpr int kThreads = 256;
  int lanes() const { return kThreads / packs_of_block_; }

  // Declares tx, ty, group, chunk, c0 (the thread's first channel), is_active (whether it has channels).
  std::string begin_text() const;
  // "for (...) {" over the thread's positions, with a pack of each image loaded; results are declared.
  std::string loop_begin_text() const;
  // "for (int v ...) {": over the channels of the pack; c0 + v is the channel.
  std::string pack_loop_text() const { return fmt::format("#pragma unroll\nfor (int v = 0; v < {}; ++v) {{\n", pack_); }
  // Stores the results and ends the loop.
  std::string loop_end_text() const;
  // The functions that the texts call.
  std::string functions_text() const;
  // "offset": where the statistic of a channel is, in a view [c] or [G,c].
  static std::string statistic_offset(const TensorView& view, const std::string& channel);

 private:
  std::vector<TileImage> images_;
  std::vector<int64_t> counts_;     // what the sums of a group are divided by
  std::vector<int64_t> first_;      // position of each group
  std::vector<int64_t> positions_;  // of each group
  Shape position_shape_;            // n and the pixels
  int64_t channels_ = 0;
  int pack_ = 1;
  int packs_of_block_ = 1;
  int64_t bands_ = 1;
  int64_t chunks_ = 1;
};

}  // namespace tessera::cuda
