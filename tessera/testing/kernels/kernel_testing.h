// What the tests of this folder share: it runs a node on the fast and on the reference kernels, on equal seeded values
// in memory of any layout, and compares.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/tensor/kernel.h"

namespace tessera::kernels::cpu {

enum class TestStrides {
  kDense,
  kChannelsLast,
  kPadded,    // dense rows with a gap after each
  kReversed,  // the first dim varies fastest
};

struct TestOperand {
  Type type;
  TestStrides layout = TestStrides::kDense;
  // Values are drawn from [low, high] (integers: rounded down), or, with `special`, one in eight is NaN, infinite,
  // zero, huge or tiny.
  double low = -2;
  double high = 2;
  bool special = false;
};

struct TestCase {
  std::string op;
  std::vector<TestOperand> inputs;
  std::vector<TestOperand> outputs;
  Attributes attributes = {};
  int num_threads = 2;
  // The name of the kernel that must take the case; empty: any.
  std::string kernel = {};
  // What elements may differ by: atol + rtol * |reference|; half types get one unit in the last place on top.
  double rtol = 2e-6;
  double atol = 1e-37;
  // Gives the reference kernel the same values as f32, for results of another dtype than the operands.
  bool reference_in_f32 = false;
  // oneDNN makes small allocations of its own.
  int64_t max_allocations = 0;
};

// Runs a case and reports differences, allocations during the run and elements written outside the views as test
// failures; small cases on every instruction set that this machine has. Returns false, without a failure, when the fast
// kernels decline the case or the reference lacks the operator. A pair of `in_place` that the kernel names is also run
// with shared memory, and must give the same bits.
bool compare_with_reference(const TestCase& test);

// Likewise for every candidate that takes the case, each run twice for equal bits. Returns their names.
std::vector<std::string> compare_candidates_with_reference(const TestCase& test);

// The name of the kernel that the fast kernels prepare, or "declined".
std::string fast_kernel_name(const TestCase& test);

}  // namespace tessera::kernels::cpu
