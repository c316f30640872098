#include "tessera/train/options/recorded_steps.h"

#include <algorithm>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::train {
namespace {

int64_t step_in(std::string_view text, const std::string& whole) {
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  const int64_t step = is_number ? parse_int(text, "a recorded step") : 0;
  if (step < 1) {
    throw InvalidArgument("record_steps: \"{}\" of \"{}\" is no step; give some of 5, 10-20, 100- and */50", text,
                          whole);
  }
  return step;
}

}  // namespace

RecordedSteps::RecordedSteps(const std::string& text) {
  if (text.empty()) {
    ranges_.push_back({});
    return;
  }
  constexpr std::string_view kEvery = "*/";
  for (const std::string_view part : split(text, ',')) {
    const std::string_view item = trim(part);
    if (item.starts_with(kEvery)) {
      ranges_.push_back({.every = step_in(item.substr(kEvery.size()), text)});
      continue;
    }
    const size_t dash = item.find('-');
    Range range{.first = step_in(item.substr(0, dash), text)};
    if (dash == std::string_view::npos) {
      range.last = range.first;
    } else if (dash + 1 < item.size()) {
      range.last = step_in(item.substr(dash + 1), text);
    }
    if (range.last < range.first) throw InvalidArgument("record_steps: \"{}\" ends before it begins", item);
    ranges_.push_back(range);
  }
}

bool RecordedSteps::contains(int64_t step) const {
  return std::ranges::any_of(ranges_, [step](const Range& range) {
    return step >= range.first && step <= range.last && step % range.every == 0;
  });
}

}  // namespace tessera::train
