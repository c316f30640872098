// A process takes its place in a job: meets the others at the hub, learns who shares its host, and opens a transport.
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <mutex>

#include "tessera/base/clock.h"
#include "tessera/base/core_share.h"
#include "tessera/base/error.h"
#include "tessera/base/files/random_id.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/base/thread.h"
#include "tessera/base/usage_error.h"
#include "tessera/cluster/hub/hub.h"
#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/hub/late_ranks.h"
#include "tessera/cluster/launch.h"
#include "tessera/cluster/launcher/starter_watch.h"
#include "tessera/cluster/left_behind.h"
#include "tessera/cluster/network.h"
#include "tessera/cluster/ranks/environment.h"
#include "tessera/cluster/ranks/exit_codes.h"
#include "tessera/cluster/ranks/rank_context.h"
#include "tessera/cluster/ranks/rank_words.h"
#include "tessera/cluster/report/figures_reporter.h"
#include "tessera/cluster/report/watched_membership.h"
#include "tessera/cluster/scheduled_recovery.h"
#include "tessera/cluster/scheduler_link.h"
#include "tessera/cluster/tls_wire/survey_ranks.h"
#include "tessera/cluster/tls_wire/tls_wire.h"
#include "tessera/comm/hierarchy.h"
#include "tessera/comm/memory/shared_memory.h"
#include "tessera/comm/wire/gloo.h"
#include "tessera/comm/wire/mpi.h"

namespace tessera::cluster {
namespace {

// The cores that this process may use, as text that is equal for equal sets.
std::string core_set() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return "";
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) text += fmt::format("{},", core);
  }
  return text;
}

// Where rank 0 listens. MPI, when the job uses it, starts before the hub: it can tell the ranks where that is.
struct Meeting {
  HubOptions hub;
  std::unique_ptr<HubServer> server;  // rank 0's
  std::shared_ptr<comm::Mpi> mpi;
};

// What rank 0 hands round by MPI: where it listens and, for a job that has no secret, the one that it has drawn.
void introduce(Meeting& meeting, const JobOptions& options) {
  std::string drawn;
  if (options.rank == 0) {
    const bool is_loopback = options.is_local && options.interface.empty();
    meeting.hub.address = fmt::format("tcp:{}:0", is_loopback ? "127.0.0.1" : host_ip(options.interface));
    if (!options.secret) {
      drawn = comm::hex(comm::random_bytes(32));
      meeting.hub.secret = comm::Secret(drawn, "rank 0");
    }
    meeting.server = std::make_unique<HubServer>(meeting.hub);
    meeting.hub.address = meeting.server->address();
  }
  const std::string told = meeting.mpi->broadcast(drawn + " " + meeting.hub.address, options.timeout_ms);
  const size_t space = told.find(' ');
  check(space != std::string::npos, "rank 0 tells its secret and its address by MPI");
  meeting.hub.address = told.substr(space + 1);
  if (!options.secret) meeting.hub.secret = comm::Secret(told.substr(0, space), "rank 0");
}

// What rank 0 hands round by the scheduler, which has shown to each who it is and who they are: where it listens, a
// secret drawn for this generation, and the job's name.
void introduce(Meeting& meeting, const JobOptions& options, bool is_one_host, rendezvous::RendezvousClient& scheduler) {
  static constexpr const char* kName = "meeting of ranks";
  if (options.rank == 0) {
    std::string host = "127.0.0.1";
    if (!is_one_host || !options.interface.empty()) {
      // The address by which this rank reaches the scheduler is one by which others reach it, unless the two are on one
      // host.
      host = options.interface.empty() ? scheduler.own_address() : host_ip(options.interface);
      if (host.empty() || host.starts_with("127.") || host == "::1") host = host_ip("");
    }
    const std::string secret = comm::hex(comm::random_bytes(32));
    meeting.hub.job_id = random_id();
    meeting.hub.secret = comm::Secret(secret, "rank 0");
    meeting.hub.address = fmt::format("tcp:{}:0", host.find(':') == std::string::npos ? host : "[" + host + "]");
    meeting.server = std::make_unique<HubServer>(meeting.hub);
    meeting.hub.address = meeting.server->address();
    scheduler.set(kName, fmt::format("{} {} {}", secret, meeting.hub.job_id, meeting.hub.address));
    return;
  }
  const std::string told = scheduler.get(kName, options.timeout_ms);
  const std::vector<std::string_view> words = split(told, ' ');
  if (words.size() != 3) throw IoError("rank 0 does not say by the scheduler where it listens");
  meeting.hub.secret = comm::Secret(words[0], "rank 0");
  meeting.hub.job_id = words[1];
  meeting.hub.address = words[2];
}

// The nodes by rank. Each rank says its own at the scheduler, where nobody says another one's.
std::vector<std::string> exchange_node_ids(const JobOptions& options, rendezvous::RendezvousClient& scheduler) {
  const auto name = [](int rank) { return fmt::format("node of rank {}", rank); };
  scheduler.set(name(options.rank), options.scheduler.node_id);
  std::vector<std::string> node_ids;
  for (int rank = 0; rank < options.size; ++rank) node_ids.push_back(scheduler.get(name(rank), options.timeout_ms));
  return node_ids;
}

// Where rank 0 listens. On several nodes of srun the others know it by its node's name, which may stand for a loopback
// address on the node itself.
std::string reachable_address(const JobOptions& options) {
  const std::string& store = options.store;
  if (!options.srun || options.srun->num_nodes == 1 || !is_name_of_loopback(store, options.timeout_ms)) return store;
  std::string host = options.interface.empty() ? own_ip_towards(options.srun->launch_address) : "";
  if (host.empty()) host = host_ip(options.interface);
  return fmt::format("tcp:{}{}", host.find(':') == std::string::npos ? host : "[" + host + "]",
                     store.substr(store.rfind(':')));
}

Meeting open_meeting(const JobOptions& options) {
  Meeting meeting;
  meeting.hub = {.address = options.store,
                 .job_id = options.job_id,
                 .size = options.size,
                 .timeout_ms = options.timeout_ms,
                 .secret = options.secret};
  const bool asks_mpi = options.store.empty() || options.store == "mpi";
  if (!asks_mpi && !options.secret && !is_unix_address(options.store)) {
    throw InvalidArgument(
        "TESSERA_STORE={} without a secret of the job: anybody could join. Make one on one host, (umask 077; head -c "
        "32 "
        "/dev/urandom > FILE), give it to the others, and set TESSERA_SECRET_FILE=FILE on all ranks",
        options.store);
  }
  if (options.transport == TransportKind::kMpi) {
    meeting.mpi = std::make_shared<comm::Mpi>(options.plugin_directory, options.rank, options.size);
  } else if (asks_mpi) {
    try {
      meeting.mpi = std::make_shared<comm::Mpi>(options.plugin_directory, options.rank, options.size);
    } catch (const Error& e) {
      throw IoError("{}; or set TESSERA_STORE=tcp:HOST:PORT, rank 0's host and a free port there, on all ranks",
                    e.what());
    }
  }
  if (asks_mpi) {
    introduce(meeting, options);
  } else if (options.rank == 0) {
    meeting.hub.address = reachable_address(options);
    meeting.server = std::make_unique<HubServer>(meeting.hub);
    meeting.hub.address = meeting.server->address();
  }
  return meeting;
}

// Keeps what the meeting opened until this rank's connection is closed.
class ProcessMembership final : public Membership {
 public:
  ProcessMembership(Meeting meeting, const JobOptions& options, const std::string& host,
                    std::shared_ptr<comm::JobState> job)
      : job_(std::move(job)),
        meeting_(std::move(meeting)),
        rank_(options.rank),
        status_fd_(options.status_fd),
        is_of_srun_(options.srun.has_value()),
        client_(meeting_.hub, rank_, host, job_) {
    job_->set_thread(rank_, gettid());
    job_->set_late_report([this](const comm::LongWait& wait) { report(wait); });
  }
  ~ProcessMembership() override {
    if (meeting_.mpi != nullptr && job_->has_ended()) meeting_.mpi->finish();
  }

  comm::JobState& job() { return *job_; }
  const std::string& job_id() const { return meeting_.hub.job_id; }
  HubClient& client() { return client_; }
  const std::shared_ptr<comm::Mpi>& mpi() const { return meeting_.mpi; }
  const comm::Secret& secret() const { return meeting_.hub.secret; }
  // The launcher hears of it, too: ranks that fail together may end in any order.
  void announce_failure(int origin, const std::string& message) override {
    client_.announce_failure(origin, message);
    const int failed = job_->failed() ? job_->failed_rank() : origin;
    report_failure(status_fd_, rank_, failed);
    // The first rank that is left says it for all.
    if (is_of_srun_ && rank_ == (failed == 0 ? 1 : 0)) {
      log_warning(
          "srun puts no other rank in the place of rank {}, so the job ends: start it again from its checkpoint; with "
          "tessera scheduler --max_restarts, and tessera run --join under srun, a training goes on",
          failed);
    }
    close();
  }
  void finish() override {
    client_.finish();
    close();
  }
  comm::RankProgress* progress() override { return &job_->notes_of(rank_)->progress(); }
  void on_asked(std::function<void()> asked) override { client_.on_asked(std::move(asked)); }

 private:
  // After its last word a rank has nothing to hear. The threads that seal and read frames must not meet the end of the
  // process, at which OpenSSL, who computes the seals, cleans up before the job is destroyed.
  void close() {
    const std::lock_guard lock(close_mutex_);
    client_.close();
    meeting_.server.reset();
  }

  void report(const comm::LongWait& wait) {
    std::vector<int> others;
    std::copy_if(wait.ranks.begin(), wait.ranks.end(), std::back_inserter(others), [&](int r) { return r != rank_; });
    report_late(wait, job_->size(), client_.ask(others, wait.place, kAnswerLimitMs));
  }

  std::shared_ptr<comm::JobState> job_;
  Meeting meeting_;
  int rank_;
  int status_fd_;
  bool is_of_srun_;
  std::mutex close_mutex_;
  HubClient client_;
};

// What the ranks prove to each other on connections of their own. At a unix address, where the job may have no secret,
// the hub speaks to processes of this user only: rank 0 can tell them one.
comm::Secret secret_of_wires(const JobOptions& options, ProcessMembership& membership) {
  if (membership.secret()) return membership.secret().derive("connections between ranks");
  static constexpr const char* kName = "secret of wires";
  if (options.rank == 0) membership.client().set(kName, comm::hex(comm::random_bytes(32)));
  return {membership.client().get(kName, options.timeout_ms), "rank 0"};
}

// What a scheduler's job adds to a wire.
struct WireExtras {
  uint64_t generation = 0;
  // By what ranks show who they are: certificates, where the job has them.
  std::optional<CertificateFiles> certificates;
  // Asks which node each rank is; all ranks call it, where there are certificates.
  std::function<std::vector<std::string>()> node_ids;
  // Tells the scheduler what is seen of this rank.
  std::function<void(const RankGlance&)> on_look;
  std::function<bool()> has_ended_as_planned;
  std::string last_reason = {};  // of the job's last generation
};

WatchOptions watch_options(const JobOptions& options, const std::string& job_id, const WireExtras& extras) {
  return {.directory = options.report_directory,
          .host = own_host_name(),
          .job = job_id,
          .generation = extras.generation,
          .timeout_ms = options.timeout_ms,
          .num_servers = options.num_servers,
          .script_place = options.script_place,
          .script_left_at = options.script_left_at,
          .has_ended_as_planned = extras.has_ended_as_planned,
          .last_reason = extras.last_reason,
          .on_look = extras.on_look};
}

std::shared_ptr<comm::Wire> open_tls_wire(const JobOptions& options, const std::string& address,
                                          const WireExtras& extras, bool spin, ProcessMembership& membership) {
  MeetingOptions meeting{.rank = options.rank,
                         .place = {.job_id = membership.job_id(),
                                   .generation = extras.generation,
                                   .size = options.size,
                                   .secret = secret_of_wires(options, membership)},
                         .address = address,
                         .tls = {.secret = {}, .certificates = extras.certificates},
                         .timeout_ms = options.timeout_ms};
  meeting.tls.secret = meeting.place.secret;
  if (extras.certificates) meeting.node_ids = extras.node_ids();
  return make_tls_wire(meeting, spin, membership.client(), membership.job());
}

std::unique_ptr<comm::Transport> open_wire(TransportKind kind, const JobOptions& options, const RankPlace& place,
                                           const WireExtras& extras, const comm::WaitOptions& wait,
                                           ProcessMembership& membership) {
  if (kind != TransportKind::kTls && place.rank == 0 && place.local_size < place.size) {
    log_warning(
        "TESSERA_TRANSPORT={}: what ranks send each other between hosts is not encrypted; that is for a network "
        "that is yours",
        kind == TransportKind::kMpi ? "mpi" : "gloo");
  }
  if (kind == TransportKind::kMpi) {
    return comm::make_wire_transport(comm::make_mpi_wire(membership.mpi(), membership.job(), wait), membership.job(),
                                     wait);
  }
  // Between hosts, the address by which this rank reaches rank 0 is one by which the others reach it.
  std::string address;
  if (!options.interface.empty()) {
    address = host_ip(options.interface);
  } else if (place.local_size == place.size) {
    address = "127.0.0.1";
  } else {
    address = membership.client().local_ip();
    if (address.empty()) address = "127.0.0.1";  // they have met at a local socket
  }
  if (kind == TransportKind::kTls) {
    return comm::make_wire_transport(open_tls_wire(options, address, extras, wait.spin, membership), membership.job(),
                                     wait);
  }
  return comm::make_wire_transport(comm::make_gloo_wire({.rank = place.rank,
                                                         .size = place.size,
                                                         .address = address,
                                                         .timeout_ms = options.timeout_ms,
                                                         .secret = secret_of_wires(options, membership)},
                                                        membership.client(), membership.job()),
                                   membership.job(), wait);
}

const char* name_of(TransportKind kind) {
  switch (kind) {
    case TransportKind::kThreads: return "threads";
    case TransportKind::kSharedMemory: return "shm";
    case TransportKind::kTls: return "tls";
    case TransportKind::kGloo: return "gloo";
    case TransportKind::kMpi: return "mpi";
    case TransportKind::kAutomatic: break;
  }
  return "";
}

// Ranks of launchers that were told different transports would wait for one another in vain.
void compare_transports(const JobOptions& options, TransportKind kind, ProcessMembership& membership) {
  static constexpr const char* kName = "transport of rank 0";
  if (options.rank == 0) return membership.client().set(kName, name_of(kind));
  const std::string of_first = membership.client().get(kName, options.timeout_ms);
  if (of_first == name_of(kind)) return;
  throw UsageError(
      "rank {} would use the transport {}{}, and rank 0 uses {}: give all launchers of a job the same --transport, or "
      "all ranks the same TESSERA_TRANSPORT",
      options.rank, name_of(kind), options.transport == TransportKind::kAutomatic ? ", which is the default here" : "",
      of_first);
}

std::unique_ptr<comm::Transport> open_transport(const JobOptions& options, const RankPlace& place,
                                                const std::vector<int>& host_of, const WireExtras& extras,
                                                const comm::WaitOptions& wait, ProcessMembership& membership) {
  const bool is_one_host = place.local_size == place.size;
  TransportKind kind = options.transport;
  if (kind == TransportKind::kAutomatic) kind = is_one_host ? TransportKind::kSharedMemory : TransportKind::kTls;
  compare_transports(options, kind, membership);
  const auto open_shared_memory = [&] {
    return comm::make_shared_memory_transport(membership.client(), membership.job(), place.rank, {.wait = wait});
  };
  if (kind == TransportKind::kSharedMemory) {
    if (is_one_host) return open_shared_memory();
    throw InvalidArgument("TESSERA_TRANSPORT=shm: {} of {} ranks are on this host; use tls, gloo or mpi",
                          place.local_size, place.size);
  }
  auto wire = open_wire(kind, options, place, extras, wait, membership);
  if (is_one_host) return wire;
  return comm::make_hierarchical_transport(open_shared_memory(), std::move(wire), host_of);
}

// What is seen of a rank, as the scheduler is told.
rendezvous::Heartbeat heartbeat_of(const RankGlance& glance) {
  rendezvous::Heartbeat said;
  said.doing = glance.progress.doing();
  if (!glance.progress.piece.line.empty()) said.doing += ", made by " + glance.progress.piece.line;
  if (!glance.waits.empty()) {
    said.waits_for = glance.waits[0].peer;
    said.waits_in = glance.waits[0].place;
  }
  if (glance.slow) {
    said.slow_rank = glance.slow->rank;
    said.slow_percent = static_cast<uint32_t>(glance.slow->percent);
    said.slow_in = glance.slow->call;
  }
  return said;
}

// Tells the launcher how the rank's training goes, and what is seen of it; null where nobody wants to know.
std::shared_ptr<FiguresReporter> reporter_to_launcher(const JobOptions& options, int rank) {
  return options.figures_fd < 0 ? nullptr : std::make_shared<FiguresReporter>(options.figures_fd, rank);
}

// A look at a rank for several who look.
std::function<void(const RankGlance&)> look_for(const std::shared_ptr<FiguresReporter>& reporter,
                                                std::function<void(const RankGlance&)> other = {}) {
  if (reporter == nullptr) return other;
  return [reporter, other = std::move(other)](const RankGlance& glance) {
    reporter->look(glance);
    if (other) other(glance);
  };
}

// Whoever wants to know hears of the trainings of the context's rank: its launcher, the scheduler.
std::unique_ptr<Context> with_figures(std::unique_ptr<Context> context,
                                      const std::shared_ptr<FiguresReporter>& reporter,
                                      const std::shared_ptr<SchedulerLink>& link = nullptr) {
  const bool is_asked = link != nullptr && link->client().wants_figures();
  if (reporter == nullptr && !is_asked) return context;
  context->set_figures_reader([reporter, link = is_asked ? link : nullptr](const TrainingFigures& figures) {
    if (reporter != nullptr) reporter->report(figures);
    if (link != nullptr) link->client().report_figures(print_figures(figures));
  });
  return context;
}

// Ends the process of a rank whose program hangs. Its main thread may hold any lock.
[[noreturn]] void end_left_behind(SchedulerLink& link, const std::string& node_id, const std::string& why) {
  link.client().leave(node_id, /*failed=*/true, why);
  log_error("{}; this process is ended", why);
  // Its generation has ended: nobody waits until that is said, and its launcher would only see the exit code.
  constexpr int64_t kToBeSaidMs = 300;
  Clock::system().sleep_ms(kToBeSaidMs);
  _exit(kExitFailure);
}

// What is done after each look at a rank of a scheduler's job.
std::function<void(const RankGlance&)> look_of(const std::shared_ptr<SchedulerLink>& link, const JobOptions& options) {
  const auto behind = std::make_shared<LeftBehind>(options.timeout_ms);
  return [link, behind, node_id = options.scheduler.node_id](const RankGlance& glance) {
    link->client().report_doing(heartbeat_of(glance));
    if (!link->client().recovers()) return;
    const auto end = link->end();
    const bool is_over = end && end->kind == rendezvous::RendezvousEnd::Kind::kGenerationEnded;
    const std::string why = behind->look(glance, is_over, Clock::system().monotonic_ns() / 1'000'000);
    if (!why.empty()) end_left_behind(*link, node_id, why);
  };
}

// Only an elastic job ends generations as planned.
std::function<bool()> planned_end_of(const std::shared_ptr<SchedulerLink>& link) {
  if (!link->client().is_elastic()) return {};
  return [link] { return link->has_ended_as_planned(); };
}

// What a rank tells the scheduler of its job, beside what it tells the other ranks.
std::unique_ptr<Membership> with_scheduler(std::unique_ptr<Membership> among_ranks, const JobOptions& options,
                                           const std::shared_ptr<SchedulerLink>& link, uint64_t generation,
                                           const std::shared_ptr<comm::JobState>& job) {
  std::unique_ptr<Recovery> recovery;
  if (link->client().recovers()) {
    recovery = std::make_unique<ScheduledRecovery>(link, options.scheduler, generation, job);
  }
  return std::make_unique<ScheduledMembership>(
      std::move(among_ranks), link, options.scheduler.node_id, std::move(recovery),
      /*has_launcher=*/options.status_fd >= 0,
      [fd = options.status_fd, rank = options.rank] { report_first_step(fd, rank); });
}

// Whether the ranks would connect by TLS, where they are on several hosts.
bool may_use_tls(const JobOptions& options) {
  return options.transport == TransportKind::kAutomatic || options.transport == TransportKind::kTls;
}

// By a scheduler, which all ranks reach: before rank 0's hub, which some may not.
void survey_by_scheduler(const Surveyor& surveyor, const JobOptions& options, const rendezvous::Generation& generation,
                         SchedulerLink& link) {
  static constexpr const char* kName = "secret of the survey";
  rendezvous::RendezvousClient& scheduler = link.client();
  if (generation.is_one_host || !may_use_tls(options)) return;
  if (options.rank == 0) scheduler.set(kName, comm::hex(comm::random_bytes(32)));
  MeetingOptions meeting{.rank = options.rank,
                         .place = {.job_id = "survey",
                                   .generation = generation.number,
                                   .size = options.size,
                                   .secret = comm::Secret(scheduler.get(kName, options.timeout_ms), "rank 0")},
                         .address = options.interface.empty() ? scheduler.own_address() : host_ip(options.interface),
                         .tls = tls_options_of(options.scheduler, TlsSide::kClient),
                         .timeout_ms = options.timeout_ms};
  // Beside the scheduler this rank reaches it by a loopback.
  if (meeting.address.empty() || meeting.address.starts_with("127.") || meeting.address == "::1") {
    meeting.address = host_ip(options.interface);
  }
  if (!meeting.tls.certificates) meeting.tls.secret = meeting.place.secret;
  if (meeting.tls.certificates) meeting.node_ids = exchange_node_ids(options, scheduler);
  survey_ranks(surveyor, std::move(meeting), scheduler);
}

// By the hub, at which all ranks have met.
void survey_by_hub(const Surveyor& surveyor, const JobOptions& options, ProcessMembership& membership) {
  const std::vector<std::string>& hosts = membership.client().hosts();
  const auto name_of_host = [](const std::string& text) { return std::string_view(text).substr(0, text.find('|')); };
  const bool is_one_host = std::ranges::all_of(
      hosts, [&](const std::string& host) { return name_of_host(host) == name_of_host(hosts.front()); });
  std::string address = options.interface.empty() ? membership.client().local_ip() : host_ip(options.interface);
  // Ranks that have met at a local socket are on one machine.
  if (is_one_host || address.empty() || !membership.secret() || !may_use_tls(options)) return;
  MeetingOptions meeting{.rank = options.rank,
                         .place = {.job_id = membership.job_id(),
                                   .generation = 0,
                                   .size = options.size,
                                   .secret = membership.secret().derive("a survey")},
                         .address = std::move(address),
                         .tls = {.secret = {}, .certificates = std::nullopt},
                         .timeout_ms = options.timeout_ms,
                         .job = &membership.job()};
  meeting.tls.secret = meeting.place.secret;
  survey_ranks(surveyor, std::move(meeting), membership.client());
}

// Where others do not come, rank 0 says what it knows.
[[noreturn]] void survey_alone(const Surveyor& surveyor, const JobOptions& options, const std::string& missing) {
  Survey survey{.rank = options.rank, .size = options.size, .words = {}, .gaps = {}, .missing = missing};
  survey.words.resize(static_cast<size_t>(options.size));
  survey.words[static_cast<size_t>(options.rank)] = surveyor.words(options.rank);
  throw SurveyEnd(surveyor.report(survey));
}

// Meets the others at the hub and opens a transport. `wrap`: adds to the membership among ranks what is beside it.
std::unique_ptr<Context> join_ranks(
    const JobOptions& options, Meeting meeting, std::shared_ptr<comm::JobState> job, const WireExtras& extras = {},
    const std::function<std::unique_ptr<Membership>(std::unique_ptr<Membership>)>& wrap = {},
    const Surveyor* surveyor = nullptr) {
  const std::string host = host_identity(options.host_id);
  std::unique_ptr<ProcessMembership> membership;
  try {
    membership = std::make_unique<ProcessMembership>(std::move(meeting), options, host + "|" + core_set(), job);
  } catch (const IoError& error) {
    if (surveyor == nullptr || options.rank != 0) throw;
    survey_alone(*surveyor, options, job->failed() ? job->message() : error.what());
  }
  if (surveyor != nullptr) survey_by_hub(*surveyor, options, *membership);

  RankPlace place{
      .rank = options.rank, .size = options.size, .local_rank = 0, .local_size = 0, .num_servers = options.num_servers};
  const std::vector<std::string>& hosts = membership->client().hosts();
  const std::string& own = hosts[static_cast<size_t>(options.rank)];
  const int num_sharing = static_cast<int>(std::count(hosts.begin(), hosts.end(), own));  // our cores
  std::vector<int> host_of;                                                               // the first rank there
  for (const std::string& theirs : hosts) {
    const auto name = std::string_view(theirs).substr(0, theirs.find('|') + 1);
    host_of.push_back(static_cast<int>(
        std::find_if(hosts.begin(), hosts.end(), [&](const std::string& other) { return other.starts_with(name); }) -
        hosts.begin()));
  }
  for (int r = 0; r < options.size; ++r) {
    if (!hosts[static_cast<size_t>(r)].starts_with(host + "|")) continue;
    if (r < options.rank) ++place.local_rank;
    ++place.local_size;
  }
  const int cores = num_cores();
  place.job_id = membership->job_id();
  place.num_compute_threads =
      1 + usable_threads(
              (options.num_compute_threads > 0 ? options.num_compute_threads : std::max(1, cores / num_sharing)) - 1);
  const comm::WaitOptions wait{.timeout_ms = options.timeout_ms, .spin = cores >= num_sharing};

  std::unique_ptr<comm::Transport> transport;
  try {
    transport = open_transport(options, place, host_of, extras, wait, *membership);
  } catch (const std::exception& e) {
    membership->announce_failure(origin_of(std::current_exception(), options.rank), e.what());
    throw;
  }
  omp_set_num_threads(concurrent_threads(place.num_compute_threads));
  std::unique_ptr<Membership> ends = std::make_unique<WatchedMembership>(
      std::move(membership), std::move(job), place.rank, watch_options(options, place.job_id, extras));
  if (wrap) ends = wrap(std::move(ends));
  return std::make_unique<RankContext>(place, std::move(transport), std::move(ends));
}

// The one rank of its job, whose scheduler hears of its end.
std::unique_ptr<Context> join_alone(const JobOptions& options, const std::shared_ptr<SchedulerLink>& link,
                                    const rendezvous::Generation& generation) {
  auto job = std::make_shared<comm::JobState>(1);
  link->watch(job, 0);
  const auto reporter = reporter_to_launcher(options, 0);
  WireExtras extras;
  extras.generation = generation.number;
  extras.last_reason = generation.last_reason;
  extras.on_look = look_for(reporter, look_of(link, options));
  extras.has_ended_as_planned = planned_end_of(link);
  const int threads = options.num_compute_threads > 0 ? options.num_compute_threads : num_cores();
  const RankPlace place{.num_compute_threads = 1 + usable_threads(threads - 1)};
  omp_set_num_threads(concurrent_threads(place.num_compute_threads));
  return with_figures(std::make_unique<RankContext>(place, nullptr,
                                                    with_scheduler(std::make_unique<WatchedMembership>(
                                                                       std::make_unique<LocalMembership>(job, 0), job,
                                                                       0, watch_options(options, "", extras)),
                                                                   options, link, generation.number, job)),
                      reporter, link);
}

// Until the scheduler has heard that a rank leaves.
constexpr int64_t kLastWordMs = 2000;

rendezvous::Generation wait_for_generation(SchedulerLink& link) {
  try {
    return link.wait_for_generation();
  } catch (const IoError&) {
    const auto end = link.end();
    if (!end || end->kind != rendezvous::RendezvousEnd::Kind::kJobFinished) throw;
    // All ranks had finished when one of them was lost: this process, which has begun again, has nothing to do.
    log_info("the job has finished meanwhile");
    std::fflush(nullptr);
    _exit(0);
  }
}

// The scheduler says which rank this process is.
std::unique_ptr<Context> join_scheduled(JobOptions options, const Surveyor* surveyor) {
  if (options.transport == TransportKind::kMpi || options.transport == TransportKind::kThreads) {
    throw InvalidArgument(
        "TESSERA_TRANSPORT: the ranks of a scheduler's job are processes without mpirun; use shm, tls or gloo");
  }
  if (options.transport == TransportKind::kGloo && !options.scheduler.tls_config.empty()) {
    throw InvalidArgument(
        "TESSERA_TRANSPORT=gloo: what it sends is not encrypted, and this job has certificates; leave the transport "
        "out, or say tls");
  }
  if (options.scheduler.node_id.empty()) options.scheduler.node_id = random_node_id();
  const std::string& node_id = options.scheduler.node_id;
  rendezvous::check_node_id(node_id, "a rank's node id", rendezvous::kMaxNodeId);
  const auto link = std::make_shared<SchedulerLink>(options.scheduler, rendezvous::PeerRole::kWorker,
                                                    std::vector<std::string>{node_id});
  const rendezvous::Generation generation = wait_for_generation(*link);
  options.rank = generation.ranks.at(node_id);
  options.size = generation.size;
  options.num_servers = generation.num_servers;
  if (options.size == 1) return join_alone(options, link, generation);
  try {
    if (surveyor != nullptr) survey_by_scheduler(*surveyor, options, generation, *link);
  } catch (const std::exception& e) {
    link->client().leave(node_id, /*failed=*/true, e.what(), kLastWordMs, /*for_good=*/true);
    throw;
  }
  Meeting meeting;
  meeting.hub = {.address = {}, .job_id = {}, .size = options.size, .timeout_ms = options.timeout_ms, .secret = {}};
  const auto job = std::make_shared<comm::JobState>(options.size);
  link->watch(job, options.rank);
  try {
    introduce(meeting, options, generation.is_one_host, link->client());
    const auto reporter = reporter_to_launcher(options, options.rank);
    const WireExtras extras{.generation = generation.number,
                            .certificates = tls_options_of(options.scheduler, TlsSide::kClient).certificates,
                            .node_ids = [&] { return exchange_node_ids(options, link->client()); },
                            .on_look = look_for(reporter, look_of(link, options)),
                            .has_ended_as_planned = planned_end_of(link),
                            .last_reason = generation.last_reason};
    auto context = join_ranks(options, std::move(meeting), job, extras, [&](std::unique_ptr<Membership> among_ranks) {
      return with_scheduler(std::move(among_ranks), options, link, generation.number, job);
    });
    return with_figures(std::move(context), reporter, link);
  } catch (const std::exception& e) {
    // A rank that has heard sooner of the generation's end is gone already: that is why this one does not meet it.
    constexpr int64_t kWordMs = 2000;
    const bool is_known = job->failed() || is_of_other_rank(e) || dynamic_cast<const InvalidArgument*>(&e) != nullptr;
    if (link->client().recovers() && !is_known) link->wait_for_end(kWordMs);
    const auto end = link->end();
    const bool has_ended = end && end->kind == rendezvous::RendezvousEnd::Kind::kGenerationEnded;
    std::string why_not_anew;
    if (link->client().recovers() && (has_ended || job->failed() || is_of_other_rank(e))) {
      ScheduledRecovery recovery(link, options.scheduler, generation.number, job);
      const std::string planned = recovery.planned_end();
      why_not_anew = planned.empty() ? recovery.begin_anew(e.what())
                                     : recovery.begin_anew_as_planned(planned, /*speaks=*/options.rank == 0);
    }
    link->client().leave(node_id, /*failed=*/true, e.what());
    if (!why_not_anew.empty()) throw IoError("{}; {}", e.what(), why_not_anew);
    throw;
  }
}

// What must hold for the ranks of srun's nodes to meet, which this rank cannot see; said when they do not.
void say_where_srun_meets(const JobOptions& options) {
  if (!options.srun || options.srun->num_nodes == 1) return;
  log_warning(
      "rank {} of srun on {} nodes looks for rank 0 at {}, which must lead to the first node from all of them; "
      "else set TESSERA_STORE=tcp:HOST:PORT{}",
      options.rank, options.srun->num_nodes, options.store,
      !options.srun->has_users_secret
          ? ""
          : ". It proves this user's key, ~/.cache/tessera/meeting_key, which must be the same on all of them, as in a "
            "home directory that they share; else set TESSERA_SECRET_FILE");
}

// A job of one rank that writes reports, or that somebody looks at.
std::unique_ptr<Context> watched_alone(const JobOptions& options) {
  const auto reporter = reporter_to_launcher(options, 0);
  WireExtras extras;
  extras.on_look = look_for(reporter);
  auto job = std::make_shared<comm::JobState>(1);
  const int threads = options.num_compute_threads > 0 ? options.num_compute_threads : num_cores();
  return with_figures(std::make_unique<RankContext>(
                          RankPlace{.num_compute_threads = 1 + usable_threads(threads - 1)}, nullptr,
                          std::make_unique<WatchedMembership>(std::make_unique<LocalMembership>(job, 0), job, 0,
                                                              watch_options(options, options.job_id, extras))),
                      reporter);
}

}  // namespace

namespace {

std::unique_ptr<Context> join_any_job(const JobOptions& options, const Surveyor* surveyor) {
  make_room_on_stacks();
  if (!options.scheduler.address.empty()) return join_scheduled(options, surveyor);
  if (options.thread_ranks > 1) {
    throw InvalidArgument(
        "TESSERA_THREAD_RANKS={}: only a program that starts with cluster::run can be several ranks, and one in Python "
        "is "
        "not: start its ranks as processes, tessera run -n {}",
        options.thread_ranks, options.thread_ranks);
  }
  if (options.size == 1) {
    const bool is_watched = !options.report_directory.empty() || options.figures_fd >= 0;
    auto alone = is_watched ? watched_alone(options) : single_context(options.num_compute_threads);
    omp_set_num_threads(concurrent_threads(alone->num_compute_threads()));
    return alone;
  }
  if (options.transport == TransportKind::kThreads) {
    throw InvalidArgument(
        "TESSERA_TRANSPORT=threads: the ranks of this job are processes; use shm, tls, gloo or mpi, or start "
        "the ranks as threads");
  }

  try {
    const auto reporter = reporter_to_launcher(options, options.rank);
    WireExtras extras;
    extras.on_look = look_for(reporter);
    return with_figures(join_ranks(options, open_meeting(options), std::make_shared<comm::JobState>(options.size),
                                   extras, {}, surveyor),
                        reporter);
  } catch (const SurveyEnd&) {
    throw;
  } catch (const IoError&) {
    say_where_srun_meets(options);
    throw;
  }
}

}  // namespace

std::unique_ptr<Context> join_job(const JobOptions& options, const Surveyor* surveyor) {
  // From now on: while it waits for the others, too.
  std::shared_ptr<void> ends_with_starter = options.has_starter ? end_with_starter(options.rank) : nullptr;
  auto context = join_any_job(options, surveyor);
  if (ends_with_starter) context->keep(std::move(ends_with_starter));
  try {
    context->recorder()->begin(options.timeline, FileSystem::local(), Clock::system());
  } catch (const std::exception& error) {
    context->abort(error.what());
    throw;
  }
  return context;
}

}  // namespace tessera::cluster
