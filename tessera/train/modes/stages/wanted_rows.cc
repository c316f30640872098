#include "tessera/train/modes/stages/wanted_rows.h"

#include <algorithm>
#include <unordered_map>

namespace tessera::train {

WantedOfServers wanted_rows(std::span<const int64_t> numbers, std::span<const mesh::Range> given) {
  WantedOfServers wanted{.servers = std::vector<WantedRows>(given.size()), .unknown = std::nullopt};
  std::unordered_map<int64_t, int64_t> known;  // a row of the table -> its number in its server's list
  for (size_t place = 0; place < numbers.size(); ++place) {
    const int64_t number = numbers[place];
    const auto server = std::ranges::find_if(
        given, [&](const mesh::Range& rows) { return number >= rows.offset && number < rows.offset + rows.size; });
    if (server == given.end()) {
      wanted.unknown = place;
      return wanted;
    }
    WantedRows& of_server = wanted.servers[static_cast<size_t>(server - given.begin())];
    const auto [found, is_new] = known.try_emplace(number, std::ssize(of_server.rows));
    if (is_new) of_server.rows.push_back(number - server->offset);
    of_server.places.push_back({static_cast<int64_t>(place), found->second});
  }
  return wanted;
}

}  // namespace tessera::train
