#include "tessera/session/agree/device_ranks.h"

#include <set>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/session/agree/gather_texts.h"

namespace tessera::session {
namespace {

// A rank that is alone needs nothing of what connects several: it says nothing where that is missing.
bool is_here(DeviceCommunicators& communicators) {
  try {
    return !communicators.name().empty();
  } catch (const IoError&) {
    return false;
  }
}

}  // namespace

DeviceRanks::DeviceRanks(cluster::Context& context, DeviceCommunicators* communicators) {
  if (communicators == nullptr) return;
  if (context.size() == 1) {
    alone_ = communicators;
    return;
  }
  DeviceOfRank own;
  try {
    own = {.name = communicators->name(), .device = communicators->place()};
  } catch (const IoError& error) {
    log_warning("devices do not communicate by themselves, what ranks tell each other goes through the host: {}",
                error.what());
    own = {};
  }
  const std::string text = own.name + "\n" + own.device;
  for (const auto& of_rank : gather_texts(context.world(), text, "telling each other the ranks' devices")) {
    const size_t end = of_rank.find('\n');
    devices_.push_back({.name = of_rank.substr(0, end), .device = of_rank.substr(end + 1)});
  }
}

bool DeviceRanks::communicate(const Ints& ranks) const {
  if (alone_ != nullptr) return is_here(*alone_);
  if (devices_.empty()) return false;
  std::set<std::string> names;
  std::set<std::string> devices;
  for (const int64_t rank : ranks) {
    const DeviceOfRank& of_rank = devices_[static_cast<size_t>(rank)];
    names.insert(of_rank.name);
    devices.insert(of_rank.device);
  }
  return names.size() == 1 && !names.begin()->empty() && devices.size() == ranks.size();
}

}  // namespace tessera::session
