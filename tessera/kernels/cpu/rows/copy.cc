#include "tessera/kernels/cpu/rows/copy.h"

#include "tessera/tensor/strided_copy.h"

namespace tessera::kernels::cpu {
namespace {

bool lies_apart(const TensorView& view) {
  for (int dim = 0; dim < view.shape.ndim(); ++dim) {
    if (view.shape[dim] > 1 && view.strides[dim] <= 0) return false;
  }
  return true;
}

}  // namespace

std::optional<PreparedKernel> prepare_copy(const TensorView& from, const TensorView& to, const std::string& name) {
  const auto strides = broadcast_strides(from, to.shape);
  if (from.dtype != to.dtype || !strides || !lies_apart(to)) return std::nullopt;
  const StridedCopy copy(to.shape, *strides, to.strides, size_bytes(to.dtype));
  return PreparedKernel{.name = name, .run = [copy](const KernelArgs& args) {
                          args.parallel_for(copy.num_units(), copy.grain(), [&](int64_t begin, int64_t end) {
                            copy.run(args.inputs[0].data, args.outputs[0].data, begin, end);
                          });
                        }};
}

}  // namespace tessera::kernels::cpu
