#include "tessera/kernels/cuda/reduce/reduction.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/writer.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kThreads = 256;
constexpr int64_t kUnroll = 4;  // loads of a thread that are under way at once

int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The least power of two that is not below n, between 1 and `most`, which is one.
int64_t power_of_two(int64_t n, int64_t most) {
  int64_t power = 1;
  while (power < n && power < most) power *= 2;
  return power;
}

// What a phase reads: elements of `type` behind `address`, and the expression of an accumulator of its element x.
struct Source {
  std::string address;
  std::string type;
  std::string taken;
  size_t element_bytes = 4;
};

// The grid of a phase.
struct Grid {
  bool rows = false;       // neighbouring threads share a kept element
  int64_t pack = 1;        // elements of one load: reduced ones in rows, kept ones in columns
  ViewWalk kept;           // elements, p in the operand, q in the result
  ViewWalk kept_loads;     // kept elements, or packs of them in columns: p alone
  ViewWalk reduced_loads;  // reduced elements, or packs of them in rows: d
  int64_t across = 1;      // threads of a block that are neighbours
  int64_t along = 1;       // and those in the other direction
  int64_t groups = 1;      // blocks for all kept elements
  int64_t parts = 1;       // pieces of the reduced elements, each with a block for each group
  std::string index;       // its type

  int64_t num_kept() const { return kept.shape.num_elements(); }
  int64_t num_reduced() const { return reduced_loads.shape.num_elements(); }
  // Reduced loads between two of a thread, and of a part.
  int64_t step() const { return rows ? across : along; }
  int64_t part_size() const { return quotient_up(num_reduced(), parts); }
};

int64_t least_stride(const ViewWalk& walk) {
  int64_t least = INT64_MAX;
  for (int d = 0; d < walk.shape.ndim(); ++d) {
    if (walk.shape[d] > 1) least = std::min(least, std::abs(walk.views[0].strides[d]));
  }
  return least;
}

bool all_divisible(const Strides& strides, int64_t by) {
  return std::all_of(strides.begin(), strides.end(), [&](int64_t stride) { return stride % by == 0; });
}

// Widens the loads where neighbours lie side by side and all others at multiples of a load.
void pack_loads(Grid& grid, size_t element_bytes) {
  ViewWalk& packed_walk = grid.rows ? grid.reduced_loads : grid.kept_loads;
  const ViewWalk& other = grid.rows ? grid.kept_loads : grid.reduced_loads;
  for (int64_t pack = 16 / static_cast<int64_t>(element_bytes); pack > 1; pack /= 2) {
    const auto packs = packed(packed_walk, pack);
    if (!packs || packs->views[0].strides[packs->shape.ndim() - 1] != pack) continue;
    if (!all_divisible(other.views[0].strides, pack)) continue;
    packed_walk = *packs;
    grid.pack = pack;
    return;
  }
}

Grid grid_of(const Gpu& gpu, const ReducedDims& dims, size_t element_bytes, bool may_part) {
  Grid grid;
  grid.kept = in_order_of_first(dims.kept, {{"p", dims.kept_in}, {"q", dims.kept_out}});
  grid.kept_loads = {grid.kept.shape, {grid.kept.views[0]}};
  grid.reduced_loads = in_order_of_first(dims.reduced, {{"d", dims.reduced_in}});
  grid.rows = least_stride(grid.reduced_loads) < least_stride(grid.kept_loads) || grid.num_kept() == 1;
  const bool is_long = index_type(grid.kept.shape, grid.kept.views) != "int" ||
                       index_type(grid.reduced_loads.shape, grid.reduced_loads.views) != "int" ||
                       dims.kept.num_elements() * std::max<int64_t>(dims.reduced.num_elements(), 1) >= int64_t{1} << 30;
  grid.index = is_long ? "i64" : "int";
  pack_loads(grid, element_bytes);
  const int64_t num_reduced = grid.num_reduced();
  if (grid.rows) {
    grid.across = num_reduced >= kThreads * kUnroll ? kThreads : power_of_two(num_reduced, 32);
  } else {
    // Few parts' results want few rounds of their few rows rather than long pieces of each.
    const int64_t widest = may_part ? 32 : std::clamp<int64_t>(kThreads / power_of_two(num_reduced, kThreads), 4, 32);
    grid.across = power_of_two(grid.kept_loads.shape.num_elements(), widest);
  }
  grid.along = kThreads / grid.across;
  grid.groups = quotient_up(grid.kept_loads.shape.num_elements(), grid.rows ? grid.along : grid.across);
  // A second phase costs as much as a few loads one after the other.
  const int64_t rounds = quotient_up(num_reduced, grid.step() * kUnroll);
  const int64_t wanted = quotient_up(int64_t{gpu.num_multiprocessors()} * 2, grid.groups);
  if (may_part && rounds > 4 && wanted > 1) grid.parts = quotient_up(rounds, quotient_up(rounds, wanted));
  return grid;
}

// The loop of a thread over its reduced elements: sums[j] of each element of a load.
std::string loop_over_reduced(const Grid& grid, const Source& source) {
  const int64_t parts_end = grid.num_reduced();
  std::string text = fmt::format(
      "const {0} end = {1};\n", grid.index,
      grid.parts == 1 ? fmt::format("{}", parts_end)
                      : fmt::format("part * {0} + {0} < {1} ? part * {0} + {0} : {1}", grid.part_size(), parts_end));
  text += fmt::format("for ({0} r = part * {1} + {2}; r < end; r += {3}) {{\nPack<{4}, {5}> x[{6}];\n", grid.index,
                      grid.part_size(), grid.rows ? "across" : "along", grid.step() * kUnroll, source.type, grid.pack,
                      kUnroll);
  text += fmt::format(
      "#pragma unroll\nfor (int k = 0; k < {0}; ++k) {{\nconst {1} at = r + k * {2};\nif (at < end) {{\n{3}"
      "x[k] = *reinterpret_cast<const Pack<{4}, {5}>*>(from + d);\n}}\n}}\n",
      kUnroll, grid.index, grid.step(), offsets_text(grid.reduced_loads.shape, grid.reduced_loads.views, "at"),
      source.type, grid.pack);
  return text +
         fmt::format(
             "#pragma unroll\nfor (int k = 0; k < {}; ++k) {{\nif (r + k * {} < end) {{\n"
             "#pragma unroll\nfor (int j = 0; j < {}; ++j) sums[j] = combined(sums[j], {}(x[k][j]));\n}}\n}}\n}}\n",
             kUnroll, grid.step(), grid.pack, source.taken);
}

// Stores the accumulator `sum` of kept element number `at`.
std::string store_text(const Grid& grid, const ReductionText& reduction) {
  if (grid.parts > 1) {
    return fmt::format("reinterpret_cast<{}*>(scratch)[part * {} + at] = sum;\n", reduction.accumulator,
                       grid.num_kept());
  }
  return offsets_text(grid.kept.shape, {grid.kept.views[1]}, "at") + "out0[q] = ended(sum);\n";
}

// The threads of a row combine what they have.
std::string finish_rows(const Grid& grid, const ReductionText& reduction) {
  std::string text =
      fmt::format("{0} sum = sums[0];\n#pragma unroll\nfor (int j = 1; j < {1}; ++j) sum = combined(sum, sums[j]);\n",
                  reduction.accumulator, grid.pack);
  if (grid.across > 32) {
    text += "sum = reduce_block(sum, [](auto a, auto b) { return combined(a, b); });\n";
  } else if (grid.across > 1) {
    text += fmt::format(
        "#pragma unroll\nfor (int far = {}; far > 0; far /= 2) "
        "sum = combined(sum, __shfl_xor_sync(0xFFFFFFFFU, sum, far));\n",
        grid.across / 2);
  }
  return text + fmt::format("const {} at = kept;\nif (across == 0 && is_inside) {{\n{}}}\n", grid.index,
                            store_text(grid, reduction));
}

// The threads of a column do so in shared memory.
std::string finish_columns(const Grid& grid, const ReductionText& reduction) {
  const int64_t columns = grid.across * grid.pack;
  std::string text = fmt::format(
      "__shared__ {0} of_threads[{1}][{2}];\n"
      "#pragma unroll\nfor (int j = 0; j < {3}; ++j) of_threads[along][j * {4} + across] = "
      "sums[j];\n__syncthreads();\n",
      reduction.accumulator, grid.along, columns, grid.pack, grid.across);
  text += fmt::format(
      "for (int column = threadIdx.x; column < {0}; column += {1}) {{\n"
      "const {2} at = group * {0} + column;\nif (at >= {3}) continue;\n"
      "const int place = column % {4} * {5} + column / {4};\n{6} sum = of_threads[0][place];\n"
      "#pragma unroll 8\nfor (int y = 1; y < {7}; ++y) sum = combined(sum, of_threads[y][place]);\n{8}}}\n",
      columns, kThreads, grid.index, grid.num_kept(), grid.pack, grid.across, reduction.accumulator, grid.along,
      store_text(grid, reduction));
  return text;
}

ProgramPhase phase_of(const Grid& grid, const Source& source, const ReductionText& reduction) {
  ProgramPhase phase{.blocks = grid.groups * grid.parts, .threads = static_cast<int>(kThreads)};
  const char* index = grid.index.c_str();
  phase.body = fmt::format(
      "const int across = threadIdx.x % {0}, along = threadIdx.x / {0};\n"
      "const {1} group = {1}(blockIdx.x / {2}), part = {1}(blockIdx.x % {2});\n",
      grid.across, index, grid.parts);
  phase.body += fmt::format(
      "const {} kept = {};\n", index,
      grid.rows ? fmt::format("group * {} + along", grid.along) : fmt::format("group * {} + across", grid.across));
  phase.body += fmt::format("const bool is_inside = kept < {};\n", grid.kept_loads.shape.num_elements());
  phase.body += fmt::format("{0} sums[{1}];\n#pragma unroll\nfor (int j = 0; j < {1}; ++j) sums[j] = {2};\n",
                            reduction.accumulator, grid.pack, reduction.begin);
  phase.body += fmt::format("if (is_inside) {{\n{0}const {1}* const from = {2} + p;\n{3}}}\n",
                            offsets_text(grid.kept_loads.shape, grid.kept_loads.views, "kept"), source.type,
                            source.address, loop_over_reduced(grid, source));
  phase.body += grid.rows ? finish_rows(grid, reduction) : finish_columns(grid, reduction);
  return phase;
}

// Nothing is reduced, to each result.
ProgramPhase phase_of_nothing(const Gpu& gpu, const ReducedDims& dims, const ReductionText& reduction) {
  const std::vector<NamedStrides> views = {{"q", dims.kept_out}};
  const int64_t count = dims.kept.num_elements();
  return {.body = loop_text(index_type(dims.kept, views), "i", count) + offsets_text(dims.kept, views, "i") +
                  fmt::format("out0[q] = ended({});\n}}\n", reduction.begin),
          .blocks = blocks_for(gpu, count)};
}

}  // namespace

DeviceProgram write_reduction(const KernelRequest& request, const Gpu& gpu, const ReductionText& reduction,
                              const ReducedDims& dims) {
  DeviceProgram program{.name = "cuda." + request.op};
  if (dims.kept.num_elements() == 0) return program;
  const char* type = to_string(request.inputs[0].dtype);
  const char* result = to_string(request.outputs[0].dtype);
  program.functions = fmt::format(
      "TESSERA_DEVICE {0} taken({1} x) {{ return {2}; }}\nTESSERA_DEVICE {0} combined({0} a, {0} b) {{ return {3}; }}\n"
      "TESSERA_DEVICE {4} ended({0} a) {{ return {5}; }}\n",
      reduction.accumulator, type, reduction.taken, reduction.combined, result, reduction.ended);
  if (dims.reduced.num_elements() == 0) {
    program.phases.push_back(phase_of_nothing(gpu, dims, reduction));
    return program;
  }
  const size_t bytes = size_bytes(request.inputs[0].dtype);
  const Grid grid = grid_of(gpu, dims, bytes, /*may_part=*/true);
  program.phases.push_back(phase_of(grid, {"in0", type, "taken", bytes}, reduction));
  if (grid.parts == 1) return program;
  // The results of the parts, [parts, kept], are reduced over their rows.
  const int64_t num_kept = grid.num_kept();
  const size_t accumulator_bytes = reduction.accumulator == "f64" || reduction.accumulator == "i64" ? 8 : 4;
  program.scratch_bytes = grid.parts * num_kept * static_cast<int64_t>(accumulator_bytes);
  ReducedDims second{.reduced = {grid.parts}, .reduced_in = {num_kept}};
  int64_t stride = num_kept;
  for (int d = 0; d < grid.kept.shape.ndim(); ++d) {
    stride /= grid.kept.shape[d];
    second.kept.push_back(grid.kept.shape[d]);
    second.kept_in.push_back(stride);
    second.kept_out.push_back(grid.kept.views[1].strides[d]);
  }
  const Source partial{fmt::format("reinterpret_cast<const {}*>(scratch)", reduction.accumulator),
                       reduction.accumulator, "", accumulator_bytes};
  program.phases.push_back(phase_of(grid_of(gpu, second, accumulator_bytes, /*may_part=*/false), partial, reduction));
  return program;
}

}  // namespace tessera::cuda
