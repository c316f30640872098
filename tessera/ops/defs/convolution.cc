#include "tessera/base/error.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/windows.h"

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
    const int64_t padded = sum_of_sizes(size, sum_of_sizes(padding[2 * d], padding[2 * d + 1]));
    const int64_t reach = sum_of_sizes(product_of_sizes(dilation[d], taps - 1), 1);
    if (taps < 1 || reach > padded) {
      throw InvalidArgument("a kernel that reaches over {} pixels does not fit an image of {} with its padding", reach,
                            padded);
    }
    return (padded - reach) / strides[d] + 1;
  }
};

void require_conv_channels(const Geometry& geometry, const Shape& x, const Shape& weight) {
  const int64_t channels = product_of_sizes(weight[1], geometry.groups);
  if (channels == x[1]) return;
  throw InvalidArgument("weight reads {} input channels in {} group(s), the image has {}{}", weight[1], geometry.groups,
                        x[1], channels == x[3] ? "; images are [n,c,h,w], these look like [n,h,w,c]" : "");
}

// Checks that x, weight and y belong to one convolution.
void require_convolution(const Geometry& geometry, const Shape& x, const Shape& weight, const Shape& y) {
  require_conv_channels(geometry, x, weight);
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
  require_conv_channels(geometry, x, weight);
  const Shape y{x[0], weight[0], geometry.output_size(x[2], weight[2], 0), geometry.output_size(x[3], weight[3], 1)};
  require_convolution(geometry, x, weight, y);
  return {{result_dtype(attributes, inputs[0].dtype), y}};
}

std::vector<Type> infer_grad_input(const Attributes& attributes, std::span<const Type> inputs) {
  require_images(inputs, "dy", "weight");
  const Geometry geometry(attributes);
  const Ints& size = require_ints(attributes, "input_size", 2, 0);
  const Shape& dy = inputs[0].shape;
  const Shape& weight = inputs[1].shape;
  const Shape x{dy[0], product_of_sizes(weight[1], geometry.groups), size[0], size[1]};
  require_convolution(geometry, x, weight, dy);
  return {{result_dtype(attributes, inputs[0].dtype), x}};
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
  return {{result_dtype(attributes, inputs[0].dtype), weight}};
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

// Groups pair slices of the channels; where there are several, a split of the channels is one of the groups.
IndexRule rule_for(const Attributes& attributes, const char* dense, const char* grouped) {
  return parse_rule(attributes.get_int("groups") == 1 ? dense : grouped);
}

SlidingWindow window_of(const Attributes& attributes, const Ints& taps) {
  const Geometry geometry(attributes);
  return {.taps = taps, .strides = geometry.strides, .padding = geometry.padding, .dilation = geometry.dilation};
}
SlidingWindow window_of(const Attributes& attributes, const Shape& weight) {
  return window_of(attributes, Ints{weight[2], weight[3]});
}

// Channels of several groups that are split: a rank computes all groups that its channels of the result belong to, with
// channels fetched from others where parts do not hold whole groups, and keeps its own.
struct Groups {
  bool are_split;
  bool are_cut;
  int64_t count;

  explicit Groups(const LocalizeContext& context)
      : are_split(context.is_split("g")),
        are_cut(are_split && context.attributes.get_int("groups") % context.parts.at("g") != 0),
        count(context.attributes.get_int("groups")) {}

  // The groups of channels `range` out of `channels`.
  mesh::Range of(const mesh::Range& range, int64_t channels) const {
    if (range.size == 0) return {0, 0};
    const int64_t each = channels / count;
    const int64_t first = range.offset / each;
    return {first, (range.offset + range.size - 1) / each + 1 - first};
  }
  // `box`, whose dim `dim` are `size` channels, with those of the groups of channels `range` out of `channels`.
  Box over(Box box, size_t dim, int64_t size, const mesh::Range& range, int64_t channels) const {
    if (!are_split) return box;
    const auto groups = of(range, channels);
    box[dim] = {groups.offset * (size / count), groups.size * (size / count)};
    return box;
  }
  std::vector<std::string> and_factors(std::vector<std::string> others) const {
    if (are_cut) others.emplace_back("g");
    return others;
  }
  // Of a result that has all channels of the groups of `range`, along `dim`, those of `range`.
  Value own(Value result, int dim, const mesh::Range& range, int64_t channels) const {
    if (!are_split) return result;
    const int64_t first = range.offset - of(range, channels).offset * (channels / count);
    return slice_along(result, dim, first, first + range.size);
  }
  void set(Attributes& attributes, const mesh::Range& range, int64_t channels) const {
    if (are_split) attributes.set("groups", of(range, channels).size);
  }
};

bool needs_others(const LocalizeContext& context) { return splits_pixels(context) || context.is_split("g"); }

// Nothing to compute, or nothing but padding to compute it from.
bool is_blank(const Box& y, Value x) {
  return has_no_pixels(y) || y[1].size == 0 || x.shape()[2] == 0 || x.shape()[3] == 0;
}

std::vector<Value> localize_forward(const LocalizeContext& context) {
  if (!needs_others(context)) return apply(context.graph, context.op, context.inputs, context.attributes);
  const Shape& image = context.global_inputs[0].shape;
  const Shape& weight = context.global_inputs[1].shape;
  const Box& y = context.output_slices[0];
  const auto window = window_of(context.attributes, weight);
  const Groups groups(context);
  const Value x = fetch(context, 0, groups.and_factors(halo_factors(context, window)), [&](const RankSlices& slices) {
    const Box& results = slices.outputs[0];
    return groups.over(over_pixels_of(window, results, image, slices.inputs[0]), 1, image[1], results[1], weight[0]);
  });
  const Value rows = fetch(context, 1, groups.and_factors({}), [&](const RankSlices& slices) {
    return groups.over(slices.inputs[1], 0, weight[0], slices.outputs[0][1], weight[0]);
  });
  if (is_blank(y, x)) return {zeros(context.graph, context.local_outputs[0])};
  Attributes attributes = context.attributes;
  attributes.set("padding", padding_around(window, y, image));
  groups.set(attributes, y[1], weight[0]);
  return {groups.own(apply1("conv2d", {x, rows}, attributes), 1, y[1], weight[0])};
}

std::vector<Value> localize_grad_weight(const LocalizeContext& context) {
  if (!needs_others(context)) return apply(context.graph, context.op, context.inputs, context.attributes);
  const Shape& results = context.global_inputs[0].shape;
  const Shape& image = context.global_inputs[1].shape;
  const Box& dy = context.input_slices[0];
  const mesh::Range& rows = context.output_slices[0][0];
  const Ints& taps = context.attributes.get_ints("kernel_size");
  const auto window = window_of(context.attributes, taps);
  const Groups groups(context);
  const Value x = fetch(context, 1, groups.and_factors(halo_factors(context, window)), [&](const RankSlices& slices) {
    return groups.over(over_pixels_of(window, slices.inputs[0], image, slices.inputs[1]), 1, image[1],
                       slices.outputs[0][0], results[1]);
  });
  const Value cotangents = fetch(context, 0, groups.and_factors({}), [&](const RankSlices& slices) {
    return groups.over(slices.inputs[0], 1, results[1], slices.outputs[0][0], results[1]);
  });
  if (is_blank(dy, x)) return {zeros(context.graph, context.local_outputs[0])};
  Attributes attributes = context.attributes;
  attributes.set("padding", padding_around(window, dy, image));
  attributes.set("kernel_size", taps);
  groups.set(attributes, rows, results[1]);
  return {groups.own(apply1("conv2d_grad_weight", {cotangents, x}, attributes), 0, rows, results[1])};
}

std::vector<Value> localize_grad_input(const LocalizeContext& context) {
  if (!needs_others(context)) return apply(context.graph, context.op, context.inputs, context.attributes);
  const Shape& results = context.global_inputs[0].shape;
  const Shape& weight = context.global_inputs[1].shape;
  const Shape& image = context.global_outputs[0].shape;
  const Box& dx = context.output_slices[0];
  const auto window = window_of(context.attributes, weight);
  const Groups groups(context);
  const auto read_by = [&](const RankSlices& slices) {
    const Box& pixels = slices.outputs[0];
    return groups.over(over_results_of(window, pixels, results, slices.inputs[0]), 1, results[1], pixels[1], image[1]);
  };
  const Value dy = fetch(context, 0, groups.and_factors(halo_factors(context, window)), read_by);
  const Value rows = fetch(context, 1, groups.and_factors({}), [&](const RankSlices& slices) {
    return groups.over(slices.inputs[1], 0, weight[0], slices.outputs[0][1], image[1]);
  });
  const Box reached = over_results_of(window, dx, results, context.input_slices[0]);
  if (has_no_pixels(dx) || has_no_pixels(reached) || dx[1].size == 0) {
    return {zeros(context.graph, context.local_outputs[0])};
  }
  // All pixels that these results read; then the slice of them.
  const Box read = over_pixels_of(window, reached, image, dx);
  Attributes attributes = context.attributes;
  attributes.set("padding", padding_around(window, reached, image));
  attributes.set("input_size", Ints{read[2].size, read[3].size});
  groups.set(attributes, dx[1], image[1]);
  const Value pixels = groups.own(apply1("conv2d_grad_input", {dy, rows}, attributes), 1, dx[1], image[1]);
  return {place_pixels(pixels, read, dx)};
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
          {"groups", int64_t{1}, "channels are cut into so many independent convolutions"},
          result_dtype_attribute()};
}
std::vector<AttributeDef> geometry_attributes(const char* name, const char* doc) {
  auto attributes = geometry_attributes();
  attributes.push_back({name, std::nullopt, doc});
  return attributes;
}

struct ConvCase {
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
  bool is_half() const { return dtype == DType::kBF16 || dtype == DType::kF16; }
  bool check_gradient() const { return dtype == DType::kF32 || dtype == DType::kF64; }
};

std::vector<ConvCase> conv_cases() {
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
        const Value dy = cast_to(context.cotangent(0), context.inputs[0].dtype());
        const Value x = context.inputs[0];
        const Value weight = context.inputs[1];
        return {grad_input(dy, weight, x, context.attributes), grad_weight(dy, x, weight, context.attributes)};
      },
      .rule =
          [](const Attributes& attributes, std::span<const Type>, std::span<const Type>) {
            return rule_for(attributes, "n ci h w, co ci _ _ -> n co h w", "n g h w, g _ _ _ -> n g h w");
          },
      .linear_in = {{0}, {1}},
      .flops = [](const Attributes&, std::span<const Type> inputs,
                  std::span<const Type> outputs) { return multiply_adds(outputs[0].shape, inputs[1].shape); },
      .localize = localize_forward,
      .arithmetic = Arithmetic::kConvolution,
      .images = ImageOrder::kChannelsLast,
      .convolution = ConvolutionValues{.weight = {.index = 1}, .results = {.is_result = true}},
      .precision = MixedPrecision::kLow,
  };
  OpDef input_gradient{
      .name = "conv2d_grad_input",
      .doc = "The cotangent of conv2d's x, from that of its result dy [n,co,oh,ow] and weight: [n,ci,h,w].",
      .inputs = {"dy", "weight"},
      .attributes = geometry_attributes("input_size", "height and width of x"),
      .infer = infer_grad_input,
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        const Value dx = cast_to(context.cotangent(0), context.inputs[0].dtype());
        const Value dy = context.inputs[0];
        const Value weight = context.inputs[1];
        return {forward(dx, weight, context.attributes), grad_weight(dy, dx, weight, context.attributes)};
      },
      .rule =
          [](const Attributes& attributes, std::span<const Type>, std::span<const Type>) {
            return rule_for(attributes, "n co h w, co ci _ _ -> n ci h w", "n g h w, g _ _ _ -> n g h w");
          },
      .linear_in = {{0}, {1}},
      .flops = [](const Attributes&, std::span<const Type> inputs,
                  std::span<const Type>) { return multiply_adds(inputs[0].shape, inputs[1].shape); },
      .localize = localize_grad_input,
      .arithmetic = Arithmetic::kConvolution,
      .images = ImageOrder::kChannelsLast,
      .convolution = ConvolutionValues{.weight = {.index = 1}, .results = {}},
      .precision = MixedPrecision::kLow,
  };
  OpDef weight_gradient{
      .name = "conv2d_grad_weight",
      .doc = "The cotangent of conv2d's weight, from that of its result dy [n,co,oh,ow] and x: [co,ci/groups,kh,kw].",
      .inputs = {"dy", "x"},
      .attributes = geometry_attributes("kernel_size", "height and width of the kernel"),
      .infer = infer_grad_weight,
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        const Value dweight = cast_to(context.cotangent(0), context.inputs[0].dtype());
        const Value dy = context.inputs[0];
        const Value x = context.inputs[1];
        return {forward(x, dweight, context.attributes), grad_input(dy, dweight, x, context.attributes)};
      },
      .rule =
          [](const Attributes& attributes, std::span<const Type>, std::span<const Type>) {
            return rule_for(attributes, "n co h w, n ci h w -> co ci _ _", "n g h w, n g h w -> g _ _ _");
          },
      .linear_in = {{0}, {1}},
      .flops = [](const Attributes&, std::span<const Type> inputs,
                  std::span<const Type> outputs) { return multiply_adds(inputs[0].shape, outputs[0].shape); },
      .localize = localize_grad_weight,
      .arithmetic = Arithmetic::kConvolution,
      .images = ImageOrder::kChannelsLast,
      .convolution = ConvolutionValues{.weight = {.is_result = true}, .results = {}},
      .precision = MixedPrecision::kLow,
  };

  for (const ConvCase& c : conv_cases()) {
    const Type x{c.dtype, c.x};
    const Type weight{c.dtype, c.weight};
    const Type y{c.dtype, c.y()};
    const auto add = [&](OpDef& def, const Type& first, const Type& second, Attributes attributes) {
      def.examples.push_back({{{first}, {second}}, attributes, c.check_gradient()});
      if (!c.is_half()) return;
      attributes.set("result_dtype", DType::kF32);
      def.examples.push_back({{{first}, {second}}, attributes, false});
    };
    auto attributes = c.attributes();
    add(conv2d, x, weight, attributes);
    attributes.set("input_size", Ints{c.x[2], c.x[3]});
    add(input_gradient, y, weight, attributes);
    attributes.erase("input_size");
    attributes.set("kernel_size", Ints{c.weight[2], c.weight[3]});
    add(weight_gradient, y, x, attributes);
  }
  registry.add(std::move(conv2d));
  registry.add(std::move(input_gradient));
  registry.add(std::move(weight_gradient));
}

}  // namespace tessera::ops
