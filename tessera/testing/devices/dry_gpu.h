// A GPU that is not there: its kernels are compiled for an H100, and a launch does nothing but wait for that. It shows
// on any machine that all kernels of a step compile, what arena it takes, and fills a cache of kernels for a machine
// with such a GPU. What the host reads is zero.
#pragma once

#include "tessera/kernels/backend.h"

namespace tessera {

// Kept in the usual cache of kernels; see kernels/cuda/device/kernel_cache.h.
const kernels::Backend& dry_backend();

}  // namespace tessera
