#include "tessera/timeline/timeline_options.h"

#include <fmt/format.h>

#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/base/files/random_id.h"
#include "tessera/base/strings.h"

namespace tessera::timeline {
namespace {

constexpr int64_t kStepsOnRequest = 20;
constexpr std::string_view kRequest = "request";

}  // namespace

TracedSteps parse_traced_steps(std::string_view text, std::string_view what) {
  const auto refuse = [&] {
    return InvalidArgument(
        "{}: the steps must be FIRST:LAST, FIRST:, :LAST, one step, request or request:COUNT, with numbers from 1 and "
        "FIRST not above LAST; got \"{}\"",
        what, text);
  };
  const auto number = [&](std::string_view digits) {
    try {
      const int64_t value = parse_int(digits, what);
      if (value >= 1) return value;
    } catch (const InvalidArgument&) {
    }
    throw refuse();
  };
  TracedSteps steps;
  if (text.empty()) return steps;
  const size_t colon = text.find(':');
  const std::string_view before = text.substr(0, colon);
  const std::string_view behind = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (before == kRequest) {
    steps.on_request = colon == std::string_view::npos ? kStepsOnRequest : number(behind);
    return steps;
  }
  if (colon == std::string_view::npos) {
    steps.first = steps.last = number(before);
    return steps;
  }
  if (before.empty() && behind.empty()) throw refuse();
  if (!before.empty()) steps.first = number(before);
  if (!behind.empty()) steps.last = number(behind);
  if (steps.first > steps.last) throw refuse();
  return steps;
}

std::string to_string(const TracedSteps& steps) {
  if (steps.on_request > 0) return fmt::format("{}:{}", kRequest, steps.on_request);
  if (steps == TracedSteps{}) return "";
  return fmt::format("{}:{}", steps.first, steps.last == kLastStep ? "" : std::to_string(steps.last));
}

std::string part_path(const std::string& file, int rank) { return fmt::format("{}.rank.{}", file, rank); }

std::string request_path(const std::string& file) { return file + ".request"; }

void check_writable(FileSystem& files, const std::string& file) {
  if (files.is_directory(file)) throw IoError("{}: cannot write a timeline: it is a directory; name a file", file);
  std::error_code error;
  const auto kind = std::filesystem::status(file, error).type();
  if (&files == &FileSystem::local() && kind != std::filesystem::file_type::not_found &&
      kind != std::filesystem::file_type::regular) {
    throw IoError("{}: cannot write a timeline: it is no regular file; name another one", file);
  }
  files.create_directories(parent_path(file));
  const std::string probe = fmt::format("{}.{}.tmp", file, random_id());
  files.create(probe, 0600)->close();
  files.remove(probe);
}

}  // namespace tessera::timeline
