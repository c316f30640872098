#include "tessera/cluster/rendezvous/membership/natural_order.h"

#include <algorithm>

namespace tessera::cluster::rendezvous {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes the number at the front, without its leading zeros.
std::string_view take_number(std::string_view& text) {
  const auto count = static_cast<size_t>(std::ranges::find_if_not(text, is_digit) - text.begin());
  std::string_view number = text.substr(0, count);
  text.remove_prefix(count);
  number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
  return number;
}

}  // namespace

bool is_before(std::string_view a, std::string_view b) {
  std::string_view rest_a = a;
  std::string_view rest_b = b;
  while (!rest_a.empty() && !rest_b.empty()) {
    if (is_digit(rest_a.front()) && is_digit(rest_b.front())) {
      const std::string_view number_a = take_number(rest_a);
      const std::string_view number_b = take_number(rest_b);
      if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
      if (number_a != number_b) return number_a < number_b;
      continue;
    }
    if (rest_a.front() != rest_b.front()) return rest_a.front() < rest_b.front();
    rest_a.remove_prefix(1);
    rest_b.remove_prefix(1);
  }
  if (rest_a.empty() != rest_b.empty()) return rest_a.empty();
  return a < b;  // 01 and 1
}

}  // namespace tessera::cluster::rendezvous
