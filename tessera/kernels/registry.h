// The kernel sets. reference: a plain loop version of every operator, for every compute dtype and any strides; the
// specification in code. cpu: the fast ones (oneDNN, Highway); what it declines, the reference takes.
#pragma once

#include "tessera/tensor/kernel.h"

namespace tessera::kernels {

const KernelRegistry& reference_kernels();
const KernelRegistry& cpu_kernels();

}  // namespace tessera::kernels
