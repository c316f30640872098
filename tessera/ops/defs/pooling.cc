#include "tessera/base/error.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/windows.h"

namespace tessera::ops {
namespace {

struct Window {
  const Ints& kernel;
  const Ints& strides;
  const Ints& padding;  // top, bottom, left, right

  explicit Window(const Attributes& attributes)
      : kernel(require_ints(attributes, "kernel", 2, 1)),
        strides(require_ints(attributes, "strides", 2, 1)),
        padding(require_ints(attributes, "padding", 4, 0)) {
    for (size_t side = 0; side < 4; ++side) {
      // A window would see nothing but padding.
      if (padding[side] >= kernel[side / 2]) {
        throw InvalidArgument("padding {} must be less than the kernel's size {}", padding[side], kernel[side / 2]);
      }
    }
  }

  int64_t output_size(int64_t size, size_t d) const {
    if (size == 0) throw InvalidArgument("an image without pixels cannot be pooled");
    const int64_t padded = sum_of_sizes(size, sum_of_sizes(padding[2 * d], padding[2 * d + 1]));
    if (kernel[d] > padded) {
      throw InvalidArgument("a window of {} does not fit an image of {} with its padding", kernel[d], padded);
    }
    return (padded - kernel[d]) / strides[d] + 1;
  }
  Shape output(const Shape& x) const { return {x[0], x[1], output_size(x[2], 0), output_size(x[3], 1)}; }
  // Where a maximum stands in its window; u8 as long as it can name every place.
  DType index_dtype() const { return product_of_sizes(kernel[0], kernel[1]) <= 255 ? DType::kU8 : DType::kI32; }
};

void require_image(const Type& type, std::string_view what) {
  require_ndim(type, 4, what);
  require_floating(type, what);
}

// The image that dy [n,c,oh,ow] is the pooled cotangent of.
Shape input_shape(const Attributes& attributes, const Window& window, const Shape& dy) {
  const Ints& size = require_ints(attributes, "input_size", 2, 0);
  const Shape x{dy[0], dy[1], size[0], size[1]};
  const Shape expected = window.output(x);
  if (!(dy == expected)) throw InvalidArgument("an image of {} pools to {}, dy is {}", x, expected, dy);
  return x;
}

Attributes window_of(const Attributes& attributes) {
  return {{"kernel", attributes.get_ints("kernel")},
          {"strides", attributes.get_ints("strides")},
          {"padding", attributes.get_ints("padding")}};
}
Attributes with_input_size(Attributes attributes, Value x) {
  attributes.set("input_size", Ints{x.shape()[2], x.shape()[3]});
  return attributes;
}
Attributes average_of(const Attributes& attributes) {
  Attributes result = window_of(attributes);
  result.set("count_include_pad", attributes.get_bool("count_include_pad"));
  return result;
}

SlidingWindow window_over(const Attributes& attributes) {
  const Window window(attributes);
  return {.taps = window.kernel, .strides = window.strides, .padding = window.padding};
}

// Pools on a rank that has a part of the image, its first operand. A place in a window is the same for all ranks.
std::vector<Value> localize_pooling(const LocalizeContext& context) {
  if (!splits_pixels(context)) return apply(context.graph, context.op, context.inputs, context.attributes);
  const Shape& image = context.global_inputs[0].shape;
  const auto window = window_over(context.attributes);
  const Box& y = context.output_slices[0];
  std::vector<Value> inputs = context.inputs;
  inputs[0] = fetch(context, 0, halo_factors(context, window), [&](const RankSlices& slices) {
    return over_pixels_of(window, slices.outputs[0], image, slices.inputs[0]);
  });
  if (has_no_pixels(y)) {
    std::vector<Value> empty;
    for (const Type& type : context.local_outputs) empty.push_back(zeros(context.graph, type));
    return empty;
  }
  Attributes attributes = context.attributes;
  attributes.set("padding", padding_around(window, y, image));
  return apply(context.graph, context.op, inputs, attributes);
}

// A cotangent of the image: all operands are of the results, which a rank fetches where their windows reach its pixels.
std::vector<Value> localize_pooling_grad(const LocalizeContext& context) {
  if (!splits_pixels(context)) return apply(context.graph, context.op, context.inputs, context.attributes);
  const Shape& results = context.global_inputs[0].shape;
  const Shape& image = context.global_outputs[0].shape;
  const auto window = window_over(context.attributes);
  const Box& dx = context.output_slices[0];
  std::vector<Value> inputs;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    inputs.push_back(fetch(context, i, halo_factors(context, window), [&](const RankSlices& slices) {
      return over_results_of(window, slices.outputs[0], results, slices.inputs[i]);
    }));
  }
  const Box reached = over_results_of(window, dx, results, context.input_slices[0]);
  if (has_no_pixels(dx) || has_no_pixels(reached)) return {zeros(context.graph, context.local_outputs[0])};
  // All pixels that these results read; then the slice of them.
  const Box read = over_pixels_of(window, reached, image, dx);
  Attributes attributes = context.attributes;
  attributes.set("padding", padding_around(window, reached, image));
  attributes.set("input_size", Ints{read[2].size, read[3].size});
  return {place_pixels(apply(context.graph, context.op, inputs, attributes)[0], read, dx)};
}

auto fixed_rule(const char* text) {
  return [text](const Attributes&, std::span<const Type>, std::span<const Type>) { return parse_rule(text); };
}

double window_flops(const Attributes& attributes, const Type& pooled) {
  const Ints& kernel = attributes.get_ints("kernel");
  return static_cast<double>(pooled.shape.num_elements()) * static_cast<double>(kernel[0] * kernel[1]);
}

std::vector<AttributeDef> window_attributes() {
  return {{"kernel", std::nullopt, "height and width of the window"},
          {"strides", Ints{1, 1}, "steps between windows: height, width"},
          {"padding", Ints{0, 0, 0, 0}, "around the image, less than the kernel: top, bottom, left, right"}};
}
std::vector<AttributeDef> window_attributes(std::vector<AttributeDef> more) {
  auto attributes = window_attributes();
  attributes.insert(attributes.end(), more.begin(), more.end());
  return attributes;
}
AttributeDef input_size() { return {"input_size", std::nullopt, "height and width of the image that was pooled"}; }
AttributeDef count_padding() { return {"count_include_pad", false, "divide by the window's size, not by its pixels"}; }

struct PoolCase {
  DType dtype;
  Shape x;
  Ints kernel;
  Ints strides;
  Ints padding = {0, 0, 0, 0};

  Attributes attributes() const { return {{"kernel", kernel}, {"strides", strides}, {"padding", padding}}; }
  Ints input_size() const { return {x[2], x[3]}; }
  bool check_gradient() const { return dtype == DType::kF32 || dtype == DType::kF64; }
};

std::vector<PoolCase> pool_cases() {
  return {{DType::kF32, {2, 3, 6, 6}, {2, 2}, {2, 2}},
          {DType::kF64, {1, 2, 7, 5}, {3, 3}, {2, 2}, {1, 1, 1, 1}},
          {DType::kF32, {2, 2, 5, 6}, {3, 2}, {1, 2}, {0, 2, 1, 0}},
          {DType::kF32, {1, 1, 17, 16}, {16, 16}, {1, 1}},
          {DType::kF32, {0, 3, 6, 6}, {2, 2}, {2, 2}},
          {DType::kF32, {2, 5, 4, 4}, {4, 4}, {4, 4}},
          {DType::kBF16, {2, 3, 6, 6}, {3, 3}, {2, 2}, {1, 1, 1, 1}},
          {DType::kF16, {2, 3, 6, 6}, {2, 2}, {2, 2}}};
}

void add_max_pooling(OpRegistry& registry) {
  OpDef pool{
      .name = "max_pool2d",
      .doc =
          "The largest element of each window of x [n,c,h,w]: y [n,c,oh,ow], and index, its place in the window "
          "(row-major; u8, or i32 for windows of more than 255 places). The first of equals wins, padding never; a "
          "NaN is larger than all.",
      .inputs = {"x"},
      .attributes = window_attributes(),
      .outputs = {"y", "index"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        require_image(inputs[0], "x");
        const Window window(attributes);
        const Shape y = window.output(inputs[0].shape);
        return {{inputs[0].dtype, y}, {window.index_dtype(), y}};
      },
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        return {apply1("max_pool2d_grad", {context.cotangent(0), context.outputs[1]},
                       with_input_size(window_of(context.attributes), context.inputs[0]))};
      },
      .rule = fixed_rule("n c h w -> n c h w, n c h w"),
      .flops = [](const Attributes& attributes, std::span<const Type>,
                  std::span<const Type> outputs) { return window_flops(attributes, outputs[0]); },
      .localize = localize_pooling,
      .images = ImageOrder::kChannelsLast,
  };
  const auto require_index = [](const Window& window, const Type& index, const Shape& pooled) {
    require_dtype(index, window.index_dtype(), "index");
    require_shape(index, pooled, "index");
  };
  OpDef grad{
      .name = "max_pool2d_grad",
      .doc =
          "The cotangent of max_pool2d's x: each element of dy [n,c,oh,ow] is added where its window's maximum "
          "stood, as index says.",
      .inputs = {"dy", "index"},
      .attributes = window_attributes({input_size()}),
      .infer = [require_index](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        require_image(inputs[0], "dy");
        const Window window(attributes);
        const Shape x = input_shape(attributes, window, inputs[0].shape);
        require_index(window, inputs[1], inputs[0].shape);
        return {{inputs[0].dtype, x}};
      },
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        return {apply1("max_pool2d_take", {context.cotangent(0), context.inputs[1]}, window_of(context.attributes)),
                Value()};
      },
      .rule = fixed_rule("n c h w, n c h w -> n c h w"),
      .linear_in = {{0}},
      .flops = [](const Attributes& attributes, std::span<const Type> inputs,
                  std::span<const Type>) { return window_flops(attributes, inputs[0]); },
      .localize = localize_pooling_grad,
      .images = ImageOrder::kChannelsLast,
  };
  OpDef take{
      .name = "max_pool2d_take",
      .doc =
          "The element of each window of x [n,c,h,w] that index names: [n,c,oh,ow]; 0 where it names padding. The "
          "transpose of max_pool2d_grad.",
      .inputs = {"x", "index"},
      .attributes = window_attributes(),
      .infer = [require_index](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        require_image(inputs[0], "x");
        const Window window(attributes);
        const Shape y = window.output(inputs[0].shape);
        require_index(window, inputs[1], y);
        return {{inputs[0].dtype, y}};
      },
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        return {apply1("max_pool2d_grad", {context.cotangent(0), context.inputs[1]},
                       with_input_size(window_of(context.attributes), context.inputs[0])),
                Value()};
      },
      .rule = fixed_rule("n c h w, n c h w -> n c h w"),
      .linear_in = {{0}},
      .localize = localize_pooling,
      .images = ImageOrder::kBestChannelsLast,
  };
  for (const PoolCase& c : pool_cases()) {
    auto attributes = c.attributes();
    const Window window(attributes);
    const Type x{c.dtype, c.x};
    const Type y{c.dtype, window.output(c.x)};
    const ExampleInput index{{window.index_dtype(), y.shape}, Domain::kIndex, c.kernel[0] * c.kernel[1]};
    pool.examples.push_back({{{x}}, attributes, c.check_gradient()});
    take.examples.push_back({{{x}, index}, attributes, c.check_gradient()});
    attributes.set("input_size", c.input_size());
    grad.examples.push_back({{{y}, index}, attributes, c.check_gradient()});
  }
  registry.add(std::move(pool));
  registry.add(std::move(grad));
  registry.add(std::move(take));
}

void add_average_pooling(OpRegistry& registry) {
  OpDef pool{
      .name = "avg_pool2d",
      .doc =
          "The mean of each window of x [n,c,h,w]: [n,c,oh,ow]; over its pixels, or with count_include_pad over all "
          "its places, padding counting as zeros.",
      .inputs = {"x"},
      .attributes = window_attributes({count_padding()}),
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        require_image(inputs[0], "x");
        return {{inputs[0].dtype, Window(attributes).output(inputs[0].shape)}};
      },
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        return {apply1("avg_pool2d_grad", {context.cotangent(0)},
                       with_input_size(average_of(context.attributes), context.inputs[0]))};
      },
      .rule = fixed_rule("n c h w -> n c h w"),
      .linear_in = {{0}},
      .flops = [](const Attributes& attributes, std::span<const Type>,
                  std::span<const Type> outputs) { return window_flops(attributes, outputs[0]); },
      .localize = localize_pooling,
      .images = ImageOrder::kChannelsLast,
  };
  OpDef grad{
      .name = "avg_pool2d_grad",
      .doc = "The cotangent of avg_pool2d's x, from that of its result dy [n,c,oh,ow]: [n,c,h,w].",
      .inputs = {"dy"},
      .attributes = window_attributes({input_size(), count_padding()}),
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        require_image(inputs[0], "dy");
        return {{inputs[0].dtype, input_shape(attributes, Window(attributes), inputs[0].shape)}};
      },
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        return {apply1("avg_pool2d", {context.cotangent(0)}, average_of(context.attributes))};
      },
      .rule = fixed_rule("n c h w -> n c h w"),
      .linear_in = {{0}},
      .flops = [](const Attributes& attributes, std::span<const Type> inputs,
                  std::span<const Type>) { return window_flops(attributes, inputs[0]); },
      .localize = localize_pooling_grad,
      .images = ImageOrder::kChannelsLast,
  };
  for (const PoolCase& c : pool_cases()) {
    for (const bool count_include_pad : {false, true}) {
      auto attributes = c.attributes();
      attributes.set("count_include_pad", count_include_pad);
      const Type y{c.dtype, Window(attributes).output(c.x)};
      pool.examples.push_back({{{{c.dtype, c.x}}}, attributes, c.check_gradient()});
      attributes.set("input_size", c.input_size());
      grad.examples.push_back({{{y}}, attributes, c.check_gradient()});
    }
  }
  registry.add(std::move(pool));
  registry.add(std::move(grad));
}

}  // namespace

void add_pooling(OpRegistry& registry) {
  add_max_pooling(registry);
  add_average_pooling(registry);
}

}  // namespace tessera::ops
