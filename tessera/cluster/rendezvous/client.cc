#include "tessera/cluster/rendezvous/client.h"

#include <algorithm>
#include <asio/post.hpp>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/printable.h"
#include "tessera/base/thread.h"
#include "tessera/cluster/rendezvous/connection.h"
#include "tessera/cluster/rendezvous/connector.h"
#include "tessera/cluster/rendezvous/host_clock.h"
#include "tessera/cluster/rendezvous/membership/scheduler_state.h"
#include "tessera/cluster/rendezvous/ticking_loop.h"
#include "tessera/comm/job_state.h"

namespace tessera::cluster::rendezvous {
namespace {

// From the connection to Welcome; a scheduler answers at once, unless strangers stand before this peer.
constexpr int64_t kWelcomeMs = 10000;
constexpr int64_t kFirstPauseMs = 25;
constexpr int64_t kLongestPauseMs = 1000;
// So often a peer shows its secret at least before it believes that the scheduler has another one.
constexpr int kLeastProofs = 3;

int64_t monotonic_ms() { return Clock::system().monotonic_ns() / 1'000'000; }

}  // namespace

struct RendezvousClient::Impl {
  Impl(const ClientOptions& client_options, std::function<void(const RendezvousEnd&)> on_end)
      : options(client_options),
        ended(std::move(on_end)),
        stamp(stamp_of_files(options.tls)),
        tls(make_tls_context(options.tls, TlsSide::kClient, std::time(nullptr))),
        connector(loop.context(), options.scheduler, tls),
        join_deadline_ms(monotonic_ms() + options.join_timeout_ms) {
    if (options.incarnation == 0) options.incarnation = host_time_ns();
    if (options.role == PeerRole::kWorker) started_ns = host_time_ns();
    token = options.token;
    for (const std::string& warning : tls->warnings()) log_warning("{}", warning);
    thread = start_thread("the connection to the scheduler", [this] {
      loop.run("the connection to the scheduler", [this] { must_stop.load() ? finish() : tick(); });
    });
  }

  ~Impl() { close(); }

  void close() {
    must_stop.store(true);
    if (thread.joinable()) thread.join();
  }

  void finish() {
    loop.stop();
    connector.cancel();
    if (connection) std::exchange(connection, nullptr)->close("this process ends");
  }

  void tick() {
    const int64_t now = monotonic_ms();
    if (connection) connection->tick(now);
    if (connection && !is_welcome && now - connected_ms >= kWelcomeMs) connection->close("it says nothing");
    if (!connection && !is_connecting && !is_over() && now >= next_try_ms) connect();
    if (connection && is_welcome && now >= next_heartbeat_ms) {
      next_heartbeat_ms = now + heartbeat_ms;
      beat();
    }
    if (connection && is_welcome && wants_figures.load()) send_figures();
    if (connection && is_welcome && now - heard_ms >= timeout_ms) connection->close("it says nothing any more");
  }

  // A generation that has ended may be followed by another end.
  bool is_over() {
    const std::lock_guard lock(mutex);
    return end.has_value() && end->kind != RendezvousEnd::Kind::kGenerationEnded;
  }
  uint64_t number() {
    const std::lock_guard lock(mutex);
    return generation.number;
  }
  void send_figures() {
    std::string told;
    {
      const std::lock_guard lock(mutex);
      told.swap(figures);
    }
    if (!told.empty()) connection->send(TellFigures{std::move(told)}, number());
  }
  Heartbeat heartbeat() {
    const std::lock_guard lock(mutex);
    doing.step = step.load();
    return doing;
  }

  void beat() {
    Heartbeat said = heartbeat();
    if (options.find_idle) said.idle = options.find_idle(timeout_ms);
    uint64_t of_generation = 0;
    {
      const std::lock_guard lock(mutex);
      leaves_before_beats.push_back(num_leaves_said);
      of_generation = generation.number;
    }
    connection->send(std::move(said), of_generation);
  }

  // A certificate that was renewed while the job runs is shown at the next connection.
  void reread_files() {
    const std::string found = stamp_of_files(options.tls);
    if (found == stamp) return;
    stamp = found;
    try {
      tls = make_tls_context(options.tls, TlsSide::kClient, std::time(nullptr));
    } catch (const Error& e) {
      log_warning("the certificate of before is used again: {}", e.what());
      return;
    }
    num_revoked = 0;
    connector.use(tls);
    for (const std::string& warning : tls->warnings()) log_warning("{}", warning);
  }

  void connect() {
    reread_files();
    connector.connect(kWelcomeMs, [this](std::shared_ptr<Connection> made, const std::string& reason) {
      is_connecting = false;
      if (!made) {
        pause(reason);
        note_proof(/*is_refused=*/false);
        return note_revocation(/*is_told=*/false);
      }
      connection = std::move(made);
      connected_ms = monotonic_ms();
      is_welcome = false;
      connection->start({.open = [this] { enroll(); },
                         .message = [this](uint64_t of, const Message& message) { receive(of, message); },
                         .end =
                             [this](const std::string& why) {
                               const bool is_proof_refused = connection && connection->session().is_secret_unknown();
                               const bool is_revoked = connection && connection->session().is_own_certificate_revoked();
                               connection = nullptr;
                               pause(why);
                               note_proof(is_proof_refused);
                               note_revocation(is_revoked);
                             }});
    });
    is_connecting = true;
  }

  // After a fault: longer and longer, and each client otherwise, so that thousands do not come at one time.
  void pause(const std::string& reason) {
    const bool is_lost = std::exchange(is_welcome, false);
    const std::lock_guard lock(mutex);
    is_registered = false;
    if (!reason.empty()) last_reason = reason;
    if (is_lost) word_ms = monotonic_ms() + options.quiet_ms;
    say_who_is_sought();
    pause_ms = std::min(std::max(2 * pause_ms, kFirstPauseMs), kLongestPauseMs);
    next_try_ms = monotonic_ms() + std::uniform_int_distribution<int64_t>(pause_ms / 2, pause_ms)(draws);
    changed.notify_all();
  }

  // Whoever answers may be another job's scheduler, which ends soon; this peer's own has this peer's secret.
  void note_proof(bool is_refused) {
    if (!is_refused) num_refused = 0;
    if (!is_refused || was_welcome || options.token != 0) return;
    const int64_t now = monotonic_ms();
    if (num_refused++ == 0) refused_since_ms = now;
    if (num_refused < kLeastProofs || now - refused_since_ms < options.refusal_ms) return;
    const RendezvousEnd refused{
        .kind = RendezvousEnd::Kind::kRefused,
        .reason =
            fmt::format("it has another secret than this process, or is no scheduler (shown {} times): this "
                        "one's is {}; give both the same",
                        num_refused, options.secret_origin.empty() ? "one that it was given" : options.secret_origin)};
    tell_end(refused);
  }

  // Who is on a list of revoked certificates comes back by another certificate only, which connect() looks for. Once
  // the scheduler has said so, a connection that nobody takes counts, too: with its last member it ends.
  void note_revocation(bool is_told) {
    if (!is_told && num_revoked == 0) return;
    const int64_t now = monotonic_ms();
    if (num_revoked++ == 0) revoked_since_ms = now;
    if (num_revoked < kLeastProofs || now - revoked_since_ms < options.refusal_ms) return;
    tell_end(
        {.kind = RendezvousEnd::Kind::kRefused,
         .reason = fmt::format("the certificate of this process is on the scheduler's list of revoked ones, and no "
                               "other one has taken its place within {} tries: make one, and start again",
                               num_revoked)});
  }

  // `ended` hears first: whoever meets `end` below finds that its owner has heard.
  void tell_end(const RendezvousEnd& heard) {
    if (is_over()) return;
    if (ended) ended(heard);
    {
      const std::lock_guard lock(mutex);
      end = heard;
    }
    changed.notify_all();
  }

  // Where nobody answers for long; the lock is held.
  void say_who_is_sought() {
    constexpr int64_t kBetweenWordsMs = 60000;
    const int64_t now = monotonic_ms();
    if (last_reason.empty() || now < word_ms) return;
    word_ms = now + kBetweenWordsMs;
    const char* what = was_welcome ? "has lost the scheduler" : "has not yet reached the scheduler";
    log_warning("{} at {}: {}; it is tried again", what, options.scheduler.text(), last_reason);
  }

  void enroll() {
    {
      const std::lock_guard lock(mutex);
      own_address = connection->own_address();
      unsaid.emplace_back(Register{.role = options.role,
                                   .incarnation = options.incarnation,
                                   .clock_id = host_clock_id(),
                                   .started_ns = started_ns,
                                   .token = token,
                                   .num_workers = static_cast<uint32_t>(options.num_workers),
                                   .host = options.host,
                                   .node_ids = options.node_ids,
                                   .num_servers = static_cast<uint32_t>(options.num_servers),
                                   .program = options.program});
    }
    send_unsaid();
  }

  // Outside of the lock: a connection that ends while it sends is told to pause().
  void send_unsaid() {
    std::vector<Message> messages;
    uint64_t of_generation = 0;
    {
      const std::lock_guard lock(mutex);
      messages = std::exchange(unsaid, {});
      of_generation = generation.number;
    }
    for (const Message& message : messages) {
      if (connection) connection->send(message, of_generation);
    }
  }

  void receive(uint64_t of_generation, const Message& message) {
    heard_ms = monotonic_ms();
    std::optional<RendezvousEnd> heard;
    {
      const std::lock_guard lock(mutex);
      heard = take(of_generation, message);
    }
    send_unsaid();
    changed.notify_all();
    if (!heard) return;
    if (heard->kind == RendezvousEnd::Kind::kNodeDropped) {
      if (ended) ended(*heard);
      return;
    }
    tell_end(*heard);
    // Who was ended by the scheduler does not come back.
    if (heard->kind != RendezvousEnd::Kind::kGenerationEnded && connection) connection->close(heard->reason);
  }

  std::optional<RendezvousEnd> take(uint64_t of_generation, const Message& message) {
    using Kind = RendezvousEnd::Kind;
    if (const auto* welcome = std::get_if<Welcome>(&message)) {
      token = welcome->token;
      heartbeat_ms = std::max<int64_t>(welcome->heartbeat_ms, 1);
      timeout_ms = std::max<int64_t>(welcome->timeout_ms, 1);
      max_restarts = welcome->max_restarts;
      min_ranks = welcome->min_ranks;
      is_newcomer = welcome->is_newcomer;
      is_spare = welcome->is_spare;
      wants_figures.store(welcome->wants_figures);
      keeps_state = welcome->keeps_state;
      if (!fixed.reason.empty()) unsaid.emplace_back(fixed);
      if (last_save) unsaid.emplace_back(*last_save);
      is_welcome = was_welcome = is_registered = true;
      num_revoked = 0;
      pause_ms = 0;
      next_heartbeat_ms = 0;
      leaves_before_beats.clear();
      say_leaves();
      for (const auto& [name, question] : asked_states) unsaid.push_back(question);
    } else if (const auto* assigned = std::get_if<Assigned>(&message)) {
      return take_ranks(of_generation, *assigned);
    } else if (const auto* answer = std::get_if<HeartbeatAnswer>(&message)) {
      num_newcomers = answer->num_newcomers;
      stop_reason = printable(answer->stop_reason);
      if (!leaves_before_beats.empty()) {
        num_leaves_heard = leaves_before_beats.front();
        leaves_before_beats.pop_front();
      }
    } else if (const auto* dropped = std::get_if<NodeDropped>(&message)) {
      return RendezvousEnd{.kind = Kind::kNodeDropped,
                           .node_id = dropped->node_id,
                           .reason = printable(dropped->reason),
                           .generation = of_generation,
                           .ends_job = dropped->ends_job};
    } else if (const auto* value = std::get_if<ValueAnswer>(&message)) {
      if (asked_for.contains(value->name)) values[value->name] = value->value;
    } else if (const auto* blob = std::get_if<BlobAnswer>(&message)) {
      states[blob->name] = blob->is_there ? std::optional(blob->bytes) : std::nullopt;
      asked_states.erase(blob->name);
    } else if (const auto* over = std::get_if<GenerationEnded>(&message)) {
      if (generation.number == 0 || of_generation < generation.number) return std::nullopt;
      return RendezvousEnd{.kind = Kind::kGenerationEnded,
                           .rank = over->rank,
                           .node_id = over->node_id,
                           .is_lost = over->is_lost,
                           .ends_by_itself = over->ends_by_itself,
                           .num_losses = over->num_losses,
                           .reason = printable(over->reason),
                           .generation = of_generation};
    } else if (const auto* fenced = std::get_if<Fenced>(&message)) {
      return RendezvousEnd{.kind = Kind::kFenced, .reason = printable(fenced->reason)};
    } else if (const auto* refused = std::get_if<Refused>(&message)) {
      return RendezvousEnd{.kind = Kind::kRefused, .reason = printable(refused->reason)};
    } else if (const auto* ended_job = std::get_if<JobEnded>(&message)) {
      const std::string who = ended_job->node_id.empty() ? "" : fmt::format("node {}: ", printable(ended_job->node_id));
      return RendezvousEnd{.kind = ended_job->failed ? Kind::kJobFailed : Kind::kJobFinished,
                           .rank = ended_job->rank,
                           .node_id = ended_job->node_id,
                           .reason = who + printable(ended_job->reason)};
    }
    return std::nullopt;
  }

  std::optional<RendezvousEnd> take_ranks(uint64_t number, const Assigned& assigned) {
    const bool may_change = min_ranks > 0 || !assigned.last_reason.empty();
    const bool may_lack_some = may_change && options.role == PeerRole::kLauncher;
    if (const std::string why = why_impossible(assigned, options.node_ids, may_lack_some); !why.empty()) {
      return RendezvousEnd{.kind = RendezvousEnd::Kind::kRefused,
                           .reason = "the scheduler has told what cannot be: " + why};
    }
    Generation told{.number = number,
                    .size = static_cast<int>(assigned.size),
                    .is_one_host = assigned.is_one_host,
                    .num_servers = static_cast<int>(assigned.num_servers),
                    .ranks = {},
                    .last_reason = printable(assigned.last_reason)};
    for (const NodeRank& node : assigned.nodes) told.ranks[node.node_id] = static_cast<int>(node.rank);
    const bool is_first = generation.number == 0;
    if (!is_first && number != generation.number && options.role == PeerRole::kWorker) {
      return RendezvousEnd{.kind = RendezvousEnd::Kind::kGenerationEnded, .reason = "another generation has begun"};
    }
    // A scheduler that was started again does not know that it is the last one.
    if (number == generation.number && told.last_reason.empty()) told.last_reason = generation.last_reason;
    const bool may_differ = may_change && number != generation.number;
    if (!is_first && !may_differ && told.ranks != generation.ranks) {
      return RendezvousEnd{
          .kind = RendezvousEnd::Kind::kRefused,
          .reason = "the scheduler has other ranks for this process: it was started without its state"};
    }
    if (end && end->kind == RendezvousEnd::Kind::kGenerationEnded) end.reset();  // a launcher's: the next one has begun
    generation = std::move(told);
    is_newcomer = false;
    for (const std::string& name : std::exchange(forgotten, {})) unsaid.emplace_back(ForgetValue{name});
    // A scheduler that has died has forgotten what was stored and asked for.
    for (const auto& [name, value] : stored) unsaid.emplace_back(SetValue{name, value});
    for (const std::string& name : asked_for) {
      if (!values.contains(name)) unsaid.emplace_back(GetValue{name});
    }
    return std::nullopt;
  }

  // `work` runs in the client's thread, where connections are used.
  void post(std::function<void()> work) { asio::post(loop.context(), std::move(work)); }

  void say_leaves() {
    for (const auto& [id, leave] : leaves) unsaid.emplace_back(leave);
    num_leaves_said = num_leaves;
  }

  [[noreturn]] void throw_end(const std::string& doing) const {
    using Kind = RendezvousEnd::Kind;
    const char* what = !end                                  ? "has no scheduler"
                       : end->kind == Kind::kFenced          ? "was fenced"
                       : end->kind == Kind::kRefused         ? "was refused by the scheduler"
                       : end->kind == Kind::kGenerationEnded ? "is of a generation that has ended"
                       : end->kind == Kind::kJobFinished     ? "has a job that is over"
                                                             : "has a job that failed";
    const std::string why =
        fmt::format("{}: node {} {}: {}", doing, options.node_ids.front(), what, end ? end->reason : last_reason);
    if (end && end->kind == Kind::kJobFailed && end->rank >= 0) throw comm::PeerFailure(end->rank, why);
    throw IoError("{}", why);
  }

  std::string ask_state(const std::string& name, const Message& question, int64_t timeout, bool& is_there) {
    std::unique_lock lock(mutex);
    states.erase(name);
    asked_states.insert_or_assign(name, question);
    post([this, question] {
      if (connection && is_welcome) connection->send(question, number());
    });
    changed.wait_for(lock, std::chrono::milliseconds(timeout), [&] { return states.contains(name) || end; });
    const auto found = states.find(name);
    if (found == states.end()) {
      asked_states.erase(name);
      if (end) throw_end("the job's state");
      throw IoError("the scheduler at {} has not answered for the job's {} within {} ms", options.scheduler.text(),
                    name, timeout);
    }
    is_there = found->second.has_value();
    return found->second.value_or("");
  }

  ClientOptions options;
  std::function<void(const RendezvousEnd&)> ended;
  std::string stamp;  // of the files that `tls` is made of
  std::shared_ptr<const TlsContext> tls;

  // Of the client's thread.
  TickingLoop loop;
  Connector connector;
  std::shared_ptr<Connection> connection;
  bool is_connecting = false;
  bool is_welcome = false;
  int64_t connected_ms = 0;
  int64_t next_heartbeat_ms = 0;
  int64_t heartbeat_ms = 3000;
  int64_t timeout_ms = 30000;
  int64_t heard_ms = 0;
  int64_t next_try_ms = 0;
  bool was_welcome = false;
  int num_refused = 0;  // in a row, for this side's secret
  int64_t refused_since_ms = 0;
  int num_revoked = 0;  // tries since the scheduler has said that this side's certificate is revoked
  int64_t revoked_since_ms = 0;
  int64_t word_ms = monotonic_ms() + options.quiet_ms;  // when it is said that the scheduler is not reached
  int64_t pause_ms = 0;
  std::mt19937_64 draws{std::random_device()()};

  std::atomic<bool> must_stop{false};
  std::atomic<int64_t> step{0};

  std::mutex mutex;
  Heartbeat doing;
  std::string figures;  // that have not been told yet
  std::atomic<bool> wants_figures{false};
  std::condition_variable changed;
  int64_t join_deadline_ms;
  uint64_t started_ns = 0;
  uint64_t token = 0;
  uint64_t max_restarts = 0;
  uint32_t min_ranks = 0;
  bool is_newcomer = false;
  bool is_spare = false;
  bool keeps_state = false;  // the scheduler
  uint32_t num_newcomers = 0;
  bool leaves_for_good = false;
  std::string stop_reason;
  FixRanks fixed;
  bool has_said_fixed = false;
  std::optional<TellLastSave> last_save;  // what this process has said last
  bool is_registered = false;             // now
  Generation generation;
  std::optional<RendezvousEnd> end;
  std::string last_reason = "nobody has answered yet";
  std::string own_address;
  std::map<std::string, std::string> stored;  // by this peer
  std::set<std::string> forgotten;            // of those, and the scheduler has not been told
  std::map<std::string, std::string> values;
  std::set<std::string> asked_for;
  std::map<std::string, std::optional<std::string>> states;
  std::map<std::string, Message> asked_states;  // that have not been answered
  std::vector<Message> unsaid;
  std::map<std::string, Leave> leaves;  // by node
  // Calls of leave(): those there were, those whose words are on their way, and those that the scheduler has taken. It
  // answers a heartbeat once what it was told before is saved; the list has an entry for each that is not answered.
  uint64_t num_leaves = 0;
  uint64_t num_leaves_said = 0;
  uint64_t num_leaves_heard = 0;
  std::deque<uint64_t> leaves_before_beats;
  std::thread thread;
};

RendezvousClient::RendezvousClient(const ClientOptions& options, std::function<void(const RendezvousEnd&)> ended)
    : impl_(std::make_unique<Impl>(options, std::move(ended))) {}
RendezvousClient::~RendezvousClient() = default;

std::optional<Generation> RendezvousClient::find_generation(int64_t limit_ms) {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait_for(lock, std::chrono::milliseconds(limit_ms),
                          [&] { return impl_->generation.number > 0 || impl_->end; });
  // A generation that has begun and ended meanwhile is joined: there the process hears of its end and begins anew.
  const bool has_begun = impl_->generation.number > 0;
  if (impl_->end && !(has_begun && impl_->end->kind == RendezvousEnd::Kind::kGenerationEnded)) {
    impl_->throw_end(fmt::format("joining the job of the scheduler at {}", impl_->options.scheduler.text()));
  }
  return has_begun ? std::optional(impl_->generation) : std::nullopt;
}

Generation RendezvousClient::wait_for_generation() {
  constexpr int64_t kLookMs = 1000;
  while (monotonic_ms() < impl_->join_deadline_ms) {
    const int64_t rest = std::max<int64_t>(impl_->join_deadline_ms - monotonic_ms(), 0);
    if (auto found = find_generation(std::min(rest, kLookMs))) return *std::move(found);
    const std::lock_guard lock(impl_->mutex);
    if (impl_->is_newcomer && impl_->is_registered) {
      impl_->join_deadline_ms = monotonic_ms() + impl_->options.join_timeout_ms;
    }
  }
  if (auto found = find_generation(0)) return *std::move(found);
  const std::lock_guard lock(impl_->mutex);
  throw IoError("joining the job of the scheduler at {}: node {} {} within {} ms", impl_->options.scheduler.text(),
                impl_->options.node_ids.front(),
                impl_->is_registered ? "waits for other workers, which have not come"
                                     : fmt::format("has not reached it ({})", printable(impl_->last_reason)),
                impl_->options.join_timeout_ms);
}

uint64_t RendezvousClient::incarnation() const { return impl_->options.incarnation; }

uint64_t RendezvousClient::token() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->token;
}

uint64_t RendezvousClient::max_restarts() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->max_restarts;
}

int RendezvousClient::min_ranks() const {
  const std::lock_guard lock(impl_->mutex);
  return static_cast<int>(impl_->min_ranks);
}

bool RendezvousClient::is_spare() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->is_spare;
}

bool RendezvousClient::is_registered() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->is_registered;
}

bool RendezvousClient::has_finished() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->end && impl_->end->kind == RendezvousEnd::Kind::kJobFinished;
}

bool RendezvousClient::is_newcomer() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->is_newcomer;
}

int RendezvousClient::num_newcomers() const {
  const std::lock_guard lock(impl_->mutex);
  return static_cast<int>(impl_->num_newcomers);
}

Generation RendezvousClient::generation() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->generation;
}

std::string RendezvousClient::own_address() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->own_address;
}

void RendezvousClient::set(const std::string& name, const std::string& value) {
  check(name.size() <= kMaxValueName && value.size() <= kMaxValueBytes, "what ranks tell each other is small");
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stored[name] = value;
    impl_->forgotten.erase(name);
  }
  impl_->post([impl = impl_.get(), name, value] {
    if (impl->connection && impl->is_welcome) impl->connection->send(SetValue{name, value}, impl->number());
  });
}

std::string RendezvousClient::get(const std::string& name, int64_t timeout_ms) {
  if (auto found = find(name, timeout_ms)) return *std::move(found);
  throw comm::PeerSilence(fmt::format("node {} waited {} ms for \"{}\", which no rank has set",
                                      impl_->options.node_ids.front(), timeout_ms, name));
}

std::optional<std::string> RendezvousClient::find(const std::string& name, int64_t limit_ms) {
  std::unique_lock lock(impl_->mutex);
  if (impl_->asked_for.insert(name).second) {
    impl_->post([impl = impl_.get(), name] {
      if (impl->connection && impl->is_welcome) impl->connection->send(GetValue{name}, impl->number());
    });
  }
  impl_->changed.wait_for(lock, std::chrono::milliseconds(limit_ms),
                          [&] { return impl_->values.contains(name) || impl_->end; });
  if (const auto found = impl_->values.find(name); found != impl_->values.end()) return found->second;
  if (impl_->end) impl_->throw_end("the rendezvous");
  return std::nullopt;
}

void RendezvousClient::forget(const std::string& name) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->asked_for.erase(name);
    impl_->values.erase(name);
    if (impl_->stored.erase(name) == 0) return;
    impl_->forgotten.insert(name);
  }
  impl_->post([impl = impl_.get(), name] {
    if (!impl->connection || !impl->is_welcome) return;
    const auto was_unsaid = [&] {
      const std::lock_guard lock(impl->mutex);
      return impl->forgotten.erase(name) > 0;
    }();
    if (was_unsaid) impl->connection->send(ForgetValue{name}, impl->number());
  });
}

std::string RendezvousClient::set_state(const std::string& name, const std::string& bytes, int64_t timeout_ms) {
  const BlobRules* rules = find_blob_rules(name);
  check(rules != nullptr && bytes.size() <= rules->max_bytes, "the scheduler keeps states of a job that it knows");
  bool is_there = false;
  return impl_->ask_state(name, SetBlob{name, bytes}, timeout_ms, is_there);
}

std::optional<std::string> RendezvousClient::find_state(const std::string& name, int64_t timeout_ms) {
  bool is_there = false;
  std::string bytes = impl_->ask_state(name, GetBlob{name}, timeout_ms, is_there);
  return is_there ? std::optional(std::move(bytes)) : std::nullopt;
}

void RendezvousClient::report_step(int64_t step) { impl_->step.store(step); }

void RendezvousClient::report_doing(Heartbeat doing) {
  const std::lock_guard lock(impl_->mutex);
  impl_->doing = std::move(doing);
}

bool RendezvousClient::wants_figures() const { return impl_->wants_figures.load(); }

void RendezvousClient::report_figures(std::string figures) {
  const std::lock_guard lock(impl_->mutex);
  impl_->figures = std::move(figures);
}

void RendezvousClient::leave(const std::string& node_id, bool failed, const std::string& reason, int64_t limit_ms,
                             bool for_good) {
  std::unique_lock lock(impl_->mutex);
  impl_->leaves[node_id] = {.node_id = node_id,
                            .at_ns = host_time_ns(),
                            .failed = failed,
                            .reason = reason,
                            .for_good = impl_->leaves_for_good || for_good};
  ++impl_->num_leaves;
  impl_->post([impl = impl_.get()] {
    if (!impl->connection || !impl->is_welcome) return;
    {
      const std::lock_guard said(impl->mutex);
      impl->say_leaves();
    }
    impl->send_unsaid();
    if (impl->connection) impl->beat();
  });
  lock.unlock();
  wait_until_heard(limit_ms);
}

bool RendezvousClient::wait_until_heard(int64_t limit_ms) {
  std::unique_lock lock(impl_->mutex);
  const uint64_t wanted = impl_->num_leaves;
  return impl_->changed.wait_for(lock, std::chrono::milliseconds(limit_ms), [&] {
    // The end of a generation is none of what was said.
    const bool is_over = impl_->end && impl_->end->kind != RendezvousEnd::Kind::kGenerationEnded;
    return impl_->num_leaves_heard >= wanted || is_over;
  });
}

int64_t RendezvousClient::return_ms() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->keeps_state ? impl_->timeout_ms : 0;
}

void RendezvousClient::leave_for_good() {
  const std::lock_guard lock(impl_->mutex);
  impl_->leaves_for_good = true;
}

void RendezvousClient::fix_ranks(const std::string& reason, const std::string& unsaved_for) {
  constexpr int64_t kLimitMs = 2000;
  std::unique_lock lock(impl_->mutex);
  if (impl_->fixed.reason == reason && impl_->fixed.unsaved_for == unsaved_for) return;
  impl_->fixed = {reason, unsaved_for};
  impl_->has_said_fixed = false;
  impl_->post([impl = impl_.get(), said_now = impl_->fixed] {
    if (!impl->connection || !impl->is_welcome) return;
    impl->connection->send(said_now, impl->number());
    {
      const std::lock_guard said(impl->mutex);
      impl->has_said_fixed = true;
    }
    impl->changed.notify_all();
  });
  impl_->changed.wait_for(lock, std::chrono::milliseconds(kLimitMs),
                          [&] { return impl_->has_said_fixed || impl_->end; });
}

void RendezvousClient::tell_last_save(bool is_training, const std::string& unsaved_for) {
  const TellLastSave said{is_training, unsaved_for};
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->last_save = said;
  }
  impl_->post([impl = impl_.get(), said] {
    if (impl->connection && impl->is_welcome) impl->connection->send(said, impl->number());
  });
}

std::string RendezvousClient::fixed_by() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->fixed.reason;
}

std::string RendezvousClient::stop_reason() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stop_reason;
}

bool RendezvousClient::wait_for_end(int64_t timeout_ms) {
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return impl_->end.has_value(); });
}

void RendezvousClient::close() { impl_->close(); }

}  // namespace tessera::cluster::rendezvous
