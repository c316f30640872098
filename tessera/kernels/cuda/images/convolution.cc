// Convolutions and their gradients, straight from their definition, for what no library takes: a thread for each
// element of the result, a block for each element of a weight's gradient.
#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/core/writer.h"

namespace tessera::cuda {
namespace {

struct Geometry {
  Ints strides, padding, dilation;
  int64_t groups;

  explicit Geometry(const Attributes& attributes)
      : strides(attributes.get_ints("strides")),
        padding(attributes.get_ints("padding")),
        dilation(attributes.get_ints("dilation")),
        groups(attributes.get_int("groups")) {}
  // The pixel that output o reads by a tap.
  std::string pixel(size_t d, const char* o, const char* tap) const {
    return fmt::format("{} * {} - {} + {} * {}", o, strides[d], padding[2 * d], tap, dilation[d]);
  }
};

// The type that sums are made in: wide enough for products of all dtypes.
std::string sum_type(DType dtype) { return to_string(computed_in(dtype)); }
std::string add_product(const std::string& type, const std::string& a, const std::string& b) {
  return fmt::format("sum = wrapping_add<{0}>(sum, wrapping_mul<{0}>({1}, {2}));\n", type, a, b);
}

std::string image_at(const TensorView& view, const char* n, const std::string& c, const std::string& y,
                     const std::string& x) {
  return fmt::format("i64({}) * {} + i64({}) * {} + i64({}) * {} + i64({}) * {}", n, view.strides[0], c,
                     view.strides[1], y, view.strides[2], x, view.strides[3]);
}

// "for i: n, c, y, x" over the elements of a result, channels fastest.
std::string elements_text(const TensorView& out) {
  const Shape& s = out.shape;
  return loop_text("i64", "i", s.num_elements()) +
         fmt::format(
             "i64 rest = i;\nconst int c = rest % {0}; rest /= {0};\nconst int x = rest % {1}; rest /= {1};\n"
             "const int y = rest % {2}; const int n = rest / {2};\n",
             s[1], s[3], s[2]);
}

std::optional<DeviceProgram> write_conv(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& x = request.inputs[0];
  const TensorView& weight = request.inputs[1];
  const TensorView& out = request.outputs[0];
  const Geometry g(request.attributes);
  DeviceProgram program{.name = "cuda.conv2d"};
  if (out.num_elements() == 0) return program;
  const std::string type = sum_type(x.dtype);
  std::string body =
      elements_text(out) + fmt::format("const int group = c / {};\n{} sum = 0;\n", weight.shape[0] / g.groups, type);
  body += fmt::format("for (int ky = 0; ky < {}; ++ky) {{\nconst int iy = {};\nif (iy < 0 || iy >= {}) continue;\n",
                      weight.shape[2], g.pixel(0, "y", "ky"), x.shape[2]);
  body += fmt::format("for (int kx = 0; kx < {}; ++kx) {{\nconst int ix = {};\nif (ix < 0 || ix >= {}) continue;\n",
                      weight.shape[3], g.pixel(1, "x", "kx"), x.shape[3]);
  body += fmt::format("for (int k = 0; k < {}; ++k) ", weight.shape[1]) +
          add_product(type,
                      fmt::format("wide(in0[{}])",
                                  image_at(x, "n", fmt::format("group * {} + k", weight.shape[1]), "iy", "ix")),
                      fmt::format("wide(in1[{}])", image_at(weight, "c", "k", "ky", "kx")));
  body += fmt::format("}}\n}}\nout0[{}] = {}(sum);\n}}\n", image_at(out, "n", "c", "y", "x"), to_string(out.dtype));
  program.phases.push_back({.body = body, .blocks = blocks_for(gpu, out.num_elements())});
  return program;
}

std::optional<DeviceProgram> write_grad_input(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& dy = request.inputs[0];
  const TensorView& weight = request.inputs[1];
  const TensorView& dx = request.outputs[0];
  const Geometry g(request.attributes);
  DeviceProgram program{.name = "cuda.conv2d_grad_input"};
  if (dx.num_elements() == 0) return program;
  const std::string type = sum_type(dy.dtype);
  const int64_t outputs = weight.shape[0] / g.groups;
  std::string body = elements_text(dx) +
                     fmt::format("const int group = c / {0}, ci = c % {0};\n{1} sum = 0;\n", weight.shape[1], type);
  const auto axis = [&](size_t d, const char* name, const char* i, int64_t taps, int64_t size) {
    return fmt::format(
        "for (int k{0} = 0; k{0} < {1}; ++k{0}) {{\nconst int from_{0} = {2} + {3} - k{0} * {4};\n"
        "if (from_{0} < 0 || from_{0} % {5} != 0 || from_{0} / {5} >= {6}) continue;\nconst int o{0} = from_{0} / "
        "{5};\n",
        name, taps, i, g.padding[2 * d], g.dilation[d], g.strides[d], size);
  };
  body += axis(0, "y", "y", weight.shape[2], dy.shape[2]) + axis(1, "x", "x", weight.shape[3], dy.shape[3]);
  body += fmt::format("for (int k = 0; k < {}; ++k) ", outputs) +
          add_product(
              type, fmt::format("wide(in0[{}])", image_at(dy, "n", fmt::format("group * {} + k", outputs), "oy", "ox")),
              fmt::format("wide(in1[{}])",
                          image_at(weight, fmt::format("group * {} + k", outputs).c_str(), "ci", "ky", "kx")));
  body += fmt::format("}}\n}}\nout0[{}] = {}(sum);\n}}\n", image_at(dx, "n", "c", "y", "x"), to_string(dx.dtype));
  program.phases.push_back({.body = body, .blocks = blocks_for(gpu, dx.num_elements())});
  return program;
}

std::optional<DeviceProgram> write_grad_weight(const KernelRequest& request, const Gpu&) {
  const TensorView& dy = request.inputs[0];
  const TensorView& x = request.inputs[1];
  const TensorView& dw = request.outputs[0];
  const Geometry g(request.attributes);
  DeviceProgram program{.name = "cuda.conv2d_grad_weight"};
  if (dw.num_elements() == 0) return program;
  const std::string type = sum_type(dy.dtype);
  const Shape& w = dw.shape;
  std::string body = fmt::format(
      "int rest = blockIdx.x;\nconst int kx = rest % {0}; rest /= {0};\nconst int ky = rest % {1}; rest /= {1};\n"
      "const int ci = rest % {2}; const int co = rest / {2};\nconst int group = co / {3};\n{4} sum = 0;\n",
      w[3], w[2], w[1], w[0] / g.groups, type);
  const int64_t positions = dy.shape[0] * dy.shape[2] * dy.shape[3];
  body += fmt::format(
      "for (i64 i = threadIdx.x; i < {0}; i += blockDim.x) {{\nconst int ox = i % {1}, oy = i / {1} % {2}; const i64 n "
      "= i / {3};\n",
      positions, dy.shape[3], dy.shape[2], dy.shape[2] * dy.shape[3]);
  body += fmt::format("const int iy = {}, ix = {};\nif (iy < 0 || iy >= {} || ix < 0 || ix >= {}) continue;\n",
                      g.pixel(0, "oy", "ky"), g.pixel(1, "ox", "kx"), x.shape[2], x.shape[3]);
  body += add_product(type, fmt::format("wide(in0[{}])", image_at(dy, "n", "co", "oy", "ox")),
                      fmt::format("wide(in1[{}])", image_at(x, "n", fmt::format("group * {} + ci", w[1]), "iy", "ix")));
  body += fmt::format("}}\nsum = reduce_block(sum, WrappingPlus());\nif (threadIdx.x == 0) out0[{}] = {}(sum);\n",
                      image_at(dw, "co", "ci", "ky", "kx"), to_string(dw.dtype));
  program.functions =
      "struct WrappingPlus { template <typename T> TESSERA_DEVICE T operator()(T a, T b) const { return "
      "wrapping_add(a, b); } };\n";
  program.phases.push_back({.body = body, .blocks = dw.num_elements(), .threads = positions > 512 ? 256 : 64});
  return program;
}

}  // namespace

void add_convolution(KernelRegistry& registry, Gpu& gpu) {
  add_writer(registry, gpu, "conv2d", write_conv);
  add_writer(registry, gpu, "conv2d_grad_input", write_grad_input);
  add_writer(registry, gpu, "conv2d_grad_weight", write_grad_weight);
}

}  // namespace tessera::cuda
