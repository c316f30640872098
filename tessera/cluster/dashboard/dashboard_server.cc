#include "tessera/cluster/dashboard/dashboard_server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/thread.h"
#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/rendezvous/host_addresses.h"
#include "tessera/comm/wire/secret.h"

namespace tessera::cluster {
namespace {

// Beyond the connections that are served, so many at a time are told that there are too many. For one more, the first
// of them makes room.
constexpr int kMostRefused = 64;
constexpr int kMostAcceptedAtOnce = 64;
// After its answer who has asked has so long to hang up.
constexpr int64_t kGoodbyeMs = 1000;
// While there is no descriptor or memory for one more connection.
constexpr int64_t kNoRoomMs = 100;
// A page asks once a second; who has asked within this time looks on.
constexpr int64_t kReaderMs = 5000;
constexpr size_t kTokenBytes = 16;
constexpr size_t kMostRead = 4096;
constexpr int kBacklog = 256;

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string address_text(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  std::string text = host;
  constexpr std::string_view kMapped = "::ffff:";
  if (text.starts_with(kMapped) && text.find('.') != std::string::npos) text.erase(0, kMapped.size());
  return text;
}

struct LocalAddress {
  std::string host;
  uint16_t port = 0;
};

LocalAddress local_address(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  const uint16_t port = address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                                      : reinterpret_cast<const sockaddr_in&>(address).sin_port;
  return {address_text(address, length), ntohs(port)};
}

bool is_any(const std::string& host) { return host == "0.0.0.0" || host == "::"; }
bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1"; }
std::string in_brackets(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

Socket listen_for_readers(const DashboardPlace& place) {
  const std::string text = fmt::format("{}:{}", in_brackets(place.host), place.port);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &hints, &found);
  if (error != 0) {
    throw IoError("the dashboard cannot listen at {}: {}; give an address of this host, or the port alone", text,
                  gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (socket) setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!socket || bind(socket.fd(), found->ai_addr, found->ai_addrlen) != 0 || listen(socket.fd(), kBacklog) != 0) {
    const int why = errno;
    throw IoError("the dashboard cannot listen at {}: {}; {}", text, std::strerror(why),
                  why == EADDRNOTAVAIL
                      ? rendezvous::no_such_address(place.host, "the address of --dashboard", "the dashboard")
                      : "give another port, 0 for any that is free");
  }
  return socket;
}

enum class ConnectionPhase : uint8_t { kReading, kWriting, kParting };

struct ReaderConnection {
  Socket socket;
  ConnectionPhase phase = ConnectionPhase::kReading;
  bool is_refused = false;  // it is told that there are too many
  int64_t deadline_ms = 0;  // of its phase
  std::string asked;        // of its request, so far
  HttpAnswer answer;
  size_t sent = 0;  // of head and body together
};

}  // namespace

struct DashboardServer::Impl {
  Impl(const DashboardPlace& server_place, const DashboardPage& page, const JobBoard& board)
      : place(server_place),
        token(comm::hex(comm::random_bytes(kTokenBytes))),
        answers(board, page, token),
        listener(listen_for_readers(place)),
        local(local_address(listener)),
        wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake) throw IoError("the dashboard cannot make an event: {}", std::strerror(errno));
    thread = start_thread("the dashboard", [this] { run(); });
  }
  ~Impl() {
    must_stop.store(true);
    wake_up();
    thread.join();
  }

  void wake_up() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake.fd(), &one, sizeof(one));
  }

  // Whatever fails, as for want of memory, costs the connections that there are, not the process.
  void run() {
    while (!must_stop.load()) {
      try {
        look();
      } catch (const std::exception& error) {
        log_warning("the dashboard has let its readers go: {}", error.what());
        connections.clear();
        accept_again_ms = now_ms() + kNoRoomMs;
      }
    }
    connections.clear();
  }

  void look() {
    std::vector<pollfd> waits;
    const bool may_accept = now_ms() >= accept_again_ms;
    waits.push_back({wake.fd(), POLLIN, 0});
    waits.push_back({may_accept ? listener.fd() : -1, POLLIN, 0});
    for (const ReaderConnection& one : connections) {
      const bool writes = one.phase == ConnectionPhase::kWriting;
      waits.push_back({one.socket.fd(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
    }
    poll(waits.data(), waits.size(), static_cast<int>(next_wait_ms()));
    if (waits[0].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t done = read(wake.fd(), &count, sizeof(count));
    }
    if (has_ended.load() && !std::exchange(has_refreshed, true)) answers.refresh();
    size_t i = 2;
    for (auto one = connections.begin(); one != connections.end(); ++i) {
      const bool goes_on = (waits[i].revents == 0 || serve(*one)) && !is_late(*one);
      one = goes_on ? std::next(one) : connections.erase(one);
    }
    if (waits[1].revents != 0) accept_readers();
  }

  // Until the first deadline; -1: there is none.
  int64_t next_wait_ms() const {
    int64_t first = now_ms() < accept_again_ms ? accept_again_ms : -1;
    for (const ReaderConnection& one : connections)
      first = first < 0 ? one.deadline_ms : std::min(first, one.deadline_ms);
    return first < 0 ? -1 : std::max<int64_t>(first - now_ms(), 0);
  }

  void accept_readers() {
    for (int i = 0; i < kMostAcceptedAtOnce; ++i) {
      Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        if (errno == EINTR || errno == ECONNABORTED) continue;
        accept_again_ms = now_ms() + kNoRoomMs;
        return;
      }
      const auto num_refused = std::ranges::count_if(connections, &ReaderConnection::is_refused);
      const auto num_served = static_cast<int64_t>(connections.size()) - num_refused;
      if (num_served < kMostConnections) {
        connections.push_back(
            {.socket = std::move(socket), .deadline_ms = now_ms() + kHeadMs, .asked = {}, .answer = {}});
      } else {
        if (num_refused >= kMostRefused) end_first_refused();
        connections.push_back({.socket = std::move(socket), .is_refused = true, .asked = {}, .answer = {}});
        if (!begin_answer(connections.back(), DashboardAnswers::plain(503))) connections.pop_back();
      }
    }
  }

  // It has its answer, and so it keeps it: what it has asked is read before its connection is closed.
  void end_first_refused() {
    constexpr int kMostReads = 16;
    const auto first = std::ranges::find_if(connections, &ReaderConnection::is_refused);
    char bytes[kMostRead];
    for (int i = 0; i < kMostReads && recv(first->socket.fd(), bytes, sizeof(bytes), MSG_DONTWAIT) > 0; ++i) {
    }
    connections.erase(first);
  }

  // A phase that has lasted too long ends the connection; who was about to say something is told so.
  bool is_late(ReaderConnection& one) {
    if (now_ms() < one.deadline_ms) return false;
    if (one.phase != ConnectionPhase::kReading || one.asked.empty()) return true;
    return !begin_answer(one, DashboardAnswers::plain(408));
  }

  // Returns whether the connection goes on.
  bool serve(ReaderConnection& one) {
    if (one.phase == ConnectionPhase::kWriting) return send_answer(one);
    char bytes[kMostRead];
    const ssize_t count = recv(one.socket.fd(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    if (one.phase == ConnectionPhase::kParting) return true;  // what follows on a request is read by nobody
    one.asked.append(bytes, static_cast<size_t>(count));
    const size_t end = find_http_head_end(one.asked);
    if (end == 0 && one.asked.size() < kMaxHttpHead) return true;
    if (end == 0) return begin_answer(one, DashboardAnswers::plain(431));
    const HttpHeadResult read = parse_http_head(std::string_view(one.asked).substr(0, end));
    if (!read.head) return begin_answer(one, DashboardAnswers::plain(read.status));
    return begin_answer(one, answers.answer(*read.head, names_of(one.socket)));
  }

  // By which a reader may call this host. Who came by one of its addresses may name that.
  std::vector<std::string> names_of(const Socket& socket) const {
    return {place.host, "localhost", local_address(socket).host};
  }

  bool begin_answer(ReaderConnection& one, HttpAnswer answer) {
    if (answer.is_state && answer.status == 200) {
      last_read_ms.store(now_ms());
    }
    one.answer = std::move(answer);
    one.asked = std::string();
    one.phase = ConnectionPhase::kWriting;
    one.deadline_ms = now_ms() + kAnswerMs;
    return send_answer(one);
  }

  static bool send_answer(ReaderConnection& one) {
    const size_t in_head = one.answer.head.size();
    const size_t whole = in_head + (one.answer.body == nullptr ? 0 : one.answer.body->size());
    while (one.sent < whole) {
      const std::string_view rest = one.sent < in_head ? std::string_view(one.answer.head).substr(one.sent)
                                                       : std::string_view(*one.answer.body).substr(one.sent - in_head);
      const ssize_t count = send(one.socket.fd(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      one.sent += static_cast<size_t>(count);
    }
    // A connection that is closed while something is unread may lose what was sent before.
    shutdown(one.socket.fd(), SHUT_WR);
    one.answer = {};
    one.phase = ConnectionPhase::kParting;
    one.deadline_ms = now_ms() + kGoodbyeMs;
    return true;
  }

  DashboardPlace place;
  std::string token;
  DashboardAnswers answers;
  Socket listener;
  LocalAddress local;
  Socket wake;
  std::list<ReaderConnection> connections;
  int64_t accept_again_ms = 0;
  bool has_refreshed = false;
  std::atomic<bool> has_ended{false};
  std::atomic<int64_t> last_read_ms{-1};
  std::atomic<bool> must_stop{false};
  std::thread thread;
};

DashboardServer::DashboardServer(const DashboardPlace& place, const DashboardPage& page, const JobBoard& board)
    : impl_(std::make_unique<Impl>(place, page, board)) {}
DashboardServer::~DashboardServer() = default;

std::string DashboardServer::url() const {
  const bool has_other = is_any(impl_->local.host) && !impl_->place.any_host.empty();
  const std::string& host = has_other ? impl_->place.any_host : impl_->place.host;
  return fmt::format("http://{}:{}/?token={}", in_brackets(host), impl_->local.port, impl_->token);
}

std::string DashboardServer::warning() const {
  const std::string& host = impl_->local.host;
  if (is_loopback(host)) return "";
  return fmt::format(
      "the dashboard listens at {}: whoever reaches that and has the token sees the job, and neither is encrypted on "
      "the way; without an address it is for this host alone, and `ssh -L` leads to it from elsewhere",
      is_any(host) ? "all addresses of this host" : host);
}

void DashboardServer::say_end(int64_t limit_ms) {
  impl_->has_ended.store(true);
  impl_->wake_up();
  const int64_t last = impl_->last_read_ms.load();
  if (last < 0 || now_ms() - last > kReaderMs) return;
  // Each reader asks once in this time. What the machine keeps this process waiting for is not part of it, for then
  // nobody is answered.
  constexpr int64_t kSliceMs = 50;
  for (int64_t left_ms = limit_ms; left_ms > 0; left_ms -= kSliceMs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(left_ms, kSliceMs)));
  }
}

}  // namespace tessera::cluster
