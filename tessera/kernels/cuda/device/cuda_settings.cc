#include "tessera/kernels/cuda/device/cuda_settings.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "tessera/base/strings.h"
#include "tessera/base/usage_error.h"

namespace tessera::cuda {
namespace {

// Empty where it is not set.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number(const char* name, int otherwise, int least, int most) {
  const std::string value = variable(name);
  if (value.empty()) return otherwise;
  const int64_t given = from_user([&] { return parse_int(value, name); });
  if (given < least || given > most) throw UsageError("{} is {}; it is from {} to {}", name, given, least, most);
  return static_cast<int>(given);
}

std::string usual_cache() {
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/tessera/cuda";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/tessera/cuda";
  return "";
}

CudaSettings read_settings() {
  CudaSettings settings;
  std::istringstream folders(variable("TESSERA_CUDA_LIBRARIES"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty()) settings.library_folders.push_back(folder);
  }
  settings.kernel_cache = variable("TESSERA_CUDA_CACHE");
  if (settings.kernel_cache.empty()) settings.kernel_cache = usual_cache();
  settings.measures = number("TESSERA_CUDA_MEASURE", 1, 0, 1) != 0;
  settings.allows_tf32 = number("TESSERA_CUDA_TF32", 0, 0, 1) != 0;
  settings.uses_nccl = number("TESSERA_CUDA_NCCL", 1, 0, 1) != 0;
  settings.shares_memory = number("TESSERA_CUDA_SHARED_MEMORY", 1, 0, 1) != 0;
  settings.branches = number("TESSERA_CUDA_BRANCHES", settings.branches, 1, 32);
  settings.idle_steps = number("TESSERA_CUDA_IDLE_STEPS", settings.idle_steps, 0, 1000);
  return settings;
}

}  // namespace

const CudaSettings& cuda_settings() {
  static const CudaSettings settings = read_settings();
  return settings;
}

}  // namespace tessera::cuda
