#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ops/families.h"
#include "tessera/ops/localize.h"
#include "tessera/ops/op_def.h"
#include "tessera/ops/require.h"

namespace tessera::ops {
namespace {

struct Geometry {
  const Ints& strides;
  const Ints& padding;  // top, bottom, left, right
  const Ints& dilation;
  int64_t groups;

  explicit Geometry(const Attributes& attributes)
      : strides(require_ints(attributes, "strides", 2, 1)),
        padding(require_ints(attributes, "padding", 4, 0)),
        dilation(require_ints(attributes, "dilation", 2, 1)),
        groups(attributes.get_int("groups")) {
    if (groups < 1) throw InvalidArgument("attribute groups must be at least 1, is {}", groups);
  }

  // Positions of a kernel of `taps` along dim `d` (0 height, 1 width) in an image of `size` pixels.
  int64_t output_size(int64_t size, int64_t taps, size_t d) const {
    const int64_t padded = size + padding[2 * d] + padding[2 * d + 1];
    const int64_t reach = dilation[d] * (taps - 1) + 1;
    if (taps < 1 || reach > padded) {
      throw InvalidArgument("a kernel that reaches over {} pixels does not fit an image of {} with its padding", reach,
                            padded);
    }
    return (padded - reach) / strides[d] + 1;
  }
};

// Checks that x, weight and y belong to one convolution.
void require_convolution(const Geometry& geometry, const Shape& x, const Shape& weight, const Shape& y) {
  if (weight[1] * geometry.groups != x[1]) {
    throw InvalidArgument("weight reads {} input channels in {} group(s), the image has {}", weight[1], geometry.groups,
                          x[1]);
  }
  if (weight[0] % geometry.groups != 0) {
    throw InvalidArgument("{} output channels do not divide into {} groups", weight[0], geometry.groups);
  }
  const Shape expected{x[0], weight[0], geometry.output_size(x[2], weight[2], 0),
                       geometry.output_size(x[3], weight[3], 1)};
  if (!(y == expected)) throw InvalidArgument("the convolution's result must be {}, is {}", expected, y);
}

void require_images(std::span<const Type> inputs, std::string_view first, std::string_view second) {
  require_ndim(inputs[0], 4, first);
  require_ndim(inputs[1], 4, second);
  require_floating(inputs[0], first);
  require_dtype(inputs[1], inputs[0].dtype, second);
}

std::vector<Type> infer_conv2d(const Attributes& attributes, std::span<const Type> inputs) {
  require_images(inputs, "x", "weight");
  const Geometry geometry(attributes);
  const Shape& x = inputs[0].shape;
  const Shape& weight = inputs[1].shape;
  const Shape y{x[0], weight[0], geometry.output_size(x[2], weight[2], 0), geometry.output_size(x[3], weight[3], 1)};
  require_convolution(geometry, x, weight, y);
  return {{inputs[0].dtype, y}};
}

std::vector<Type> infer_grad_input(const Attributes& attributes, std::span<const Type> inputs) {
  require_images(inputs, "dy", "weight");
  const Geometry geometry(attributes);
  const Ints& size = require_ints(attributes, "input_size", 2, 0);
  const Shape& dy = inputs[0].shape;
  const Shape& weight = inputs[1].shape;
  const Shape x{dy[0], weight[1] * geometry.groups, size[0], size[1]};
  require_convolution(geometry, x, weight, dy);
  return {{inputs[0].dtype, x}};
}

std::vector<Type> infer_grad_weight(const Attributes& attributes, std::span<const Type> inputs) {
  require_images(inputs, "dy", "x");
  const Geometry geometry(attributes);
  const Ints& size = require_ints(attributes, "kernel_size", 2, 1);
  const Shape& dy = inputs[0].shape;
  const Shape& x = inputs[1].shape;
  if (x[1] % geometry.groups != 0) {
    throw InvalidArgument("{} input channels do not divide into {} groups", x[1], geometry.groups);
  }
  const Shape weight{dy[1], x[1] / geometry.groups, size[0], size[1]};
  require_convolution(geometry, x, weight, dy);
  return {{inputs[0].dtype, weight}};
}

// The attributes of the sister operator: the four of the geometry, and one size where it needs it.
Attributes sister(const Attributes& attributes) {
  return {{"strides", attributes.get_ints("strides")},
          {"padding", attributes.get_ints("padding")},
          {"dilation", attributes.get_ints("dilation")},
          {"groups", attributes.get_int("groups")}};
}
Value forward(Value x, Value weight, const Attributes& attributes) {
  return apply1("conv2d", {x, weight}, sister(attributes));
}
Value grad_input(Value dy, Value weight, Value x, const Attributes& attributes) {
  Attributes all = sister(attributes);
  all.set("input_size", Ints{x.shape()[2], x.shape()[3]});
  return apply1("conv2d_grad_input", {dy, weight}, all);
}
Value grad_weight(Value dy, Value x, Value weight, const Attributes& attributes) {
  Attributes all = sister(attributes);
  all.set("kernel_size", Ints{weight.shape()[2], weight.shape()[3]});
  return apply1("conv2d_grad_weight", {dy, x}, all);
}

// Groups pair slices of the channels: a split of either channel dim would cut through a group.
IndexRule rule_for(const Attributes& attributes, const char* dense, const char* grouped) {
  return parse_rule(attributes.get_int("groups") == 1 ? dense : grouped);
}

// Images whose height or width is split: each rank fetches the rows and columns of its neighbours that its windows
// reach into (its halo), and computes with the padding that is left at the image's own edges.

bool splits_pixels(const LocalizeContext& context) { return context.is_split("h") || context.is_split("w"); }

// The spatial dims whose parts need pixels of others: not those that a 1x1 kernel without stride takes as they are.
std::vector<std::string> halo_factors(const LocalizeContext& context, const Ints& taps) {
  const Geometry geometry(context.attributes);
  std::vector<std::string> factors;
  for (size_t d = 0; d < 2; ++d) {
    const bool is_pointwise =
        taps[d] == 1 && geometry.strides[d] == 1 && geometry.padding[2 * d] == 0 && geometry.padding[2 * d + 1] == 0;
    if (context.is_split(d == 0 ? "h" : "w") && !is_pointwise) factors.emplace_back(d == 0 ? "h" : "w");
  }
  return factors;
}

// Along one spatial dim: the pixels that the windows of results [result.offset, + size) read, inside the image.
mesh::Range pixels_of(const Geometry& geometry, size_t d, const mesh::Range& result, int64_t taps, int64_t image) {
  if (result.size == 0) return {0, 0};
  const int64_t begin = result.offset * geometry.strides[d] - geometry.padding[2 * d];
  const int64_t end = (result.offset + result.size - 1) * geometry.strides[d] - geometry.padding[2 * d] +
                      geometry.dilation[d] * (taps - 1) + 1;
  const int64_t first = std::clamp<int64_t>(begin, 0, image);
  return {first, std::max<int64_t>(std::clamp<int64_t>(end, 0, image) - first, 0)};
}

// The results whose windows read pixels [image.offset, + size).
mesh::Range results_of(const Geometry& geometry, size_t d, const mesh::Range& pixels, int64_t taps, int64_t results) {
  if (pixels.size == 0) return {0, 0};
  const int64_t reach = geometry.dilation[d] * (taps - 1);
  const int64_t top = geometry.padding[2 * d];
  const int64_t step = geometry.strides[d];
  const int64_t begin = std::max<int64_t>(pixels.offset + top - reach + step - 1, 0) / step;
  const int64_t end = (pixels.offset + pixels.size - 1 + top) / step + 1;
  const int64_t first = std::clamp<int64_t>(begin, 0, results);
  return {first, std::max<int64_t>(std::clamp<int64_t>(end, 0, results) - first, 0)};
}

// x's slice as the windows of y's slice need it, and the attributes for it: padding where the image ends, none where a
// neighbour's pixels have come.
struct Window {
  Value x;
  Attributes attributes;
};
Window fetch_window(const LocalizeContext& context, size_t input, const Shape& image, const Box& y, const Ints& taps,
                    const std::function<const Box&(const RankSlices&)>& y_of) {
  const Geometry geometry(context.attributes);
  const auto needed = [&](const RankSlices& slices) {
    Box box = slices.inputs[input];
    const Box& results = y_of(slices);
    for (size_t d = 0; d < 2; ++d) {
      box[d + 2] = pixels_of(geometry, d, results[d + 2], taps[d], image[static_cast<int>(d) + 2]);
    }
    return box;
  };
  Window window{fetch(context, input, halo_factors(context, taps), needed), sister(context.attributes)};
  Ints padding;
  for (size_t d = 0; d < 2; ++d) {
    const auto& results = y[d + 2];
    const auto held = pixels_of(geometry, d, results, taps[d], image[static_cast<int>(d) + 2]);
    const int64_t begin = results.offset * geometry.strides[d] - geometry.padding[2 * d];
    const int64_t end = (results.offset + results.size - 1) * geometry.strides[d] - geometry.padding[2 * d] +
                        geometry.dilation[d] * (taps[d] - 1) + 1;
    padding.push_back(std::max<int64_t>(held.offset - begin, 0));
    padding.push_back(std::max<int64_t>(end - held.offset - held.size, 0));
  }
  window.attributes.set("padding", padding);
  return window;
}

bool has_no_pixels(const Box& box) { return box[2].size == 0 || box[3].size == 0; }
// Nothing to compute, or nothing but padding to compute it from.
bool is_blank(const Box& y, Value x) { return has_no_pixels(y) || x.shape()[2] == 0 || x.shape()[3] == 0; }

std::vector<Value> localize_forward(const LocalizeContext& context) {
  if (!splits_pixels(context)) return apply(context.graph, context.op, context.inputs, context.attributes);
  const Shape& weight = context.global_inputs[1].shape;
  const Box& y = context.output_slices[0];
  const auto window = fetch_window(context, 0, context.global_inputs[0].shape, y, {weight[2], weight[3]},
                                   [](const RankSlices& slices) -> const Box& { return slices.outputs[0]; });
  if (is_blank(y, window.x)) return {zeros(context.graph, context.local_outputs[0])};
  return {apply1("conv2d", {window.x, context.inputs[1]}, window.attributes)};
}

std::vector<Value> localize_grad_weight(const LocalizeContext& context) {
  if (!splits_pixels(context)) return apply(context.graph, context.op, context.inputs, context.attributes);
  const Ints& taps = context.attributes.get_ints("kernel_size");
  const Box& dy = context.input_slices[0];
  auto window = fetch_window(context, 1, context.global_inputs[1].shape, dy, taps,
                             [](const RankSlices& slices) -> const Box& { return slices.inputs[0]; });
  if (is_blank(dy, window.x)) return {zeros(context.graph, context.local_outputs[0])};
  window.attributes.set("kernel_size", taps);
  return {apply1("conv2d_grad_weight", {context.inputs[0], window.x}, window.attributes)};
}

std::vector<Value> localize_grad_input(const LocalizeContext& context) {
  if (!splits_pixels(context)) return apply(context.graph, context.op, context.inputs, context.attributes);
  const Geometry geometry(context.attributes);
  const Shape& dy = context.global_inputs[0].shape;
  const Shape& weight = context.global_inputs[1].shape;
  const Box& dx = context.output_slices[0];
  const auto reached = [&](const Box& pixels, size_t d) {
    return results_of(geometry, d, pixels[d + 2], weight[static_cast<int>(d) + 2], dy[static_cast<int>(d) + 2]);
  };
  const Value results = fetch(context, 0, halo_factors(context, {weight[2], weight[3]}), [&](const RankSlices& slices) {
    Box box = slices.inputs[0];
    for (size_t d = 0; d < 2; ++d) box[d + 2] = reached(slices.outputs[0], d);
    return box;
  });
  if (has_no_pixels(dx) || reached(dx, 0).size == 0 || reached(dx, 1).size == 0) {
    return {zeros(context.graph, context.local_outputs[0])};
  }
  // All pixels that these results read, those outside of the slice and the image too; then the slice of them.
  Attributes attributes = sister(context.attributes);
  attributes.set("padding", Ints{0, 0, 0, 0});
  Ints size;
  for (size_t d = 0; d < 2; ++d) {
    size.push_back((reached(dx, d).size - 1) * geometry.strides[d] +
                   geometry.dilation[d] * (weight[static_cast<int>(d) + 2] - 1) + 1);
  }
  attributes.set("input_size", size);
  Value pixels = apply1("conv2d_grad_input", {results, context.inputs[1]}, attributes);
  for (size_t d = 0; d < 2; ++d) {
    const int dim = static_cast<int>(d) + 2;
    const int64_t origin = reached(dx, d).offset * geometry.strides[d] - geometry.padding[2 * d];
    const int64_t begin = dx[d + 2].offset - origin;  // of the slice, counted from the first pixel there is
    const int64_t end = begin + dx[d + 2].size;
    const int64_t first = std::clamp<int64_t>(begin, 0, size[d]);
    const int64_t last = std::clamp<int64_t>(end, first, size[d]);
    const int64_t zeros_around = dx[d + 2].size - (last - first);
    const int64_t before = std::clamp<int64_t>(first - begin, 0, zeros_around);
    pixels = pad_along(slice_along(pixels, dim, first, last), dim, before, zeros_around - before);
  }
  return {pixels};
}

double multiply_adds(const Shape& y, const Shape& weight) {
  double product = 2.0 * static_cast<double>(y.num_elements());
  for (int dim = 1; dim < 4; ++dim) product *= static_cast<double>(weight[dim]);
  return product;
}

std::vector<AttributeDef> geometry_attributes() {
  return {{"strides", Ints{1, 1}, "steps between windows: height, width"},
          {"padding", Ints{0, 0, 0, 0}, "zeros around the image: top, bottom, left, right"},
          {"dilation", Ints{1, 1}, "distance between the kernel's taps: height, width"},
          {"groups", int64_t{1}, "channels are cut into so many independent convolutions"}};
}
std::vector<AttributeDef> geometry_attributes(const char* name, const char* doc) {
  auto attributes = geometry_attributes();
  attributes.push_back({name, std::nullopt, doc});
  return attributes;
}

struct Case {
  DType dtype;
  Shape x;
  Shape weight;
  Ints strides = {1, 1};
  Ints padding = {0, 0, 0, 0};
  Ints dilation = {1, 1};
  int64_t groups = 1;

  Attributes attributes() const {
    return {{"strides", strides}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}};
  }
  Shape y() const {
    const auto all = attributes();
    return infer_conv2d(all, std::vector<Type>{{dtype, x}, {dtype, weight}})[0].shape;
  }
  bool check_gradient() const { return dtype == DType::kF32 || dtype == DType::kF64; }
};

std::vector<Case> cases() {
  return {
      {DType::kF32, {2, 3, 5, 5}, {4, 3, 3, 3}, {1, 1}, {1, 1, 1, 1}},
      {DType::kF64, {2, 2, 6, 5}, {3, 2, 3, 2}, {2, 1}, {0, 1, 1, 0}},
      {DType::kF32, {1, 3, 7, 7}, {5, 3, 7, 7}, {2, 2}, {3, 3, 3, 3}},
      {DType::kF32, {3, 4, 4, 4}, {6, 4, 1, 1}},
      {DType::kF32, {2, 4, 5, 5}, {6, 4, 1, 1}, {2, 2}},
      {DType::kF32, {1, 2, 7, 8}, {2, 2, 3, 3}, {1, 2}, {2, 2, 2, 2}, {2, 2}},
      {DType::kF32, {2, 4, 5, 4}, {6, 2, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 2},
      {DType::kF64, {2, 3, 5, 5}, {3, 1, 3, 3}, {2, 2}, {1, 0, 0, 1}, {1, 1}, 3},
      {DType::kF32, {0, 3, 5, 5}, {4, 3, 3, 3}, {1, 1}, {1, 1, 1, 1}},
      {DType::kBF16, {2, 3, 5, 5}, {4, 3, 3, 3}, {1, 1}, {1, 1, 1, 1}},
      {DType::kF16, {2, 3, 4, 4}, {4, 3, 2, 2}, {2, 2}},
  };
}

}  // namespace

void add_convolution(OpRegistry& registry) {
  OpDef conv2d{
      .name = "conv2d",
      .doc =
          "Cross-correlation of images x [n,ci,h,w] with weight [co,ci/groups,kh,kw], as neural networks mean by "
          "convolution: [n,co,oh,ow], oh = (h + top + bottom - dilation*(kh-1) - 1) / stride + 1 rounded down.",
      .inputs = {"x", "weight"},
      .attributes = geometry_attributes(),
      .infer = infer_conv2d,
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        const Value dy = context.cotangent(0);
        const Value x = context.inputs[0];
        const Value weight = context.inputs[1];
        return {grad_input(dy, weight, x, context.attributes), grad_weight(dy, x, weight, context.attributes)};
      },
      .rule =
          [](const Attributes& attributes, std::span<const Type>, std::span<const Type>) {
            return rule_for(attributes, "n ci h w, co ci _ _ -> n co h w", "n _ h w, _ _ _ _ -> n _ h w");
          },
      .linear_in = {{0}, {1}},
      .flops = [](const Attributes&, std::span<const Type> inputs,
                  std::span<const Type> outputs) { return multiply_adds(outputs[0].shape, inputs[1].shape); },
      .localize = localize_forward,
  };
  OpDef input_gradient{
      .name = "conv2d_grad_input",
      .doc = "The cotangent of conv2d's x, from that of its result dy [n,co,oh,ow] and weight: [n,ci,h,w].",
      .inputs = {"dy", "weight"},
      .attributes = geometry_attributes("input_size", "height and width of x"),
      .infer = infer_grad_input,
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        const Value dx = context.cotangent(0);
        const Value dy = context.inputs[0];
        const Value weight = context.inputs[1];
        return {forward(dx, weight, context.attributes), grad_weight(dy, dx, weight, context.attributes)};
      },
      .rule =
          [](const Attributes& attributes, std::span<const Type>, std::span<const Type>) {
            return rule_for(attributes, "n co h w, co ci _ _ -> n ci h w", "n _ h w, _ _ _ _ -> n _ h w");
          },
      .linear_in = {{0}, {1}},
      .flops = [](const Attributes&, std::span<const Type> inputs,
                  std::span<const Type>) { return multiply_adds(inputs[0].shape, inputs[1].shape); },
      .localize = localize_grad_input,
  };
  OpDef weight_gradient{
      .name = "conv2d_grad_weight",
      .doc = "The cotangent of conv2d's weight, from that of its result dy [n,co,oh,ow] and x: [co,ci/groups,kh,kw].",
      .inputs = {"dy", "x"},
      .attributes = geometry_attributes("kernel_size", "height and width of the kernel"),
      .infer = infer_grad_weight,
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        const Value dweight = context.cotangent(0);
        const Value dy = context.inputs[0];
        const Value x = context.inputs[1];
        return {forward(x, dweight, context.attributes), grad_input(dy, dweight, x, context.attributes)};
      },
      .rule =
          [](const Attributes& attributes, std::span<const Type>, std::span<const Type>) {
            return rule_for(attributes, "n co h w, n ci h w -> co ci _ _", "n _ h w, n _ h w -> _ _ _ _");
          },
      .linear_in = {{0}, {1}},
      .flops = [](const Attributes&, std::span<const Type> inputs,
                  std::span<const Type> outputs) { return multiply_adds(inputs[0].shape, outputs[0].shape); },
      .localize = localize_grad_weight,
  };

  for (const Case& c : cases()) {
    const Type x{c.dtype, c.x};
    const Type weight{c.dtype, c.weight};
    const Type y{c.dtype, c.y()};
    auto attributes = c.attributes();
    conv2d.examples.push_back({{{x}, {weight}}, attributes, c.check_gradient()});
    attributes.set("input_size", Ints{c.x[2], c.x[3]});
    input_gradient.examples.push_back({{{y}, {weight}}, attributes, c.check_gradient()});
    attributes.erase("input_size");
    attributes.set("kernel_size", Ints{c.weight[2], c.weight[3]});
    weight_gradient.examples.push_back({{{y}, {x}}, attributes, c.check_gradient()});
  }
  registry.add(std::move(conv2d));
  registry.add(std::move(input_gradient));
  registry.add(std::move(weight_gradient));
}

}  // namespace tessera::ops
