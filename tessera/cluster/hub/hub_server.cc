#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/thread.h"
#include "tessera/cluster/hub/hub.h"
#include "tessera/cluster/hub/hub_frame.h"
#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/hub/stored_values.h"
#include "tessera/cluster/hub/strangers.h"

namespace tessera::cluster {
namespace {

// A connection joins within this time or is closed.
constexpr int64_t kJoinLimitMs = 5000;
// A stranger's first message of TLS is less; TlsSession bounds them all.
constexpr size_t kStrangersPiece = 1024;
// Then those that are there are heard again.
constexpr int kMostAtOnce = 16;
// While there is no descriptor or memory for one more connection.
constexpr int64_t kAcceptPauseMs = 100;
// What a rank may leave unread.
constexpr size_t kMaxUnread = size_t{16} << 20;
// At the end, for ranks that have not taken the last words.
constexpr int64_t kLastWordsMs = 1000;

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

struct HubServer::Impl {
  struct Peer {
    Peer(uint64_t number, Socket accepted, std::shared_ptr<const TlsContext> tls)
        : id(number), socket(std::move(accepted)), session(std::move(tls)) {}

    uint64_t id;
    Socket socket;
    TlsSession session;
    FrameReader reader;
    FrameWriter writer;
    bool is_proven = false;  // it has shown that it knows the secret
    int64_t accepted_ms = now_ms();
    int rank = -1;  // until it joins
    bool has_ended = false;
    bool is_gone = false;
  };

  explicit Impl(const HubOptions& hub_options) : options(hub_options), address(hub_options.address) {
    if (!options.secret && !is_unix_address(address)) {
      throw InvalidArgument("rank 0 does not listen at {} without a secret of the job: anybody could join", address);
    }
    tls = make_hub_context(options.secret, TlsSide::kServer);
    listener = listen_at(address, options.timeout_ms);
    wake = Socket(eventfd(0, EFD_CLOEXEC));
    hosts.resize(static_cast<size_t>(options.size));
    has_joined.resize(static_cast<size_t>(options.size));
    join_deadline_ms = now_ms() + options.timeout_ms;
    thread = start_thread("the hub of rank 0", [this] { serve(); });
  }

  ~Impl() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake.fd(), &one, sizeof(one));
    thread.join();
  }

  void serve() {
    while (true) {
      std::vector<pollfd> waits = {{wake.fd(), POLLIN, 0}, {may_accept() ? listener.fd() : -1, POLLIN, 0}};
      for (const auto& peer : peers) {
        const int events = POLLIN | (peer->writer.waiting_bytes() > 0 ? POLLOUT : 0);
        waits.push_back({peer->socket.fd(), static_cast<int16_t>(events), 0});
      }
      poll(waits.data(), waits.size(), is_waiting() ? 20 : -1);
      // Peers first: what they said before the end is still passed on.
      for (size_t i = 0; i + 2 < waits.size(); ++i) {
        Peer& peer = *peers[i];
        if (peer.is_gone) continue;
        if ((waits[i + 2].revents & POLLOUT) != 0) peer.writer.flush(peer.session, peer.socket);
        if ((waits[i + 2].revents & ~POLLOUT) != 0) read_from(peer);
      }
      if (waits[1].revents != 0 && listener) accept_peers();
      check_joining();
      std::erase_if(peers, [this](const auto& peer) {
        if (peer->is_gone) strangers.remove(peer->id);
        return peer->is_gone;
      });
      if (waits[0].revents != 0) return say_last_words();
      check_joined();
    }
  }

  bool all_joined() const { return num_joined == options.size; }

  // Whether something must happen although nothing arrives.
  bool is_waiting() const {
    const bool is_joining = std::ranges::any_of(peers, [](const auto& peer) { return peer->rank < 0; });
    return (!all_joined() && !failed) || is_joining || accept_again_ms > 0;
  }

  bool may_accept() {
    if (now_ms() < accept_again_ms) return false;
    accept_again_ms = 0;
    return listener && strangers.has_room(now_ms());
  }

  void accept_peers() {
    for (int i = 0; i < kMostAtOnce && strangers.has_room(now_ms()); ++i) {
      Socket socket = accept_from(listener);
      if (!socket) {
        if (errno != EAGAIN && errno != EINTR) accept_again_ms = now_ms() + kAcceptPauseMs;
        return;
      }
      if (!is_same_user(socket)) continue;
      try {
        add(std::move(socket));
      } catch (const std::exception&) {  // no memory for one more
        accept_again_ms = now_ms() + kAcceptPauseMs;
        return;
      }
    }
  }

  void add(Socket socket) {
    const std::string host = host_of(socket);
    peers.push_back(std::make_unique<Peer>(++last_id, std::move(socket), tls));
    const auto crowded_out = strangers.add(last_id, host, now_ms());
    for (const auto& other : peers) {
      if (crowded_out == other->id) turn_away(*other);
    }
  }

  // Closes connections that have not joined in time.
  void check_joining() {
    const int64_t now = now_ms();
    for (const auto& peer : peers) {
      if (peer->rank < 0 && !peer->is_gone && now - peer->accepted_ms >= kJoinLimitMs) turn_away(*peer);
    }
  }

  void turn_away(Peer& peer) {
    if (!peer.is_gone) ++num_turned_away;
    peer.is_gone = true;
    strangers.remove(peer.id);
  }

  void read_from(Peer& peer) {
    char buffer[1 << 14];
    // A stranger's bytes need no room before they are worth it.
    const size_t limit = peer.is_proven ? sizeof(buffer) : kStrangersPiece;
    ssize_t count;
    do {
      count = recv(peer.socket.fd(), buffer, limit, 0);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    try {
      if (count > 0 && hear(peer, {buffer, static_cast<size_t>(count)})) return;
      if (peer.is_gone) return;
      peer.is_gone = true;
      if (peer.rank >= 0 && !peer.has_ended) fail(peer.rank, "its process has ended without a word");
    } catch (const std::exception& e) {
      if (peer.rank < 0) return turn_away(peer);
      peer.is_gone = true;
      fail(peer.rank, fmt::format("rank 0 closed its connection: {}", e.what()));
    }
  }

  // False where the peer has ended the connection.
  bool hear(Peer& peer, std::string_view arrived) {
    std::string said;
    peer.session.receive(arrived, said);
    peer.writer.flush(peer.session, peer.socket);  // the handshake, or why there is none
    if (!peer.is_proven && (peer.session.state() == TlsSession::State::kOpen || !said.empty())) {
      peer.is_proven = true;
      strangers.remove(peer.id);
      tell(peer, FrameKind::kWelcome, std::string(kHubProtocol));
    }
    peer.reader.add(said);
    Frame frame;
    while (!peer.is_gone && peer.reader.next(frame)) handle(peer, frame);
    if (peer.session.state() == TlsSession::State::kFailed) {
      throw IoError("what arrives was not sent by a rank of this job, or was changed on its way");
    }
    return peer.session.state() != TlsSession::State::kEnded;
  }

  void handle(Peer& peer, const Frame& frame) {
    if (peer.rank < 0) return join(peer, frame);
    switch (frame.kind) {
      case FrameKind::kSet: return set(peer, frame.body);
      case FrameKind::kGet: return get(peer, frame.body);
      case FrameKind::kForget: return values.forget(std::to_string(peer.rank), parse_name(frame.body));
      case FrameKind::kFail: {
        const bool is_first = !failed;
        const RankText said = parse_rank_text(frame.body, options.size);
        fail(said.rank, said.text);
        peer.has_ended = true;  // its connection may close now
        if (!is_first) tell(peer, FrameKind::kFail, failure);
        return;
      }
      case FrameKind::kEnd:
        if (!peer.has_ended) ++num_ended;
        peer.has_ended = true;
        broadcast(FrameKind::kEnd, std::to_string(peer.rank));
        if (num_ended == options.size) broadcast(FrameKind::kAllEnded, "");
        return;
      case FrameKind::kAsk:
      case FrameKind::kAnswer: return pass_on(peer, frame);
      default: throw IoError("a frame of no kind that a rank sends");
    }
  }

  // To the rank that it names, with the sender's number in place of that one's. Whoever has gone gets none.
  void pass_on(const Peer& from, const Frame& frame) {
    const RankText text = parse_rank_text(frame.body, options.size);
    for (const auto& peer : peers) {
      if (peer->rank == text.rank) tell(*peer, frame.kind, join_fields({std::to_string(from.rank), text.text}));
    }
  }

  void join(Peer& peer, const Frame& frame) {
    if (frame.kind != FrameKind::kJoin) return turn_away(peer);
    const JoinBody join = parse_join(frame.body);
    const auto refuse = [&](const std::string& reason) {
      tell(peer, FrameKind::kRefused, reason);
      turn_away(peer);
    };
    if (join.job_id != options.job_id) return refuse(fmt::format("the job at {} is another one", address));
    if (join.size != options.size) {
      return refuse(
          fmt::format("rank 0 expects {}, rank {} expects {}", plural(options.size, "rank"), join.rank, join.size));
    }
    if (join.rank >= options.size) return refuse(fmt::format("the job has no rank {}", join.rank));
    const auto place = static_cast<size_t>(join.rank);
    if (has_joined[place]) return refuse(fmt::format("rank {} has joined already", join.rank));
    has_joined[place] = true;
    hosts[place] = join.host;
    peer.rank = join.rank;
    if (failed) tell(peer, FrameKind::kFail, failure);
    if (++num_joined < options.size) return;
    // Nobody else has a reason to come.
    listener = Socket();
    for (const auto& other : peers) {
      if (other->rank < 0) other->is_gone = true;
    }
    broadcast(FrameKind::kAllJoined, join_fields(hosts));
  }

  void set(const Peer& peer, const std::string& body) {
    const std::string name = parse_named_value(body).name;
    const auto frame = std::make_shared<const std::string>(body);
    if (const std::string why = values.set(std::to_string(peer.rank), name, frame); !why.empty()) {
      throw IoError("{}", why);
    }
    const std::set<uint64_t> waiters = values.take_waiters(name);
    for (const auto& other : peers) {
      if (other->rank >= 0 && waiters.contains(static_cast<uint64_t>(other->rank))) {
        tell(*other, FrameKind::kValue, frame);
      }
    }
  }

  void get(Peer& peer, const std::string& body) {
    const std::string name = parse_name(body);
    if (auto found = values.find(name)) return tell(peer, FrameKind::kValue, std::move(found));
    if (const std::string why = values.wait(static_cast<uint64_t>(peer.rank), name); !why.empty()) {
      throw IoError("{}", why);
    }
  }

  void check_joined() {
    if (all_joined() || failed || now_ms() < join_deadline_ms) return;
    std::vector<std::string> missing;
    int first = -1;
    for (int r = 0; r < options.size; ++r) {
      if (has_joined[static_cast<size_t>(r)]) continue;
      if (first < 0) first = r;
      missing.push_back(std::to_string(r));
    }
    std::string message = fmt::format("rank{} {} did not join the job within {} ms", missing.size() > 1 ? "s" : "",
                                      fmt::join(missing, ", "), options.timeout_ms);
    if (num_turned_away > 0) {
      message += fmt::format("; {} connection{} did not prove the job's secret in time", num_turned_away,
                             num_turned_away > 1 ? "s" : "");
    }
    fail(first, message);
  }

  void fail(int rank, const std::string& message) {
    if (failed) return;
    failed = true;
    failure = join_fields({std::to_string(rank), message});
    broadcast(FrameKind::kFail, failure);
  }

  void broadcast(FrameKind kind, std::string body) {
    const auto shared = std::make_shared<const std::string>(std::move(body));
    for (const auto& peer : peers) {
      if (peer->rank >= 0) tell(*peer, kind, shared);
    }
  }

  void tell(Peer& peer, FrameKind kind, std::string body) {
    tell(peer, kind, std::make_shared<const std::string>(std::move(body)));
  }

  // Whoever does not read holds up nobody: it is told later, or given up.
  void tell(Peer& peer, FrameKind kind, std::shared_ptr<const std::string> body) {
    if (peer.is_gone) return;
    peer.writer.push(kind, std::move(body));
    peer.writer.flush(peer.session, peer.socket);  // a lost connection is noticed when it is read
    if (peer.writer.waiting_bytes() <= kMaxUnread) return;
    peer.is_gone = true;
    if (peer.rank >= 0) fail(peer.rank, "it has stopped reading what the others tell it");
  }

  void say_last_words() {
    const int64_t deadline = now_ms() + kLastWordsMs;
    while (now_ms() < deadline) {
      std::vector<pollfd> waits;
      for (const auto& peer : peers) {
        if (peer->rank >= 0 && peer->writer.waiting_bytes() > 0) waits.push_back({peer->socket.fd(), POLLOUT, 0});
      }
      if (waits.empty()) return;
      poll(waits.data(), waits.size(), 20);
      for (const auto& peer : peers) peer->writer.flush(peer->session, peer->socket);
    }
  }

  HubOptions options;
  std::string address;
  std::shared_ptr<const TlsContext> tls;
  Socket listener;
  Socket wake;
  std::vector<std::unique_ptr<Peer>> peers;
  StoredValues values;             // whole bodies
  std::vector<std::string> hosts;  // by rank
  std::vector<bool> has_joined;    // by rank
  int num_joined = 0;
  int num_ended = 0;
  int64_t num_turned_away = 0;
  uint64_t last_id = 0;
  Strangers strangers;
  int64_t accept_again_ms = 0;  // 0: now
  bool failed = false;
  std::string failure;
  int64_t join_deadline_ms = 0;
  std::thread thread;
};

HubServer::HubServer(const HubOptions& options) : impl_(std::make_unique<Impl>(options)) {}
HubServer::~HubServer() = default;
const std::string& HubServer::address() const { return impl_->address; }

}  // namespace tessera::cluster
