// Batch normalisation and its gradients, with what is fused with them.
#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/core/writer.h"
#include "tessera/kernels/cuda/normalization/channel_sums.h"

namespace tessera::cuda {
namespace {

DType number_of(const KernelRequest& request) {
  return request.inputs[0].dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}
std::string number(double value, const KernelRequest& request) { return literal(value, number_of(request)); }

TileImage image_in(const KernelRequest& request, size_t input, std::string name) {
  return {fmt::format("in{}", input), std::move(name), request.inputs[input]};
}
TileImage image_out(const KernelRequest& request, size_t output, std::string name) {
  return {fmt::format("out{}", output), std::move(name), request.outputs[output], true};
}

// Declares `name`[v], a value for each channel of the pack: an operand, then `change`, where x is it.
std::string per_channel(const KernelRequest& request, size_t input, const std::string& name, int pack,
                        const std::string& change = "x") {
  const std::string type = to_string(number_of(request));
  return fmt::format(
      "{0} {1}[{2}];\n#pragma unroll\nfor (int v = 0; v < {2} && is_active; ++v) {{\n"
      "const {0} x = {0}(wide(in{3}[{4}])); {1}[v] = {5};\n}}\n",
      type, name, pack, input, ChannelTiles::statistic_offset(request.inputs[input], "c0 + v"), change);
}
std::string inverse_deviation(const KernelRequest& request, double eps) {
  const std::string type = to_string(number_of(request));
  return fmt::format("{}(1) / std::sqrt(x + {})", type, number(eps, request));
}
std::string element(const KernelRequest& request, const std::string& name) {
  return fmt::format("{}(wide({}[v]))", to_string(number_of(request)), name);
}
std::string assign(const KernelRequest& request, size_t output, const std::string& name, const std::string& value) {
  const char* dtype = to_string(request.outputs[output].dtype);
  return fmt::format("{}[v] = converted<{}>({});\n", name, dtype, value);
}
// Declares norm_mean, norm_scale and norm_beta with a prefix, of operands `first` and those behind.
std::string norm_text(const KernelRequest& request, size_t first, const std::string& prefix, double eps, int pack) {
  return per_channel(request, first + 1, prefix + "mean", pack) +
         per_channel(request, first + 2, prefix + "inverse", pack, inverse_deviation(request, eps)) +
         per_channel(request, first + 3, prefix + "scale", pack, fmt::format("x * {}inverse[v]", prefix)) +
         per_channel(request, first + 4, prefix + "beta", pack);
}
std::string normalised(const std::string& prefix, const std::string& value) {
  return fmt::format("(({1} - {0}mean[v]) * {0}scale[v] + {0}beta[v])", prefix, value);
}

std::vector<std::pair<int, int>> same_place(const KernelRequest& request, std::initializer_list<int> inputs) {
  std::vector<std::pair<int, int>> pairs;
  for (const int i : inputs) {
    const auto at = static_cast<size_t>(i);
    if (at >= request.inputs.size()) continue;
    const TensorView& in = request.inputs[at];
    if (in.type() == request.outputs[0].type() && in.strides == request.outputs[0].strides) pairs.emplace_back(i, 0);
  }
  return pairs;
}

// A kernel that makes image out0, element by element.
DeviceProgram each_element(const KernelRequest& request, const ChannelTiles& tiles, const std::string& coefficients,
                           const std::string& body, std::vector<std::pair<int, int>> in_place) {
  DeviceProgram program{.name = "cuda." + request.op, .in_place = std::move(in_place)};
  if (request.outputs[0].num_elements() == 0) return program;
  program.functions = tiles.functions_text();
  program.phases.push_back({.body = tiles.begin_text() + coefficients + "if (is_active) {\n" + tiles.loop_begin_text() +
                                    tiles.pack_loop_text() + body + "}\n" + tiles.loop_end_text() + "}\n",
                            .blocks = tiles.blocks(),
                            .threads = ChannelTiles::kThreads});
  return program;
}

std::optional<DeviceProgram> write_mean(const KernelRequest& request, const Gpu& gpu) {
  const ChannelTiles tiles(request, gpu, {image_in(request, 0, "x")}, true);
  const std::string type = to_string(number_of(request));
  return channel_sums(request, tiles,
                      {.type = type,
                       .count = 1,
                       .add = fmt::format("sums[0][v] += {};\n", element(request, "x")),
                       .finish = store_statistic(request, 0, fmt::format("total[0] / {}(group_count(group))", type))});
}

std::optional<DeviceProgram> write_variance(const KernelRequest& request, const Gpu& gpu) {
  const ChannelTiles tiles(request, gpu, {image_in(request, 0, "x")}, true);
  const std::string type = to_string(number_of(request));
  return channel_sums(
      request, tiles,
      {.type = type,
       .count = 1,
       .prepare = per_channel(request, 1, "mean", tiles.pack()),
       .add = fmt::format("const {0} d = {1} - mean[v]; sums[0][v] += d * d;\n", type, element(request, "x")),
       .finish = store_statistic(request, 0, fmt::format("total[0] / {}(group_count(group))", type))});
}

std::optional<DeviceProgram> write_statistics(const KernelRequest& request, const Gpu& gpu) {
  const ChannelTiles tiles(request, gpu, {image_in(request, 0, "x")}, true);
  const std::string type = to_string(number_of(request));
  // A thread's sums are of differences from its first element; then they are how many, their mean and their squares.
  const std::string finish = fmt::format(
      "const {0} count = {0}(group_count(group));\n"
      "const {0} mean = total[0] * total[1] / count;\nconst {0} off = total[1] - mean;\n"
      "const {0} variance = (total[2] + total[0] * off * off) / count;\n",
      type);
  return channel_sums(
      request, tiles,
      {.type = type,
       .count = 3,
       .prepare = fmt::format("{} first[{}];\n", type, tiles.pack()),
       .add = fmt::format("if (r == begin_r + ty) first[v] = {1};\n"
                          "const {0} d = {1} - first[v]; sums[1][v] += d; sums[2][v] += d * d;\n",
                          type, element(request, "x")),
       .change = fmt::format("const i64 rows = begin_r + ty < end_r ? (end_r - begin_r - ty + {1} - 1) / {1} : 0;\n"
                             "sums[0][v] = {0}(rows);\nif (rows > 0) {{\nconst {0} off = sums[1][v] / {0}(rows);\n"
                             "sums[2][v] -= sums[1][v] * off; sums[1][v] = first[v] + off;\n}}\n",
                             type, tiles.lanes()),
       .combine = "combine_moments",
       .finish = finish + store_statistic(request, 0, "mean") + store_statistic(request, 1, "variance")});
}

std::optional<DeviceProgram> write_grad_reduce(const KernelRequest& request, const Gpu& gpu) {
  const ChannelTiles tiles(request, gpu, {image_in(request, 0, "dy"), image_in(request, 1, "x")}, true);
  const std::string type = to_string(number_of(request));
  const double eps = request.attributes.get_double("eps");
  return channel_sums(request, tiles,
                      {.type = type,
                       .count = 2,
                       .prepare = per_channel(request, 2, "mean", tiles.pack()),
                       .add = fmt::format("const {0} g = {1}; sums[0][v] += g; sums[1][v] += g * ({2} - mean[v]);\n",
                                          type, element(request, "dy"), element(request, "x")),
                       .finish = store_statistic(request, 0, "total[0]") +
                                 store_statistic(request, 1, "total[1] * " + inverse_at(request, 3, eps, type))});
}

std::optional<DeviceProgram> write_relu_grad_reduce(const KernelRequest& request, const Gpu& gpu) {
  const ChannelTiles tiles(request, gpu, {image_in(request, 0, "dy"), image_in(request, 1, "x")}, true);
  const std::string type = to_string(number_of(request));
  const double eps = request.attributes.get_double("eps");
  return channel_sums(request, tiles,
                      {.type = type,
                       .count = 2,
                       .prepare = norm_text(request, 1, "", eps, tiles.pack()),
                       .add = fmt::format("const {0} value = {1}; const {0} g = {2} > {0}(0) ? {3} : {0}(0);\n"
                                          "sums[0][v] += g; sums[1][v] += g * (value - mean[v]);\n",
                                          type, element(request, "x"), normalised("", "value"), element(request, "dy")),
                       .finish = store_statistic(request, 0, "total[0]") +
                                 store_statistic(request, 1, "total[1] * " + inverse_at(request, 3, eps, type))});
}

std::optional<DeviceProgram> write_masked_grad_reduce(const KernelRequest& request, const Gpu& gpu) {
  const bool has_two = request.inputs.size() > 5;
  std::vector<TileImage> images{image_in(request, 0, "y"), image_in(request, 1, "x"), image_in(request, 4, "dy")};
  if (has_two) images.push_back(image_in(request, 5, "more"));
  images.push_back(image_out(request, 0, "masked"));
  const ChannelTiles tiles(request, gpu, std::move(images), true);
  const std::string type = to_string(number_of(request));
  const double eps = request.attributes.get_double("eps");
  const std::string sum = element(request, "dy") + (has_two ? " + " + element(request, "more") : "");
  auto program =
      channel_sums(request, tiles,
                   {.type = type,
                    .count = 2,
                    .prepare = per_channel(request, 2, "mean", tiles.pack()),
                    .add = fmt::format("const {0} g = {1} > {0}(0) ? {2} : {0}(0);\n"
                                       "sums[0][v] += g; sums[1][v] += g * ({3} - mean[v]);\n",
                                       type, element(request, "y"), sum, element(request, "x")) +
                           assign(request, 0, "masked", "g"),
                    .finish = store_statistic(request, 1, "total[0]") +
                              store_statistic(request, 2, "total[1] * " + inverse_at(request, 3, eps, type))});
  program.in_place = same_place(request, {0, 1, 4, 5});
  return program;
}

std::optional<DeviceProgram> write_batch_norm(const KernelRequest& request, const Gpu& gpu) {
  const ChannelTiles tiles(request, gpu, {image_in(request, 0, "x"), image_out(request, 0, "y")}, false);
  return each_element(request, tiles, norm_text(request, 0, "", request.attributes.get_double("eps"), tiles.pack()),
                      assign(request, 0, "y", normalised("", element(request, "x"))), same_place(request, {0}));
}

std::optional<DeviceProgram> write_fused_batch_norm(const KernelRequest& request, const Gpu& gpu) {
  const std::string& residual = request.attributes.get_string("residual");
  std::vector<TileImage> images{image_in(request, 0, "x")};
  if (residual != "none") images.push_back(image_in(request, 5, "more"));
  images.push_back(image_out(request, 0, "y"));
  const ChannelTiles tiles(request, gpu, std::move(images), false);
  const std::string type = to_string(number_of(request));
  std::string coefficients = norm_text(request, 0, "", request.attributes.get_double("eps"), tiles.pack());
  std::string value = normalised("", element(request, "x"));
  if (residual == "value") {
    value += " + " + element(request, "more");
  } else if (residual != "none") {
    coefficients += norm_text(request, 5, "other_", request.attributes.get_double("residual_eps"), tiles.pack());
    value += " + " + normalised("other_", element(request, "more"));
  }
  std::string body = fmt::format("const {} value = {};\n", type, value);
  const bool relu = request.attributes.get_bool("relu");
  body += assign(request, 0, "y", relu ? fmt::format("value <= {0}(0) ? {0}(0) : value", type) : "value");
  return each_element(request, tiles, coefficients, body, same_place(request, {0, 5}));
}

// dx = scale * (dy - shift - (x - mean) * slope), where shift and slope are operands by the count.
std::string gradient_coefficients(const KernelRequest& request, size_t sums, int pack) {
  const std::string type = to_string(number_of(request));
  return per_channel(request, sums, "shift", pack, fmt::format("x / {}(group_count(group))", type)) +
         per_channel(request, sums + 1, "slope", pack, fmt::format("x * inverse[v] / {}(group_count(group))", type));
}

std::optional<DeviceProgram> write_grad_input(const KernelRequest& request, const Gpu& gpu) {
  const ChannelTiles tiles(request, gpu,
                           {image_in(request, 0, "dy"), image_in(request, 1, "x"), image_out(request, 0, "dx")}, false);
  const double eps = request.attributes.get_double("eps");
  const std::string coefficients = per_channel(request, 2, "mean", tiles.pack()) +
                                   per_channel(request, 3, "inverse", tiles.pack(), inverse_deviation(request, eps)) +
                                   per_channel(request, 4, "scale", tiles.pack(), "x * inverse[v]") +
                                   gradient_coefficients(request, 5, tiles.pack());
  const std::string value = fmt::format("scale[v] * ({} - shift[v] - ({} - mean[v]) * slope[v])",
                                        element(request, "dy"), element(request, "x"));
  return each_element(request, tiles, coefficients, assign(request, 0, "dx", value), same_place(request, {0, 1}));
}

std::optional<DeviceProgram> write_relu_grad_input(const KernelRequest& request, const Gpu& gpu) {
  const ChannelTiles tiles(request, gpu,
                           {image_in(request, 0, "dy"), image_in(request, 1, "x"), image_out(request, 0, "dx")}, false);
  const double eps = request.attributes.get_double("eps");
  const std::string type = to_string(number_of(request));
  const std::string coefficients =
      norm_text(request, 1, "", eps, tiles.pack()) + gradient_coefficients(request, 6, tiles.pack());
  const std::string body = fmt::format("const {0} value = {1}; const {0} g = {2} > {0}(0) ? {3} : {0}(0);\n", type,
                                       element(request, "x"), normalised("", "value"), element(request, "dy")) +
                           assign(request, 0, "dx", "scale[v] * (g - shift[v] - (value - mean[v]) * slope[v])");
  return each_element(request, tiles, coefficients, body, same_place(request, {0, 1}));
}

std::optional<DeviceProgram> write_moving_average(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& out = request.outputs[0];
  DeviceProgram program{.name = "cuda.moving_average", .in_place = same_place(request, {0, 1})};
  if (out.num_elements() == 0) return program;
  const DType type = out.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const Doubles& scales = request.attributes.get_doubles("scales");
  const double momentum = request.attributes.get_double("momentum");
  const std::vector<NamedStrides> views{
      {"q", out.strides}, {"p0", request.inputs[0].strides}, {"p1", request.inputs[1].strides}};
  const std::string index = index_type(out.shape, views);
  std::string body = loop_text(index, "i", out.num_elements()) + offsets_text(out.shape, views, "i");
  const int64_t per_scale =
      scales.size() == 1 ? out.num_elements() : out.num_elements() / static_cast<int64_t>(scales.size());
  std::string scale = literal(scales.back(), type);
  for (size_t s = scales.size() - 1; s-- > 0;) {
    scale = fmt::format("(i < {} ? {} : {})", per_scale * static_cast<int64_t>(s + 1), literal(scales[s], type), scale);
  }
  body +=
      fmt::format("out0[q] = converted<{0}>({1} * {4}(wide(in0[p0])) + {2} * {3} * {4}(wide(in1[p1])));\n}}\n",
                  to_string(out.dtype), literal(momentum, type), literal(1 - momentum, type), scale, to_string(type));
  program.phases.push_back({.body = body, .blocks = blocks_for(gpu, out.num_elements())});
  return program;
}

}  // namespace

void add_batch_norm(KernelRegistry& registry, Gpu& gpu) {
  add_writer(registry, gpu, "batch_norm_mean", write_mean);
  add_writer(registry, gpu, "batch_norm_variance", write_variance);
  add_writer(registry, gpu, "batch_norm_statistics", write_statistics);
  add_writer(registry, gpu, "batch_norm", write_batch_norm);
  add_writer(registry, gpu, "fused_batch_norm", write_fused_batch_norm);
  add_writer(registry, gpu, "batch_norm_grad_reduce", write_grad_reduce);
  add_writer(registry, gpu, "batch_norm_relu_grad_reduce", write_relu_grad_reduce);
  add_writer(registry, gpu, "masked_batch_norm_grad_reduce", write_masked_grad_reduce);
  add_writer(registry, gpu, "batch_norm_grad_input", write_grad_input);
  add_writer(registry, gpu, "batch_norm_relu_grad_input", write_relu_grad_input);
  add_writer(registry, gpu, "moving_average", write_moving_average);
}

}  // namespace tessera::cuda
