// Elements that are moved, or set, whatever they are: bit by bit.
#pragma once

#include <optional>
#include <string>

#include "tessera/kernels/cuda/core/phase_parts.h"

namespace tessera::cuda {

// Where elements of a shape lie: from `offset` elements behind an address on, which is a multiple of 64.
struct ElementsPlace {
  std::string address;  // "in0"
  int64_t offset = 0;
  Strides strides;
};

// "u32": unsigned numbers of as many bytes as an element has.
const char* bits_type(size_t element_bytes);
// The dtype's element that is nearest to the value, as a literal of its bits_type; as copy_elements converts.
std::string bits_literal(double value, DType dtype);

// Copies elements of that many bytes. The shape is not empty. Strides of `from` may be 0 or negative.
PhasePart copy_part(const Gpu& gpu, size_t element_bytes, const Shape& shape, const ElementsPlace& from,
                    const ElementsPlace& to);
// Copies through shared memory, where neighbours in `from` are no neighbours in `to`; nullopt where that is not so or
// would not pay. Only one of these fits into a phase.
std::optional<PhasePart> tiled_copy_part(const Gpu& gpu, size_t element_bytes, const Shape& shape,
                                         const ElementsPlace& from, const ElementsPlace& to);
// Sets each element to the value that the literal gives.
PhasePart fill_part(const Gpu& gpu, size_t element_bytes, const Shape& shape, const std::string& bits,
                    const ElementsPlace& to);

}  // namespace tessera::cuda
