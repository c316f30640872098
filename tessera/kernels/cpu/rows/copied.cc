#include "tessera/kernels/cpu/rows/copied.h"

#include <array>
#include <memory>

#include "tessera/tensor/alignment.h"
#include "tessera/tensor/strided_copy.h"

namespace tessera::kernels::cpu {
namespace {

constexpr int kFewestDims = 3;  // of an image
constexpr size_t kMostViews = 16;

// One operand or result that is copied, and where in scratch it lies meanwhile.
struct Copied {
  size_t index;
  TensorView view;  // channels-last, without an address
  int64_t offset;
  StridedCopy copy;
};

struct CopiedKernel {
  PreparedKernel inner;
  std::vector<Copied> inputs;
  std::vector<Copied> outputs;
  int64_t scratch_offset = 0;  // of the inner kernel's own

  void run(const KernelArgs& args) const {
    std::array<TensorView, kMostViews> in;
    std::array<TensorView, kMostViews> out;
    std::copy(args.inputs.begin(), args.inputs.end(), in.begin());
    std::copy(args.outputs.begin(), args.outputs.end(), out.begin());
    for (const Copied& input : inputs) {
      in[input.index] = placed(input, args);
      copy(input, args.inputs[input.index].data, in[input.index].data, args.parallel_for);
    }
    for (const Copied& output : outputs) out[output.index] = placed(output, args);
    inner.run({{in.data(), args.inputs.size()},
               {out.data(), args.outputs.size()},
               args.attributes,
               args.scratch.subspan(static_cast<size_t>(scratch_offset)),
               args.parallel_for});
    for (const Copied& output : outputs) {
      copy(output, out[output.index].data, args.outputs[output.index].data, args.parallel_for);
    }
  }

  static TensorView placed(const Copied& copied, const KernelArgs& args) {
    TensorView view = copied.view;
    view.data = args.scratch.data() + copied.offset;
    return view;
  }
  static void copy(const Copied& copied, const void* from, void* to, const ParallelFor& parallel_for) {
    parallel_for(copied.copy.num_units(), copied.copy.grain(),
                 [&](int64_t begin, int64_t end) { copied.copy.run(from, to, begin, end); });
  }
};

}  // namespace

std::optional<PreparedKernel> prepare_copied(const KernelRequest& request, const KernelFactory& factory) {
  if (request.inputs.size() > kMostViews || request.outputs.size() > kMostViews) return std::nullopt;
  KernelRequest wanted = request;
  CopiedKernel made;
  // Into scratch where `is_input`, back from there else.
  const auto straighten = [&](TensorView& view, size_t index, bool is_input) {
    if (view.shape.ndim() < kFewestDims || is_channels_last(view.shape, view.strides)) return;
    const Strides given = view.strides;
    view.strides = channels_last_strides(view.shape);
    const auto& from = is_input ? given : view.strides;
    const auto& to = is_input ? view.strides : given;
    (is_input ? made.inputs : made.outputs)
        .push_back({index, view, made.scratch_offset, {view.shape, from, to, size_bytes(view.dtype)}});
    made.scratch_offset += aligned(view.size_bytes());
  };
  for (size_t i = 0; i < wanted.inputs.size(); ++i) straighten(wanted.inputs[i], i, true);
  for (size_t o = 0; o < wanted.outputs.size(); ++o) straighten(wanted.outputs[o], o, false);
  if (made.inputs.empty() && made.outputs.empty()) return std::nullopt;
  auto inner = factory(wanted);
  if (!inner) return std::nullopt;
  made.inner = std::move(*inner);
  PreparedKernel kernel{.name = made.inner.name + ".copied",
                        .scratch_bytes = made.scratch_offset + made.inner.scratch_bytes};
  kernel.run = [made = std::make_shared<const CopiedKernel>(std::move(made))](const KernelArgs& args) {
    made->run(args);
  };
  return kernel;
}

}  // namespace tessera::kernels::cpu
