#include "tessera/tools/check/packet_end.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::tools {
namespace {

// An address and port as the system takes them; its family is AF_UNSPEC where the text is no address.
struct Place {
  Place(const std::string& address, uint16_t port) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
    if (inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
      v4.sin_family = AF_INET;
      v4.sin_port = htons(port);
      length = sizeof(v4);
    } else if (inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1) {
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(port);
      length = sizeof(v6);
    }
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }

  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);
};

[[noreturn]] void refuse(const char* what, const std::string& address) {
  throw IoError("cannot {} {} for packets: {}", what, address, std::strerror(errno));
}

}  // namespace

PacketEnd::PacketEnd(const std::string& address) {
  const Place place(address, 0);
  family_ = place.storage.ss_family;
  fd_ = socket(family_, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  // Neither this system nor one on the way cuts them, whatever this one believes of the way.
  const int whole = family_ == AF_INET ? IP_PMTUDISC_PROBE : IPV6_PMTUDISC_PROBE;
  const bool is_ready =
      fd_ >= 0 &&
      (family_ == AF_INET ? setsockopt(fd_, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof(whole))
                          : setsockopt(fd_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &whole, sizeof(whole))) == 0 &&
      bind(fd_, place.get(), place.length) == 0;
  if (is_ready) return;
  const int reason = errno;
  if (fd_ >= 0) close(fd_);
  errno = reason;
  refuse("listen at", address);
}

PacketEnd::~PacketEnd() { close(fd_); }

uint16_t PacketEnd::port() const {
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &length);
  return ntohs(family_ == AF_INET ? reinterpret_cast<sockaddr_in&>(own).sin_port
                                  : reinterpret_cast<sockaddr_in6&>(own).sin6_port);
}

void PacketEnd::connect(const std::string& address, uint16_t port) {
  const Place place(address, port);
  // To an address of no family, connect() would undo what it has done before.
  if (place.storage.ss_family != family_) {
    errno = EAFNOSUPPORT;
    refuse("reach", address);
  }
  if (::connect(fd_, place.get(), place.length) != 0) refuse("reach", address);
}

// Of IP and UDP.
int64_t PacketEnd::header_bytes() const { return family_ == AF_INET ? 20 + 8 : 40 + 8; }

void PacketEnd::send(int64_t packet_bytes) {
  const std::vector<std::byte> bytes(static_cast<size_t>(packet_bytes - header_bytes()));
  [[maybe_unused]] const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

bool PacketEnd::receives(int64_t packet_bytes, int limit_ms) {
  constexpr int64_t kNsPerMs = 1'000'000;
  const auto now_ms = [] { return Clock::system().monotonic_ns() / kNsPerMs; };
  const int64_t deadline_ms = now_ms() + limit_ms;
  while (true) {
    char first = 0;
    const ssize_t length = recv(fd_, &first, sizeof(first), MSG_TRUNC | MSG_DONTWAIT);
    if (length >= 0 && length + header_bytes() == packet_bytes) return true;
    if (length >= 0) continue;  // of an earlier size
    const int64_t rest_ms = deadline_ms - now_ms();
    pollfd wait{fd_, POLLIN, 0};
    if (rest_ms <= 0 || poll(&wait, 1, static_cast<int>(rest_ms)) == 0) return false;
  }
}

int64_t largest_that(int64_t least, int64_t most, const std::function<bool(int64_t)>& passes) {
  if (passes(most)) return most;
  if (!passes(least)) return 0;
  while (most - least > 1) {
    const int64_t middle = least + (most - least) / 2;
    (passes(middle) ? least : most) = middle;
  }
  return least;
}

}  // namespace tessera::tools
