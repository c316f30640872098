#include "tessera/train/modes/decisions.h"

#include <fmt/format.h>

#include <string_view>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::train {
namespace {

// The job's state: of each decision its length and its subject in a line, and then its text.
constexpr const char* kState = "decisions";

// What comes behind the subject; "" where the state has none of it.
std::string text_of(std::string_view state, const std::string& subject) {
  while (!state.empty()) {
    const auto end = state.find('\n');
    const auto space = state.find(' ');
    check(space < end && end != std::string_view::npos, "a job's decisions without a head");
    const auto size = static_cast<size_t>(parse_int(state.substr(0, space), "the length of a decision"));
    const auto text = state.substr(end + 1, size);
    if (state.substr(space + 1, end - space - 1) == subject) return std::string(text);
    state.remove_prefix(end + 1 + text.size());
  }
  return "";
}

}  // namespace

std::string broadcast_text(cluster::Context& context, std::string text, const char* what) {
  auto size = static_cast<int64_t>(text.size());
  context.world().broadcast(&size, 1, DType::kI64, 0, what);
  text.resize(static_cast<size_t>(size));
  if (size > 0) context.world().broadcast(text.data(), size, DType::kU8, 0, what);
  return text;
}

std::string find_decision(cluster::Context& context, const std::string& subject) {
  if (context.recovery() == nullptr) return "";
  std::string text;
  if (context.rank() == 0) text = text_of(context.recovery()->find_state(kState).value_or(""), subject);
  return broadcast_text(context, text, "taking the job's decision");
}

void keep_decision(cluster::Context& context, const std::string& subject, const std::string& text) {
  if (context.recovery() == nullptr || context.rank() != 0) return;
  const std::string state = context.recovery()->find_state(kState).value_or("");
  if (!text_of(state, subject).empty()) return;
  context.recovery()->set_state(kState, state + fmt::format("{} {}\n", text.size(), subject) + text);
}

}  // namespace tessera::train
