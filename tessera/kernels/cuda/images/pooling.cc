// Poolings and their gradients: a thread for a few neighbouring channels of each pixel.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/core/writer.h"

namespace tessera::cuda {
namespace {

struct Window {
  Ints size, strides, padding;  // padding: top, bottom, left, right

  explicit Window(const Attributes& attributes)
      : size(attributes.get_ints("kernel")),
        strides(attributes.get_ints("strides")),
        padding(attributes.get_ints("padding")) {}
  // "oy * 2 - 1": the first pixel of an output's window.
  std::string begin(int d, const std::string& o) const {
    return fmt::format("({} * {} - {})", o, strides[static_cast<size_t>(d)], padding[static_cast<size_t>(2 * d)]);
  }
  // The outputs whose windows hold pixel i: [first, last).
  std::string outputs_text(int d, const std::string& i, int64_t count, const std::string& name) const {
    const int64_t stride = strides[static_cast<size_t>(d)];
    const int64_t pad = padding[static_cast<size_t>(2 * d)];
    return fmt::format(
        "int first_{0} = {1} + {2} - {3} + 1; first_{0} = first_{0} <= 0 ? 0 : (first_{0} + {4} - 1) / {4};\n"
        "int last_{0} = ({1} + {2}) / {4} + 1; if (last_{0} > {5}) last_{0} = {5};\n",
        name, i, pad, size[static_cast<size_t>(d)], stride, count);
  }
};

// Channels that a thread does: as many as lie together in every view, at most eight.
int64_t channels_of_thread(const std::vector<const TensorView*>& views) {
  size_t narrowest = 8;
  for (const auto* view : views)
    narrowest = std::min(narrowest, size_bytes(view->dtype) == 1 ? size_t{2} : size_bytes(view->dtype));
  int64_t pack = std::min<int64_t>(8, 16 / static_cast<int64_t>(narrowest));
  for (const auto* view : views) {
    if (view->strides[1] != 1) return 1;
  }
  const auto divides = [&](const TensorView& view) {
    return view.shape[1] % pack == 0 && view.strides[0] % pack == 0 && view.strides[2] % pack == 0 &&
           view.strides[3] % pack == 0;
  };
  while (!std::all_of(views.begin(), views.end(), [&](const auto* view) { return divides(*view); })) pack /= 2;
  return pack;
}

// "place of (n, c, y, x)" in a view.
std::string at(const TensorView& view, const std::string& y, const std::string& x) {
  return fmt::format("i64(n) * {} + i64(c) * {} + i64({}) * {} + i64({}) * {}", view.strides[0], view.strides[1], y,
                     view.strides[2], x, view.strides[3]);
}
std::string load(const std::string& pointer, const TensorView& view, int64_t pack, const std::string& place) {
  return pack > 1 ? fmt::format("*reinterpret_cast<const Pack<{0}, {1}>*>({2} + {3})", to_string(view.dtype), pack,
                                pointer, place)
                  : fmt::format("Pack<{0}, 1>{{{{{1}[{2}]}}}}", to_string(view.dtype), pointer, place);
}
std::string store(const std::string& pointer, const TensorView& view, int64_t pack, const std::string& place,
                  const std::string& value) {
  return pack > 1 ? fmt::format("*reinterpret_cast<Pack<{0}, {1}>*>({2} + {3}) = {4};\n", to_string(view.dtype), pack,
                                pointer, place, value)
                  : fmt::format("{0}[{1}] = {2}[0];\n", pointer, place, value);
}

// A loop over all places of an image, the channels innermost where a thread does several of them or they lie together:
// declares n, c, y and x.
std::string places_text(const TensorView& view, int64_t pack) {
  const Shape& s = view.shape;
  const int64_t packs = s[1] / pack;
  const bool last = view.strides[1] == 1;
  std::string text = "#pragma unroll 1\n" + loop_text("i64", "i", s.num_elements() / pack) + "u32 rest = u32(i);\n";
  if (s.num_elements() >= int64_t{1} << 32) text = loop_text("i64", "i", s.num_elements() / pack) + "i64 rest = i;\n";
  if (last) {
    text += fmt::format(
        "const int c = int(rest % {0}) * {1}; rest /= {0};\nconst int x = int(rest % {2}); rest /= {2};\n"
        "const int y = int(rest % {3}); const int n = int(rest / {3});\n",
        packs, pack, s[3], s[2]);
  } else {
    text += fmt::format(
        "const int x = int(rest % {0}); rest /= {0};\nconst int y = int(rest % {1}); rest /= {1};\n"
        "const int c = int(rest % {2}); const int n = int(rest / {2});\n",
        s[3], s[2], s[1]);
  }
  return text;
}

DeviceProgram one_phase(const KernelRequest& request, const Gpu& gpu, const TensorView& over, int64_t pack,
                        const std::string& body) {
  DeviceProgram program{.name = "cuda." + request.op};
  if (over.num_elements() == 0) return program;
  program.phases.push_back(
      {.body = places_text(over, pack) + body + "}\n", .blocks = blocks_for(gpu, over.num_elements() / pack)});
  return program;
}
std::string each_channel(int64_t pack) {
  return fmt::format("#pragma unroll\nfor (int v = 0; v < {}; ++v) {{\n", pack);
}

// Loops over the places of a window that are pixels: iy, ix, place.
std::string window_text(const Window& window, const Shape& x) {
  return fmt::format(
      "const int top = {0}, left = {1};\n#pragma unroll\nfor (int ky = 0; ky < {2}; ++ky) {{\nconst int iy = top + "
      "ky;\n"
      "if (iy < 0 || iy >= {4}) continue;\n#pragma unroll\nfor (int kx = 0; kx < {3}; ++kx) {{\nconst int ix = left + "
      "kx;\n"
      "if (ix < 0 || ix >= {5}) continue;\n",
      window.begin(0, "y"), window.begin(1, "x"), window.size[0], window.size[1], x[2], x[3]);
}

std::optional<DeviceProgram> write_max_pool(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  const TensorView& index = request.outputs[1];
  const Window window(request.attributes);
  const int64_t pack = channels_of_thread({&x, &y, &index});
  const std::string type = to_string(computed_in(x.dtype));
  std::string body = fmt::format("Pack<{0}, {1}> best; int place[{1}];\n", to_string(x.dtype), pack) +
                     each_channel(pack) +
                     fmt::format("best[v] = {}({}(0)); place[v] = -1;\n}}\n", to_string(x.dtype), type);
  body += window_text(window, x.shape) +
          fmt::format("const auto value = {};\n", load("in0", x, pack, at(x, "iy", "ix"))) + each_channel(pack) +
          fmt::format(
              "const {0} a = wide(value[v]), b = wide(best[v]);\n"
              "if (place[v] < 0 || a > b || (a != a && b == b)) {{ best[v] = value[v]; place[v] = ky * {1} + kx; "
              "}}\n}}\n}}\n}}\n",
              type, window.size[1]);
  body += fmt::format("Pack<{0}, {1}> places;\n", to_string(index.dtype), pack) + each_channel(pack) +
          fmt::format("places[v] = {}(place[v]);\n}}\n", to_string(index.dtype)) +
          store("out0", y, pack, at(y, "y", "x"), "best") + store("out1", index, pack, at(index, "y", "x"), "places");
  return one_phase(request, gpu, y, pack, body);
}

std::optional<DeviceProgram> write_max_pool_grad(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& dy = request.inputs[0];
  const TensorView& index = request.inputs[1];
  const TensorView& dx = request.outputs[0];
  const Window window(request.attributes);
  const int64_t pack = channels_of_thread({&dy, &index, &dx});
  const std::string type = to_string(computed_in(dx.dtype));
  std::string body = fmt::format("{} sum[{}] = {{}};\n", type, pack) + window.outputs_text(0, "y", dy.shape[2], "y") +
                     window.outputs_text(1, "x", dy.shape[3], "x");
  body += "for (int oy = first_y; oy < last_y; ++oy) for (int ox = first_x; ox < last_x; ++ox) {\n";
  body += fmt::format("const int place = (y - {}) * {} + x - {};\n", window.begin(0, "oy"), window.size[1],
                      window.begin(1, "ox"));
  body += fmt::format("const auto g = {};\nconst auto at_index = {};\n", load("in0", dy, pack, at(dy, "oy", "ox")),
                      load("in1", index, pack, at(index, "oy", "ox")));
  body += each_channel(pack) + "if (int(at_index[v]) == place) sum[v] += wide(g[v]);\n}\n}\n";
  body += fmt::format("Pack<{0}, {1}> result;\n", to_string(dx.dtype), pack) + each_channel(pack) +
          fmt::format("result[v] = converted<{}>(sum[v]);\n}}\n", to_string(dx.dtype)) +
          store("out0", dx, pack, at(dx, "y", "x"), "result");
  return one_phase(request, gpu, dx, pack, body);
}

std::optional<DeviceProgram> write_max_pool_take(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& x = request.inputs[0];
  const TensorView& index = request.inputs[1];
  const TensorView& y = request.outputs[0];
  const Window window(request.attributes);
  const std::string body = fmt::format(
      "const i64 place = in1[{0}];\nconst i64 iy = {1} + place / {2}, ix = {3} + place % {2};\n"
      "const bool inside = place >= 0 && place < {4} && iy >= 0 && iy < {5} && ix >= 0 && ix < {6};\n"
      "out0[{7}] = inside ? in0[{8}] : {9}({10}(0));\n",
      at(index, "y", "x"), window.begin(0, "y"), window.size[1], window.begin(1, "x"), window.size[0] * window.size[1],
      x.shape[2], x.shape[3], at(y, "y", "x"), at(x, "iy", "ix"), to_string(y.dtype), to_string(computed_in(y.dtype)));
  return one_phase(request, gpu, y, 1, body);
}

// How many places of a window its mean divides by, as an expression of the output's oy and ox.
std::string divisor(const Window& window, bool count_include_pad, const Shape& x, const std::string& oy,
                    const std::string& ox, const std::string& type) {
  if (count_include_pad) return fmt::format("{}({})", type, window.size[0] * window.size[1]);
  const auto inside = [&](int d, const std::string& o, int64_t size) {
    const std::string begin = window.begin(d, o);
    const int64_t taps = window.size[static_cast<size_t>(d)];
    return fmt::format("(({0} + {1} < {2} ? {0} + {1} : {2}) - ({0} > 0 ? {0} : 0))", begin, taps, size);
  };
  return fmt::format("{}({} * {})", type, inside(0, oy, x[2]), inside(1, ox, x[3]));
}

std::optional<DeviceProgram> write_avg_pool(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  const Window window(request.attributes);
  const int64_t pack = channels_of_thread({&x, &y});
  const std::string type = to_string(computed_in(x.dtype));
  std::string body = fmt::format("{} sum[{}] = {{}};\n", type, pack) + window_text(window, x.shape) +
                     fmt::format("const auto value = {};\n", load("in0", x, pack, at(x, "iy", "ix"))) +
                     each_channel(pack) + "sum[v] += wide(value[v]);\n}\n}\n}\n";
  body += fmt::format("const {} by = {};\nPack<{}, {}> result;\n", type,
                      divisor(window, request.attributes.get_bool("count_include_pad"), x.shape, "y", "x", type),
                      to_string(y.dtype), pack) +
          each_channel(pack) + fmt::format("result[v] = converted<{}>(sum[v] / by);\n}}\n", to_string(y.dtype)) +
          store("out0", y, pack, at(y, "y", "x"), "result");
  return one_phase(request, gpu, y, pack, body);
}

std::optional<DeviceProgram> write_avg_pool_grad(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& dy = request.inputs[0];
  const TensorView& dx = request.outputs[0];
  const Window window(request.attributes);
  const int64_t pack = channels_of_thread({&dy, &dx});
  const std::string type = to_string(computed_in(dx.dtype));
  std::string body = fmt::format("{} sum[{}] = {{}};\n", type, pack) + window.outputs_text(0, "y", dy.shape[2], "y") +
                     window.outputs_text(1, "x", dy.shape[3], "x");
  body += "for (int oy = first_y; oy < last_y; ++oy) for (int ox = first_x; ox < last_x; ++ox) {\n";
  body += fmt::format("const auto g = {};\nconst {} by = {};\n", load("in0", dy, pack, at(dy, "oy", "ox")), type,
                      divisor(window, request.attributes.get_bool("count_include_pad"), dx.shape, "oy", "ox", type));
  body += each_channel(pack) + "sum[v] += wide(g[v]) / by;\n}\n}\n" +
          fmt::format("Pack<{0}, {1}> result;\n", to_string(dx.dtype), pack) + each_channel(pack) +
          fmt::format("result[v] = converted<{}>(sum[v]);\n}}\n", to_string(dx.dtype)) +
          store("out0", dx, pack, at(dx, "y", "x"), "result");
  return one_phase(request, gpu, dx, pack, body);
}

}  // namespace

void add_pooling(KernelRegistry& registry, Gpu& gpu) {
  add_writer(registry, gpu, "max_pool2d", write_max_pool);
  add_writer(registry, gpu, "max_pool2d_grad", write_max_pool_grad);
  add_writer(registry, gpu, "max_pool2d_take", write_max_pool_take);
  add_writer(registry, gpu, "avg_pool2d", write_avg_pool);
  add_writer(registry, gpu, "avg_pool2d_grad", write_avg_pool_grad);
}

}  // namespace tessera::cuda
