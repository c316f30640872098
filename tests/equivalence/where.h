// Where a matrix of trainings runs: on the CPU (on_cpu.cc), the fake device (on_fake_device.cc), several of them
// that communicate (on_communicating_devices.cc), one that ranks share (on_shared_device.cc), an emulated GPU
// (on_emulated_gpu.cc) or a real one (on_cuda.cc), whichever of these a program has among its sources.
#pragma once

#include <vector>

#include "tessera/session/session.h"

namespace tessera::equivalence {

// A session of one thread, with plain loops or with fast kernels.
session::SessionOptions session_there(bool plain_loops);
// The same on the CPU, to compare with.
inline session::SessionOptions session_on_cpu(bool plain_loops) {
  return {.reference_kernels = plain_loops, .num_threads = 1};
}
// Every how-many-th row of a matrix runs there.
size_t stride_there();

template <typename Row>
std::vector<Row> rows_there(std::vector<Row> all) {
  std::vector<Row> chosen;
  for (size_t i = 0; i < all.size(); i += stride_there()) chosen.push_back(std::move(all[i]));
  return chosen;
}

}  // namespace tessera::equivalence
