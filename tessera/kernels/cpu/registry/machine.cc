#include "tessera/kernels/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "oneapi/dnnl/dnnl.hpp"

namespace tessera::kernels {
namespace {

// The value of the first line "name : value" of /proc/cpuinfo; "" where there is none. Not by FileSystem: files of
// /proc have no size that could be mapped.
std::string cpu_fact(const std::string& name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) != name) continue;
    return line.substr(std::min(colon + 2, line.size()));
  }
  return "";
}

}  // namespace

std::string cpu_model() {
  const auto model = cpu_fact("model name");
  return model.empty() ? "unknown" : model;
}

bool cpu_has(const std::string& feature) {
  std::istringstream flags(cpu_fact("flags"));
  return std::find(std::istream_iterator<std::string>(flags), {}, feature) != std::istream_iterator<std::string>();
}

std::string onednn_isa() {
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

std::string onednn_version() {
  const auto* version = dnnl::version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

std::string machine_description() {
  return fmt::format("{}, family {} model {} stepping {}, {}{}, oneDNN {} {}", cpu_model(), cpu_fact("cpu family"),
                     cpu_fact("model"), cpu_fact("stepping"), onednn_isa(), cpu_has("avx512_fp16") ? " fp16" : "",
                     onednn_version(), dnnl::version()->hash);
}

}  // namespace tessera::kernels
