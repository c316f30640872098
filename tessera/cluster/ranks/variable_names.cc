#include "tessera/cluster/ranks/variable_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tessera/base/printable.h"
#include "tessera/base/strings.h"

namespace tessera::cluster {
namespace {

constexpr std::string_view kPrefix = "TESSERA_";

constexpr auto kNames = std::to_array<std::string_view>({
    "TESSERA_ATTEMPT",
    "TESSERA_BIN",
    "TESSERA_BUDDIES",
    "TESSERA_BUILD",
    "TESSERA_COMPARE_VALUES",
    "TESSERA_CPU_FALLBACK",
    "TESSERA_CUDA_BRANCHES",
    "TESSERA_CUDA_CACHE",
    "TESSERA_CUDA_IDLE_STEPS",
    "TESSERA_CUDA_LIBRARIES",
    "TESSERA_CUDA_MEASURE",
    "TESSERA_CUDA_NCCL",
    "TESSERA_CUDA_SHARED_MEMORY",
    "TESSERA_CUDA_TF32",
    "TESSERA_FAILPOINT",
    "TESSERA_FIGURES_FD",
    "TESSERA_FIGURES_FILE",
    "TESSERA_HOST_ID",
    "TESSERA_INCARNATION",
    "TESSERA_INTERFACE",
    "TESSERA_JOB_ID",
    "TESSERA_JOIN_TIMEOUT_MS",
    "TESSERA_KEEP_STEPS",
    "TESSERA_KEPT_FILE",
    "TESSERA_KEPT_FOR_OTHERS_FILE",
    "TESSERA_LITERAL_GRADIENTS_MEAN",
    "TESSERA_LOG_LEVEL",
    "TESSERA_NODE_ID",
    "TESSERA_NUM_SERVERS",
    "TESSERA_NUM_THREADS",
    "TESSERA_NUM_WORKERS",
    "TESSERA_ON_DIFFERENCE",
    "TESSERA_PLUGIN_DIR",
    "TESSERA_PORT",
    "TESSERA_RANK",
    "TESSERA_RANK_PROCESS",
    "TESSERA_RECORD_STEPS",
    "TESSERA_RECORD_VALUES",
    "TESSERA_REPORT_DIR",
    "TESSERA_ROLE",
    "TESSERA_SCHEDULER",
    "TESSERA_SECRET_FD",
    "TESSERA_SECRET_FILE",
    "TESSERA_SHARED",
    "TESSERA_SIZE",
    "TESSERA_STATUS_FD",
    "TESSERA_STATUS_FILE",
    "TESSERA_STOP_AT_MALLOC",
    "TESSERA_STORE",
    "TESSERA_STORM_LOG",
    "TESSERA_STORM_SEED",
    "TESSERA_STORM_SIGNALS",
    "TESSERA_STRICT_DEVICE",
    "TESSERA_STUB_DRIVER",
    "TESSERA_TEST_FULL",
    "TESSERA_THREAD_RANKS",
    "TESSERA_TIMEOUT_MS",
    "TESSERA_TLS_CONFIG",
    "TESSERA_TLS_PASSWORD",
    "TESSERA_TLS_PASSWORD_FILE",
    "TESSERA_TOKEN",
    "TESSERA_TORCH_PYTHON",
    "TESSERA_TRACE",
    "TESSERA_TRACE_STEPS",
    "TESSERA_TRANSPORT",
    "TESSERA_UPDATE_GOLDENS",
});

bool is_known(std::string_view name) { return std::ranges::find(kNames, name) != kNames.end(); }

// The variables of a service NAME are NAME_SERVICE_HOST, NAME_SERVICE_PORT, NAME_PORT and what begins with these.
bool is_of_service(std::string_view name, const std::vector<std::string>& names) {
  constexpr std::string_view kHost = "_SERVICE_HOST";
  return std::ranges::any_of(names, [&](const std::string& other) {
    if (!other.ends_with(kHost)) return false;
    const std::string service = other.substr(0, other.size() - kHost.size());
    return name.starts_with(service + "_SERVICE_") || name.starts_with(service + "_PORT");
  });
}

// What was meant, or "". All names begin alike, and much of a long one is nothing that two of them have in common by
// chance: what follows the prefix is compared, and then which name has all of it.
std::string meant_by(std::string_view name) {
  constexpr size_t kLeastPart = 4;
  const std::string_view word = name.substr(kPrefix.size());
  std::vector<std::string> words;
  for (const std::string_view known : kNames) words.emplace_back(known.substr(kPrefix.size()));
  std::string near = closest(word, words);
  if (near.empty() && word.size() >= kLeastPart) {
    for (const std::string& known : words) {
      if (known.find(word) == std::string::npos) continue;
      if (near.empty() || known.size() < near.size()) near = known;
    }
  }
  return near.empty() ? "" : std::string(kPrefix) + near;
}

}  // namespace

std::span<const std::string_view> variable_names() { return kNames; }

std::string describe_unknown_variables(const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix) || is_known(name) || is_of_service(name, names)) continue;
    const std::string meant = meant_by(name);
    found.push_back(meant.empty() ? printable(name) : fmt::format("{} (did you mean {}?)", printable(name), meant));
  }
  std::ranges::sort(found);
  return fmt::format("{}", fmt::join(found, ", "));
}

}  // namespace tessera::cluster
