#include "tessera/base/error.h"

namespace tessera {

void fail_check(const std::string& message, std::source_location where) {
  throw InternalError(
      fmt::format("internal error at {}:{} ({}): {}", where.file_name(), where.line(), where.function_name(), message));
}

}  // namespace tessera
