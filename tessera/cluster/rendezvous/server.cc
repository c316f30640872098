#include "tessera/cluster/rendezvous/server.h"

#include <fcntl.h>

#include <algorithm>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/logging.h"
#include "tessera/base/printable.h"
#include "tessera/cluster/rendezvous/connection.h"
#include "tessera/cluster/rendezvous/connector.h"
#include "tessera/cluster/rendezvous/host_addresses.h"
#include "tessera/cluster/rendezvous/ticking_loop.h"

namespace tessera::cluster::rendezvous {
namespace {

constexpr int64_t kFilesMs = 500;
// One who has shown who it is registers, or asks, within this time.
constexpr int64_t kIdleMs = 5000;
// While there is no descriptor or memory for one more connection.
constexpr int64_t kNoRoomMs = 100;
// When the job is over, for peers that have not heard it.
constexpr int64_t kGoodbyeMs = 2000;
// Answers of so many bytes wait for the state to be saved once for all of them.
constexpr size_t kMostUntoldBytes = size_t{4} << 20;
// Why connections were turned away is said once in so long, and while strangers come ever less often, down to once in
// the longer time.
constexpr int64_t kQuietMs = 1000;
constexpr int64_t kLongestQuietMs = 60000;
// Between two attempts to save on a disk that is full, and between two warnings of it.
constexpr int64_t kSaveAgainMs = 1000;
// Between two looks of who is shown how the job is.
constexpr int64_t kStatusMs = 1000;
constexpr int64_t kSaveWarningMs = 60000;
constexpr const char* kNoFiles = "the scheduler's own certificates cannot be used now";

// Where the scheduler cannot listen at an address.
std::string what_to_do(const asio::error_code& error, const HostPort& address) {
  if (error == asio::error::address_in_use) {
    return fmt::format("`ss -ltnp 'sport = :{}'` says who does", address.port);
  }
  if (error.value() == EADDRNOTAVAIL) {
    return no_such_address(address.host, "--host", "the scheduler");
  }
  if (error == asio::error::access_denied) return "ports below 1024 are root's: name a higher one";
  return "--host is a name or an address of this machine, and --port a port that is free there";
}

// Two schedulers of one state would each write down what the other one does not know. The lock is a file beside it, as
// the state itself is replaced with each change; the system lets go of it however the process ends.
class StateLock {
 public:
  // `path`: the state's; empty: there is none, and nothing is locked.
  StateLock(FileSystem& files, const std::string& path) : files_(files) {
    if (path.empty()) return;
    path_ = path + ".lock";
    lock_ = files_.try_lock(path_);
    if (lock_ != nullptr) return;
    const int64_t holder = files_.lock_holder(path_);
    throw InvalidArgument(
        "the scheduler's state {} belongs to a scheduler that lives{}: end that one, or name another file", path,
        holder > 0 ? fmt::format(", process {}", holder) : "");
  }
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;
  // Removes the file before it lets go of it: whoever has opened it meanwhile finds that it is no more.
  ~StateLock() {
    try {
      if (lock_ != nullptr && lock_->is_at(path_)) files_.remove(path_);
    } catch (const Error& error) {
      log_warning("{}", error.what());
    }
  }

 private:
  FileSystem& files_;
  std::string path_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace

struct RendezvousServer::Impl {
  // A connection, until it has ended.
  struct Entry {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<const TlsContext> tls;  // by which its handshake is made
    int64_t since_ms = 0;                   // that it is there, then that it is open
  };

  Impl(const ServerOptions& server_options, FileSystem& file_system, Clock& passed_clock)
      : options(server_options),
        files(file_system),
        clock(passed_clock),
        tls(make_tls_context(options.tls, TlsSide::kServer, now_s())),
        stamp(stamp_of_files(options.tls)),
        state_lock(files, options.state_path),
        scheduler(scheduler_options(), clock,
                  options.state_path.empty() ? SchedulerState{} : load_scheduler_state(files, options.state_path)),
        acceptor(loop.context()),
        telling(loop.context()),
        strangers(options.strangers),
        was_over(scheduler.is_over()) {
    say_warnings();
    const auto endpoint = resolve_one(loop.context(), options.address);
    if (endpoint.address().is_unspecified()) {
      throw InvalidArgument("a scheduler listens at one interface's address, not at all of them ({}): give this host's",
                            options.address.text());
    }
    asio::error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) {
      fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);  // of no concern to programs that this one starts
      asio::error_code ignored;
      acceptor.set_option(asio::ip::tcp::acceptor::reuse_address(true), ignored);
      acceptor.bind(endpoint, error);
    }
    if (!error) acceptor.listen(kBacklog, error);
    if (error) {
      throw IoError("the scheduler cannot listen at {}: {}; {}", options.address.text(), error.message(),
                    what_to_do(error, options.address));
    }
    acceptor.non_blocking(true, error);
    address = {options.address.host, acceptor.local_endpoint().port()};
  }

  static constexpr int kBacklog = 1024;

  SchedulerOptions scheduler_options() const {
    SchedulerOptions of_job = options.scheduler;
    of_job.keeps_state = !options.state_path.empty();
    return of_job;
  }

  int64_t now_ms() const { return clock.monotonic_ns() / 1'000'000; }
  int64_t now_s() const { return clock.wall_ms() / 1000; }

  JobPhase run() {
    loop.run("the scheduler", [this] { must_stop.load() ? finish() : tick(); });
    return scheduler.phase();
  }

  void wait_for_peers() {
    if (is_waiting_for_peers || is_done) return;
    acceptor.async_wait(asio::ip::tcp::acceptor::wait_read, [this](const asio::error_code& failure) {
      is_waiting_for_peers = false;
      if (!failure) accept_peers();
    });
    is_waiting_for_peers = true;
  }

  void accept_peers() {
    constexpr int kMostAtOnce = 16;  // then those that are there are heard again
    for (int i = 0; i < kMostAtOnce && strangers.has_room(now_ms()); ++i) {
      asio::error_code error;
      asio::ip::tcp::endpoint peer;
      asio::ip::tcp::socket socket = acceptor.accept(peer, error);
      if (error == asio::error::would_block || error == asio::error::try_again) break;
      if (error == asio::error::connection_aborted || error == asio::error::interrupted) continue;
      if (error) {  // no descriptor for it
        accept_again_ms = now_ms() + kNoRoomMs;
        return;
      }
      try {
        add(std::move(socket), peer.address().to_string());
      } catch (const std::exception&) {  // no memory for it
        accept_again_ms = now_ms() + kNoRoomMs;
        return;
      }
    }
    if (strangers.has_room(now_ms())) wait_for_peers();  // else the tick does
  }

  void add(asio::ip::tcp::socket socket, const std::string& from) {
    if (tls == nullptr) return say_turned_away(PeerId{0}, kNoFiles);
    const PeerId id = ++last_id;
    auto connection = std::make_shared<Connection>(std::move(socket), from, tls, Sender::kPeer);
    const auto crowded_out = strangers.add(id, connection->address(), now_ms());
    entries[id] = {connection, tls, now_ms()};
    if (crowded_out) end(*crowded_out, "others wait");
    connection->start({.open = [this, id] { open(id); },
                       .message = [this, id](uint64_t generation, const Message& m) { receive(id, generation, m); },
                       .end = [this, id](const std::string& reason) { forget(id, reason); }});
  }

  void open(PeerId id) {
    Entry& entry = entries.at(id);
    // The handshake was made by the files of when it began: who was revoked meanwhile is not let in.
    const bool are_same = entry.tls == tls;
    const std::string distrust = tls == nullptr ? kNoFiles
                                 : are_same     ? ""
                                                : entry.connection->session().why_untrusted(*tls, now_s());
    entry.tls = nullptr;
    if (!distrust.empty()) return end(id, distrust);
    strangers.remove(id);
    entry.since_ms = now_ms();
    PeerIdentity identity = entry.connection->session().identity();
    identity.address = entry.connection->address();
    scheduler.connect(id, identity);
  }

  void receive(PeerId id, uint64_t generation, const Message& message) {
    scheduler.receive(id, generation, message);
    if (scheduler.untold_bytes() > kMostUntoldBytes) return tell_peers();
    tell_peers_soon();
  }

  // When what has arrived is heard, and half of the time is left for hearing: a thousand workers that come at once are
  // a few saves.
  void tell_peers_soon() {
    if (std::exchange(is_to_tell, true)) return;
    telling.expires_at(save_again);
    telling.async_wait([this](const asio::error_code& failure) {
      is_to_tell = false;
      if (!failure) tell_peers();
    });
  }

  // Saves what must be known before anybody is told of it.
  void tell_peers() {
    save();
    for (const std::string& line : scheduler.take_news()) {
      if (options.on_news) options.on_news(line);
    }
    for (const ToPeer& told : scheduler.take_messages()) {
      const auto found = entries.find(told.peer);
      if (found == entries.end()) continue;
      const std::shared_ptr<Connection> connection = found->second.connection;
      if (const auto* refusal = std::get_if<Refused>(&told.message)) say_turned_away(told.peer, refusal->reason);
      connection->send(told.message, told.generation);
      if (told.ends) connection->end_when_sent();
    }
  }

  void save() {
    if (scheduler.take_is_dirty()) must_save = !options.state_path.empty();
    if (!must_save || now_ms() < save_again_ms) return;
    const auto begin = std::chrono::steady_clock::now();
    try {
      save_scheduler_state(files, options.state_path, scheduler.state());
      must_save = false;
      const auto end = std::chrono::steady_clock::now();
      save_again = end + (end - begin);
    } catch (const Error& e) {
      // The job goes on: only a scheduler that dies before the disk is well again would miss it.
      save_again_ms = now_ms() + kSaveAgainMs;
      if (now_ms() < save_warning_ms) return;
      save_warning_ms = now_ms() + kSaveWarningMs;
      log_warning("the scheduler cannot save its state, and tries again: {}", e.what());
    }
  }

  // The connection has ended.
  void forget(PeerId id, const std::string& reason) {
    const auto found = entries.find(id);
    if (found == entries.end()) return;
    const bool was_stranger = strangers.remove(id);
    if (was_stranger) say_turned_away(id, reason);
    const std::shared_ptr<Connection> connection = found->second.connection;
    entries.erase(found);
    scheduler.disconnect(id);
    if (was_stranger) wait_for_peers();
  }

  void end(PeerId id, const std::string& reason) {
    const auto found = entries.find(id);
    if (found == entries.end()) return;
    const std::shared_ptr<Connection> connection = found->second.connection;
    connection->close(reason);
  }

  // Logs why, but not so often that strangers fill a disk, or a pipe that is read late: less and less often while they
  // come.
  void say_turned_away(PeerId id, const std::string& reason) {
    ++num_turned_away;
    const int64_t now = now_ms();
    if (reason.empty() || reason == "its connection has ended" || now < turned_away_again_ms) return;
    const bool was_calm = now >= turned_away_again_ms + kLongestQuietMs;
    quiet_ms = was_calm ? kQuietMs : std::min(2 * quiet_ms, kLongestQuietMs);
    turned_away_again_ms = now + quiet_ms;
    const auto found = entries.find(id);
    log_warning("the scheduler at {} has turned away a connection from {}: {} ({} so far)", address.text(),
                found == entries.end() ? "a host" : found->second.connection->address(), printable(reason),
                num_turned_away);
  }

  // Looks at time-outs, files of certificates and ends of connections.
  void tick() {
    const int64_t now = now_ms();
    scheduler.tick();
    tell_peers();
    reread_files(now);
    std::vector<std::pair<PeerId, std::string>> late;
    for (const PeerId id : strangers.overdue(now)) late.emplace_back(id, "it has not shown in time who it is");
    std::vector<std::shared_ptr<Connection>> all;
    for (const auto& [id, entry] : entries) {
      all.push_back(entry.connection);
      if (entry.connection->is_open() && !scheduler.is_member(id) && now - entry.since_ms >= kIdleMs) {
        late.emplace_back(id, "it has not registered");
      }
    }
    for (const auto& [id, reason] : late) end(id, reason);
    for (const auto& connection : all) connection->tick(now);
    if (now >= accept_again_ms) wait_for_peers();
    show_status(now);
    if (!scheduler.is_over()) return;
    if (goodbye_ms == 0) goodbye_ms = now + kGoodbyeMs;
    // Who was distrusted, or has lost an earlier scheduler, hears how the job has ended when it comes again.
    const bool all_told = !has_distrusted && !was_over && std::ranges::none_of(entries, [&](const auto& entry) {
      return scheduler.is_member(entry.first);
    });
    if (all_told || now >= goodbye_ms) finish();
  }

  // Also at once where the job is over.
  void show_status(int64_t now) {
    if (!options.on_status || (now < status_again_ms && !scheduler.is_over())) return;
    status_again_ms = now + kStatusMs;
    options.on_status(scheduler.status(), scheduler.generation(),
                      [this](const std::string& node_id) { return scheduler.figures_of(node_id); });
  }

  // Certificates and the list of revoked ones may change while the job runs. What cannot be used admits nobody.
  void reread_files(int64_t now) {
    if (now < files_again_ms) return;
    files_again_ms = now + kFilesMs;
    const std::string found = stamp_of_files(options.tls);
    if (found == stamp) return;
    stamp = found;
    try {
      tls = make_tls_context(options.tls, TlsSide::kServer, now_s());
    } catch (const Error& e) {
      tls = nullptr;
      log_warning("the scheduler admits nobody until its files are right: {}", e.what());
      return;
    }
    say_warnings();
    std::vector<std::pair<PeerId, std::string>> lost;
    for (const auto& [id, entry] : entries) {
      const std::string reason = entry.connection->session().why_untrusted(*tls, now_s());
      if (entry.connection->is_open() && !reason.empty()) lost.emplace_back(id, reason);
    }
    has_distrusted = has_distrusted || !lost.empty();
    for (const auto& [id, reason] : lost) {
      say_turned_away(id, reason);
      end(id, reason);
    }
  }

  void say_warnings() const {
    for (const std::string& warning : tls->warnings()) log_warning("{}", warning);
  }

  void finish() {
    is_done = true;
    loop.stop();
    asio::error_code ignored;
    acceptor.close(ignored);
    std::vector<PeerId> ids;
    for (const auto& [id, entry] : entries) ids.push_back(id);
    for (const PeerId id : ids) end(id, "the scheduler ends");
  }

  ServerOptions options;
  FileSystem& files;
  Clock& clock;
  std::shared_ptr<const TlsContext> tls;  // none while the files cannot be used
  std::string stamp;
  StateLock state_lock;
  JobScheduler scheduler;
  TickingLoop loop;
  asio::ip::tcp::acceptor acceptor;
  asio::steady_timer telling;
  HostPort address;
  std::map<PeerId, Entry> entries;
  Strangers strangers;
  bool was_over;  // before this scheduler was started
  PeerId last_id = 0;
  bool is_waiting_for_peers = false;
  bool is_done = false;
  bool has_distrusted = false;  // members, whose certificates are not good any more
  bool must_save = false;
  bool is_to_tell = false;
  std::chrono::steady_clock::time_point save_again{};  // after the latest save, as long as it took
  int64_t save_again_ms = 0;
  int64_t save_warning_ms = 0;
  int64_t accept_again_ms = 0;
  int64_t files_again_ms = 0;
  int64_t status_again_ms = 0;
  int64_t turned_away_again_ms = 0;
  int64_t quiet_ms = kQuietMs;
  int64_t goodbye_ms = 0;
  int64_t num_turned_away = 0;
  std::atomic<bool> must_stop{false};
};

RendezvousServer::RendezvousServer(const ServerOptions& options, FileSystem& files, Clock& clock)
    : impl_(std::make_unique<Impl>(options, files, clock)) {}
RendezvousServer::~RendezvousServer() = default;
const HostPort& RendezvousServer::address() const { return impl_->address; }
JobPhase RendezvousServer::run() { return impl_->run(); }
void RendezvousServer::stop() { impl_->must_stop.store(true); }
const std::string& RendezvousServer::failure() const { return impl_->scheduler.failure(); }
std::string RendezvousServer::who_is_missing() const { return impl_->scheduler.who_is_missing(); }

}  // namespace tessera::cluster::rendezvous
