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

constexpr size_t kMaxFrame = 1 << 24;

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

Socket open_socket(const Address& address, const std::string& text) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
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

std::string join_fields(const std::vector<std::string>& fields) {
  std::string body;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) body.push_back('\0');
    body += fields[i];
  }
  return body;
}

std::vector<std::string> split_fields(std::string_view body) {
  std::vector<std::string> fields;
  for (const std::string_view field : split(body, '\0')) fields.emplace_back(field);
  return fields;
}

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Socket listen_at(std::string& address) {
  const Address where = parse_address(address);
  Socket socket = open_socket(where, address);
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
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return socket;
  ucred peer{};
  socklen_t length = sizeof(peer);
  sockaddr_storage own{};
  socklen_t own_length = sizeof(own);
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &own_length);
  if (own.ss_family == AF_UNIX &&
      (getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid())) {
    return Socket();
  }
  set_options(socket);
  return socket;
}

bool send_frame(const Socket& socket, FrameKind kind, std::string_view body) {
  std::string bytes(5, '\0');
  const auto length = static_cast<uint32_t>(body.size() + 1);
  for (size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xFFU);
  bytes[4] = static_cast<char>(kind);
  bytes += body;
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = send(socket.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

bool FrameReader::read_some(const Socket& socket) {
  char buffer[4096];
  ssize_t count;
  do {
    count = recv(socket.fd(), buffer, sizeof(buffer), 0);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return false;
  bytes_.append(buffer, static_cast<size_t>(count));
  return true;
}

bool FrameReader::next(Frame& frame) {
  if (is_foreign_ || bytes_.size() < 5) return false;
  size_t length = 0;
  for (size_t i = 0; i < 4; ++i) length |= static_cast<size_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
  if (length == 0 || length > kMaxFrame) {
    is_foreign_ = true;
    return false;
  }
  if (bytes_.size() < 4 + length) return false;
  frame.kind = static_cast<FrameKind>(bytes_[4]);
  frame.body = bytes_.substr(5, length - 1);
  bytes_.erase(0, 4 + length);
  return true;
}

}  // namespace tessera::cluster
