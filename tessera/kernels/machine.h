// The machine as kernels see it.
#pragma once

#include <string>

namespace tessera::kernels {

// The name that the CPU gives itself; "unknown" where it gives none.
std::string cpu_model();
// Whether the CPU and the operating system offer a feature, by its name in /proc/cpuinfo: "avx512f".
bool cpu_has(const std::string& feature);
// The instruction set that oneDNN uses, "avx512_core_amx", and its version, "3.2.0".
std::string onednn_isa();
std::string onednn_version();
// All that the speeds of kernels depend on, in one line: equal texts, equal machines and libraries.
std::string machine_description();

}  // namespace tessera::kernels
