// Layer normalisation and its gradient.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/normalization/row_tiles.h"

namespace tessera::cuda {
namespace {

// The dims [first, last) of a shape or of strides.
Shape part_of(const Shape& shape, int first, int last) {
  Shape part;
  for (int d = first; d < last; ++d) part.push_back(shape[d]);
  return part;
}

struct Normalised {
  int begin;
  Shape leading, trailing;

  explicit Normalised(const KernelRequest& request)
      : begin(static_cast<int>(request.attributes.get_int("begin_axis"))) {
    const Shape& x = request.outputs[0].shape;
    leading = part_of(x, 0, begin);
    trailing = part_of(x, begin, x.ndim());
  }
  NamedStrides line(const std::string& name, const TensorView& view) const {
    return {name, part_of(view.strides, 0, begin)};
  }
  NamedStrides element(const std::string& name, const TensorView& view) const {
    return {name, part_of(view.strides, begin, view.strides.ndim())};
  }
};

bool same_places(const TensorView& a, const TensorView& b) { return a.type() == b.type() && a.strides == b.strides; }

std::string stored_at(const KernelRequest& request, size_t output, const std::string& place, const std::string& value) {
  return fmt::format("out{}[{}] = converted<{}>({});\n", output, place, to_string(request.outputs[output].dtype),
                     value);
}

std::optional<DeviceProgram> write_layer_norm(const KernelRequest& request, const Gpu&) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  const Normalised n(request);
  const RowTiles rows(
      n.leading,
      {n.line("x", x), n.line("y", y), {"mean", request.outputs[1].strides}, {"inv", request.outputs[2].strides}},
      n.trailing,
      {n.element("x", x),
       n.element("y", y),
       {"gamma", request.inputs[1].strides},
       {"beta", request.inputs[2].strides}});
  DeviceProgram program{.name = "cuda.layer_norm"};
  if (same_places(x, y)) program.in_place = {{0, 0}};
  if (rows.count() == 0) return program;
  const DType computed = computed_in(x.dtype);
  const std::string type = to_string(computed);
  const std::string load = fmt::format("const {0} x = {0}(wide(in0[row_x + at_x]));\n", type);
  const std::string again = rows.keeps() ? fmt::format("const {} x = x_[k];\n", type) : load;
  std::string body = fmt::format("{0} x_[{1}];\n{0} mean = 0;\n", type, rows.kept());
  body += rows.loop_text() + load + "x_[k] = x; mean += x;\n}\n";
  body += fmt::format("mean = sum_row(mean) / {};\n{} squares = 0;\n",
                      literal(static_cast<double>(rows.size()), computed), type);
  body += rows.loop_text() + again + "squares += (x - mean) * (x - mean);\n}\n";
  body += fmt::format("const {0} inverse = {0}(1) / std::sqrt(sum_row(squares) / {1} + {2});\n", type,
                      literal(static_cast<double>(rows.size()), computed),
                      literal(request.attributes.get_double("eps"), computed));
  body += "if (lane == 0) {\n" + stored_at(request, 1, "row_mean", "mean") +
          stored_at(request, 2, "row_inv", "inverse") + "}\n";
  body += rows.loop_text() + again +
          stored_at(request, 0, "row_y + at_y",
                    fmt::format("(x - mean) * inverse * {0}(wide(in1[at_gamma])) + {0}(wide(in2[at_beta]))", type)) +
          "}\n";
  program.functions = rows.functions_text();
  program.phases.push_back({.body = rows.begin_text() + body, .blocks = rows.blocks(), .threads = rows.threads()});
  return program;
}

// The sums over rows, dgamma and dbeta: bands of rows first, then the bands.
constexpr int kColumns = 32;
constexpr int kLanes = 8;

std::string tile_reduction(const std::string& type) {
  return fmt::format(
      "__shared__ {0} sums_of_lanes[2][{1}][{2}];\nsums_of_lanes[0][ly][cx] = dgamma; sums_of_lanes[1][ly][cx] = "
      "dbeta;\n"
      "__syncthreads();\nif (ly != 0 || column >= columns) return;\n"
      "for (int l = 1; l < {1}; ++l) {{ dgamma += sums_of_lanes[0][l][cx]; dbeta += sums_of_lanes[1][l][cx]; }}\n",
      type, kLanes, kColumns);
}

std::optional<DeviceProgram> write_layer_norm_grad(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& dy = request.inputs[0];
  const TensorView& x = request.inputs[1];
  const TensorView& dx = request.outputs[0];
  const Normalised n(request);
  const DType computed = computed_in(x.dtype);
  const std::string type = to_string(computed);
  DeviceProgram program{.name = "cuda.layer_norm_grad"};
  if (same_places(dy, dx)) program.in_place.emplace_back(0, 0);
  if (same_places(x, dx)) program.in_place.emplace_back(1, 0);
  const int64_t num_rows = n.leading.num_elements();
  const int64_t columns = n.trailing.num_elements();
  if (columns == 0) return program;
  const NamedStrides mean{"mean", request.inputs[3].strides};
  const NamedStrides inverse{"inv", request.inputs[4].strides};

  // ProgramPhase 1: sums over bands of rows.
  const int64_t tiles = (columns + kColumns - 1) / kColumns;
  const int64_t most = std::max<int64_t>(1, int64_t{gpu.num_multiprocessors()} * 4 / tiles);
  const int64_t bands = std::clamp<int64_t>(num_rows / (kLanes * 4), 1, most);
  const int64_t per_band = std::max<int64_t>(1, (num_rows + bands - 1) / bands);
  const std::string begin = fmt::format(
      "const int cx = threadIdx.x % {0}, ly = threadIdx.x / {0};\nconst int columns = {1};\n"
      "const int tile = blockIdx.x % {2}, band = blockIdx.x / {2};\nconst int column = tile * {0} + cx;\n"
      "{3} dgamma = 0, dbeta = 0;\n",
      kColumns, columns, tiles, type);
  std::string sums = begin + "if (column < columns) {\n" +
                     offsets_text(n.trailing, {n.element("c_dy", dy), n.element("c_x", x)}, "column");
  sums += fmt::format(
      "i64 end = i64(band + 1) * {0};\nif (end > {1}) end = {1};\n"
      "#pragma unroll 4\nfor (i64 row = i64(band) * {0} + ly; row < end; row += {2}) {{\n",
      per_band, num_rows, kLanes);
  sums += offsets_text(n.leading, {n.line("r_dy", dy), n.line("r_x", x), mean, inverse}, "row");
  sums += fmt::format(
      "const {0} g = {0}(wide(in0[r_dy + c_dy]));\n"
      "dgamma += g * ({0}(wide(in1[r_x + c_x])) - {0}(wide(in3[mean]))) * {0}(wide(in4[inv]));\ndbeta += g;\n}}\n}}\n",
      type);
  sums += tile_reduction(type);
  const std::string place =
      offsets_text(n.trailing, {{"q1", request.outputs[1].strides}, {"q2", request.outputs[2].strides}}, "column");
  const std::string store = place + stored_at(request, 1, "q1", "dgamma") + stored_at(request, 2, "q2", "dbeta");
  if (bands == 1) {
    sums += store;
  } else {
    program.scratch_bytes = 2 * bands * columns * static_cast<int64_t>(size_bytes(computed));
    sums += fmt::format(
        "auto* partial = reinterpret_cast<{0}*>(scratch);\npartial[i64(band) * columns + column] = dgamma;\n"
        "partial[i64({1} + band) * columns + column] = dbeta;\n",
        type, bands);
  }
  program.phases.push_back({.body = sums, .blocks = tiles * bands, .threads = kColumns * kLanes});
  if (bands > 1) {
    std::string last =
        begin +
        fmt::format(
            "if (column < columns) {{\nconst auto* partial = reinterpret_cast<const {0}*>(scratch);\n"
            "#pragma unroll 4\nfor (int b = ly; b < {1}; b += {2}) {{\ndgamma += partial[i64(b) * columns + column];\n"
            "dbeta += partial[i64({1} + b) * columns + column];\n}}\n}}\n",
            type, bands, kLanes);
    last += tile_reduction(type) + store;
    program.phases.push_back({.body = last, .blocks = tiles, .threads = kColumns * kLanes});
  }
  if (num_rows == 0) return program;

  // ProgramPhase 2: dx, which may overwrite what the sums have read.
  const RowTiles rows(
      n.leading, {n.line("dy", dy), n.line("x", x), n.line("dx", dx), mean, inverse}, n.trailing,
      {n.element("dy", dy), n.element("x", x), n.element("dx", dx), {"gamma", request.inputs[2].strides}});
  const std::string load = fmt::format(
      "const {0} normal = ({0}(wide(in1[row_x + at_x])) - mean) * inverse, g = {0}(wide(in0[row_dy + at_dy])) * "
      "{0}(wide(in2[at_gamma]));\n",
      type);
  std::string body = fmt::format(
      "const {0} mean = {0}(wide(in3[row_mean])), inverse = {0}(wide(in4[row_inv]));\n"
      "{0} n_[{1}], g_[{1}];\n{0} sum = 0, sum_normal = 0;\n",
      type, rows.kept());
  body += rows.loop_text() + load + "n_[k] = normal; g_[k] = g; sum += g; sum_normal += g * normal;\n}\n";
  body += fmt::format("sum = sum_row(sum) / {0};\nsum_normal = sum_row(sum_normal) / {0};\n",
                      literal(static_cast<double>(columns), computed));
  body += rows.loop_text() + (rows.keeps() ? fmt::format("const {} normal = n_[k], g = g_[k];\n", type) : load) +
          stored_at(request, 0, "row_dx + at_dx", "inverse * (g - sum - normal * sum_normal)") + "}\n";
  program.functions = rows.functions_text();
  program.phases.push_back({.body = rows.begin_text() + body, .blocks = rows.blocks(), .threads = rows.threads()});
  return program;
}

}  // namespace

void add_layer_norm(KernelRegistry& registry, Gpu& gpu) {
  add_writer(registry, gpu, "layer_norm", write_layer_norm);
  add_writer(registry, gpu, "layer_norm_grad", write_layer_norm_grad);
}

}  // namespace tessera::cuda
