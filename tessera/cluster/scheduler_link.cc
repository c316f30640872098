#include "tessera/cluster/scheduler_link.h"

#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files/random_id.h"
#include "tessera/base/logging.h"
#include "tessera/cluster/network.h"
#include "tessera/cluster/tls/tls_config.h"

namespace tessera::cluster {

TlsOptions tls_options_of(const SchedulerPlace& place, TlsSide side) {
  TlsOptions tls{.secret = place.secret, .certificates = std::nullopt};
  if (!place.tls_config.empty()) {
    tls.certificates = read_tls_config(place.tls_config, side, place.tls_password ? *place.tls_password : Password());
  }
  return tls;
}

std::string random_node_id() { return fmt::format("{}-{}", own_host_name().substr(0, 60), random_id().substr(0, 8)); }

std::string words_for_return(int64_t limit_ms) {
  return fmt::format("this process stays up to {} ms to tell it to one that is started again with the state", limit_ms);
}

SchedulerLink::SchedulerLink(const SchedulerPlace& place, rendezvous::PeerRole role, std::vector<std::string> node_ids,
                             std::function<std::vector<uint32_t>(int64_t node_timeout_ms)> find_idle)
    : client_({.scheduler = rendezvous::parse_host_port(place.address, "the scheduler's address"),
               .tls = tls_options_of(place, TlsSide::kClient),
               .role = role,
               .host = own_host_name(),
               .node_ids = std::move(node_ids),
               .incarnation = place.incarnation,
               .token = place.token,
               .num_workers = place.num_workers,
               .num_servers = place.num_servers,
               .program = place.program,
               .join_timeout_ms = place.join_timeout_ms,
               .secret_origin = place.secret_origin,
               .find_idle = std::move(find_idle)},
              [this](const rendezvous::RendezvousEnd& end) { hear(end); }) {}

std::optional<rendezvous::Generation> SchedulerLink::find_generation(int64_t limit_ms) {
  return client_.find_generation(limit_ms);
}

void SchedulerLink::watch(std::shared_ptr<comm::JobState> job, int own_rank) {
  std::optional<rendezvous::RendezvousEnd> told;
  {
    const std::lock_guard lock(mutex_);
    job_ = std::move(job);
    own_rank_ = own_rank;
    told = end_;
  }
  if (told) hear(*told);
}

void SchedulerLink::on_end(std::function<void(const rendezvous::RendezvousEnd&)> ended) {
  const std::lock_guard lock(mutex_);
  ended_ = std::move(ended);
  if (end_ && ended_) ended_(*end_);
}

std::optional<rendezvous::RendezvousEnd> SchedulerLink::end() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

std::string SchedulerLink::why_over() const {
  if (const std::string dropped = why_dropped(); !dropped.empty())
    return "it has no part in the job any more: " + dropped;
  const auto found = end();
  const bool is_over = found && found->kind != rendezvous::RendezvousEnd::Kind::kGenerationEnded;
  return is_over ? "the scheduler says: " + found->reason : "";
}

std::string SchedulerLink::why_dropped() const {
  const std::lock_guard lock(mutex_);
  return why_dropped_;
}

void SchedulerLink::hear(const rendezvous::RendezvousEnd& end) {
  const std::lock_guard lock(mutex_);
  using Kind = rendezvous::RendezvousEnd::Kind;
  if (end.is_planned()) has_ended_as_planned_.store(true);
  if (end.kind == Kind::kNodeDropped) {
    why_dropped_ = end.reason;
    if (ended_) ended_(end);
    return;
  }
  if (!end_ || end_->kind == Kind::kGenerationEnded) end_ = end;
  if (job_ && end.kind != Kind::kJobFinished) {
    job_->fail(end.rank >= 0 && end.rank < job_->size() ? end.rank : own_rank_, "the scheduler says: " + end.reason);
  }
  if (ended_) ended_(end);
}

void ScheduledMembership::announce_failure(int origin, const std::string& message) {
  link_->client().leave(node_id_, /*failed=*/true, message);
  among_ranks_->announce_failure(origin, message);
  link_->client().close();
}

void ScheduledMembership::finish() {
  among_ranks_->finish();
  rendezvous::RendezvousClient& client = link_->client();
  client.leave(node_id_, /*failed=*/false, "");
  const int64_t limit_ms = has_launcher_ ? 0 : client.return_ms();
  if (limit_ms > 0 && !client.wait_until_heard(0)) {
    log_warning("this rank has finished, and the scheduler has not heard that: {}", words_for_return(limit_ms));
    client.wait_until_heard(limit_ms);
  }
  client.close();
}

}  // namespace tessera::cluster
