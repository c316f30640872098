#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/hub.h"
#include "tessera/cluster/hub_socket.h"

namespace tessera::cluster {
namespace {

// How long a failing rank waits until the hub has passed its message on.
constexpr std::chrono::milliseconds kEchoLimit{2000};

}  // namespace

struct HubClient::Impl {
  Impl(const HubOptions& hub_options, int own_rank, std::shared_ptr<comm::JobState> job_state)
      : options(hub_options), rank(own_rank), job(std::move(job_state)) {
    socket = connect_to(options.address, options.timeout_ms);
    thread = std::thread([this] { listen(); });
  }

  ~Impl() {
    ::shutdown(socket.fd(), SHUT_RDWR);
    thread.join();
  }

  void listen() {
    FrameReader reader;
    Frame frame;
    while (reader.read_some(socket)) {
      while (reader.next(frame)) {
        const std::lock_guard lock(mutex);
        handle(frame);
        changed.notify_all();
      }
      if (reader.is_foreign()) break;
    }
    const std::lock_guard lock(mutex);
    is_closed = true;
    if (reader.is_foreign()) refusal = fmt::format("what answers at {} is no job of Tessera", options.address);
    // The hub lives in rank 0's process.
    if (has_joined && !all_ended) job->fail(0, "its process has ended without a word");
    changed.notify_all();
  }

  void handle(const Frame& frame) {
    const std::vector<std::string> fields = split_fields(frame.body);
    switch (frame.kind) {
      case FrameKind::kRefused: refusal = frame.body; break;
      case FrameKind::kAllJoined:
        hosts = fields;
        has_joined = true;
        break;
      case FrameKind::kValue: values[fields[0]] = frame.body.substr(fields[0].size() + 1); break;
      case FrameKind::kFail:
        job->fail(static_cast<int>(parse_int(fields[0], "rank")), frame.body.substr(fields[0].size() + 1));
        failure_heard = true;
        break;
      case FrameKind::kEnd: job->leave(static_cast<int>(parse_int(fields[0], "rank"))); break;
      case FrameKind::kAllEnded:
        all_ended = true;
        job->end();
        break;
      default: break;
    }
  }

  void send(FrameKind kind, const std::string& body) {
    const std::lock_guard lock(send_mutex);
    send_frame(socket, kind, body);  // a lost connection is noticed by listen()
  }

  [[noreturn]] void throw_failure(const std::string& doing) const {
    const int failed = job->failed_rank();
    throw comm::PeerFailure(failed,
                            fmt::format("stopped in {} because rank {} failed: {}", doing, failed, job->message()));
  }

  void join(const std::string& host) {
    send(FrameKind::kJoin,
         join_fields({"tessera hub 1", options.job_id, std::to_string(rank), std::to_string(options.size), host}));
    std::unique_lock lock(mutex);
    // The hub names who is missing at its own deadline; ours is only for a hub that says nothing at all.
    const auto limit = std::chrono::milliseconds(options.timeout_ms + 5000);
    changed.wait_for(lock, limit, [&] { return has_joined || is_closed || !refusal.empty() || job->failed(); });
    if (has_joined) return;
    if (!refusal.empty()) throw IoError("rank {} cannot join the job: {}", rank, refusal);
    if (job->failed()) throw_failure("the start of the job");
    throw IoError("rank {} cannot join the job: rank 0 at {} {}", rank, options.address,
                  is_closed ? "closed the connection" : fmt::format("said nothing for {} ms", limit.count()));
  }

  HubOptions options;
  int rank;
  std::shared_ptr<comm::JobState> job;
  Socket socket;
  std::mutex send_mutex;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  std::vector<std::string> hosts;
  std::string refusal;
  bool has_joined = false;
  bool all_ended = false;
  bool is_closed = false;
  bool failure_heard = false;
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
  impl_->send(FrameKind::kSet, join_fields({name, value}));
}

std::string HubClient::get(const std::string& name, int64_t timeout_ms) {
  impl_->send(FrameKind::kGet, name);
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                          [&] { return impl_->values.contains(name) || impl_->job->failed(); });
  if (const auto found = impl_->values.find(name); found != impl_->values.end()) return found->second;
  if (impl_->job->failed()) impl_->throw_failure("the rendezvous");
  throw IoError("rank {} waited {} ms for \"{}\", which no rank has set", impl_->rank, timeout_ms, name);
}

void HubClient::announce_failure(const std::string& message) {
  impl_->send(FrameKind::kFail, message);
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait_for(lock, kEchoLimit, [&] { return impl_->failure_heard || impl_->is_closed; });
}

void HubClient::finish() {
  impl_->send(FrameKind::kEnd, "");
  std::unique_lock lock(impl_->mutex);
  // No deadline: other ranks may rightly work on for hours, and a connection lives as long as its process.
  impl_->changed.wait(lock, [&] { return impl_->all_ended || impl_->job->failed(); });
  if (!impl_->all_ended) impl_->throw_failure("the end of the job");
}

}  // namespace tessera::cluster
