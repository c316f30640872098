#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/thread.h"
#include "tessera/cluster/hub/hub.h"
#include "tessera/cluster/hub/hub_frame.h"
#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/hub/late_ranks.h"

namespace tessera::cluster {
namespace {

// How long a failing rank waits until the hub has passed its message on.
constexpr std::chrono::milliseconds kEchoLimit{2000};
// A hub answers at once, unless strangers stand before this rank: see kGraceMs in hub_server.cc.
constexpr std::chrono::milliseconds kProofLimit{10000};
constexpr std::chrono::milliseconds kRetryPause{100};
// Who is hung up on sooner than this was not too slow for the hub.
constexpr std::chrono::milliseconds kSlowLine{2000};
// A hub that was stopped holds up who speaks to it no longer; what it has not taken is sent when it goes on.
constexpr std::chrono::milliseconds kSendLimit{5000};
constexpr size_t kMaxMessage = 1 << 16;
constexpr int kWakeMs = 250;
constexpr const char* kForeign = "is no job of Tessera, or one of another version";

using Clock = std::chrono::steady_clock;

}  // namespace

struct HubClient::Impl {
  Impl(const HubOptions& hub_options, int own_rank, std::shared_ptr<comm::JobState> job_state)
      : options(hub_options),
        rank(own_rank),
        job(std::move(job_state)),
        tls(make_hub_context(options.secret, TlsSide::kClient)) {
    connect_proven(Clock::now() + std::chrono::milliseconds(options.timeout_ms));
    // A failure may be told by others than the hub.
    listener.emplace(*job, [this] { changed.notify_all(); });
    thread = start_thread("the connection to the hub", [this] { listen(); });
  }

  ~Impl() { close(); }

  void close() {
    ::shutdown(socket.fd(), SHUT_RDWR);
    if (thread.joinable()) thread.join();
    listener.reset();
  }

  // Connects to a hub that knows the secret. Somebody else at its address may go away again.
  void connect_proven(Clock::time_point deadline) {
    while (true) {
      const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      try {
        socket = connect_to(options.address, std::max<int64_t>(rest.count(), 0), [this] { return job->failed(); });
        connected_at = Clock::now();
      } catch (const IoError&) {
        if (job->failed()) throw_failure("the start of the job");
        throw;
      }
      std::string protocol;
      const std::string reason = prove(std::min(deadline, Clock::now() + kProofLimit), protocol);
      if (reason.empty() && protocol == kHubProtocol) return;
      if (reason.empty()) {
        throw IoError("rank {} cannot join the job: rank 0 at {} speaks \"{}\", this rank \"{}\"; {}", rank,
                      options.address, printable(protocol), kHubProtocol,
                      "install one version of Tessera on all hosts");
      }
      // Who answers has time for it: else the last reason of all would be that nothing came.
      if (Clock::now() + 2 * kRetryPause >= deadline) {
        throw IoError("rank {} cannot join the job: what answers at {} {} (tried for {} ms)", rank, options.address,
                      reason, options.timeout_ms);
      }
      std::this_thread::sleep_for(kRetryPause);
    }
  }

  // What is wrong with who answers; "" when both have proven the secret, and the hub has said what it speaks.
  std::string prove(Clock::time_point deadline, std::string& protocol) {
    if (!is_same_user(socket)) return "is a process of another user";
    session.emplace(tls);
    reader = FrameReader();
    writer = FrameWriter();
    try {
      Frame frame;
      std::string said;
      session->receive({}, said);  // a client speaks first
      while (true) {
        writer.flush(*session, socket);
        if (session->is_secret_unknown()) return "does not know this rank's secret: the two have different ones";
        reader.add(said);
        if (reader.next(frame)) break;
        if (has_ended()) return kForeign;
        said.clear();
        if (!receive_by(deadline, said)) return "says nothing that a hub says";
      }
      if (frame.kind != FrameKind::kWelcome) return kForeign;
      protocol = frame.body;
      return "";
    } catch (const IoError&) {
      return kForeign;
    }
  }

  // False where nothing has come by then, or the connection has ended.
  bool receive_by(Clock::time_point deadline, std::string& said) {
    while (true) {
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (rest.count() <= 0) return false;
      pollfd wait{socket.fd(), POLLIN, 0};
      const int ready = poll(&wait, 1, static_cast<int>(rest.count()));
      if (ready > 0) return read_some(said);
      if (ready < 0 && errno != EINTR) return false;
    }
  }

  // Meanwhile those whose waits cannot look at the clock are woken, and what the hub has not taken in time goes on.
  void await_bytes() {
    while (true) {
      const bool has_rest = [&] {
        const std::lock_guard lock(session_mutex);
        return writer.waiting_bytes() > 0;
      }();
      pollfd wait{socket.fd(), static_cast<int16_t>(has_rest ? POLLIN | POLLOUT : POLLIN), 0};
      const int ready = poll(&wait, 1, kWakeMs);
      if ((ready > 0 && wait.revents != POLLOUT) || (ready < 0 && errno != EINTR)) return;
      if (ready <= 0) {
        job->wake();
        continue;
      }
      const std::lock_guard lock(session_mutex);
      if (!writer.flush(*session, socket)) return;
    }
  }

  // Appends what the hub has said. False at the connection's end.
  bool read_some(std::string& said) {
    char buffer[1 << 14];
    ssize_t count;
    do {
      count = recv(socket.fd(), buffer, sizeof(buffer), 0);
    } while (count < 0 && errno == EINTR);
    if (count <= 0) return false;
    const std::lock_guard lock(session_mutex);
    session->receive({buffer, static_cast<size_t>(count)}, said);
    writer.flush(*session, socket);  // what TLS itself answers
    return true;
  }

  // Whether the hub has said that it says no more. Throws IoError where what came is not what it has said.
  bool has_ended() {
    const std::lock_guard lock(session_mutex);
    if (session->state() == TlsSession::State::kFailed) {
      throw IoError("what arrives was not sent by the hub of this job, or was changed on its way");
    }
    return session->state() == TlsSession::State::kEnded;
  }

  void listen() {
    std::string fault;
    try {
      Frame frame;
      while (true) {
        while (reader.next(frame)) {
          const std::lock_guard lock(mutex);
          handle(frame);
          changed.notify_all();
        }
        if (has_ended()) break;
        await_bytes();
        std::string said;
        if (!read_some(said)) break;
        reader.add(said);
      }
    } catch (const std::exception& e) {
      fault = fmt::format("what came from it, at {}, cannot be used: {}", options.address, e.what());
      ::shutdown(socket.fd(), SHUT_RDWR);
    }
    const std::lock_guard lock(mutex);
    is_closed = true;
    if (!fault.empty()) {
      job->fail(0, fault);
    } else if (has_joined && !all_ended) {
      // The hub lives in rank 0's process.
      job->fail(0, "its process has ended without a word");
    }
    changed.notify_all();
  }

  void handle(const Frame& frame) {
    switch (frame.kind) {
      case FrameKind::kRefused:
        refusal = printable(frame.body);
        if (refusal.empty()) refusal = fmt::format("the hub at {} refuses it", options.address);
        return;
      case FrameKind::kAllJoined:
        hosts = split_fields(frame.body);
        if (hosts.size() != static_cast<size_t>(options.size)) {
          throw IoError("{} hosts of {} ranks", hosts.size(), options.size);
        }
        has_joined = true;
        return;
      case FrameKind::kValue: {
        NamedValue value = parse_named_value(frame.body);
        if (asked_for.contains(value.name)) values[value.name] = std::move(value.value);
        return;
      }
      case FrameKind::kFail: {
        const RankText failure = parse_rank_text(frame.body, options.size);
        job->fail(failure.rank, failure.text);
        failure_heard = true;
        return;
      }
      case FrameKind::kEnd: return job->leave(parse_rank(frame.body, options.size));
      case FrameKind::kAllEnded: all_ended = true; return job->end();
      case FrameKind::kAsk: {
        const RankText question = parse_rank_text(frame.body, options.size);
        if (asked) asked();
        return send(FrameKind::kAnswer,
                    join_fields({std::to_string(question.rank), doing_of(*job, rank, question.text)}));
      }
      case FrameKind::kAnswer: {
        RankText answer = parse_rank_text(frame.body, options.size);
        answers[answer.rank] = std::move(answer.text);
        return;
      }
      default: throw IoError("a frame of no kind that a hub sends");
    }
  }

  // A lost connection is noticed by listen().
  void send(FrameKind kind, const std::string& body) {
    const auto deadline = Clock::now() + kSendLimit;
    std::unique_lock lock(session_mutex);
    writer.push(kind, body);
    while (writer.flush(*session, socket) && writer.waiting_bytes() > 0) {
      // Who listens does not wait for who speaks.
      lock.unlock();
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      pollfd wait{socket.fd(), POLLOUT, 0};
      if (rest.count() <= 0 || poll(&wait, 1, static_cast<int>(rest.count())) == 0) return;
      lock.lock();
    }
  }

  [[noreturn]] void throw_failure(const std::string& doing) const {
    const int failed = job->failed_rank();
    throw comm::PeerFailure(failed,
                            fmt::format("stopped in {} because rank {} failed: {}", doing, failed, job->message()));
  }

  void join(const std::string& host) {
    // The hub names who is missing at its own deadline; ours is only for a hub that says nothing at all.
    const auto limit = std::chrono::milliseconds(options.timeout_ms + 5000);
    const auto deadline = Clock::now() + limit;
    while (true) {
      send(FrameKind::kJoin, print_join({options.job_id, rank, options.size, host}));
      std::unique_lock lock(mutex);
      changed.wait_until(lock, deadline, [&] { return has_joined || is_closed || !refusal.empty() || job->failed(); });
      if (has_joined) return;
      if (!refusal.empty()) throw IoError("rank {} cannot join the job: {}", rank, refusal);
      if (job->failed()) throw_failure("the start of the job");
      if (!is_closed || Clock::now() - connected_at < kSlowLine || Clock::now() + kRetryPause >= deadline) break;
      lock.unlock();
      connect_again(deadline);
    }
    throw IoError("rank {} cannot join the job: rank 0 at {} {}", rank, options.address,
                  is_closed ? "closed the connection" : fmt::format("said nothing for {} ms", limit.count()));
  }

  // The hub hangs up on who has not joined after some seconds; on a slow line the words of a rank may take longer.
  void connect_again(Clock::time_point deadline) {
    thread.join();
    std::this_thread::sleep_for(kRetryPause);
    is_closed = false;
    connect_proven(deadline);
    thread = start_thread("the connection to the hub", [this] { listen(); });
  }

  HubOptions options;
  int rank;
  std::shared_ptr<comm::JobState> job;
  Socket socket;
  Clock::time_point connected_at;
  std::shared_ptr<const TlsContext> tls;
  FrameReader reader;  // of who listens
  std::mutex session_mutex;
  std::optional<TlsSession> session;
  FrameWriter writer;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  std::set<std::string> asked_for;
  std::set<std::string> own_names;     // that this rank has set
  std::map<int, std::string> answers;  // by rank
  std::vector<std::string> hosts;
  std::string refusal;
  std::function<void()> asked;
  bool has_joined = false;
  bool all_ended = false;
  bool is_closed = false;
  bool failure_heard = false;
  std::optional<comm::JobListener> listener;
  std::thread thread;
};

HubClient::HubClient(const HubOptions& options, int rank, const std::string& host, std::shared_ptr<comm::JobState> job)
    : impl_(std::make_unique<Impl>(options, rank, std::move(job))) {
  impl_->join(host);
}

HubClient::~HubClient() = default;

const std::vector<std::string>& HubClient::hosts() const { return impl_->hosts; }

std::string HubClient::local_ip() const {
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  char text[INET6_ADDRSTRLEN] = {};
  getsockname(impl_->socket.fd(), reinterpret_cast<sockaddr*>(&own), &length);
  if (own.ss_family == AF_INET) inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in&>(own).sin_addr, text, sizeof(text));
  if (own.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6&>(own).sin6_addr, text, sizeof(text));
  }
  return text;
}

void HubClient::set(const std::string& name, const std::string& value) {
  check(name.size() <= kMaxName && value.size() <= kMaxValue, "what the ranks tell each other at the hub is small");
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->own_names.insert(name);
  }
  impl_->send(FrameKind::kSet, join_fields({name, value}));
}

void HubClient::forget(const std::string& name) {
  const bool is_own = [&] {
    const std::lock_guard lock(impl_->mutex);
    impl_->asked_for.erase(name);
    impl_->values.erase(name);
    return impl_->own_names.erase(name) > 0;
  }();
  if (is_own) impl_->send(FrameKind::kForget, name);
}

std::string HubClient::get(const std::string& name, int64_t timeout_ms) {
  if (auto found = find(name, timeout_ms)) return *std::move(found);
  throw comm::PeerSilence(
      fmt::format("rank {} waited {} ms for \"{}\", which no rank has set", impl_->rank, timeout_ms, name));
}

std::optional<std::string> HubClient::find(const std::string& name, int64_t limit_ms) {
  const bool is_new = [&] {
    const std::lock_guard lock(impl_->mutex);
    return impl_->asked_for.insert(name).second;
  }();
  // The hub answers when there is a value, and remembers until then who asked.
  if (is_new) impl_->send(FrameKind::kGet, name);
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait_for(lock, std::chrono::milliseconds(limit_ms),
                          [&] { return impl_->values.contains(name) || impl_->job->failed(); });
  if (const auto found = impl_->values.find(name); found != impl_->values.end()) return found->second;
  if (impl_->job->failed()) impl_->throw_failure("the rendezvous");
  return std::nullopt;
}

std::map<int, std::string> HubClient::ask(const std::vector<int>& ranks, const std::string& place, int64_t limit_ms) {
  {
    const std::lock_guard lock(impl_->mutex);
    for (const int rank : ranks) impl_->answers.erase(rank);
  }
  for (const int rank : ranks) impl_->send(FrameKind::kAsk, join_fields({std::to_string(rank), place}));
  std::unique_lock lock(impl_->mutex);
  const auto have_all = [&] {
    return std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return impl_->answers.contains(rank); });
  };
  impl_->changed.wait_for(lock, std::chrono::milliseconds(limit_ms),
                          [&] { return have_all() || impl_->is_closed || impl_->job->failed(); });
  std::map<int, std::string> found;
  for (const int rank : ranks) {
    if (const auto answer = impl_->answers.find(rank); answer != impl_->answers.end()) found.insert(*answer);
  }
  return found;
}

void HubClient::announce_failure(int origin, const std::string& message) {
  impl_->send(FrameKind::kFail, join_fields({std::to_string(origin), message.substr(0, kMaxMessage)}));
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait_for(lock, kEchoLimit, [&] { return impl_->failure_heard || impl_->is_closed; });
}

void HubClient::on_asked(std::function<void()> asked) {
  const std::lock_guard lock(impl_->mutex);
  impl_->asked = std::move(asked);
}

void HubClient::close() { impl_->close(); }

void HubClient::finish() {
  impl_->send(FrameKind::kEnd, "");
  std::unique_lock lock(impl_->mutex);
  // No deadline: other ranks may rightly work on for hours, and a connection lives as long as its process.
  impl_->changed.wait(lock, [&] { return impl_->all_ended || impl_->job->failed(); });
  if (!impl_->all_ended) impl_->throw_failure("the end of the job");
}

}  // namespace tessera::cluster
