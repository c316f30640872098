#include "tessera/base/processes/no_memory.h"

#include <fmt/format.h>

#include "tessera/base/limits.h"

namespace tessera {

std::string no_memory_text(const std::bad_alloc& error) {
  const auto* const told = dynamic_cast<const NoMemory*>(&error);
  return fmt::format("{}; {}; {}start fewer ranks on this host, or make the batch smaller",
                     told != nullptr ? told->what() : "the system gives no memory", limits_text(),
                     address_space().is_limited() ? "raise that limit, " : "");
}

}  // namespace tessera
