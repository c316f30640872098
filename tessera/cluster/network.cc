#include "tessera/cluster/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "tessera/base/error.h"

namespace tessera::cluster {

std::string host_ip(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw IoError("cannot list the network interfaces: {}", std::strerror(errno));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::set<std::string> names;
  std::string ipv6;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    names.insert(entry->ifa_name);
    const bool is_usable = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (entry->ifa_addr == nullptr || (interface.empty() ? !is_usable : interface != entry->ifa_name)) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(entry->ifa_addr)->sin_addr, text, sizeof(text));
      return text;
    }
    const auto* address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
    if (entry->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr) && ipv6.empty()) {
      ipv6 = inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof(text));
    }
  }
  if (!ipv6.empty()) return ipv6;
  if (interface.empty()) return "127.0.0.1";
  if (names.contains(interface)) throw InvalidArgument("network interface \"{}\" has no address", interface);
  throw InvalidArgument("no network interface \"{}\"; this host has {}", interface, fmt::join(names, ", "));
}

}  // namespace tessera::cluster
