#include "tessera/base/files/refused_call.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/limits.h"

namespace tessera {

void refused_call(std::string_view operation, const std::string& path) {
  const int reason = errno;
  const auto text = fmt::format("{}: cannot {}: {}", path, operation, std::strerror(reason));
  if (reason == ENOMEM) throw NoRoom("{}; {}", text, limits_text());
  if (reason == EMFILE) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    throw NoRoom("{}; this process may have {} at a time (ulimit -n)", text, limit.rlim_cur);
  }
  if (reason == ENFILE) throw NoRoom(text);
  throw IoError(text);
}

}  // namespace tessera
