#include "tessera/tools/info.h"

#include <nlohmann/json.hpp>
#include <thread>

#include "tessera/engine.h"
#include "tessera/tessera.h"
#include "tessera/tools/check/cpu_features.h"

namespace tessera::tools {
namespace {

// "cuda:0 NVIDIA H100 80GB HBM3 (sm_90, 79.6 GiB)".
std::string describe_gpu(size_t number, const cuda::CudaDeviceInfo& gpu) {
  return fmt::format("cuda:{} {} ({}, {}{}{})", number, gpu.name, gpu.architecture, format_bytes(gpu.memory_bytes),
                     gpu.is_exclusive ? ", for one process at a time" : "",
                     gpu.unusable.empty() ? "" : "; cannot be used: " + gpu.unusable);
}

nlohmann::ordered_json info(const std::string& version) {
  nlohmann::ordered_json result;
  result["version"] = version;
  result["build"] = TESSERA_BUILD_TYPE;
  result["compiler"] = fmt::format("{} {}", TESSERA_COMPILER, __VERSION__);
  result["cpu"] = kernels::cpu_model();
  result["cores"] = std::thread::hardware_concurrency();
  result["cpu_features"] = cpu_features();
  result["backends"] = {"cpu", "reference", "cuda"};
  result["gpus"] = nlohmann::ordered_json::array();
  try {
    const auto gpus = cuda::cuda_devices();
    for (size_t i = 0; i < gpus.size(); ++i) result["gpus"].push_back(describe_gpu(i, gpus[i]));
  } catch (const IoError& error) {
    result["gpus"].push_back(fmt::format("none: {}", error.what()));
  }
  result["transports"] = {"threads", "shm", "tls", "gloo"};
  if (TESSERA_HAS_MPI) result["transports"].push_back("mpi");
  result["onednn"] = kernels::onednn_version();
  result["onednn_isa"] = kernels::onednn_isa();
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
      const char* const between = name == "gpus" ? ", " : " ";
      for (const auto& item : value) shown += (shown.empty() ? "" : between) + item.get<std::string>();
    } else {
      shown = value.is_string() ? value.get<std::string>() : value.dump();
    }
    text += fmt::format("{:<13} {}\n", name, shown);
  }
  return text;
}

}  // namespace tessera::tools
