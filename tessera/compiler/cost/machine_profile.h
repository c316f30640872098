// MachineProfile: what a simulation or a search has to know of the machines: how fast a rank computes, reads memory and
// receives bytes, and how much memory it has. Data: read from JSON, written by `tessera calibrate`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor/dtype.h"

namespace tessera::compiler {

// What one rank receives over a link. Where ranks share a link, each has its share.
struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;  // from starting a round of messages to the first byte, to however many peers
};

// Whether the operator of that name is a convolution or one of its two gradients.
bool is_convolution(const std::string& op);

// A convolution or one of its two gradients, as far as a kernel's speed depends on it.
struct ConvolutionSize {
  std::string op;             // "conv2d", "conv2d_grad_input" or "conv2d_grad_weight"
  bool is_pointwise = false;  // a window of one pixel
  bool is_strided = false;
  int64_t in_channels = 0;  // of a group: channels of the images that are read, and of the results
  int64_t out_channels = 0;
  int64_t pixels = 0;  // the pixels of the results of all images

  // "conv2d", "conv2d 1x1", "conv2d strided", "conv2d 1x1 strided"; and so for the gradients.
  std::string kind() const;
};

// One of each kind, without sizes.
std::vector<ConvolutionSize> convolution_kinds();

// What convolutions of these sizes reach of the speed of large ones. Kinds differ: a gradient of the weight sums over
// pixels, windows of one pixel need no patches.
struct ConvolutionShares {
  // Rising; none empty where there are kinds.
  std::vector<int64_t> in_channels;
  std::vector<int64_t> out_channels;
  std::vector<int64_t> pixels;
  // By ConvolutionSize::kind(): a share for each combination, pixels fastest, in_channels slowest.
  std::map<std::string, std::vector<double>> by_kind;

  // Between sizes that were measured in proportion to the logarithms of sizes and shares, beyond them as the nearest.
  // A kind that is not there is as its op with no more said, and 1 where that is not there either.
  double of(const ConvolutionSize& size) const;
};

struct MachineProfile {
  std::string name;
  // The speed of one rank in products of matrices. f32 is there; a dtype that is not computes as fast as f32.
  std::map<DType, double> flops_per_second;
  std::map<DType, double> convolution_flops_per_second = {};  // dtypes that are not there: as flops_per_second
  std::map<DType, double> vector_flops_per_second = {};  // the speed of all other operators; as flops_per_second, too
  // The speed of products and convolutions of f32 whose operands may be rounded to TF32; 0: not known. See with_tf32().
  double tf32_flops_per_second = 0;
  double tf32_convolution_flops_per_second = 0;  // 0: as tf32_flops_per_second
  ConvolutionShares convolution_shares = {};
  double memory_bytes_per_second = 0;
  // The speed of steps that read and write at most so many bytes, which stay in a cache. Falls as sizes rise.
  std::map<int64_t, double> cached_bytes_per_second = {};
  // Bytes that are read and written a second, in a cache, by copies of pieces that are so long on both sides, and apart
  // from each other on one. Of f32, 4 are single elements: another order of dims.
  std::map<int64_t, double> copied_bytes_per_second = {};
  // Bytes that are read and written a second where a convolution rearranges images that lie in another order than its
  // own; 0: it copies them element by element.
  double rearranged_bytes_per_second = 0;
  double kernel_overhead_seconds = 0;  // what every step that computes or copies takes beside its work
  int ranks_per_host = 1;              // rank r is on host r / ranks_per_host
  Link intra_host;
  Link inter_host;
  // What comes from the host's memory to a rank's device, which the batch does beside the step before. 0 bytes a
  // second: ranks compute in the host's memory.
  Link host_link = {};
  // Where the ranks of a host slow each other down: the link of groups of at least so many of them.
  std::map<int, Link> intra_host_by_ranks = {};
  // How much longer a rank computes for each second of a collective that runs meanwhile: 0 where other hardware moves
  // the bytes, 1 where the cores that compute do and nothing is hidden.
  double communication_load = 0;
  int64_t memory_bytes = 0;  // the memory of a rank; 0: not known
  // The share of the measurements that others disturbed, however often they were made: above 0 the figures are of a
  // busy machine.
  double disturbed_share = 0;

  // The speed at which the operator of that name computes.
  double flops_of(DType dtype, const std::string& op) const;
  // The speed of a step that reads and writes so many bytes.
  double bytes_per_second_of(double bytes) const;
  // The time of a copy that reads and writes so many bytes, in pieces of `piece_bytes`.
  double copy_seconds(double bytes, int64_t piece_bytes) const;
  // The time of a step: the longer of its arithmetic and its reading and writing, and the overhead.
  double work_seconds(const std::string& op, DType dtype, double flops, double bytes) const;
  // The link between so many ranks of one host, at least 2.
  const Link& intra_host_of(int64_t num_ranks) const;
  int host_of(int rank) const { return rank / ranks_per_host; }
  // The same machine where products and convolutions of f32 round their operands to TF32. Throws InvalidArgument where
  // it is not known how fast that is.
  MachineProfile with_tf32() const;
};

// No machine in particular: hosts of eight accelerators.
MachineProfile example_profile();

// {"name": "...", "flops_per_second": {"f32": 1e12, "bf16": 4e12}, "memory_bytes_per_second": 1e11,
//  "kernel_overhead_seconds": 5e-6, "ranks_per_host": 8,
//  "intra_host": {"bytes_per_second": 1e11, "latency_seconds": 5e-6}, "inter_host": {...}}
// and, if wanted, "convolution_flops_per_second": {"bf16": 2e12}, "vector_flops_per_second": {"f32": 1e11},
// beside the dtypes of products and convolutions "tf32", "host_link": {...},
// "convolutions": {"in_channels": [3, 64], "out_channels": [8, 64], "pixels": [64, 4096],
//                  "shares": {"conv2d": [0.1, 0.3, 0.4, 0.6, 0.2, 0.5, 0.7, 1], "conv2d_grad_weight 1x1": [...]}},
// "cached_bytes_per_second": {"1048576": 4e11}, "copied_bytes_per_second": {"4": 1e10, "256": 5e10},
// "rearranged_bytes_per_second": 5e9,
// "intra_host_by_ranks": {"4": {...}, "8": {...}}, "communication_load": 0.5, "memory_bytes": 8e10 and
// "disturbed_share": 0.1.
// Throws InvalidArgument naming `file` and the member that is missing, unknown or out of range: speeds and shares must
// be positive, those of caches fall to that of the memory, sizes rise and all combinations have a share, overheads and
// latencies are not negative, loads at most 1, numbers of ranks at least 2. "convolution_shares", which a profile had
// before the kinds of convolutions were measured apart, is refused with the way out.
MachineProfile parse_profile(std::string_view text, const std::string& file);
// Parses back.
std::string to_json(const MachineProfile& profile);

}  // namespace tessera::compiler
