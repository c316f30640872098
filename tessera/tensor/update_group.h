// update_group: the updates of many small parameters as one kernel, which wakes its threads once and gives each whole
// updates of about as many elements.
#pragma once

#include <optional>
#include <string>

#include "tessera/tensor/kernel.h"

namespace tessera {

// How an update_group's operands are made of its members': for each member the optimizer's parameter, states and
// gradient, then the scalars that all share. Its results: for each member the new parameter and states.
struct UpdateGroup {
  std::string optimizer;  // the members' operator
  Attributes settings;    // and its attributes
  size_t count = 0;
  size_t num_tensors = 0;  // per member: parameter, states, gradient
  size_t num_scalars = 0;

  // Reads the attributes optimizer, settings and count, and the number of operands. Throws InvalidArgument when the
  // operands are no such groups.
  UpdateGroup(const Attributes& attributes, size_t num_inputs);
  size_t num_results() const { return num_tensors - 1; }
  size_t input(size_t member, size_t i) const {
    return i < num_tensors ? member * num_tensors + i : (count - 1) * num_tensors + i;
  }
  size_t output(size_t member, size_t i) const { return member * num_results() + i; }
};

// The kernel, of the members' kernels in `members`; nullopt where one is declined.
std::optional<PreparedKernel> prepare_update_group(const KernelRequest& request, const KernelRegistry& members);

}  // namespace tessera
