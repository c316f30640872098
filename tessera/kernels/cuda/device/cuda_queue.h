// What kernels of libraries need of a queue of a CUDA device.
#pragma once

#include <cuda.h>

#include "tessera/tensor/device.h"

namespace tessera::cuda {

// The stream in which the work of the queue, which is a CUDA device's, is done.
CUstream stream_of(Queue& queue);

}  // namespace tessera::cuda
