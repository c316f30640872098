// FaultyKernels: plain loops, of which one is wrong once: in one of the calls of an operator the last bit of the first
// element of the result is another one. For tests that look for where two runs part.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tessera/kernels/backend.h"

namespace tessera {

class FaultyKernels {
 public:
  // `call`: which call of the operator's kernels, from 1, of all steps and nodes together; 0: none.
  FaultyKernels(const std::string& op, int64_t call);
  FaultyKernels(const FaultyKernels&) = delete;
  FaultyKernels& operator=(const FaultyKernels&) = delete;

  // Nothing is fused, so that each operator has calls of its own. Lives as long as this.
  const kernels::Backend& backend() const { return backend_; }
  int64_t num_calls() const { return num_calls_; }

 private:
  int64_t call_;
  std::atomic<int64_t> num_calls_ = 0;
  KernelRegistry registry_;
  kernels::Backend backend_;
};

}  // namespace tessera
