#include "tessera/cluster/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::cluster {
namespace {

std::string first_line(const char* path) {
  char buffer[256];
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const ssize_t length = read(fd, buffer, sizeof(buffer));
  close(fd);
  return length > 0 ? std::string(trim(std::string_view(buffer, static_cast<size_t>(length)))) : "";
}

}  // namespace

std::string own_host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

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

std::string own_ip_towards(const std::string& ip) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (ip.empty() || getaddrinfo(ip.c_str(), "9", &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  // A datagram's socket that is connected has the address that it would send from.
  const bool has_way = connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0;
  close(fd);
  char text[NI_MAXHOST] = {};
  if (!has_way ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  const std::string address = text;
  return address.starts_with("127.") || address == "::1" ? "" : address;
}

std::string why_no_loopback() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";  // what needs it says so itself
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_port = htons(9);
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Nothing is sent: the kernel looks for a way there.
  const int error = connect(fd, reinterpret_cast<const sockaddr*>(&loopback), sizeof(loopback)) == 0 ? 0 : errno;
  close(fd);
  if (error == 0) return "";
  return fmt::format("the loopback interface of this host is down (127.0.0.1: {}); bring it up: ip link set lo up",
                     std::strerror(error));
}

std::string host_identity(const std::string& id) {
  char space[256] = {};
  char name[256] = {};
  [[maybe_unused]] const ssize_t length = readlink("/proc/self/ns/pid", space, sizeof(space) - 1);
  gethostname(name, sizeof(name) - 1);
  return fmt::format("{} {} {} {} {}", name, first_line("/proc/sys/kernel/random/boot_id"), space, geteuid(), id);
}

}  // namespace tessera::cluster
