#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/hub.h"
#include "tessera/cluster/hub_socket.h"

namespace tessera::cluster {
namespace {

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

struct HubServer::Impl {
  struct Peer {
    Socket socket;
    FrameReader reader;
    int rank = -1;  // until it joins
    bool has_ended = false;
    bool is_gone = false;
    std::vector<std::string> wanted;  // names it waits for
  };

  explicit Impl(const HubOptions& hub_options) : options(hub_options), address(hub_options.address) {
    listener = listen_at(address);
    wake = Socket(eventfd(0, EFD_CLOEXEC));
    hosts.resize(static_cast<size_t>(options.size));
    join_deadline_ms = now_ms() + options.timeout_ms;
    thread = std::thread([this] { serve(); });
  }

  ~Impl() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake.fd(), &one, sizeof(one));
    thread.join();
  }

  void serve() {
    while (true) {
      std::vector<pollfd> waits = {{wake.fd(), POLLIN, 0}, {listener.fd(), POLLIN, 0}};
      for (const auto& peer : peers) waits.push_back({peer->socket.fd(), POLLIN, 0});
      poll(waits.data(), waits.size(), num_joined < options.size && !failed ? 20 : -1);
      // Peers first: what they said before the end is still passed on.
      for (size_t i = 0; i + 2 < waits.size(); ++i) {
        if (waits[i + 2].revents != 0) read_from(*peers[i]);
      }
      std::erase_if(peers, [](const auto& peer) { return peer->is_gone; });
      if (waits[1].revents != 0) {
        if (Socket socket = accept_from(listener)) {
          peers.push_back(std::make_unique<Peer>());
          peers.back()->socket = std::move(socket);
        }
      }
      if (waits[0].revents != 0) return;
      check_joined();
    }
  }

  void read_from(Peer& peer) {
    const bool is_open = peer.reader.read_some(peer.socket);
    Frame frame;
    while (!peer.is_gone && peer.reader.next(frame)) handle(peer, frame);
    if (peer.reader.is_foreign()) peer.is_gone = true;
    if (is_open) return;
    peer.is_gone = true;
    if (peer.rank >= 0 && !peer.has_ended) fail(peer.rank, "its process has ended without a word");
  }

  void handle(Peer& peer, const Frame& frame) {
    if (peer.rank < 0) return join(peer, frame);
    const std::vector<std::string> fields = split_fields(frame.body);
    switch (frame.kind) {
      case FrameKind::kSet:
        values[fields[0]] = frame.body;
        for (const auto& other : peers) {
          if (std::erase(other->wanted, fields[0]) > 0) send_frame(other->socket, FrameKind::kValue, frame.body);
        }
        break;
      case FrameKind::kGet:
        if (const auto found = values.find(frame.body); found != values.end()) {
          send_frame(peer.socket, FrameKind::kValue, found->second);
        } else {
          peer.wanted.push_back(frame.body);
        }
        break;
      case FrameKind::kFail: {
        peer.has_ended = true;  // its connection may close now
        const bool is_first = !failed;
        fail(peer.rank, frame.body);
        if (!is_first) send_frame(peer.socket, FrameKind::kFail, failure);
        break;
      }
      case FrameKind::kEnd:
        peer.has_ended = true;
        broadcast(FrameKind::kEnd, std::to_string(peer.rank));
        if (++num_ended == options.size) broadcast(FrameKind::kAllEnded, "");
        break;
      default: peer.is_gone = true;
    }
  }

  void join(Peer& peer, const Frame& frame) {
    const std::vector<std::string> fields = split_fields(frame.body);
    if (frame.kind != FrameKind::kJoin || fields.size() != 5 || fields[0] != "tessera hub 1") {
      peer.is_gone = true;
      return;
    }
    const auto refuse = [&](const std::string& reason) {
      send_frame(peer.socket, FrameKind::kRefused, reason);
      peer.is_gone = true;
    };
    if (fields[1] != options.job_id) {
      return refuse(fmt::format("the job at {} is \"{}\", not \"{}\"", address, options.job_id, fields[1]));
    }
    const int64_t rank = parse_int(fields[2], "rank");
    if (fields[3] != std::to_string(options.size)) {
      return refuse(fmt::format("rank 0 expects {} ranks, rank {} expects {}", options.size, rank, fields[3]));
    }
    if (rank < 0 || rank >= options.size) return refuse(fmt::format("the job has no rank {}", rank));
    std::string& host = hosts[static_cast<size_t>(rank)];
    if (!host.empty()) return refuse(fmt::format("rank {} has joined already", rank));
    host = fields[4];
    peer.rank = static_cast<int>(rank);
    if (failed) send_frame(peer.socket, FrameKind::kFail, failure);
    if (++num_joined == options.size) broadcast(FrameKind::kAllJoined, join_fields(hosts));
  }

  void check_joined() {
    if (num_joined == options.size || failed || now_ms() < join_deadline_ms) return;
    std::vector<std::string> missing;
    int first = -1;
    for (int r = 0; r < options.size; ++r) {
      if (!hosts[static_cast<size_t>(r)].empty()) continue;
      if (first < 0) first = r;
      missing.push_back(std::to_string(r));
    }
    fail(first, fmt::format("rank{} {} did not join the job within {} ms", missing.size() > 1 ? "s" : "",
                            fmt::join(missing, ", "), options.timeout_ms));
  }

  void fail(int rank, const std::string& message) {
    if (failed) return;
    failed = true;
    failure = join_fields({std::to_string(rank), message});
    broadcast(FrameKind::kFail, failure);
  }

  void broadcast(FrameKind kind, const std::string& body) {
    for (const auto& peer : peers) {
      if (peer->rank >= 0) send_frame(peer->socket, kind, body);
    }
  }

  HubOptions options;
  std::string address;
  Socket listener;
  Socket wake;
  std::vector<std::unique_ptr<Peer>> peers;
  std::map<std::string, std::string> values;  // whole frames by name
  std::vector<std::string> hosts;             // by rank; empty until it joins
  int num_joined = 0;
  int num_ended = 0;
  bool failed = false;
  std::string failure;
  int64_t join_deadline_ms = 0;
  std::thread thread;
};

HubServer::HubServer(const HubOptions& options) : impl_(std::make_unique<Impl>(options)) {}
HubServer::~HubServer() = default;
const std::string& HubServer::address() const { return impl_->address; }

}  // namespace tessera::cluster
