#include "tessera/session/agree/device_ranks.h"

#include <set>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/session/agree/gather_texts.h"

namespace tessera::session {

DeviceRanks::DeviceRanks(cluster::Context& context, DeviceCommunicators* communicators) {
  if (communicators == nullptr) return;
  Place own;
  try {
    own = {.name = communicators->name(), .device = communicators->place()};
  } catch (const IoError& error) {
    // One rank needs nothing of what connects several.
    if (context.size() > 1) {
      log_warning("devices do not communicate by themselves, what ranks tell each other goes through the host: {}",
                  error.what());
    }
    own = {};
  }
  if (context.size() == 1) {
    places_.push_back(own);
    return;
  }
  const std::string text = own.name + "\n" + own.device;
  for (const auto& of_rank : gather_texts(context.world(), text, "telling each other the ranks' devices")) {
    const size_t end = of_rank.find('\n');
    places_.push_back({.name = of_rank.substr(0, end), .device = of_rank.substr(end + 1)});
  }
}

bool DeviceRanks::communicate(const Ints& ranks) const {
  if (places_.empty()) return false;
  std::set<std::string> names;
  std::set<std::string> devices;
  for (const int64_t rank : ranks) {
    const Place& place = places_[static_cast<size_t>(rank)];
    names.insert(place.name);
    devices.insert(place.device);
  }
  return names.size() == 1 && !names.begin()->empty() && devices.size() == ranks.size();
}

}  // namespace tessera::session
