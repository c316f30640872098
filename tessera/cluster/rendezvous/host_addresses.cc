#include "tessera/cluster/rendezvous/host_addresses.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

namespace tessera::cluster::rendezvous {

std::vector<std::string> host_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<std::string> found, loopbacks;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const bool is_of_link =
        family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr);
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char text[NI_MAXHOST] = {};
    if (is_of_link || getnameinfo(entry->ifa_addr, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    ((entry->ifa_flags & IFF_LOOPBACK) != 0 ? loopbacks : found).emplace_back(text);
  }
  found.insert(found.end(), loopbacks.begin(), loopbacks.end());
  return found;
}

std::string no_such_address(const std::string& host, std::string_view option, std::string_view started) {
  return fmt::format(
      "this machine has no address {}: {} is a name or an address of the machine on which {} is started, which has {}",
      host, option, started, fmt::join(host_addresses(), ", "));
}

}  // namespace tessera::cluster::rendezvous
