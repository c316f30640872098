#include "tessera/timeline/span.h"

#include <array>

namespace tessera::timeline {
namespace {

constexpr std::array<const char*, 17> kKindNames = {"step",      "run",  "phase",      "operator",    "copy",  "start",
                                                    "check",     "wait", "collective", "message",     "batch", "worker",
                                                    "callbacks", "save", "evaluation", "compilation", "device"};

}  // namespace

const char* to_string(SpanKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

std::optional<SpanKind> parse_span_kind(std::string_view text) {
  for (size_t i = 0; i < kKindNames.size(); ++i) {
    if (text == kKindNames[i]) return static_cast<SpanKind>(i);
  }
  return std::nullopt;
}

}  // namespace tessera::timeline
