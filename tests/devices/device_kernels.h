// What tests of a device's kernels share: it runs one operator's kernel in the device's memory, on operands that lie in
// any way, and the reference's on equal values.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/tensor/device.h"
#include "tessera/testing/kernels/run_kernel.h"
#include "tests/generated/op_examples.h"

namespace tessera::devices {

struct DeviceKernels {
  const KernelRegistry& kernels;
  Device& device;
};

// What elements may differ by, as a part of the largest.
double tolerance_of(DType dtype);

// What a kernel's factory is asked for the call.
KernelRequest request_of(const generated::OpCall& call, kernels::StrideOrder order);

// Runs the call on both and reports differences, and bytes outside of the results that changed, as test failures. Where
// the kernel names pairs that may share memory, they do so in a second run.
void compare(const DeviceKernels& on, const generated::OpCall& call, kernels::StrideOrder order);

}  // namespace tessera::devices
