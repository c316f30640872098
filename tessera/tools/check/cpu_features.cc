#include "tessera/tools/check/cpu_features.h"

#include "tessera/engine.h"

namespace tessera::tools {

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
  add("amx_tile", kernels::cpu_has("amx_tile"));
  add("amx_bf16", kernels::cpu_has("amx_bf16"));
  return found;
}

}  // namespace tessera::tools
