#include "tessera/kernels/cuda/optimizers/grouped_updates.h"

#include <algorithm>
#include <map>
#include <memory>

#include "tessera/kernels/cuda/core/phase_parts.h"
#include "tessera/kernels/cuda/core/writer.h"
#include "tessera/kernels/cuda/optimizers/update_program.h"
#include "tessera/tensor/update_group.h"

namespace tessera::cuda {
namespace {

// A kernel's parameters are 4 KiB on any device: 512 addresses, of which scratch and guard are two.
constexpr size_t kMaxAddresses = 500;
constexpr int64_t kPack = 4;
constexpr int64_t kElementsOfBlock = kPartThreads * kPack * 2;

// Some members of a group, with operands as the group itself has them.
struct Members {
  UpdateGroup group;
  size_t first = 0;
  KernelRequest request;
};

Members members_of(const KernelRequest& all, const UpdateGroup& group, size_t first, size_t count) {
  Members members{group, first, {.op = all.op}};
  members.group.count = count;
  for (size_t m = first; m < first + count; ++m) {
    for (size_t i = 0; i < group.num_tensors; ++i) members.request.inputs.push_back(all.inputs[group.input(m, i)]);
    for (size_t i = 0; i < group.num_results(); ++i) members.request.outputs.push_back(all.outputs[group.output(m, i)]);
  }
  for (size_t i = 0; i < group.num_scalars; ++i) {
    members.request.inputs.push_back(all.inputs[group.input(0, group.num_tensors + i)]);
  }
  return members;
}

// The request of one member.
KernelRequest request_of(const Members& members, size_t m) {
  const UpdateGroup& group = members.group;
  KernelRequest one{.op = group.optimizer, .attributes = group.settings};
  for (size_t i = 0; i < group.num_tensors + group.num_scalars; ++i) {
    one.inputs.push_back(members.request.inputs[group.input(m, i)]);
  }
  for (size_t i = 0; i < group.num_results(); ++i) one.outputs.push_back(members.request.outputs[group.output(m, i)]);
  return one;
}

// Whether all tensors of a member lie in the same order without gaps: their elements can be walked as one row.
bool is_flat(const KernelRequest& one, size_t num_tensors) {
  std::vector<NamedStrides> views;
  for (const TensorView& view : one.outputs) views.push_back({"", view.strides});
  for (size_t i = 0; i < num_tensors; ++i) views.push_back({"", one.inputs[i].strides});
  const ViewWalk walk = in_order_of_first(one.outputs[0].shape, std::move(views));
  if (walk.shape.ndim() > 1 || walk.shape.num_elements() >= int64_t{1} << 30) return false;
  return walk.shape.ndim() == 0 || std::all_of(walk.views.begin(), walk.views.end(),
                                               [](const NamedStrides& view) { return view.strides[0] == 1; });
}

ElementProgram program_of(const KernelRequest& one, const UpdateGroup& group) {
  const DType computed = one.inputs[0].dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  return update_program(group.optimizer, group.settings, computed).value();
}

// A member that is not flat, as a phase of its own.
ProgramPhase phase_of(const Gpu& gpu, const Members& members, size_t m) {
  const UpdateGroup& group = members.group;
  const KernelRequest one = request_of(members, m);
  ProgramPhase phase = write_element_program(one, gpu, program_of(one, group), "").phases.at(0);
  std::string renamed;
  std::string names;
  const auto rename = [&](const char* kind, size_t own, size_t of_group) {
    renamed += fmt::format("auto* const {0}_{1} = {0}{2};\n", kind, own, of_group);
    names += fmt::format("auto* const {0}{1} = {0}_{1};\n", kind, own);
  };
  for (size_t i = 0; i < one.inputs.size(); ++i) rename("in", i, group.input(m, i));
  for (size_t i = 0; i < one.outputs.size(); ++i) rename("out", i, group.output(m, i));
  phase.body = fmt::format("{}{{\n{}{}}}\n", renamed, names, phase.body);
  return phase;
}

// The packs of one member that a thread updates: `x0`, ... are read at i, `y0`, ... written; the last may be short.
std::string update_text(const KernelRequest& one, const UpdateGroup& group) {
  const ElementProgram program = program_of(one, group);
  const char* computed = to_string(program.computed);
  std::string loads;
  std::string short_loads;
  std::string operands;
  std::string stores;
  std::string short_stores;
  std::string text;
  for (size_t i = 0; i < group.num_tensors; ++i) {
    const char* dtype = to_string(one.inputs[i].dtype);
    text += fmt::format("Pack<{}, {}> x{};\n", dtype, kPack, i);
    loads += fmt::format("x{0} = *reinterpret_cast<const Pack<{1}, {2}>*>(from{0} + i);\n", i, dtype, kPack);
    short_loads += fmt::format("x{0}[j] = from{0}[i + (i + j < count ? j : 0)];\n", i);
    operands += fmt::format("const {1} a{0} = static_cast<{1}>(wide(x{0}[j]));\n", i, computed);
  }
  for (size_t o = 0; o < group.num_results(); ++o) {
    const DType dtype = one.outputs[o].dtype;
    text += fmt::format("Pack<{}, {}> y{};\n", to_string(dtype), kPack, o);
    operands += o == 0 ? program.statements : "";
    stores += fmt::format("*reinterpret_cast<Pack<{1}, {2}>*>(to{0} + i) = y{0};\n", o, to_string(dtype), kPack);
    short_stores += fmt::format("if (i + j < count) to{0}[i + j] = y{0}[j];\n", o);
  }
  for (size_t o = 0; o < group.num_results(); ++o) {
    operands += fmt::format("y{}[j] = {};\n", o, stored(program.results[o], program.computed, one.outputs[o].dtype));
  }
  const auto each = [](const std::string& statements) {
    return fmt::format("#pragma unroll\nfor (int j = 0; j < {}; ++j) {{\n{}}}\n", kPack, statements);
  };
  return fmt::format(
      "{0}if (i + {1} <= count) {{\n{2}}} else {{\n{3}}}\n{4}if (i + {1} <= count) {{\n{5}}} else {{\n{6}}}\n", text,
      kPack, loads, each(short_loads), each(operands), stores, each(short_stores));
}

// Flat members whose operands have equal dtypes; each block finds its member in a table.
PhasePart part_of(const Members& members, const std::vector<size_t>& numbers, const std::string& table,
                  DeviceProgram& program) {
  const UpdateGroup& group = members.group;
  const KernelRequest first = request_of(members, numbers[0]);
  PhasePart part{.blocks = 0};
  std::string work;
  std::string cases;
  for (const size_t m : numbers) {
    const int64_t count = members.request.inputs[group.input(m, 0)].num_elements();
    for (int64_t begin = 0; begin < count; begin += kElementsOfBlock, ++part.blocks) {
      work += fmt::format("{{{}, {}}}, ", m, begin);
    }
    cases += fmt::format("case {}: count = {};", m, count);
    for (size_t i = 0; i < group.num_tensors; ++i) cases += fmt::format(" from{} = in{};", i, group.input(m, i));
    for (size_t o = 0; o < group.num_results(); ++o) cases += fmt::format(" to{} = out{};", o, group.output(m, o));
    cases += " break;\n";
  }
  program.functions += fmt::format("__device__ const int {}[][2] = {{{}}};\n", table, work);
  part.body = fmt::format("const int member = {0}[block][0], begin = {0}[block][1];\nint count = 0;\n", table);
  for (size_t i = 0; i < group.num_tensors; ++i) {
    part.body += fmt::format("const {}* from{} = nullptr;\n", to_string(first.inputs[i].dtype), i);
  }
  for (size_t o = 0; o < group.num_results(); ++o) {
    part.body += fmt::format("{}* to{} = nullptr;\n", to_string(first.outputs[o].dtype), o);
  }
  part.body += fmt::format("switch (member) {{\n{}}}\n", cases);
  const char* computed = to_string(program_of(first, group).computed);
  for (size_t i = group.num_tensors; i < first.inputs.size(); ++i) {
    part.body += fmt::format("const {0} a{1} = static_cast<{0}>(wide(in{2}[0]));\n", computed, i, group.input(0, i));
  }
  part.body += fmt::format(
      "#pragma unroll\nfor (int k = 0; k < 2; ++k) {{\n"
      "const int i = begin + (k * {} + int(threadIdx.x)) * {};\nif (i < count) {{\n{}}}\n}}\n",
      kPartThreads, kPack, update_text(first, group));
  return part;
}

DeviceProgram write_members(const Gpu& gpu, const Members& members) {
  const UpdateGroup& group = members.group;
  DeviceProgram program{.name = "cuda." + group.optimizer + ".group"};
  std::map<std::vector<DType>, std::vector<size_t>> flat;  // members by the dtypes of their operands
  for (size_t m = 0; m < group.count; ++m) {
    const KernelRequest one = request_of(members, m);
    std::vector<DType> dtypes;
    for (size_t i = 0; i < group.num_tensors; ++i) {
      dtypes.push_back(one.inputs[i].dtype);
      if (i >= group.num_results() || one.inputs[i].strides != one.outputs[i].strides) continue;
      program.in_place.emplace_back(static_cast<int>(group.input(m, i)), static_cast<int>(group.output(m, i)));
    }
    if (one.outputs[0].num_elements() == 0) continue;
    if (is_flat(one, group.num_tensors)) {
      flat[dtypes].push_back(m);
    } else {
      program.phases.push_back(phase_of(gpu, members, m));
    }
  }
  std::vector<PhasePart> parts;
  for (const auto& [dtypes, numbers] : flat) {
    parts.push_back(part_of(members, numbers, fmt::format("kWork{}", parts.size()), program));
  }
  if (!parts.empty()) program.phases.push_back(side_by_side(parts));
  return program;
}

// The launches of a group, one after the other.
struct Launch {
  PreparedKernel kernel;
  Members members;
};

void run_launches(std::vector<Launch>& launches, const UpdateGroup& group, const KernelArgs& args) {
  for (auto& [kernel, members] : launches) {
    auto& [op, inputs, outputs, attributes, num_threads] = members.request;
    for (size_t m = 0; m < members.group.count; ++m) {
      for (size_t i = 0; i < group.num_tensors; ++i) {
        inputs[members.group.input(m, i)] = args.inputs[group.input(members.first + m, i)];
      }
      for (size_t i = 0; i < group.num_results(); ++i) {
        outputs[members.group.output(m, i)] = args.outputs[group.output(members.first + m, i)];
      }
    }
    for (size_t i = group.num_tensors; i < group.num_tensors + group.num_scalars; ++i) {
      inputs[members.group.input(0, i)] = args.inputs[group.input(0, i)];
    }
    kernel.run({inputs, outputs, args.attributes, args.scratch, args.parallel_for, args.queue});
  }
}

}  // namespace

std::optional<PreparedKernel> prepare_update_group(Gpu& gpu, const KernelRequest& request) {
  const UpdateGroup group(request.attributes, request.inputs.size());
  if (!update_program(group.optimizer, group.settings, DType::kF32)) return std::nullopt;
  const size_t addresses = group.num_tensors + group.num_results();
  const size_t most = std::max<size_t>(1, (kMaxAddresses - group.num_scalars) / addresses);
  const auto launches = std::make_shared<std::vector<Launch>>();
  PreparedKernel all;
  for (size_t first = 0; first < group.count; first += most) {
    Members members = members_of(request, group, first, std::min(most, group.count - first));
    PreparedKernel kernel = prepare(gpu, write_members(gpu, members), members.request);
    all.name = kernel.name;
    for (const auto& [in, out] : kernel.in_place) {
      all.in_place.emplace_back(in + static_cast<int>(first * group.num_tensors),
                                out + static_cast<int>(first * group.num_results()));
    }
    launches->push_back({std::move(kernel), std::move(members)});
  }
  all.run = [launches, group](const KernelArgs& args) { run_launches(*launches, group, args); };
  return all;
}

}  // namespace tessera::cuda
