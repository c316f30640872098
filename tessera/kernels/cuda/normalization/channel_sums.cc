#include "tessera/kernels/cuda/normalization/channel_sums.h"

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/writer.h"

namespace tessera::cuda {
namespace {

// How totals are put together, and what is done with them.
std::string functions_of(const KernelRequest& request, const ChannelSums& sums) {
  std::string text = fmt::format("struct Total {{ {} at[{}]; }};\n", sums.type, sums.count);
  text += fmt::format(
      "TESSERA_DEVICE Total zero_total() {{ Total t; for (int k = 0; k < {}; ++k) t.at[k] = 0; return t; }}\n",
      sums.count);
  text += "TESSERA_DEVICE void combine_totals(Total& to, const Total& from) {\n";
  if (sums.combine == "combine_moments") {
    // How many, their mean, and the sum of squares of differences from it (Chan et al., 1983).
    text += fmt::format(
        "const {0} n = to.at[0] + from.at[0];\nif (n == 0) return;\nconst {0} d = from.at[1] - to.at[1];\n"
        "const {0} part = from.at[0] / n;\nto.at[1] += d * part; to.at[2] += from.at[2] + d * d * to.at[0] * part;\n"
        "to.at[0] = n;\n",
        sums.type);
  } else {
    text += fmt::format("for (int k = 0; k < {}; ++k) to.at[k] += from.at[k];\n", sums.count);
  }
  text += "}\n";
  std::string parameters;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    parameters += fmt::format("const {}* in{}, ", to_string(request.inputs[i].dtype), i);
  }
  for (size_t o = 0; o < request.outputs.size(); ++o) {
    parameters += fmt::format("{}* out{}, ", to_string(request.outputs[o].dtype), o);
  }
  text += fmt::format("TESSERA_DEVICE void finish({}const int group, const int c, const {}* total) {{\n{}}}\n",
                      parameters, sums.type, sums.finish);
  return text;
}

std::string finish_call(const KernelRequest& request, const std::string& channel, const std::string& total) {
  std::string arguments;
  for (size_t i = 0; i < request.inputs.size(); ++i) arguments += fmt::format("in{}, ", i);
  for (size_t o = 0; o < request.outputs.size(); ++o) arguments += fmt::format("out{}, ", o);
  return fmt::format("finish({}group, {}, {}.at);\n", arguments, channel, total);
}

}  // namespace

DeviceProgram channel_sums(const KernelRequest& request, const ChannelTiles& tiles, const ChannelSums& sums) {
  DeviceProgram program{.name = "cuda." + request.op};
  program.functions = tiles.functions_text() + functions_of(request, sums);
  const int pack = tiles.pack();
  const int lanes = tiles.lanes();
  const int width = ChannelTiles::kThreads / lanes;
  std::string body = tiles.begin_text() + sums.prepare;
  body += fmt::format("{} sums[{}][{}] = {{}};\n", sums.type, sums.count, pack);
  body += "if (is_active) {\n" + tiles.loop_begin_text() + tiles.pack_loop_text() + sums.add + "}\n" +
          tiles.loop_end_text() + "}\n";
  if (!sums.change.empty()) body += tiles.pack_loop_text() + sums.change + "}\n";
  // The lanes of a block are put together pair by pair.
  body += fmt::format("__shared__ Total shared_totals[{}][{}];\n", pack, ChannelTiles::kThreads);
  body +=
      tiles.pack_loop_text() +
      fmt::format("for (int k = 0; k < {}; ++k) shared_totals[v][threadIdx.x].at[k] = sums[k][v];\n}}\n", sums.count);
  body += fmt::format(
      "__syncthreads();\nfor (int half = {0}; half > 0; half /= 2) {{\nif (ty < half) {{\n"
      "for (int v = 0; v < {1}; ++v) combine_totals(shared_totals[v][threadIdx.x], shared_totals[v][threadIdx.x + half "
      "* "
      "{2}]);\n}}\n__syncthreads();\n}}\n",
      lanes / 2, pack, width);
  body += fmt::format("if (ty == 0 && is_active) {{\nfor (int v = 0; v < {}; ++v) {{\n", pack);
  if (tiles.chunks() == 1) {
    body += finish_call(request, "c0 + v", "shared_totals[v][tx]");
  } else {
    body += fmt::format(
        "reinterpret_cast<Total*>(scratch)[(i64(group) * {} + chunk) * {} + c0 + v] = shared_totals[v][tx];\n",
        tiles.chunks(), tiles.channels());
  }
  body += "}\n}\n";
  program.phases.push_back(
      {.body = body, .blocks = std::max<int64_t>(tiles.blocks(), 1), .threads = ChannelTiles::kThreads});
  if (tiles.channels() == 0) program.phases.clear();
  if (tiles.chunks() == 1) return program;
  const int64_t size = sums.type == "f64" ? 8 : 4;
  program.scratch_bytes = size * sums.count * tiles.groups() * tiles.chunks() * tiles.channels();
  // A warp for each channel puts the chunks together.
  std::string last = fmt::format(
      "const int warp = first_index<int>() / 32, lane = threadIdx.x % 32;\nif (warp >= {0}) return;\n"
      "const int group = warp / {1}, c = warp % {1};\nTotal total = zero_total();\n"
      "for (int chunk = lane; chunk < {2}; chunk += 32) combine_totals(total, reinterpret_cast<const "
      "Total*>(scratch)[(i64(group) * {2} + chunk) * {1} + c]);\n"
      "for (int distance = 16; distance > 0; distance /= 2) {{\nTotal other;\n"
      "for (int k = 0; k < {3}; ++k) other.at[k] = __shfl_down_sync(0xFFFFFFFFU, total.at[k], distance);\n"
      "if (lane < distance) combine_totals(total, other);\n}}\n"
      "if (lane == 0) {4}",
      tiles.groups() * tiles.channels(), tiles.channels(), tiles.chunks(), sums.count,
      finish_call(request, "c", "total"));
  program.phases.push_back(
      {.body = last, .blocks = (tiles.groups() * tiles.channels() * 32 + 127) / 128, .threads = 128});
  return program;
}

std::string store_statistic(const KernelRequest& request, size_t output, const std::string& value) {
  const TensorView& view = request.outputs[output];
  return fmt::format("out{}[{}] = converted<{}>({});\n", output, ChannelTiles::statistic_offset(view, "c"),
                     to_string(view.dtype), value);
}

std::string inverse_at(const KernelRequest& request, size_t input, double eps, const std::string& type) {
  return fmt::format("({0}(1) / std::sqrt({0}(wide(in{1}[{2}])) + {3}))", type, input,
                     ChannelTiles::statistic_offset(request.inputs[input], "c"),
                     literal(eps, type == "f64" ? DType::kF64 : DType::kF32));
}

}  // namespace tessera::cuda
