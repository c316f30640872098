// Packing: buffers that are alive for a while each, laid into as little memory as can be found (offline dynamic storage
// allocation, which is NP-hard; what is alive at one step is a bound from below).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::compiler {

// Alive from step `first` to step `last`, both included.
struct Lifetime {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct Packing {
  std::vector<int64_t> offsets;  // by buffer; buffers that are alive together do not overlap
  int64_t bytes = 0;             // the end of the last
};
// Sizes are multiples of the alignment that the offsets shall have. The same buffers get the same offsets.
Packing pack(std::span<const Lifetime> buffers);

struct Peak {
  int64_t bytes = 0;
  int step = 0;  // the first of several
};
// The most that is alive at any step: no packing is smaller.
Peak peak_of(std::span<const Lifetime> buffers);

}  // namespace tessera::compiler
