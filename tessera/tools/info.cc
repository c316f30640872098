#include "tessera/tools/info.h"

#include <dnnl.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include <algorithm>

#include "tessera/tessera.h"

namespace tessera::tools {
namespace {

// Not by FileSystem: files of /proc have no size that could be mapped. Empty where there is none.
std::string cpu_facts() {
  std::ifstream file("/proc/cpuinfo");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string cpu_model() {
  const auto text = cpu_facts();
  for (const auto line : split(text, '\n')) {
    if (line.starts_with("model name")) return std::string(trim(line.substr(line.find(':') + 1)));
  }
  return "unknown";
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> found;
  const auto add = [&](const char* name, bool has) {
    if (has) found.emplace_back(name);
  };
  add("sse4.2", __builtin_cpu_supports("sse4.2"));
  add("avx", __builtin_cpu_supports("avx"));
  add("avx2", __builtin_cpu_supports("avx2"));
  add("fma", __builtin_cpu_supports("fma"));
  add("avx512f", __builtin_cpu_supports("avx512f"));
  add("avx512bw", __builtin_cpu_supports("avx512bw"));
  add("avx512_vnni", __builtin_cpu_supports("avx512vnni"));
  add("avx512_bf16", __builtin_cpu_supports("avx512bf16"));
  const auto flags = cpu_facts();
  add("amx_tile", flags.find(" amx_tile") != std::string::npos);
  add("amx_bf16", flags.find(" amx_bf16") != std::string::npos);
  return found;
}

const char* onednn_isa() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41: return "sse4.1";
    case dnnl::cpu_isa::avx: return "avx";
    case dnnl::cpu_isa::avx2: return "avx2";
    case dnnl::cpu_isa::avx512_core: return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni: return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16: return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx: return "avx512_core_amx";
    default: return "other";
  }
}

nlohmann::ordered_json info(const std::string& version) {
  const auto* onednn = dnnl::version();
  nlohmann::ordered_json result;
  result["version"] = version;
  result["build"] = TESSERA_BUILD_TYPE;
  result["compiler"] = fmt::format("{} {}", TESSERA_COMPILER, __VERSION__);
  result["cpu"] = cpu_model();
  result["cores"] = std::thread::hardware_concurrency();
  result["cpu_features"] = cpu_features();
  result["backends"] = {"cpu", "reference"};
  result["transports"] = {"threads", "shm", "gloo"};
  if (TESSERA_HAS_MPI) result["transports"].push_back("mpi");
  result["onednn"] = fmt::format("{}.{}.{}", onednn->major, onednn->minor, onednn->patch);
  result["onednn_isa"] = onednn_isa();
  result["operators"] = ops::OpRegistry::instance().all().size();
  return result;
}

}  // namespace

std::string info_json(const std::string& version) { return info(version).dump(2) + "\n"; }

std::string info_text(const std::string& version) {
  std::string text;
  const auto facts = info(version);
  for (const auto& [name, value] : facts.items()) {
    std::string shown;
    if (value.is_array()) {
      for (const auto& item : value) shown += (shown.empty() ? "" : " ") + item.get<std::string>();
    } else {
      shown = value.is_string() ? value.get<std::string>() : value.dump();
    }
    text += fmt::format("{:<13} {}\n", name, shown);
  }
  return text;
}

std::string model_names() {
  std::string names;
  for (const auto& model : nn::models()) names += (names.empty() ? "" : ", ") + model.name;
  return names;
}

std::string graph_text(const GraphOptions& options) {
  static const std::vector<std::string> kStages = {"forward", "logical", "plan", "local", "schedule"};
  if (std::find(kStages.begin(), kStages.end(), options.stage) == kStages.end()) {
    throw InvalidArgument("unknown stage \"{}\"; stages: {}", options.stage, fmt::join(kStages, ", "));
  }
  if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks) {
    throw InvalidArgument("--rank {} must be one of --ranks {}", options.rank, options.ranks);
  }
  ir::Graph graph;
  if (FileSystem::local().exists(options.model)) {
    graph = ir::parse(FileSystem::local().read_text(options.model));
    ops::verify_or_throw(graph);
    if (options.stage == "forward") throw InvalidArgument("a file holds a logical graph: there is no stage before it");
  } else {
    const auto& model = nn::find_model(options.model);
    const auto network = model.make(options.num_classes);
    Shape shape{options.batch_size};
    for (const int64_t size : model.input_shape) shape.push_back(size);
    const std::vector<session::InputSpec> inputs = {{"x", {DType::kF32, shape}},
                                                    {"label", {DType::kI32, Shape{options.batch_size}}}};
    const nn::Settings settings{.training = true};
    if (options.stage == "forward") {
      return ir::print(session::trace_forward(*network, std::span(inputs).first(1), settings));
    }
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    graph = session::trace_train_step(*network, &loss, optimizer, inputs, settings);
  }
  if (options.stage == "logical") return ir::print(graph);

  const mesh::Mesh mesh({{"data", options.ranks}});
  compiler::ShardingHints hints;
  ir::PersistentLayout persistent;
  for (const auto& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    if (input.kind != ir::InputKind::kInput) {
      persistent.add(input.name, type);
      continue;
    }
    auto sharding = mesh::Sharding::replicated(type.shape.ndim());
    if (type.shape.ndim() > 0 && options.ranks > 1) sharding.dims[0] = {0};
    hints[input.name] = {mesh, sharding};
  }
  const ops::FakeKernelCatalogue fake;
  const executor::KernelSelection live({&kernels::cpu_kernels(), &kernels::reference_kernels()}, 1);
  const ops::KernelCatalogue& catalogue = options.fake_kernels ? static_cast<const ops::KernelCatalogue&>(fake) : live;
  const auto compiled = compiler::compile(graph, mesh, hints, options.rank, persistent, catalogue);
  if (options.stage == "plan") return compiler::print(compiled.logical, compiled.plan);
  if (options.stage == "local") return ir::print(compiled.local);
  return ir::print(compiled.schedule);
}

}  // namespace tessera::tools
