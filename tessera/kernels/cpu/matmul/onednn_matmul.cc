// matmul and batch_matmul by oneDNN; transposed operands are passed as strides.
#include "tessera/kernels/cpu/matmul/onednn_matmul.h"

#include <algorithm>

#include "tessera/kernels/cpu/registry/families.h"

namespace tessera::kernels::cpu {
namespace {

// The last two dims swapped.
TensorView transposed(TensorView view) {
  const int n = view.shape.ndim();
  std::swap(view.shape[n - 1], view.shape[n - 2]);
  std::swap(view.strides[n - 1], view.strides[n - 2]);
  return view;
}

// Strides of dims of size 1 say nothing: makes them those of a matrix whose rows lie one after another, where that is
// possible.
TensorView canonical(TensorView view) {
  const int row = view.shape.ndim() - 2;
  const int column = row + 1;
  if (view.shape[column] == 1) view.strides[column] = 1;
  if (view.shape[row] == 1) view.strides[row] = view.strides[column] == 1 ? view.shape[column] : 1;
  if (view.shape[column] == 1 && view.strides[row] < 1) view.strides[row] = 1;
  return view;
}

bool is_row_major(const TensorView& view) {
  const int row = view.shape.ndim() - 2;
  return view.strides[row + 1] == 1 && view.strides[row] >= view.shape[row + 1];
}

bool is_matrix(const TensorView& view) { return is_row_major(view) || is_row_major(transposed(view)); }

// All leading dims as one, where each operand allows it: oneDNN has more code for three dims.
void merge_batch_dims(TensorView& a, TensorView& b, TensorView& c) {
  const auto mergeable = [](const TensorView& view) {
    for (int dim = 0; dim + 3 < view.shape.ndim(); ++dim) {
      if (view.strides[dim] != view.strides[dim + 1] * view.shape[dim + 1]) return false;
    }
    return true;
  };
  if (a.shape.ndim() <= 3 || !mergeable(a) || !mergeable(b) || !mergeable(c)) return;
  for (TensorView* view : {&a, &b, &c}) {
    const int n = view->shape.ndim();
    int64_t batch = 1;
    for (int dim = 0; dim < n - 2; ++dim) batch *= view->shape[dim];
    view->strides = Strides{view->strides[n - 3], view->strides[n - 2], view->strides[n - 1]};
    view->shape = Shape{batch, view->shape[n - 2], view->shape[n - 1]};
  }
}

struct Matmul {
  int num_threads = 1;
  // What the primitive is told of the operands; the data comes at run time.
  TensorView lhs_view, rhs_view, out_view;
  StagedOperand lhs, rhs, out;
  std::optional<Primitive> primitive;
  size_t lhs_argument = 0, rhs_argument = 0, out_argument = 0;
  std::vector<std::pair<size_t, size_t>> values;  // an input of the node, the argument that it is

  void run(const KernelArgs& args) {
    const OpenMpThreads threads(num_threads);
    const auto at = [](TensorView view, const TensorView& source) {
      view.data = source.data;
      return view;
    };
    const TensorView a = at(lhs_view, args.inputs[0]);
    const TensorView b = at(rhs_view, args.inputs[1]);
    const TensorView c = at(out_view, args.outputs[0]);
    lhs.copy_in(a, args);
    rhs.copy_in(b, args);
    primitive->bind(lhs_argument, lhs.address(a, args));
    primitive->bind(rhs_argument, rhs.address(b, args));
    primitive->bind(out_argument, out.address(c, args));
    for (const auto& [input, argument] : values) primitive->bind(argument, args.inputs[input].data);
    primitive->run(args.scratch);
    out.copy_out(c, args);
  }
};

dnnl::primitive_desc make_desc(const TensorView& lhs, const TensorView& rhs, const TensorView& out,
                               const MatmulEpilogue& epilogue) {
  dnnl::primitive_attr attributes = onednn_attributes();
  attributes.set_post_ops(epilogue.post_ops);
  return dnnl::matmul::primitive_desc(onednn_engine(), onednn_desc(lhs), onednn_desc(rhs), epilogue.bias,
                                      onednn_desc(out), attributes, /*allow_empty=*/true);
}

TensorView dense_of(const TensorView& view, DType dtype) { return {nullptr, Type{dtype, view.shape}}; }

}  // namespace

std::optional<PreparedKernel> prepare_matmul(const KernelRequest& request, const MatmulEpilogue& epilogue) {
  for (const TensorView& view : {request.inputs[0], request.inputs[1], request.outputs[0]}) {
    if (!onednn_dtype(view.dtype) || view.num_elements() == 0 || view.shape.ndim() < 2) return std::nullopt;
  }
  const OpenMpThreads threads(request.num_threads);
  TensorView lhs = request.inputs[0];
  TensorView rhs = request.inputs[1];
  TensorView out = request.outputs[0];
  if (request.attributes.get_bool("transpose_a")) lhs = transposed(lhs);
  if (request.attributes.get_bool("transpose_b")) rhs = transposed(rhs);
  merge_batch_dims(lhs, rhs, out);
  lhs = canonical(lhs);
  rhs = canonical(rhs);
  out = canonical(out);

  const auto made = std::make_shared<Matmul>();
  made->num_threads = request.num_threads;
  made->lhs_view = lhs;
  made->rhs_view = rhs;
  made->out_view = out;
  // In their own dtypes where oneDNN has fast code for them on this CPU, else in f32.
  dnnl::primitive_desc desc;
  for (const bool widen : {false, true}) {
    const auto wanted = [&](const TensorView& view, bool lies_well) {
      const DType dtype = widen ? DType::kF32 : view.dtype;
      return lies_well && dtype == view.dtype ? view : dense_of(view, dtype);
    };
    const TensorView a = wanted(made->lhs_view, is_matrix(made->lhs_view));
    const TensorView b = wanted(made->rhs_view, is_matrix(made->rhs_view));
    const TensorView c = wanted(made->out_view, is_row_major(made->out_view));
    auto candidate = make_desc(a, b, c, epilogue);
    if (!candidate || (desc && is_reference(candidate))) continue;
    desc = std::move(candidate);
    lhs = a;
    rhs = b;
    out = c;
    if (!is_reference(desc)) break;
  }
  if (!desc) return std::nullopt;

  ScratchPlan scratch;
  const auto stage = [&](const TensorView& view, const TensorView& wanted, bool is_output) {
    if (view.dtype == wanted.dtype && view.strides == wanted.strides) return StagedOperand();
    return StagedOperand(view, wanted, is_output, request.num_threads, scratch);
  };
  made->lhs = stage(made->lhs_view, lhs, false);
  made->rhs = stage(made->rhs_view, rhs, false);
  made->out = stage(made->out_view, out, true);
  made->primitive.emplace(desc, scratch);
  made->lhs_argument = made->primitive->add(DNNL_ARG_SRC, onednn_desc(lhs));
  made->rhs_argument = made->primitive->add(DNNL_ARG_WEIGHTS, onednn_desc(rhs));
  made->out_argument = made->primitive->add(DNNL_ARG_DST, onednn_desc(out));
  for (const auto& value : epilogue.values) {
    made->values.emplace_back(value.input, made->primitive->add(value.argument, value.desc));
  }
  return PreparedKernel{.name = "onednn." + request.op,
                        .run = [made](const KernelArgs& args) { made->run(args); },
                        .scratch_bytes = scratch.bytes()};
}

void add_matmul(KernelRegistry& registry) {
  const auto prepare = [](const KernelRequest& request) { return prepare_matmul(request); };
  registry.add("matmul", prepare);
  registry.add("batch_matmul", prepare);
}

}  // namespace tessera::kernels::cpu
