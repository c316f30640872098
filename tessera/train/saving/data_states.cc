#include "tessera/train/saving/data_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tessera::train {
namespace {

constexpr std::string_view kDataStates = "data states ";

// Takes a number and the line end behind it off the text.
std::optional<size_t> take_line(std::string_view& text) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<size_t>(end - text.data());
  if (error != std::errc() || length >= text.size() || text[length] != '\n') return std::nullopt;
  text.remove_prefix(length + 1);
  return number;
}

}  // namespace

std::string print_data_states(const std::vector<std::string>& of_ranks) {
  const bool are_alike = std::ranges::all_of(of_ranks, [&](const auto& state) { return state == of_ranks.front(); });
  std::string text = fmt::format("{}{}\n", kDataStates, of_ranks.size());
  for (size_t rank = 0; rank < (are_alike ? 1 : of_ranks.size()); ++rank) {
    text += fmt::format("{}\n{}", of_ranks[rank].size(), of_ranks[rank]);
  }
  return text;
}

std::optional<std::string> find_data_state(std::string_view text, int rank, int num_ranks) {
  if (!text.starts_with(kDataStates)) return std::nullopt;
  text.remove_prefix(kDataStates.size());
  const auto num_saved = take_line(text);
  std::vector<std::string> states;
  while (num_saved && !text.empty()) {
    const auto size = take_line(text);
    if (!size || *size > text.size()) return std::nullopt;
    states.emplace_back(text.substr(0, *size));
    text.remove_prefix(*size);
  }
  if (states.size() == 1) return states.front();
  if (states.size() != num_saved || static_cast<size_t>(num_ranks) != states.size()) return std::nullopt;
  return states.at(static_cast<size_t>(rank));
}

}  // namespace tessera::train
