// Softmax, its logarithm and its cross entropy, with their gradients.
#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/normalization/row_tiles.h"

namespace tessera::cuda {
namespace {

Shape without_dim(const Shape& shape, int axis) {
  Shape rest;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (d != axis) rest.push_back(shape[d]);
  }
  return rest;
}

int axis_of(const KernelRequest& request) {
  return normalize_axis(request.attributes.get_int("axis"), request.outputs[0].shape.ndim(), "axis");
}

// The lines along the axis of these operands, by name.
RowTiles lines_along(const Shape& shape, int axis, const std::vector<std::pair<std::string, TensorView>>& views) {
  std::vector<NamedStrides> lines;
  std::vector<NamedStrides> elements;
  for (const auto& [name, view] : views) {
    lines.push_back({name, without_dim(view.strides, axis)});
    elements.push_back({name, Strides{view.strides[axis]}});
  }
  return {without_dim(shape, axis), std::move(lines), Shape{shape[axis]}, std::move(elements)};
}

std::vector<std::pair<int, int>> pairs_of(const KernelRequest& request,
                                          std::initializer_list<std::pair<int, int>> all) {
  std::vector<std::pair<int, int>> pairs;
  for (const auto& [i, o] : all) {
    const TensorView& in = request.inputs[static_cast<size_t>(i)];
    const TensorView& out = request.outputs[static_cast<size_t>(o)];
    if (in.type() == out.type() && in.strides == out.strides) pairs.emplace_back(i, o);
  }
  return pairs;
}

DeviceProgram one_phase(const KernelRequest& request, const RowTiles& rows, const std::string& body,
                        std::vector<std::pair<int, int>> in_place) {
  DeviceProgram program{.name = "cuda." + request.op, .in_place = std::move(in_place)};
  if (rows.count() == 0 || rows.size() == 0) return program;
  program.functions = rows.functions_text();
  program.phases.push_back({.body = rows.begin_text() + body, .blocks = rows.blocks(), .threads = rows.threads()});
  return program;
}

// Declares `largest` and `sum` of exp(x - largest); element(i) is kept in x_[k] where the thread keeps its elements.
std::string scale_text(const RowTiles& rows, const std::string& type) {
  const std::string minus_infinity = type == "f64" ? "-INFINITY_F64" : "-INFINITY_F32";
  std::string text = fmt::format("{0} x_[{1}];\n{0} largest = {2};\n", type, rows.kept(), minus_infinity);
  const std::string load = fmt::format("const {0} x = {0}(wide(in0[row_x + at_x]));\n", type);
  text += rows.loop_text() + load + "x_[k] = x; if (x > largest) largest = x;\n}\nlargest = max_row(largest);\n";
  text += fmt::format("{} sum = 0;\n", type) + rows.loop_text() +
          (rows.keeps() ? fmt::format("const {} x = x_[k];\n", type) : load) +
          "sum += std::exp(x - largest);\n}\nsum = sum_row(sum);\n";
  return text;
}
std::string element_again(const RowTiles& rows, const std::string& type) {
  return rows.keeps() ? fmt::format("const {} x = x_[k];\n", type)
                      : fmt::format("const {0} x = {0}(wide(in0[row_x + at_x]));\n", type);
}

std::optional<DeviceProgram> write_softmax(const KernelRequest& request, const Gpu&) {
  const TensorView& y = request.outputs[0];
  const RowTiles rows = lines_along(y.shape, axis_of(request), {{"x", request.inputs[0]}, {"y", y}});
  const std::string type = to_string(computed_in(y.dtype));
  std::string body = scale_text(rows, type);
  std::string value = "std::exp(x - largest) / sum";
  if (request.op == "log_softmax") {
    body += fmt::format("const {} log_sum = std::log(sum);\n", type);
    value = "x - largest - log_sum";
  }
  body += rows.loop_text() + element_again(rows, type) +
          fmt::format("out0[row_y + at_y] = converted<{}>({});\n}}\n", to_string(y.dtype), value);
  return one_phase(request, rows, body, pairs_of(request, {{0, 0}}));
}

std::optional<DeviceProgram> write_softmax_grad(const KernelRequest& request, const Gpu&) {
  const TensorView& dx = request.outputs[0];
  const RowTiles rows =
      lines_along(dx.shape, axis_of(request), {{"g", request.inputs[0]}, {"y", request.inputs[1]}, {"dx", dx}});
  const std::string type = to_string(computed_in(dx.dtype));
  const bool is_log = request.op == "log_softmax_grad";
  const std::string load =
      fmt::format("const {0} g = {0}(wide(in0[row_g + at_g])), y = {0}(wide(in1[row_y + at_y]));\n", type);
  std::string body = fmt::format("{} sum = 0;\n", type) + rows.loop_text() + load +
                     (is_log ? "sum += g;\n}\n" : "sum += g * y;\n}\n") + "sum = sum_row(sum);\n";
  body += rows.loop_text() + load +
          fmt::format("out0[row_dx + at_dx] = converted<{}>({});\n}}\n", to_string(dx.dtype),
                      is_log ? "g - std::exp(y) * sum" : "y * (g - sum)");
  return one_phase(request, rows, body, pairs_of(request, {{0, 0}, {1, 0}}));
}

std::optional<DeviceProgram> write_cross_entropy(const KernelRequest& request, const Gpu&) {
  const TensorView& logits = request.inputs[0];
  const TensorView& probabilities = request.outputs[1];
  const RowTiles rows = lines_along(logits.shape, 1, {{"x", logits}, {"y", probabilities}});
  const std::string type = to_string(computed_in(logits.dtype));
  const int64_t classes = logits.shape[1];
  if (classes == 0 && rows.count() > 0) return std::nullopt;
  std::string body = fmt::format(
      "const i64 label = in1[row * {}];\nconst bool is_class = label >= 0 && label < {};\n"
      "const {} at_label = is_class ? {}(wide(in0[row_x + label * {}])) : {};\n",
      request.inputs[1].strides[0], classes, type, type, logits.strides[1], literal(0, computed_in(logits.dtype)));
  body += scale_text(rows, type);
  const TensorView& losses = request.outputs[0];
  body += fmt::format(
      "if (lane == 0) out0[row * {}] = converted<{}>(is_class ? std::log(sum) - (at_label - largest) : "
      "{}(NAN_F64));\n",
      losses.strides[0], to_string(losses.dtype), type);
  body += rows.loop_text() + element_again(rows, type) +
          fmt::format("out1[row_y + at_y] = converted<{}>(std::exp(x - largest) / sum);\n}}\n",
                      to_string(probabilities.dtype));
  return one_phase(request, rows, body, pairs_of(request, {{0, 1}}));
}

std::optional<DeviceProgram> write_cross_entropy_grad(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& p = request.inputs[0];
  const TensorView& dx = request.outputs[0];
  DeviceProgram program{.name = "cuda." + request.op, .in_place = pairs_of(request, {{0, 0}})};
  if (dx.num_elements() == 0) return program;
  const int64_t classes = dx.shape[1];
  const std::vector<NamedStrides> views{{"q", dx.strides}, {"a", p.strides}};
  const std::string type = to_string(computed_in(dx.dtype));
  const std::string index = index_type(dx.shape, views);
  std::string body =
      "#pragma unroll 4\n" + loop_text(index, "i", dx.num_elements()) + offsets_text(dx.shape, views, "i");
  body += fmt::format(
      "const {0} row = i / {1}, column = i % {1};\nconst i64 label = in1[row * {2}];\n"
      "const {3} x = {3}(wide(in0[a])), scale = {3}(wide(in2[row * {4}]));\n"
      "out0[q] = converted<{5}>(label >= 0 && label < {1} ? scale * (x - (column == label ? {3}(1) : {3}(0))) : "
      "{3}(0));\n}}\n",
      index, classes, request.inputs[1].strides[0], type, request.inputs[2].strides[0], to_string(dx.dtype));
  program.phases.push_back({.body = body, .blocks = blocks_for(gpu, dx.num_elements())});
  return program;
}

}  // namespace

void add_softmax(KernelRegistry& registry, Gpu& gpu) {
  add_writer(registry, gpu, "softmax", write_softmax);
  add_writer(registry, gpu, "log_softmax", write_softmax);
  add_writer(registry, gpu, "softmax_grad", write_softmax_grad);
  add_writer(registry, gpu, "log_softmax_grad", write_softmax_grad);
  add_writer(registry, gpu, "softmax_cross_entropy", write_cross_entropy);
  add_writer(registry, gpu, "softmax_cross_entropy_grad", write_cross_entropy_grad);
}

}  // namespace tessera::cuda
