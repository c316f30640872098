#include "tessera/cluster/tls_wire/pair_meeting.h"

#include <fcntl.h>

#include <array>
#include <asio/buffer.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/write.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/base/logging.h"
#include "tessera/base/printable.h"
#include "tessera/cluster/hub/strangers.h"
#include "tessera/cluster/rendezvous/connector.h"
#include "tessera/cluster/rendezvous/host_port.h"

namespace tessera::cluster {
namespace {

using asio::ip::tcp;

constexpr std::chrono::milliseconds kTurn{5};
// Of a connection, from its first byte to the greeting; less where the job's own limit is short.
constexpr int64_t kGreetMs = 5000;
constexpr int64_t kTriesPerLimit = 4;
constexpr int64_t kAgainMs = 50;
// Peers wait as long for each other from the moment on at which they come.
constexpr int64_t kOthersLimits = 2;
constexpr int kBacklog = 1024;
constexpr int kMostAtOnce = 16;
// Reasons why strangers were turned away are said once in so long.
constexpr int64_t kQuietMs = 1000;
constexpr const char* kEnded = "it has ended the connection";

// Talk: a connection until its two ends have greeted each other.
class Talk : public std::enable_shared_from_this<Talk> {
 public:
  // `peer`: whom it was made to; -1 where somebody has come.
  Talk(const MeetingOptions& options, std::shared_ptr<const TlsContext> tls, tcp::socket socket, int peer)
      : options_(options), socket_(std::move(socket)), session_(std::move(tls)), peer_(peer) {
    asio::error_code ignored;
    const auto endpoint = socket_.remote_endpoint(ignored);
    address_ = endpoint.address().to_string();
  }

  // `ended` is called once: when both have greeted, or with the reason why not.
  void start(std::function<void(const std::string& reason)> ended) {
    ended_ = std::move(ended);
    asio::error_code error;
    socket_.set_option(tcp::no_delay(true), error);
    socket_.non_blocking(true, error);
    fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
    take({});  // a client speaks first
    if (!has_ended_) read();
  }

  void close(const std::string& reason) {
    if (std::exchange(has_ended_, true)) return;
    asio::error_code ignored;
    if (!is_writing_ && !unsent_.empty()) socket_.write_some(asio::buffer(unsent_), ignored);  // an alert
    socket_.close(ignored);
    const auto ended = std::exchange(ended_, nullptr);
    if (ended) ended(reason);
  }

  int peer() const { return peer_; }
  const std::string& address() const { return address_; }
  bool has_ended() const { return has_ended_; }
  std::unique_ptr<TlsStream> release() {
    SslPointer session = session_.release();
    return std::make_unique<TlsStream>(std::move(session), socket_.release(), options_.bytes_per_key);
  }

 private:
  void read() {
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const asio::error_code& failure) {
      if (self->has_ended_) return;
      if (failure) return self->close(failure.message());
      std::array<char, 1 << 14> buffer;
      asio::error_code error;
      const size_t count = self->socket_.read_some(asio::buffer(buffer), error);
      if (error == asio::error::would_block || error == asio::error::try_again) return self->read();
      if (error) return self->close(error == asio::error::eof ? kEnded : error.message());
      self->take({buffer.data(), count});
      // What a rank that has been greeted sends next is for another reader.
      if (!self->has_ended_ && !self->is_greeted_) self->read();
    });
  }

  void take(std::string_view arrived) {
    const bool was_open = session_.state() == TlsSession::State::kOpen;
    session_.receive(arrived, heard_);
    const bool is_open = session_.state() == TlsSession::State::kOpen;
    if (is_open && !was_open && peer_ >= 0) greet();
    flush();
    if (has_ended_) return;
    if (session_.state() == TlsSession::State::kFailed) return close(session_.error());
    if (session_.state() == TlsSession::State::kEnded) return close("it has turned this rank away");
    if (!is_open || heard_.size() < kGreetingBytes) return;
    const GreetingCheck check = check_greeting(options_.place, options_.rank, session_.binding(), heard_);
    if (check.from < 0) return turn_away(check.reason);
    if (peer_ >= 0 && check.from != peer_) return turn_away(fmt::format("it is rank {}, not {}", check.from, peer_));
    if (peer_ < 0 && check.from < options_.rank) {
      return turn_away(fmt::format("it is rank {}, which does not come to this one", check.from));
    }
    if (!options_.node_ids.empty()) {
      const std::string& node_id = options_.node_ids[as_index(check.from)];
      if (!session_.identity().may_be_node(node_id)) {
        return turn_away(fmt::format("it has a certificate for node {}, but is rank {}, of node {}",
                                     session_.identity().node_id, check.from, node_id));
      }
    }
    is_greeted_ = true;
    if (peer_ < 0) {
      peer_ = check.from;
      greet();
      flush();
    }
    finish_when_sent();
  }

  void greet() { session_.send(print_greeting(options_.place, options_.rank, peer_, session_.binding())); }

  void turn_away(const std::string& reason) {
    session_.end();
    unsent_ += session_.take_output();
    close(reason);
  }

  void flush() {
    unsent_ += session_.take_output();
    if (is_writing_ || has_ended_ || unsent_.empty()) return;
    is_writing_ = true;
    writing_.swap(unsent_);
    unsent_.clear();
    asio::async_write(socket_, asio::buffer(writing_),
                      [self = shared_from_this()](const asio::error_code& failure, size_t /*count*/) {
                        self->is_writing_ = false;
                        if (self->has_ended_) return;
                        if (failure) return self->close(failure.message());
                        self->flush();
                        if (self->is_greeted_) self->finish_when_sent();
                      });
  }

  void finish_when_sent() {
    if (is_writing_ || !unsent_.empty() || has_ended_) return;
    has_ended_ = true;
    const auto ended = std::exchange(ended_, nullptr);
    if (ended) ended("");
  }

  const MeetingOptions& options_;
  tcp::socket socket_;
  std::string address_;
  TlsSession session_;
  int peer_;
  std::function<void(const std::string&)> ended_;
  std::string heard_;
  std::string unsent_;
  std::string writing_;
  bool is_writing_ = false;
  bool is_greeted_ = false;
  bool has_ended_ = false;
};

class Meeting {
 public:
  Meeting(const MeetingOptions& options, comm::Store& store, Clock& clock)
      : options_(options),
        store_(store),
        clock_(clock),
        start_ms_(now_ms()),
        greet_ms_(std::min(kGreetMs, std::max<int64_t>(options.timeout_ms / kTriesPerLimit, 1))),
        acceptor_(loop_),
        strangers_({.deadline_ms = greet_ms_}) {
    for (const TlsSide side : {TlsSide::kServer, TlsSide::kClient}) {
      tls_.push_back(make_tls_context(options.tls, side, clock.wall_ms() / 1000, TlsUse::kRanks));
    }
    for (int rank = 0; rank < options_.place.size; ++rank) {
      if (rank != options_.rank) peers_[rank] = {};
    }
  }

  std::vector<std::unique_ptr<TlsStream>> run() {
    listen();
    const int64_t deadline = start_ms_ + options_.timeout_ms;
    while (!has_met_all()) {
      if (options_.job != nullptr && options_.job->failed()) {
        throw comm::PeerFailure(options_.job->failed_rank(),
                                fmt::format("stopped in the meeting of ranks because rank {} failed: {}",
                                            options_.job->failed_rank(), options_.job->message()));
      }
      if (now_ms() >= deadline) throw_missing();
      seek_addresses();
      turn();
    }
    acknowledge();
    std::vector<std::unique_ptr<TlsStream>> streams(as_index(options_.place.size));
    for (auto& [rank, peer] : peers_) streams[as_index(rank)] = peer.met->release();
    return streams;
  }

 private:
  struct Peer {
    std::string address;  // "": not known yet
    std::shared_ptr<tcp::socket> dialing;
    std::shared_ptr<Talk> talk;  // that this rank has begun
    std::shared_ptr<Talk> met;
    int64_t tried_ms = 0;
    std::string reason;
  };

  int64_t now_ms() const { return clock_.monotonic_ns() / 1'000'000; }
  bool has_met_all() const {
    return std::ranges::all_of(peers_, [](const auto& peer) { return peer.second.met != nullptr; });
  }
  static std::string address_name(int rank) { return fmt::format("tls/address/{}", rank); }
  static std::string met_name(int rank) { return fmt::format("tls/met/{}", rank); }

  // The lower rank of two listens.
  void listen() {
    if (peers_.empty() || peers_.rbegin()->first < options_.rank) return;
    asio::error_code error;
    const tcp::endpoint endpoint(asio::ip::make_address(options_.address, error), 0);
    if (!error) acceptor_.open(endpoint.protocol(), error);
    if (!error) {
      fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
      acceptor_.bind(endpoint, error);
    }
    if (!error) acceptor_.listen(kBacklog, error);
    if (!error) acceptor_.non_blocking(true, error);
    if (!error) wait_for_visits();
    if (error) {
      throw IoError("rank {} cannot listen at {} for the other ranks: {}", options_.rank, options_.address,
                    error.message());
    }
    const rendezvous::HostPort own{options_.address, acceptor_.local_endpoint().port()};
    store_.set(address_name(options_.rank), own.text());
  }

  // Looks at all that is to be looked at, and waits a little for more.
  void turn() {
    const int64_t now = now_ms();
    for (const uint64_t id : strangers_.overdue(now)) end_visit(id, "it has not shown in time who it is");
    for (auto& [rank, peer] : peers_) {
      if (rank < options_.rank && peer.met == nullptr) reach(rank, peer, now);
    }
    if (!is_waiting_for_visits_ && acceptor_.is_open()) wait_for_visits();
    loop_.run_one_for(kTurn);
    loop_.poll();
  }

  void wait_for_visits() {
    if (!strangers_.has_room(now_ms())) return;
    is_waiting_for_visits_ = true;
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](const asio::error_code& failure) {
      is_waiting_for_visits_ = false;
      if (!failure) accept_visits();
    });
  }

  void accept_visits() {
    for (int i = 0; i < kMostAtOnce && strangers_.has_room(now_ms()); ++i) {
      asio::error_code error;
      tcp::socket socket = acceptor_.accept(error);
      if (error == asio::error::connection_aborted || error == asio::error::interrupted) continue;
      if (error) return;  // nobody is there, or there is no descriptor
      const uint64_t id = ++last_visit_;
      const auto talk = visits_[id] = std::make_shared<Talk>(options_, tls_[0], std::move(socket), -1);
      const auto crowded_out = strangers_.add(id, talk->address(), now_ms());
      if (crowded_out) end_visit(*crowded_out, "others wait");
      talk->start([this, id](const std::string& reason) { end_visit_of(id, reason); });
    }
  }

  void end_visit(uint64_t id, const std::string& reason) {
    const auto found = visits_.find(id);
    if (found == visits_.end()) return;
    const std::shared_ptr<Talk> talk = found->second;
    talk->close(reason);
  }

  void end_visit_of(uint64_t id, const std::string& reason) {
    const std::shared_ptr<Talk> talk = std::move(visits_.extract(id).mapped());
    strangers_.remove(id);
    // A rank that comes again has not heard the greeting of the first time.
    if (reason.empty()) {
      peers_.at(talk->peer()).met = talk;
      return;
    }
    ++num_turned_away_;
    if (last_reason_.empty() || reason != kEnded) {  // that somebody has hung up says less than why one was turned away
      last_reason_ = printable(fmt::format("{}: {}", talk->address(), reason));
    }
    if (now_ms() < turned_away_again_ms_) return;
    turned_away_again_ms_ = now_ms() + kQuietMs;
    log_warning("rank {} has turned away a connection of {} ({} so far)", options_.rank, last_reason_,
                num_turned_away_);
  }

  void reach(int rank, Peer& peer, int64_t now) {
    if (peer.address.empty()) return;
    if (peer.talk != nullptr || peer.dialing != nullptr) {
      if (now - peer.tried_ms < greet_ms_) return;
      peer.reason = "it does not answer";
      asio::error_code ignored;
      if (const auto dialing = std::exchange(peer.dialing, nullptr)) dialing->close(ignored);
      if (const auto talk = std::exchange(peer.talk, nullptr)) talk->close(peer.reason);
      return;
    }
    if (now - peer.tried_ms < kAgainMs && peer.tried_ms != 0) return;
    peer.tried_ms = now;
    const rendezvous::HostPort address = rendezvous::parse_host_port(peer.address, "the address of a rank");
    const auto socket = peer.dialing = std::make_shared<tcp::socket>(loop_);
    socket->async_connect(rendezvous::resolve_one(loop_, address),
                          [this, rank, socket](const asio::error_code& failure) { dialed(rank, socket, failure); });
  }

  void dialed(int rank, const std::shared_ptr<tcp::socket>& socket, const asio::error_code& failure) {
    Peer& peer = peers_.at(rank);
    if (peer.dialing != socket) return;  // it was given up
    peer.dialing = nullptr;
    if (failure) {
      peer.reason = failure.message();
      return;
    }
    const auto talk = peer.talk = std::make_shared<Talk>(options_, tls_[1], std::move(*socket), rank);
    talk->start([this, rank, talk = std::weak_ptr<Talk>(talk)](const std::string& reason) {
      Peer& own = peers_.at(rank);
      const auto ended = talk.lock();
      if (own.talk != ended) return;
      own.talk = nullptr;
      own.reason = reason;
      if (reason.empty()) own.met = ended;
    });
  }

  void seek_addresses() {
    for (auto& [rank, peer] : peers_) {
      if (rank < options_.rank && peer.address.empty()) peer.address = store_.find(address_name(rank), 0).value_or("");
    }
  }

  // Returns when all peers have met theirs: until then one of them may come again.
  void acknowledge() {
    store_.set(met_name(options_.rank), "1");
    const int64_t deadline = now_ms() + kOthersLimits * options_.timeout_ms;
    for (auto& [rank, peer] : peers_) {
      while (!store_.find(met_name(rank), 0)) {
        if (now_ms() >= deadline) {
          throw IoError("rank {} has connected to its peers by TLS, but rank {} has not to its own within {} ms",
                        options_.rank, rank, kOthersLimits * options_.timeout_ms);
        }
        turn();
      }
    }
    asio::error_code ignored;
    acceptor_.close(ignored);
    while (!visits_.empty()) end_visit(visits_.begin()->first, "all ranks are there");
  }

  [[noreturn]] void throw_missing() const {
    if (options_.ends_together) store_.set(met_name(options_.rank), "0");
    std::vector<std::string> missing;
    std::vector<UnmetPeer> unmet;
    for (const auto& [rank, peer] : peers_) {
      if (peer.met != nullptr) continue;
      const bool comes = rank > options_.rank;
      std::string why = comes ? "it has not come" : printable(peer.reason);
      if (why.empty()) why = "it says nothing";
      const std::string where = peer.address.empty() ? "" : " at " + printable(peer.address);
      missing.push_back(fmt::format("rank {}{}: {}", rank, where, why));
      unmet.push_back({rank, comes ? options_.address : printable(peer.address), why});
    }
    throw UnmetPeers(fmt::format("rank {} cannot connect to its peers by TLS from {} within {} ms: {}{}", options_.rank,
                                 options_.address, options_.timeout_ms, fmt::join(missing, "; "),
                                 last_reason_.empty() ? "" : fmt::format("; it has turned away {}", last_reason_)),
                     std::move(unmet));
  }

  const MeetingOptions& options_;
  comm::Store& store_;
  Clock& clock_;
  int64_t start_ms_;
  int64_t greet_ms_;
  std::vector<std::shared_ptr<const TlsContext>> tls_;  // by side
  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> stays_{loop_.get_executor()};  // also with nothing to do
  tcp::acceptor acceptor_;
  bool is_waiting_for_visits_ = false;
  Strangers strangers_;
  std::map<uint64_t, std::shared_ptr<Talk>> visits_;  // of whoever has come and not greeted
  uint64_t last_visit_ = 0;
  std::map<int, Peer> peers_;
  int64_t num_turned_away_ = 0;
  int64_t turned_away_again_ms_ = 0;
  std::string last_reason_;
};

}  // namespace

std::vector<std::unique_ptr<TlsStream>> meet_peers(const MeetingOptions& options, comm::Store& store, Clock& clock) {
  return Meeting(options, store, clock).run();
}

}  // namespace tessera::cluster
