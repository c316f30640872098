#include "tessera/cluster/hub/hub_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/base/thread.h"
#include "tessera/comm/job_state.h"

namespace tessera::cluster {
namespace {

using Deadline = std::chrono::steady_clock::time_point;

Deadline deadline_after(int64_t timeout_ms) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
}

// At least 0, rounded up.
int ms_until(Deadline deadline) {
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(rest.count(), 0));
}

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

// A host's first address, or getaddrinfo's error.
struct Lookup {
  int error = 0;
  Address address;
};

Lookup look_up(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  Lookup lookup{.error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found), .address = {}};
  if (lookup.error != 0) return lookup;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::memcpy(&lookup.address.storage, found->ai_addr, found->ai_addrlen);
  lookup.address.length = found->ai_addrlen;
  return lookup;
}

// A name is asked of servers, which may not answer, and a call that asks cannot be ended: it has a thread of its own,
// which nobody waits for after the deadline.
Lookup look_up_name(const std::string& text, const std::string& host, const std::string& port, int64_t timeout_ms) {
  auto promise = std::make_shared<std::promise<Lookup>>();
  auto lookup = promise->get_future();
  start_thread("the search for a host", [promise, host, port] { promise->set_value(look_up(host, port, 0)); }).detach();
  if (lookup.wait_for(std::chrono::milliseconds(timeout_ms)) != std::future_status::ready) {
    throw IoError("address \"{}\": nobody has said within {} ms which address host \"{}\" has", text, timeout_ms, host);
  }
  return lookup.get();
}

Address tcp_address(const std::string& text, std::string_view host_and_port, int64_t timeout_ms) {
  const size_t colon = host_and_port.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    throw InvalidArgument("address \"{}\": expected tcp:HOST:PORT", text);
  }
  std::string host(host_and_port.substr(0, colon));
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const std::string port(host_and_port.substr(colon + 1));
  const int64_t number = parse_int(port, text);
  if (number < 0 || number > 65535) throw InvalidArgument("address \"{}\": a port is 0 to 65535", text);
  Lookup lookup = look_up(host, port, AI_NUMERICHOST);
  if (lookup.error == EAI_NONAME) lookup = look_up_name(text, host, port, timeout_ms);
  if (lookup.error != 0) {
    throw IoError("address \"{}\": cannot resolve host \"{}\": {}", text, host, gai_strerror(lookup.error));
  }
  return lookup.address;
}

Address parse_address(const std::string& text, int64_t timeout_ms) {
  const std::string_view view(text);
  if (view.starts_with("unix:")) return unix_address(text, view.substr(5));
  if (view.starts_with("tcp:")) return tcp_address(text, view.substr(4), timeout_ms);
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

// One that never waits.
Socket open_socket(const Address& address, const std::string& text) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw IoError("cannot make a socket for {}: {}", text, std::strerror(errno));
  return socket;
}

void set_options(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Returns 0 once the peer has taken the connection, else why not: an errno. A peer whose queue is full, or a firewall
// that drops what it does not like, says nothing, and the system alone would ask again for minutes.
int connect_by(const Socket& socket, const Address& where, Deadline deadline) {
  if (connect(socket.fd(), pointer(where), where.length) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  pollfd wait{socket.fd(), POLLOUT, 0};
  int ready;
  while ((ready = poll(&wait, 1, ms_until(deadline))) < 0 && errno == EINTR) {
  }
  if (ready <= 0) return ready == 0 ? ETIMEDOUT : errno;
  int reason = 0;
  socklen_t length = sizeof(reason);
  return getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &reason, &length) == 0 ? reason : errno;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Socket listen_at(std::string& address, int64_t timeout_ms) {
  const Address where = parse_address(address, timeout_ms);
  if (is_any_interface(where)) {
    throw InvalidArgument("address \"{}\": rank 0 listens at one interface's address, not at all of them", address);
  }
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

bool is_name_of_loopback(const std::string& address, int64_t timeout_ms) {
  if (!address.starts_with("tcp:")) return false;
  const Address where = parse_address(address, timeout_ms);
  std::string host = address.substr(4, address.rfind(':') - 4);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (look_up(host, "0", AI_NUMERICHOST).error == 0) return false;
  if (where.storage.ss_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(where.storage).sin_addr.s_addr) >> 24 == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(where.storage).sin6_addr);
}

Socket connect_to(const std::string& address, int64_t timeout_ms, const std::function<bool()>& gives_up) {
  const Deadline deadline = deadline_after(timeout_ms);
  const Address where = parse_address(address, timeout_ms);
  // A full queue drops who comes. The system would come again after one second, two, four, eight, while others that
  // come more often take each place.
  constexpr int64_t kFirstTryMs = 250;
  constexpr int64_t kLongestTryMs = 4000;
  for (int64_t try_ms = kFirstTryMs;;) {
    Socket socket = open_socket(where, address);
    const int reason = connect_by(socket, where, std::min(deadline, deadline_after(try_ms)));
    if (reason == 0) {
      fcntl(socket.fd(), F_SETFL, fcntl(socket.fd(), F_GETFL) & ~O_NONBLOCK);
      set_options(socket);
      return socket;
    }
    if (std::chrono::steady_clock::now() >= deadline || (gives_up && gives_up())) {
      throw comm::PeerSilence(
          fmt::format("rank 0 does not answer at {} for {} ms: {}", address, timeout_ms, std::strerror(reason)));
    }
    // Who is refused at once comes before rank 0 listens: that says nothing of its queue.
    if (reason == ETIMEDOUT) try_ms = std::min(2 * try_ms, kLongestTryMs);
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

std::string host_of(const Socket& socket) {
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  char host[NI_MAXHOST] = "";
  if (getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&peer), &length) != 0 || peer.ss_family == AF_UNIX)
    return "";
  getnameinfo(reinterpret_cast<sockaddr*>(&peer), length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

bool is_unix_address(std::string_view address) { return address.starts_with("unix:"); }

}  // namespace tessera::cluster
