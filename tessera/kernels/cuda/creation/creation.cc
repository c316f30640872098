// Operators that make elements of nothing: constants, and random numbers, which are the host's.
#include <cmath>
#include <cstring>
#include <variant>

#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/core/phase_parts.h"
#include "tessera/kernels/cuda/core/writer.h"
#include "tessera/kernels/cuda/shapes/copies.h"
#include "tessera/tensor/tensor.h"

namespace tessera::cuda {
namespace {

DeviceProgram write_filled_with(const KernelRequest& request, const Gpu& gpu, double value) {
  const TensorView& y = request.outputs[0];
  DeviceProgram program{.name = "cuda." + request.op};
  if (y.num_elements() == 0) return program;
  program.phases.push_back(side_by_side(
      {fill_part(gpu, size_bytes(y.dtype), y.shape, bits_literal(value, y.dtype), {"out0", 0, y.strides})}));
  return program;
}

std::optional<DeviceProgram> write_fill(const KernelRequest& request, const Gpu& gpu) {
  return write_filled_with(request, gpu, request.attributes.get_double("value"));
}
// Their operand is not read: it may lie where the result does.
std::optional<DeviceProgram> write_like(const KernelRequest& request, const Gpu& gpu, double value) {
  DeviceProgram program = write_filled_with(request, gpu, value);
  if (request.inputs[0].strides == request.outputs[0].strides) program.in_place = {{0, 0}};
  return program;
}
std::optional<DeviceProgram> write_zeros(const KernelRequest& request, const Gpu& gpu) {
  return write_like(request, gpu, 0);
}
std::optional<DeviceProgram> write_ones(const KernelRequest& request, const Gpu& gpu) {
  return write_like(request, gpu, 1);
}

std::optional<DeviceProgram> write_constant(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& y = request.outputs[0];
  DeviceProgram program{.name = "cuda.constant"};
  if (y.num_elements() == 0) return program;
  const char* bits = bits_type(size_bytes(y.dtype));
  program.functions = fmt::format("__device__ const {} kElements[] = {{", bits);
  for (const double value : request.attributes.get_doubles("values")) {
    program.functions += bits_literal(value, y.dtype) + ", ";
  }
  program.functions += "};\n";
  const std::vector<NamedStrides> views = {{"q", y.strides}};
  PhasePart part{.blocks = blocks_for(gpu, y.num_elements(), kPartThreads)};
  part.body = deal_text(index_type(y.shape, views), "i", y.num_elements()) + offsets_text(y.shape, views, "i") +
              fmt::format("reinterpret_cast<{}*>(out0)[q] = kElements[i];\n}}\n", bits);
  program.phases.push_back(side_by_side({part}));
  return program;
}

std::optional<DeviceProgram> write_range(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& y = request.outputs[0];
  const auto is_int = [&](std::string_view name) {
    return std::holds_alternative<int64_t>(*request.attributes.find(name));
  };
  DeviceProgram program{.name = "cuda.range"};
  if (y.num_elements() == 0) return program;
  // Whole numbers in integers, which doubles beyond 2^53 are not.
  const std::string element =
      is_int("start") && is_int("delta")
          ? fmt::format("i64(u64({}LL) + u64(i) * u64({}LL))", request.attributes.get_int("start"),
                        request.attributes.get_int("delta"))
          : fmt::format("rounded_sum({}, rounded_product(f64(i), {}))",
                        literal(request.attributes.get_double("start"), DType::kF64),
                        literal(request.attributes.get_double("delta"), DType::kF64));
  PhasePart part{.blocks = blocks_for(gpu, y.num_elements(), kPartThreads)};
  part.body = deal_text("i64", "i", y.num_elements()) +
              fmt::format("out0[i * {}] = converted<{}>({});\n}}\n", y.strides[0], to_string(y.dtype), element);
  program.phases.push_back(side_by_side({part}));
  return program;
}

// Where the elements of a view lie in the global tensor that it is a slice of: element at local index i has the global
// row-major index begin + sum of i[d] * strides[d].
struct GlobalIndex {
  int64_t begin = 0;
  Strides strides;
};

GlobalIndex global_index(const Attributes& attributes, const Shape& local) {
  const Ints& global = attributes.get_ints("global_shape");
  const Ints& offset = attributes.get_ints("offset");
  GlobalIndex index{0, dense_strides(global.empty() ? local : Shape(global))};
  for (size_t d = 0; d < offset.size(); ++d) index.begin += offset[d] * index.strides[static_cast<int>(d)];
  return index;
}

// A part in which each element of out0 is `element`, an expression of type `out0`'s; it may read `index`, the
// element's global index, and where `reads` the operand's element `x`. `before` stands in front of the loop.
DeviceProgram write_draws(const KernelRequest& request, const Gpu& gpu, const std::string& before,
                          const std::string& element, bool reads) {
  const TensorView& y = request.outputs[0];
  DeviceProgram program{.name = "cuda." + request.op};
  if (y.num_elements() == 0) return program;
  const GlobalIndex global = global_index(request.attributes, y.shape);
  const Strides& x_strides = reads ? request.inputs[0].strides : y.strides;
  const ViewWalk walk = in_order_of_first(y.shape, {{"q", y.strides}, {"p", x_strides}, {"g", global.strides}});
  const int last = walk.shape.ndim() - 1;
  const int64_t step = last >= 0 ? walk.views[2].strides[last] : 0;
  const ViewWalk elements{walk.shape, {walk.views[0], walk.views[1]}};
  const char* dtype = to_string(y.dtype);
  int64_t pack = 16 / static_cast<int64_t>(size_bytes(y.dtype));
  for (; pack > 1; pack /= 2) {
    const auto packs = packed(elements, pack);
    if (packs && packs->views[0].strides[last] == pack && packs->views[1].strides[last] == pack) break;
  }
  ViewWalk packs = pack > 1 ? *packed(elements, pack) : elements;
  packs.views.push_back(walk.views[2]);
  if (pack > 1) packs.views[2].strides[last] *= pack;
  const int64_t count = packs.shape.num_elements();
  PhasePart part{.blocks = blocks_for(gpu, count, kPartThreads)};
  part.body =
      before + deal_text(index_type(walk.shape, walk.views), "i", count) + offsets_text(packs.shape, packs.views, "i");
  if (reads)
    part.body += fmt::format("const auto xs = *reinterpret_cast<const Pack<{}, {}>*>(in0 + p);\n", dtype, pack);
  part.body += fmt::format("Pack<{0}, {1}> y;\n#pragma unroll\nfor (int j = 0; j < {1}; ++j) {{\n", dtype, pack);
  part.body += fmt::format("const u64 index = u64({}LL + g + i64(j) * {});\n", global.begin, step);
  if (reads) part.body += "const auto x = xs[j];\n";
  part.body +=
      fmt::format("y[j] = {};\n}}\n*reinterpret_cast<Pack<{}, {}>*>(out0 + q) = y;\n}}\n", element, dtype, pack);
  program.phases.push_back(side_by_side({part}));
  return program;
}

// `draw` is an f64.
DeviceProgram write_random(const KernelRequest& request, const Gpu& gpu, const std::string& draw) {
  return write_draws(request, gpu, "const u64 step = u64(i64(in0[0]));\n",
                     fmt::format("converted<{}>({})", to_string(request.outputs[0].dtype), draw), false);
}
std::string arguments_text(const Attributes& attributes) {
  return fmt::format("{}ULL, {}ULL, step, index", static_cast<uint64_t>(attributes.get_int("seed")),
                     static_cast<uint64_t>(attributes.get_int("stream")));
}
std::string scaled_text(double begin, double factor, const std::string& draw) {
  return fmt::format("rounded_sum({}, rounded_product({}, {}))", literal(begin, DType::kF64),
                     literal(factor, DType::kF64), draw);
}

std::optional<DeviceProgram> write_random_uniform(const KernelRequest& request, const Gpu& gpu) {
  const double low = request.attributes.get_double("low");
  const double high = request.attributes.get_double("high");
  return write_random(
      request, gpu,
      scaled_text(low, high - low, fmt::format("random_open_uniform({})", arguments_text(request.attributes))));
}

std::optional<DeviceProgram> write_random_normal(const KernelRequest& request, const Gpu& gpu) {
  return write_random(request, gpu,
                      scaled_text(request.attributes.get_double("mean"), request.attributes.get_double("sigma"),
                                  fmt::format("random_normal({})", arguments_text(request.attributes))));
}

std::optional<DeviceProgram> write_random_truncated_normal(const KernelRequest& request, const Gpu& gpu) {
  // The part of the distribution below -2.
  const double low = 0.5 * std::erfc(2.0 / std::sqrt(2.0));
  const std::string uniform =
      scaled_text(low, 1.0 - 2.0 * low, fmt::format("random_open_uniform({})", arguments_text(request.attributes)));
  return write_random(request, gpu,
                      fmt::format("rounded_product({}, inverse_normal_cdf({}))",
                                  literal(request.attributes.get_double("sigma"), DType::kF64), uniform));
}

std::optional<DeviceProgram> write_dropout(const KernelRequest& request, const Gpu& gpu) {
  const double keep_prob = request.attributes.get_double("keep_prob");
  const DType dtype = request.outputs[0].dtype;
  const char* name = to_string(dtype);
  // A draw is a multiple of 2^-24: it is below keep_prob where that multiple is below this one.
  const auto kept_below = static_cast<int64_t>(std::ceil(keep_prob * 0x1p24));
  const std::string element =
      fmt::format("(random_block({}).words[0] >> 8) < {}U ? {}(wide(x) / {}) : {}(0.0f)",
                  arguments_text(request.attributes), kept_below, name, literal(keep_prob, computed_in(dtype)), name);
  DeviceProgram program = write_draws(request, gpu, "const u64 step = u64(i64(in1[0]));\n", element, true);
  if (request.inputs[0].strides == request.outputs[0].strides) program.in_place = {{0, 0}};
  return program;
}

}  // namespace

void add_creation(KernelRegistry& registry, Gpu& gpu) {
  add_writer(registry, gpu, "fill", write_fill);
  add_writer(registry, gpu, "zeros_like", write_zeros);
  add_writer(registry, gpu, "ones_like", write_ones);
  add_writer(registry, gpu, "constant", write_constant);
  add_writer(registry, gpu, "range", write_range);
  add_writer(registry, gpu, "random_uniform", write_random_uniform);
  add_writer(registry, gpu, "random_normal", write_random_normal);
  add_writer(registry, gpu, "random_truncated_normal", write_random_truncated_normal);
  add_writer(registry, gpu, "dropout", write_dropout);
}

}  // namespace tessera::cuda
