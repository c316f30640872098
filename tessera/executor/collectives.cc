#include "tessera/executor/collectives.h"

#include "tessera/base/error.h"

namespace tessera::executor {

std::function<void()> prepare_collective(const ir::Step& step, std::span<const TensorView> inputs,
                                         std::span<const TensorView> outputs, comm::Communicator& group,
                                         const ops::OwnWork& own) {
  const auto* collective = ops::collective_of(step.op);
  if (collective == nullptr) throw InvalidArgument("{} is no collective: nothing starts it", step.op);
  const auto who = step.source.empty() ? step.op : fmt::format("{} \"{}\"", step.op, step.source);
  return collective->prepare({step.attributes, inputs, outputs, group, who, own});
}

}  // namespace tessera::executor
