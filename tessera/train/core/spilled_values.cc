#include "tessera/train/core/spilled_values.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"

namespace tessera::train {

std::vector<session::Values::Spilled> choose_spilled(std::span<const ServedValue> values, int64_t limit_bytes) {
  int64_t in_memory = 0;
  std::vector<const ServedValue*> candidates;
  for (const auto& value : values) {
    in_memory += value.type.size_bytes();
    if (value.type.size_bytes() > 0) candidates.push_back(&value);
  }
  std::ranges::stable_sort(candidates, [](const ServedValue* a, const ServedValue* b) {
    const auto order = [](const ServedValue* value) {
      return std::pair(-value->type.size_bytes(), value->is_state ? 0 : 1);
    };
    return order(a) < order(b);
  });
  std::vector<session::Values::Spilled> spilled;
  for (const auto* value : candidates) {
    if (in_memory <= limit_bytes) break;
    spilled.push_back({value->name, value->type});
    in_memory -= value->type.size_bytes();
  }
  return spilled;
}

void limit_values_of_servers(ModelOptions& options, const cluster::Context& context) {
  const int64_t limit = options.server_memory_limit_bytes;
  if (limit < 0) throw InvalidArgument("server_memory_limit must be at least 0 bytes, got {}", limit);
  const bool has_servers = options.servers > 0 && context.size() > 1;
  options.session.values_limit_bytes = has_servers && context.rank() < options.servers ? limit : 0;
  options.session.spill_directory = options.spill_directory;
  if (context.rank() != 0) return;
  if (limit > 0 && !has_servers) log_warning("server_memory_limit has no effect without servers");
  if (limit == 0 && !options.spill_directory.empty()) {
    log_warning("spill_directory has no effect without server_memory_limit");
  }
}

}  // namespace tessera::train
