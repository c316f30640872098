#include "tessera/kernels/cuda/optimizers/row_updates.h"

#include <algorithm>

#include "tessera/kernels/cuda/core/phase_parts.h"
#include "tessera/kernels/cuda/core/writer.h"
#include "tessera/kernels/cuda/indexing/sorted_rows.h"
#include "tessera/kernels/cuda/optimizers/update_program.h"
#include "tessera/kernels/cuda/shapes/copies.h"
#include "tessera/tensor/update_rows.h"

namespace tessera::cuda {
namespace {

// Dims or strides behind the first.
Shape rest_of(const Shape& shape) {
  Shape rest;
  for (int d = 1; d < shape.ndim(); ++d) rest.push_back(shape[d]);
  return rest;
}

class RowUpdateWriter {
 public:
  RowUpdateWriter(const KernelRequest& request, const UpdateRows& update, const ElementProgram& optimizer)
      : request_(request),
        update_(update),
        optimizer_(optimizer),
        num_rows_(request.outputs[0].shape[0]),
        count_(request.inputs[update.ids()].shape[0]),
        row_(rest_of(request.outputs[0].shape)) {
    for (size_t i = 0; i < update_.num_results(); ++i) {
      views_.push_back({fmt::format("q{}", i), rest_of(request_.outputs[i].strides)});
    }
    views_.push_back({"u", rest_of(request_.inputs[update_.rows()].strides)});
  }

  // Threads have one element of a row each. The block where a row begins in `sorted` adds up what belongs to it.
  ProgramPhase named_rows() const {
    const int64_t size = row_.num_elements();
    const int threads = static_cast<int>(std::min<int64_t>(kPartThreads, (size + 31) / 32 * 32));
    const int64_t parts = (size + threads - 1) / threads;
    const TensorView& gradients = request_.inputs[update_.rows()];
    ProgramPhase phase{.blocks = count_ * parts, .threads = threads};
    phase.body =
        sorted_rows_text(count_) +
        fmt::format(
            "const int begin = int(blockIdx.x / {0});\nconst i64 row = sorted[begin];\n"
            "if (row < 0 || (begin > 0 && sorted[begin - 1] == row)) return;\n"
            "const int element = int(blockIdx.x % {0}) * {1} + int(threadIdx.x);\nif (element >= {2}) return;\n{3}"
            "{4} gradient = 0;\n"
            "for (int i = begin; i < {5} && sorted[i] == row; ++i) {{\n"
            "  const {4} x = static_cast<{4}>(wide(in{6}[u + i64(positions[i]) * {7}]));\n"
            "  gradient = i == begin ? x : gradient + x;\n}}\n",
            parts, threads, size, offsets_text(row_, views_, "element"), to_string(optimizer_.computed), count_,
            update_.rows(), gradients.strides[0]) +
        update_text();
    return phase;
  }

  // Those that nobody names, by gradients of zeros, where all rows are to be updated.
  ProgramPhase other_rows(const Gpu& gpu) const {
    const int64_t elements = num_rows_ * row_.num_elements();
    ProgramPhase phase{.blocks = blocks_for(gpu, elements, kPartThreads), .threads = kPartThreads};
    phase.body = fmt::format("if (wide(in{}[0]) == 0) return;\n", update_.whole());
    if (count_ > 0) phase.body += sorted_rows_text(count_);
    phase.body += loop_text("i64", "at", elements) +
                  fmt::format("const i64 row = at / {0};\nconst int element = int(at % {0});\n", row_.num_elements());
    if (count_ > 0) {
      phase.body += fmt::format(
          "int first = 0;\n"
          "for (int end = {0}; first < end;) {{\n"
          "  const int middle = (first + end) / 2;\n"
          "  if (sorted[middle] < row) {{ first = middle + 1; }} else {{ end = middle; }}\n}}\n"
          "if (first < {0} && sorted[first] == row) continue;\n",
          count_);
    }
    phase.body += offsets_text(row_, views_, "element") +
                  fmt::format("const {} gradient = 0;\n", to_string(optimizer_.computed)) + update_text() + "}\n";
    return phase;
  }

 private:
  // The optimizer's program for one element of row `row`, whose gradient is `gradient`.
  std::string update_text() const {
    const char* computed = to_string(optimizer_.computed);
    const auto element = [&](size_t i) {
      return fmt::format("out{0}[q{0} + row * {1}]", i, request_.outputs[i].strides[0]);
    };
    std::string text;
    if (update_.keeps_states) {
      text += fmt::format("const bool moves_states = {};\n",
                          update_.may_be_whole ? fmt::format("wide(in{}[0]) != 0", update_.whole()) : "false");
    }
    const auto is_kept = [&](size_t i) { return i > 0 && update_.keeps_states; };
    for (size_t i = 0; i < update_.num_results(); ++i) {
      text += fmt::format("const {0} a{1} = {2}static_cast<{0}>(wide({3})){4};\n", computed, i,
                          is_kept(i) ? "moves_states ? " : "", element(i),
                          is_kept(i) ? fmt::format(" : static_cast<{}>(0)", computed) : "");
    }
    text += fmt::format("const {} a{} = gradient;\n", computed, update_.num_results());
    for (size_t i = 0; i < update_.num_scalars; ++i) {
      text += fmt::format("const {0} a{1} = static_cast<{0}>(wide(in{2}[0]));\n", computed,
                          update_.num_results() + 1 + i, update_.scalar(i));
    }
    text += optimizer_.statements;
    for (size_t i = 0; i < update_.num_results(); ++i) {
      text += fmt::format("{}{} = {};\n", is_kept(i) ? "if (moves_states) " : "", element(i),
                          stored(optimizer_.results[i], optimizer_.computed, request_.outputs[i].dtype));
    }
    return text;
  }

  const KernelRequest& request_;
  const UpdateRows& update_;
  const ElementProgram& optimizer_;
  int64_t num_rows_;
  int64_t count_;
  Shape row_;
  std::vector<NamedStrides> views_;  // over a row: of the results, and of the gradient
};

}  // namespace

std::optional<DeviceProgram> write_update_rows(const KernelRequest& request, const Gpu& gpu) {
  const UpdateRows update(request.attributes, request.inputs.size());
  const auto optimizer =
      update_program(update.optimizer, update.settings, UpdateRows::computed(request.inputs[0].dtype));
  const TensorView& ids = request.inputs[update.ids()];
  const TensorView& parameter = request.outputs[0];
  if (!optimizer || ids.shape[0] > kMostSortedRows || parameter.shape[0] > kMostSortedRows) return std::nullopt;
  DeviceProgram program{.name = "cuda." + update.optimizer + ".rows"};
  std::vector<PhasePart> first;
  for (size_t i = 0; i < update.num_results(); ++i) {
    const TensorView& in = request.inputs[i];
    const TensorView& out = request.outputs[i];
    if (in.strides == out.strides) program.in_place.emplace_back(static_cast<int>(i), static_cast<int>(i));
    if (out.num_elements() == 0) continue;
    const std::string from = fmt::format("in{}", i);
    const std::string to = fmt::format("out{}", i);
    PhasePart copied = copy_part(gpu, size_bytes(out.dtype), out.shape, {from, 0, in.strides}, {to, 0, out.strides});
    copied.body = fmt::format("if (static_cast<const void*>({}) != static_cast<const void*>({})) {{\n{}}}\n", from, to,
                              copied.body);
    first.push_back(std::move(copied));
  }
  if (first.empty()) return program;
  const int64_t count = ids.shape[0];
  if (count > 0) {
    program.scratch_bytes = bytes_of_sorted_rows(count);
    first.push_back(sort_part(gpu, fmt::format("in{}", update.ids()), ids, parameter.shape[0]));
  }
  program.phases.push_back(side_by_side(first));
  const RowUpdateWriter writer(request, update, *optimizer);
  if (count > 0) program.phases.push_back(writer.named_rows());
  if (update.may_be_whole) program.phases.push_back(writer.other_rows(gpu));
  return program;
}

}  // namespace tessera::cuda
