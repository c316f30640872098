// Kernels whose result may be wider than their operands: sums of half types that are not rounded.
#pragma once

#include <type_traits>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/half.h"

namespace tessera::kernels::reference {

// Calls f with a zero of the result's type: T, or float where T is a half type and dtype says f32.
template <typename T, typename F>
void dispatch_result(DType dtype, F&& f) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    if (dtype == DType::kF32) return f(float{});
  }
  f(T{});
}

}  // namespace tessera::kernels::reference
