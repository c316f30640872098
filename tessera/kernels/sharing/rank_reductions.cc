#include "tessera/kernels/sharing/rank_reductions.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kFewest = 64;

const char* operator_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "add";
    case ReduceOp::kMax: return "maximum";
    case ReduceOp::kMin: return "minimum";
    case ReduceOp::kProd: return "mul";
  }
  return "?";
}

// Of equal operands, as two zeros are, a maximum is the second: so what there is already stands behind what comes.
std::string program_of(ReduceOp op, size_t num_operands) {
  std::string text;
  std::string last = "a0";
  for (size_t i = 1; i < num_operands; ++i) {
    text += fmt::format("t{}={} a{} {}; ", i - 1, operator_of(op), i, last);
    last = fmt::format("t{}", i - 1);
  }
  return text + "return " + last;
}

}  // namespace

int64_t RankReductions::padded(int64_t count) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(count, kFewest))));
}

const std::byte* RankReductions::reduce(Queue& queue, std::span<const std::byte* const> sources,
                                        const std::array<std::byte*, 2>& results, int64_t count, DType dtype,
                                        ReduceOp op) {
  if (sources.size() == 1) return sources[0];
  // Between the members of a bucket may lie anything, which a bool may not be.
  if (dtype == DType::kBool) dtype = DType::kU8;
  const int64_t size = padded(count);
  if (is_floating(dtype)) {
    launch(queue, sources, results[0], dtype, op, size);
    return results[0];
  }
  // Programs compute in floating types. Others are exact, or wrap around, in any order.
  const std::byte* reduced = sources[0];
  for (size_t i = 1; i < sources.size(); ++i) {
    const std::array<const std::byte*, 2> pair{reduced, sources[i]};
    launch(queue, pair, results[i % 2], dtype, op, size);
    reduced = results[i % 2];
  }
  return reduced;
}

const RankReductions::Prepared& RankReductions::prepared(const Key& key) {
  const auto it = prepared_.find(key);
  if (it != prepared_.end()) return it->second;
  const auto& [num_operands, dtype, op, size] = key;
  const TensorView view(nullptr, Type{dtype, {size}});
  Prepared made;
  if (is_floating(dtype)) made.attributes.set("program", program_of(op, num_operands));
  const KernelRequest request{.op = is_floating(dtype) ? "fused_elementwise" : operator_of(op),
                              .inputs = std::vector<TensorView>(num_operands, view),
                              .outputs = {view},
                              .attributes = made.attributes};
  for (const KernelRegistry* registry : registries_) {
    auto kernel = registry->find(request);
    if (!kernel) continue;
    made.kernel = std::move(*kernel);
    if (made.kernel.scratch_bytes > 0) made.scratch = blocks_.take(made.kernel.scratch_bytes);
    return prepared_.emplace(key, std::move(made)).first->second;
  }
  throw InvalidArgument("a device that ranks share: no kernel of it computes {} of {} operands of {}", request.op,
                        num_operands, to_string(dtype));
}

void RankReductions::launch(Queue& queue, std::span<const std::byte* const> sources, std::byte* result, DType dtype,
                            ReduceOp op, int64_t size) {
  const Prepared& made = prepared({sources.size(), dtype, op, size});
  std::vector<TensorView> inputs;
  for (const std::byte* source : sources) inputs.emplace_back(const_cast<std::byte*>(source), Type{dtype, {size}});
  const TensorView output(result, Type{dtype, {size}});
  const std::span<std::byte> scratch(made.scratch.get(), static_cast<size_t>(made.kernel.scratch_bytes));
  queue.launch(made.kernel, {inputs, {&output, 1}, made.attributes, scratch, parallel_for_, &queue}, nullptr);
}

}  // namespace tessera::kernels
