#include "tessera/tools/kernels_text.h"

#include <algorithm>

namespace tessera::tools {
namespace {

executor::KernelTable load(FileSystem& file_system, const std::string& directory) {
  if (directory.empty()) throw UsageError("no directory of measured kernels: give --kernel_cache, or set HOME");
  executor::KernelTable table(kernels::machine_description());
  table.load(file_system, directory);
  return table;
}

// "f32[128,64,8,8] channels-last"
std::string operand(const TensorView& view) {
  std::string layout;
  if (!view.is_dense()) {
    layout = is_channels_last(view.shape, view.strides) ? " channels-last" : " strides " + view.strides.to_string();
  }
  return view.type().to_string() + layout;
}

std::string operands(const std::vector<TensorView>& views) {
  std::string text;
  for (const TensorView& view : views) text += (text.empty() ? "" : ", ") + operand(view);
  return text;
}

}  // namespace

std::string kernels_text(FileSystem& file_system, const std::string& directory) {
  const auto table = load(file_system, directory);
  std::string text = fmt::format("machine  {}\nfile     {}\n", table.machine(), table.path_in(directory));
  if (table.measurements().empty()) text += "nothing was measured yet\n";
  for (const auto& [key, measurement] : table.measurements()) {
    const auto& request = measurement.request;
    text += fmt::format("\n{} ({}) -> {} {}, {} thread{}{}\n", request.op, operands(request.inputs),
                        operands(request.outputs), request.attributes.to_string(), request.num_threads,
                        request.num_threads == 1 ? "" : "s",
                        measurement.num_disturbed > 0 ? ", while others disturbed" : "");
    auto candidates = measurement.candidates;
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
    for (const auto& candidate : candidates) {
      text += fmt::format("  {:10.3f} ms  {}{}\n", candidate.microseconds / 1e3, candidate.name,
                          candidate.name == measurement.chosen ? "  (chosen)" : "");
    }
    if (candidates.empty()) text += fmt::format("  no choice: {}\n", measurement.chosen);
  }
  return text;
}

std::string kernels_json(FileSystem& file_system, const std::string& directory) {
  return load(file_system, directory).to_json();
}

}  // namespace tessera::tools
