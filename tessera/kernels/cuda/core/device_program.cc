#include "tessera/kernels/cuda/core/device_program.h"

#include <array>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/device_code.h"

namespace tessera::cuda {
namespace {

// "const f32* in0, ..., f32* out0, ...": the parameters, or with `values` the arguments of a call that has them in an
// array of addresses.
std::string parameters(const DeviceProgram& program, const KernelRequest& request, bool from_array) {
  std::string text;
  size_t number = 0;
  const auto add = [&](const std::string& type, const std::string& name) {
    if (!text.empty()) text += ", ";
    text += from_array ? fmt::format("({})a[{}]", type, number) : fmt::format("{} {}", type, name);
    ++number;
  };
  const auto shares = [&](size_t index, bool is_input) {
    for (const auto& [in, out] : program.in_place) {
      if (static_cast<size_t>(is_input ? in : out) == index) return true;
    }
    return false;
  };
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    add(fmt::format("const {}*{}", to_string(request.inputs[i].dtype), shares(i, true) ? "" : " __restrict__"),
        fmt::format("in{}", i));
  }
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    add(fmt::format("{}*{}", to_string(request.outputs[i].dtype), shares(i, false) ? "" : " __restrict__"),
        fmt::format("out{}", i));
  }
  add("unsigned char*", "scratch");
  add("const unsigned char*", "guard");
  return text;
}

std::string phase_name(size_t phase) { return fmt::format("phase{}", phase); }

}  // namespace

std::string text_of(const DeviceProgram& program, const KernelRequest& request) {
  std::string text = device_code();
  text += program.functions;
  for (size_t p = 0; p < program.phases.size(); ++p) {
    const ProgramPhase& phase = program.phases[p];
    text += fmt::format("\nextern \"C\" __global__ void __launch_bounds__({}) {}({}) {{\n", phase.threads,
                        phase_name(p), parameters(program, request, false));
    text += "  if (guard != nullptr && *guard == 0) return;\n";
    text += phase.body;
    text += "}\n#ifdef TESSERA_EMULATED\n";
    text += fmt::format("extern \"C\" void run_{}(void** a) {{ {}({}); }}\n#endif\n", phase_name(p), phase_name(p),
                        parameters(program, request, true));
  }
  return text;
}

PreparedKernel prepare(Gpu& gpu, const DeviceProgram& program, const KernelRequest& request) {
  std::vector<std::string> names;
  for (size_t p = 0; p < program.phases.size(); ++p) {
    const ProgramPhase& phase = program.phases[p];
    check(phase.blocks > 0 && phase.threads > 0 && phase.threads <= 1024 && phase.threads % 32 == 0,
          "a kernel's blocks are as many as a device can have");
    names.push_back(phase_name(p));
  }
  std::vector<std::shared_ptr<const Gpu::Function>> functions;
  if (!names.empty()) functions = gpu.compile(text_of(program, request), names);
  std::vector<std::pair<int64_t, int>> sizes;
  for (const ProgramPhase& phase : program.phases) sizes.emplace_back(phase.blocks, phase.threads);
  const auto run = [&gpu, functions = std::move(functions), sizes = std::move(sizes)](const KernelArgs& args) {
    std::vector<const void*> addresses;
    addresses.reserve(args.inputs.size() + args.outputs.size() + 1);
    for (const TensorView& view : args.inputs) addresses.push_back(view.data);
    for (const TensorView& view : args.outputs) addresses.push_back(view.data);
    addresses.push_back(args.scratch.data());
    for (size_t p = 0; p < functions.size(); ++p) {
      gpu.launch(*args.queue, *functions[p], sizes[p].first, sizes[p].second, addresses);
    }
  };
  return {.name = program.name, .run = run, .scratch_bytes = program.scratch_bytes, .in_place = program.in_place};
}

void add_writer(KernelRegistry& registry, Gpu& gpu, const std::string& op, ProgramWriter write) {
  registry.add(op, [&gpu, write](const KernelRequest& request) -> std::optional<PreparedKernel> {
    const auto program = write(request, gpu);
    if (!program) return std::nullopt;
    return prepare(gpu, *program, request);
  });
}

}  // namespace tessera::cuda
