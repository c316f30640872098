#include "tessera/session/agree/device_ranks.h"

#include <algorithm>
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

DeviceRanks::DeviceRanks(cluster::Context& context, DeviceCommunicators* apart, DeviceCommunicators* within)
    : apart_(apart), within_(within), is_alone_(context.size() == 1) {
  if (is_alone_ || (apart == nullptr && within == nullptr)) return;
  DeviceOfRank own;
  std::string missing;
  if (apart != nullptr) {
    try {
      own.apart = apart->name();
      own.device = apart->place();
    } catch (const IoError& error) {
      missing = error.what();
      own = {};
    }
  }
  if (within != nullptr) {
    own.within = within->name();
    own.device = within->place();
  }
  const std::string text = own.apart + "\n" + own.within + "\n" + own.device;
  std::set<std::string> devices;
  for (const auto& of_rank : gather_texts(context.world(), text, "telling each other the ranks' devices")) {
    const size_t first = of_rank.find('\n');
    const size_t second = of_rank.find('\n', first + 1);
    devices_.push_back({.apart = of_rank.substr(0, first),
                        .within = of_rank.substr(first + 1, second - first - 1),
                        .device = of_rank.substr(second + 1)});
    devices.insert(devices_.back().device);
  }
  // Ranks that are all on one device need nothing of what connects several.
  if (!missing.empty() && (devices.size() > 1 || within == nullptr)) {
    log_warning("devices do not communicate by themselves, what ranks tell each other goes through the host: {}",
                missing);
  }
  try_shared_devices(context);
}

void DeviceRanks::try_shared_devices(cluster::Context& context) {
  const auto share = [this](size_t a, size_t b) {
    return a != b && !devices_[a].within.empty() && devices_[a].within == devices_[b].within &&
           devices_[a].device == devices_[b].device;
  };
  const size_t size = devices_.size();
  const auto own = static_cast<size_t>(context.rank());
  std::vector<bool> shares(size);
  for (size_t a = 0; a < size; ++a) {
    for (size_t b = 0; b < size; ++b) shares[a] = shares[a] || share(a, b);
  }
  if (std::find(shares.begin(), shares.end(), true) == shares.end()) return;
  std::string offer;
  std::string refused;
  if (shares[own]) {
    try {
      offer = within_->offer();
    } catch (const IoError& error) {
      refused = error.what();
    }
  }
  const auto offers = gather_texts(context.world(), offer, "telling each other how to reach the device's memory");
  for (size_t other = 0; other < size && refused.empty(); ++other) {
    if (!share(own, other) || offers[other].empty()) continue;  // a rank without an offer says why itself
    try {
      within_->try_offer(offers[other]);
    } catch (const IoError& error) {
      refused = fmt::format("rank {} does not reach the memory of rank {}: {}", own, other, error.what());
    }
  }
  const auto reasons = gather_texts(context.world(), refused, "telling each other who reaches the device's memory");
  std::vector<std::string> reason_of(size);  // for each rank, of it or of one on its device
  for (size_t a = 0; a < size; ++a) {
    reason_of[a] = reasons[a];
    for (size_t b = 0; b < size && reason_of[a].empty(); ++b) {
      if (share(a, b)) reason_of[a] = reasons[b];
    }
  }
  bool speaks = shares[own];  // the first rank on a device, for all there
  for (size_t other = 0; other < own; ++other) speaks = speaks && !share(other, own);
  if (speaks && !reason_of[own].empty()) {
    log_warning("ranks on one device do not reach each other's memory there, they go through the host: {}",
                reason_of[own]);
  } else if (speaks) {
    log_info("what ranks on {} tell each other goes through its memory ({})", devices_[own].device,
             devices_[own].within);
  }
  for (size_t rank = 0; rank < size; ++rank) {
    if (!reason_of[rank].empty()) devices_[rank].within.clear();
  }
}

DeviceCommunicators* DeviceRanks::connecting(const Ints& ranks) const {
  if (is_alone_) return apart_ != nullptr && is_here(*apart_) ? apart_ : nullptr;
  if (devices_.empty()) return nullptr;
  std::set<std::string> apart;
  std::set<std::string> within;
  std::set<std::string> devices;
  for (const int64_t rank : ranks) {
    const DeviceOfRank& of_rank = devices_[static_cast<size_t>(rank)];
    apart.insert(of_rank.apart);
    within.insert(of_rank.within);
    devices.insert(of_rank.device);
  }
  const auto is_one = [](const std::set<std::string>& names) { return names.size() == 1 && !names.begin()->empty(); };
  if (devices.size() == ranks.size()) return is_one(apart) ? apart_ : nullptr;
  return devices.size() == 1 && is_one(within) ? within_ : nullptr;
}

}  // namespace tessera::session
