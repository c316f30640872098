#include "tessera/cluster/hub_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::cluster {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

Address unix_address(const std::string& text, std::string_view name) {
  Address address;
  auto& local = reinterpret_cast<sockaddr_un&>(address.storage);
  local.sun_family = AF_UNIX;
  // The leading zero byte makes the name abstract: no file, gone with its last socket.
  if (name.empty() || name.size() + 1 > sizeof(local.sun_path)) {
    throw InvalidArgument("address \"{}\": the name must have 1 to {} bytes", text, sizeof(local.sun_path) - 1);
  }
  std::memcpy(local.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Address tcp_address(const std::string& text, std::string_view host_and_port) {
  const size_t colon = host_and_port.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    throw InvalidArgument("address \"{}\": expected tcp:HOST:PORT", text);
  }
  std::string host(host_and_port.substr(0, colon));
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const std::string port(host_and_port.substr(colon + 1));
  const int64_t number = parse_int(port, text);
  if (number < 0 || number > 65535) throw InvalidArgument("address \"{}\": a port is 0 to 65535", text);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) throw IoError("address \"{}\": cannot resolve host \"{}\": {}", text, host, gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  return address;
}

Address parse_address(const std::string& text) {
  const std::string_view view(text);
  if (view.starts_with("unix:")) return unix_address(text, view.substr(5));
  if (view.starts_with("tcp:")) return tcp_address(text, view.substr(4));
  throw InvalidArgument("address \"{}\": expected unix:NAME or tcp:HOST:PORT", text);
}

const sockaddr* pointer(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.storage); }

// 0.0.0.0 and ::, which listen on every interface.
bool is_any_interface(const Address& address) {
  if (address.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr.s_addr == htonl(INADDR_ANY);
  }
  if (address.storage.ss_family != AF_INET6) return false;
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  const auto& bytes = ip.s6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&ip) ||
         (IN6_IS_ADDR_V4MAPPED(&ip) && bytes[12] == 0 && bytes[13] == 0 && bytes[14] == 0 && bytes[15] == 0);
}

Socket open_socket(const Address& address, const std::string& text, int flags = 0) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!socket) throw IoError("cannot make a socket for {}: {}", text, std::strerror(errno));
  return socket;
}

void set_options(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // A peer that was stopped must not hold up what the others are told.
  const timeval limit{5, 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Socket listen_at(std::string& address) {
  const Address where = parse_address(address);
  if (is_any_interface(where)) {
    throw InvalidArgument("address \"{}\": rank 0 listens at one interface's address, not at all of them", address);
  }
  Socket socket = open_socket(where, address, SOCK_NONBLOCK);
  const int on = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket.fd(), pointer(where), where.length) != 0 || listen(socket.fd(), 1024) != 0) {
    throw IoError("rank 0 cannot listen at {}: {}; another job or program may use it", address, std::strerror(errno));
  }
  if (where.storage.ss_family != AF_UNIX) {
    Address bound;
    bound.length = sizeof(bound.storage);
    getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.length);
    const uint16_t port = bound.storage.ss_family == AF_INET
                              ? reinterpret_cast<const sockaddr_in&>(bound.storage).sin_port
                              : reinterpret_cast<const sockaddr_in6&>(bound.storage).sin6_port;
    address = fmt::format("{}:{}", address.substr(0, address.rfind(':')), ntohs(port));
  }
  return socket;
}

Socket connect_to(const std::string& address, int64_t timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  const Address where = parse_address(address);
  while (true) {
    Socket socket = open_socket(where, address);
    if (connect(socket.fd(), pointer(where), where.length) == 0) {
      set_options(socket);
      return socket;
    }
    const int reason = errno;
    if (std::chrono::steady_clock::now() >= deadline) {
      throw IoError("rank 0 does not answer at {} for {} ms: {}", address, timeout_ms, std::strerror(reason));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) set_options(socket);
  return socket;
}

bool is_same_user(const Socket& socket) {
  sockaddr_storage own{};
  socklen_t own_length = sizeof(own);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &own_length) != 0) return false;
  if (own.ss_family != AF_UNIX) return true;
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

bool is_unix_address(std::string_view address) { return address.starts_with("unix:"); }

}  // namespace tessera::cluster
