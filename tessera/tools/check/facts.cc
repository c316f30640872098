#include "tessera/tools/check/facts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/json/bounded_json.h"
#include "tessera/engine.h"

namespace tessera::tools {

int ClusterFacts::num_ranks() const {
  size_t count = 0;
  for (const HostFacts& host : hosts) count += host.ranks.size();
  return static_cast<int>(count);
}

const HostFacts* ClusterFacts::host_of(int rank) const {
  for (const HostFacts& host : hosts) {
    if (std::ranges::count(host.ranks, rank) > 0) return &host;
  }
  return nullptr;
}

const InterfaceFacts* interface_of(const HostFacts& host) {
  for (const auto& one : host.interfaces) {
    if (std::ranges::count(one.addresses, host.address) > 0) return &one;
  }
  return nullptr;
}

int64_t mtu_of(const HostFacts& host) {
  const InterfaceFacts* interface = interface_of(host);
  return interface == nullptr ? 0 : interface->mtu;
}

std::string print_host(const HostFacts& host) {
  nlohmann::ordered_json interfaces = nlohmann::ordered_json::array();
  for (const InterfaceFacts& one : host.interfaces) {
    interfaces.push_back(
        {{"name", one.name}, {"addresses", one.addresses}, {"mtu", one.mtu}, {"speed_mbits", one.speed_mbits}});
  }
  return nlohmann::ordered_json{{"id", host.id},
                                {"name", host.name},
                                {"ranks", host.ranks},
                                {"version", host.version},
                                {"kernel", host.kernel},
                                {"cpu", host.cpu},
                                {"cpu_features", host.cpu_features},
                                {"cores", host.cores},
                                {"memory_bytes", host.memory_bytes},
                                {"open_files", host.open_files},
                                {"address", host.address},
                                {"interfaces", interfaces},
                                {"resolved", host.resolved},
                                {"clock_offset_s", host.clock_offset_s}}
      .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

HostFacts parse_host(const std::string& text) {
  const std::string refusal = "the facts of a host cannot be read";
  const auto json = parse_bounded_json<nlohmann::json>(text, refusal, {.name = "set of a host's facts"});
  try {
    HostFacts host{.id = json.at("id"),
                   .name = json.at("name"),
                   .ranks = json.at("ranks"),
                   .version = json.at("version"),
                   .kernel = json.at("kernel"),
                   .cpu = json.at("cpu"),
                   .cpu_features = json.at("cpu_features"),
                   .cores = json.at("cores"),
                   .memory_bytes = json.at("memory_bytes"),
                   .open_files = json.at("open_files"),
                   .address = json.at("address"),
                   .resolved = json.at("resolved"),
                   .clock_offset_s = json.at("clock_offset_s")};
    for (const auto& one : json.at("interfaces")) {
      host.interfaces.push_back({one.at("name"), one.at("addresses"), one.at("mtu"), one.at("speed_mbits")});
    }
    return host;
  } catch (const nlohmann::json::exception& error) {
    throw InvalidArgument("{}: {}", refusal, plain_json_words(error.what()));
  }
}

}  // namespace tessera::tools
