#include "tessera/comm/wait_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tessera::comm {
namespace {

template <size_t kSize>
std::string_view text_of(const std::array<char, kSize>& bytes) {
  return {bytes.data(), strnlen(bytes.data(), kSize)};
}

template <size_t kSize>
void set_text(std::array<char, kSize>& bytes, std::string_view text) {
  bytes.fill('\0');
  std::memcpy(bytes.data(), text.data(), std::min(text.size(), kSize));
}

template <size_t kSize>
bool is_text(const std::array<char, kSize>& bytes, std::string_view text) {
  return text_of(bytes) == text.substr(0, kSize);
}

}  // namespace

void WaitTimes::add(const Call& call, int64_t waited_ms) {
  const std::lock_guard lock(mutex_);
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(num_entries_);
  auto found = std::find_if(entries_.begin(), end, [&](const Entry& entry) {
    return entry.peer == call.peer && is_text(entry.label, call.label) && is_text(entry.group, call.group);
  });
  if (found == end) {
    if (num_entries_ == kMostEntries) return;
    ++num_entries_;
    *found = {};
    set_text(found->label, call.label);
    set_text(found->group, call.group);
    found->peer = call.peer;
    found->first_waiting = call.first_waiting;
  }
  found->waited_ms += waited_ms;
}

std::vector<WaitTime> WaitTimes::take() {
  std::vector<WaitTime> times;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < num_entries_; ++i) {
    const Entry& entry = entries_[i];
    times.push_back({.call = fmt::format("{} of group \"{}\"", text_of(entry.label), text_of(entry.group)),
                     .peer = entry.peer,
                     .first_waiting = entry.first_waiting,
                     .waited_ms = entry.waited_ms});
  }
  num_entries_ = 0;
  std::ranges::stable_sort(times, std::greater{}, &WaitTime::waited_ms);
  return times;
}

}  // namespace tessera::comm
