#include "tessera/tools/info.h"

#include <dnnl.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

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

}  // namespace tessera::tools
