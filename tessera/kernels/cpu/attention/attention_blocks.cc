#include "tessera/kernels/cpu/attention/attention_blocks.h"
#include "tessera/base/integers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tessera::kernels::cpu {
namespace {

// Of one block; two of them and the operands fit into a second-level cache.
constexpr int64_t kScoreBytes = 256 << 10;
constexpr int64_t kLeastRows = 16;

// Masks are read as f32 where they lie so.
bool is_ready(const TensorView& mask, int64_t stride) { return mask.dtype == DType::kF32 && stride == 1; }

}  // namespace

BlockSize block_size(const AttentionProblem& problem, int num_threads) {
  const int64_t sequence_bytes = problem.queries * problem.keys * static_cast<int64_t>(sizeof(float));
  for (int64_t heads = problem.heads; heads > 1; --heads) {
    if (problem.heads % heads != 0 || heads * sequence_bytes > kScoreBytes) continue;
    if (problem.batch * problem.heads / heads >= 4 * num_threads) return {heads, problem.queries};
  }
  const int64_t fitting = kScoreBytes / (std::max<int64_t>(problem.keys, 1) * static_cast<int64_t>(sizeof(float)));
  const int64_t blocks = divide_up(problem.queries, std::max(fitting, kLeastRows));
  const int64_t rows = divide_up(divide_up(problem.queries, blocks), kLeastRows) * kLeastRows;
  return {1, std::min(rows, problem.queries)};
}

HeadMatrix HeadMatrix::transposed() const {
  HeadMatrix result = *this;
  result.is_transposed = !is_transposed;
  return result;
}

dnnl::memory::desc HeadMatrix::desc() const {
  // Strides of dims of size 1 say nothing: these are those of a matrix.
  const int64_t row = rows == 1 ? std::max(columns, row_stride) : row_stride;
  const int64_t head = heads == 1 ? std::max(rows * row, head_stride) : head_stride;
  const auto type = onednn_dtype(dtype).value();
  if (is_transposed) return {{heads, columns, rows}, type, dnnl::memory::dims{head, 1, row}};
  return {{heads, rows, columns}, type, dnnl::memory::dims{head, row, 1}};
}

namespace {

dnnl::primitive_desc product_desc(const HeadMatrix& lhs, const HeadMatrix& rhs, const HeadMatrix& out, bool adds) {
  auto attributes = onednn_attributes();
  if (adds) {
    dnnl::post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
  return dnnl::matmul::primitive_desc(onednn_engine(), lhs.desc(), rhs.desc(), out.desc(), attributes);
}

}  // namespace

HeadProduct::HeadProduct(const HeadMatrix& lhs, const HeadMatrix& rhs, const HeadMatrix& out, bool adds,
                         ScratchPlan& scratch)
    : is_slow_(is_reference(product_desc(lhs, rhs, out, adds))),
      primitive_(product_desc(lhs, rhs, out, adds), scratch),
      lhs_(primitive_.add(DNNL_ARG_SRC, lhs.desc())),
      rhs_(primitive_.add(DNNL_ARG_WEIGHTS, rhs.desc())),
      out_(primitive_.add(DNNL_ARG_DST, out.desc())) {}

void HeadProduct::run(const void* lhs, const void* rhs, void* out, std::span<std::byte> scratch) {
  // oneDNN reads the first two, though its interface takes no const.
  primitive_.bind(lhs_, const_cast<void*>(lhs));
  primitive_.bind(rhs_, const_cast<void*>(rhs));
  primitive_.bind(out_, out);
  primitive_.run(scratch);
}

void* at(const TensorView& view, int64_t row, int64_t token, int64_t head) {
  const int64_t offset = row * view.strides[0] + token * view.strides[1] + head * view.strides[2];
  return static_cast<std::byte*>(view.data) + offset * static_cast<int64_t>(size_bytes(view.dtype));
}

RowExtras::RowExtras(const AttentionProblem& problem, ScratchPlan& scratch)
    : problem_(problem),
      mask_offset_(scratch.add(problem.mask ? problem.keys * static_cast<int64_t>(sizeof(float)) : 0)),
      bits_offset_(scratch.add(problem.step ? problem.keys * static_cast<int64_t>(sizeof(uint32_t)) : 0)) {}

const float* RowExtras::mask(const KernelArgs& args, int64_t row, int64_t head, int64_t query) const {
  if (!problem_.mask) return nullptr;
  const TensorView& mask = args.inputs[*problem_.mask];
  const int64_t stride = problem_.mask_strides[3];
  const int64_t offset = problem_.mask_offset(row, head, query);
  if (is_ready(mask, stride)) return mask.as<float>() + offset;
  auto* to = reinterpret_cast<float*>(args.scratch.data() + mask_offset_);
  const auto fill = [&](auto number) {
    for (int64_t s = 0; s < problem_.keys; ++s) to[s] = number(offset + s * stride);
  };
  if (mask.dtype == DType::kBool) {
    const auto* sees = static_cast<const bool*>(mask.data);
    fill([&](int64_t i) { return sees[i] ? 0.0F : -std::numeric_limits<float>::infinity(); });
  } else {
    dispatch_floating(mask.dtype, "attention", [&](auto zero) {
      const auto* numbers = static_cast<const decltype(zero)*>(mask.data);
      fill([&](int64_t i) { return static_cast<float>(numbers[i]); });
    });
  }
  return to;
}

void RowExtras::draw(const KernelArgs& args, int64_t row, int64_t head, int64_t query) const {
  auto* bits = reinterpret_cast<uint32_t*>(args.scratch.data() + bits_offset_);
  uniform_bits()(problem_.stream(args), problem_.first_draw(row, head, query), 1, bits, problem_.keys);
}

void RowExtras::drop(const KernelArgs& args, const float* x, float* y) const {
  const auto* bits = reinterpret_cast<const uint32_t*>(args.scratch.data() + bits_offset_);
  // u < keep_prob for u = k / 2^24 is k < keep_prob * 2^24, which is exact in f64.
  const auto threshold = static_cast<uint32_t>(std::ceil(problem_.keep_prob * 0x1p24));
  drop_row()(x, bits, threshold, static_cast<float>(problem_.keep_prob), y, problem_.keys);
}

AttentionOperands::AttentionOperands(const KernelRequest& request, size_t num_inputs, size_t num_outputs, bool widen,
                                     ScratchPlan& scratch) {
  const auto see = [&](const TensorView& view, bool is_output) {
    const DType dtype = widen ? DType::kF32 : view.dtype;
    const bool lies_well = view.shape.ndim() < 4 || view.shape[3] == 1 || view.strides[3] == 1;
    if (lies_well && dtype == view.dtype) return Seen{view, StagedOperand()};
    const TensorView dense(nullptr, Type{dtype, view.shape});
    return Seen{dense, StagedOperand(view, dense, is_output, request.num_threads, scratch)};
  };
  for (size_t i = 0; i < num_inputs; ++i) inputs_.push_back(see(request.inputs[i], false));
  for (size_t i = 0; i < num_outputs; ++i) outputs_.push_back(see(request.outputs[i], true));
}

void AttentionOperands::run(const KernelArgs& args, FunctionRef<void(const KernelArgs&)> run) const {
  std::array<TensorView, 8> inputs;
  std::array<TensorView, 3> outputs;
  std::copy(args.inputs.begin(), args.inputs.end(), inputs.begin());
  std::copy(args.outputs.begin(), args.outputs.end(), outputs.begin());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i].staged.copy_in(args.inputs[i], args);
    inputs[i] = inputs_[i].view;
    inputs[i].data = inputs_[i].staged.address(args.inputs[i], args);
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    outputs[i] = outputs_[i].view;
    outputs[i].data = outputs_[i].staged.address(args.outputs[i], args);
  }
  run({std::span(inputs).first(args.inputs.size()), std::span(outputs).first(args.outputs.size()), args.attributes,
       args.scratch, args.parallel_for});
  for (size_t i = 0; i < outputs_.size(); ++i) outputs_[i].staged.copy_out(args.outputs[i], args);
}

}  // namespace tessera::kernels::cpu
