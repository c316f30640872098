// Sums over all positions of images, a few for each channel.
#pragma once

#include <string>

#include "tessera/kernels/cuda/normalization/channel_tiles.h"

namespace tessera::cuda {

// What is added up, as device text.
struct ChannelSums {
  std::string type;          // of the sums: f32 or f64
  int count = 1;             // how many for each channel
  std::string prepare = {};  // once, before the loop over positions
  std::string add;           // of the element of channel c0 + v at position r, into sums[k][v]
  std::string change = {};   // once for each v, behind that loop
  std::string combine = {};  // the function that adds `from` to `to`; empty: sums are added
  std::string finish;        // given total[k] of channel `c` of `group`
};

// Images among the results are written whole, too.
DeviceProgram channel_sums(const KernelRequest& request, const ChannelTiles& tiles, const ChannelSums& sums);

// Statements for ChannelSums::finish: they store a value as the statistic of channel c in an output.
std::string store_statistic(const KernelRequest& request, size_t output, const std::string& value);
// The inverse deviation of channel c, of the variance that is this operand.
std::string inverse_at(const KernelRequest& request, size_t input, double eps, const std::string& type);

}  // namespace tessera::cuda
