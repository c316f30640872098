// A collective node as a call of a communicator: what the communication lane runs.
#pragma once

#include <functional>
#include <span>

#include "tessera/comm/communicator.h"
#include "tessera/ir/schedule.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/tensor/tensor.h"

namespace tessera::executor {

// The views are those of the step's values and stay valid. Everything that depends only on shapes is computed here; the
// function returned allocates nothing. Operands are row-major (an all_reduce may be in any dense layout); along a dim
// other than the first, and in an exchange, inputs[1] is a second buffer of the right size; likewise the last input of
// a bucket of all_gathers or reduce_scatters (attribute "dims"). `own`, which stays as long as the function, does
// what the rank copies.
std::function<void()> prepare_collective(const ir::Step& step, std::span<const TensorView> inputs,
                                         std::span<const TensorView> outputs, comm::Communicator& group,
                                         const ops::OwnWork& own = ops::work_of_host());

}  // namespace tessera::executor
