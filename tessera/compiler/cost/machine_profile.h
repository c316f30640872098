// MachineProfile: what a simulation or a search has to know of the machines: how fast a rank computes, reads memory and
// receives bytes, and how much memory it has. Data: read from JSON, written by `tessera calibrate`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "tessera/tensor/dtype.h"

namespace tessera::compiler {

// What one rank receives over a link. Where ranks share a link, each has its share.
struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;  // from starting a round of messages to the first byte, to however many peers
};

struct MachineProfile {
  std::string name;
  // The speed of one rank in products of matrices. f32 is there; a dtype that is not computes as fast as f32.
  std::map<DType, double> flops_per_second;
  std::map<DType, double> convolution_flops_per_second = {};  // dtypes that are not there: as flops_per_second
  std::map<DType, double> vector_flops_per_second = {};  // the speed of all other operators; as flops_per_second, too
  // What small convolutions reach of the speed of large ones: by channels, then by pixels of all images. Every number
  // of channels has the same numbers of pixels.
  std::map<int64_t, std::map<int64_t, double>> convolution_shares = {};
  double memory_bytes_per_second = 0;
  // The speed of steps that read and write at most so many bytes, which stay in a cache. Falls as sizes rise.
  std::map<int64_t, double> cached_bytes_per_second = {};
  double kernel_overhead_seconds = 0;  // what every step that computes or copies takes beside its work
  int ranks_per_host = 1;              // rank r is on host r / ranks_per_host
  Link intra_host;
  Link inter_host;
  // Where the ranks of a host slow each other down: the link of groups of at least so many of them.
  std::map<int, Link> intra_host_by_ranks = {};
  // How much longer a rank computes for each second of a collective that runs meanwhile: 0 where other hardware moves
  // the bytes, 1 where the cores that compute do and nothing is hidden.
  double communication_load = 0;
  int64_t memory_bytes = 0;  // the memory of a rank; 0: not known

  // The speed at which the operator of that name computes.
  double flops_of(DType dtype, std::string_view op) const;
  // The share of a convolution's speed that one of this size reaches: between measured sizes in proportion to their
  // logarithms, beyond them as the nearest; 1 where nothing is known.
  double convolution_share_of(int64_t channels, int64_t pixels) const;
  // The speed of a step that reads and writes so many bytes.
  double bytes_per_second_of(double bytes) const;
  // The time of a step: the longer of its arithmetic and its reading and writing, and the overhead.
  double work_seconds(std::string_view op, DType dtype, double flops, double bytes) const;
  // The link between so many ranks of one host, at least 2.
  const Link& intra_host_of(int64_t num_ranks) const;
  int host_of(int rank) const { return rank / ranks_per_host; }
};

// No machine in particular: hosts of eight accelerators.
MachineProfile example_profile();

// {"name": "...", "flops_per_second": {"f32": 1e12, "bf16": 4e12}, "memory_bytes_per_second": 1e11,
//  "kernel_overhead_seconds": 5e-6, "ranks_per_host": 8,
//  "intra_host": {"bytes_per_second": 1e11, "latency_seconds": 5e-6}, "inter_host": {...}}
// and, if wanted, "convolution_flops_per_second": {"bf16": 2e12}, "vector_flops_per_second": {"f32": 1e11},
// "convolution_shares": {"8": {"64": 0.1, "4096": 0.3}, "64": {"64": 0.4, "4096": 1}} (channels, pixels),
// "cached_bytes_per_second": {"1048576": 4e11}, "intra_host_by_ranks": {"4": {...}, "8": {...}},
// "communication_load": 0.5 and "memory_bytes": 8e10.
// Throws InvalidArgument naming `file` and the member that is missing, unknown or out of range: speeds must be
// positive, those of caches fall to that of the memory, shares are above 0 and at most 1 and all combinations are
// there, overheads and latencies not negative, loads at most 1, numbers of ranks at least 2.
MachineProfile parse_profile(std::string_view text, const std::string& file);
// Parses back.
std::string to_json(const MachineProfile& profile);

}  // namespace tessera::compiler
