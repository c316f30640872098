#include "tessera/tensor/kernel_chain.h"

#include <algorithm>
#include <memory>

#include "tessera/tensor/alignment.h"

namespace tessera {

PreparedKernel chain_kernels(std::string name, PreparedKernel first, PreparedKernel second,
                             std::vector<TensorView> second_inputs) {
  const auto between_bytes = static_cast<size_t>(aligned(second_inputs[0].size_bytes()));
  const int64_t rest_bytes = std::max(first.scratch_bytes, second.scratch_bytes);
  // A call writes the addresses and must not allocate.
  const auto operands = std::make_shared<std::vector<TensorView>>(std::move(second_inputs));
  return PreparedKernel{
      .name = std::move(name),
      .run =
          [first = std::move(first.run), second = std::move(second.run), operands,
           between_bytes](const KernelArgs& args) {
            const size_t num_first = args.inputs.size() - (operands->size() - 1);
            const auto left = args.inputs.subspan(num_first);
            std::copy(left.begin(), left.end(), operands->begin() + 1);
            TensorView& between = operands->front();
            between.data = args.scratch.data();
            const auto rest = args.scratch.subspan(between_bytes);
            first({args.inputs.first(num_first), {&between, 1}, args.attributes, rest, args.parallel_for, args.queue});
            second({*operands, args.outputs, args.attributes, rest, args.parallel_for, args.queue});
          },
      .scratch_bytes = static_cast<int64_t>(between_bytes) + rest_bytes};
}

}  // namespace tessera
