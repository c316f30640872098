// SchedulerLink: the connection of a process to the scheduler of its job. The process is a rank, or a launcher that
// speaks for the ranks that it starts. What the scheduler says of an end reaches the job's state, and so every wait of
// the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/cluster/launch.h"
#include "tessera/cluster/ranks/rank_context.h"
#include "tessera/cluster/rendezvous/client.h"
#include "tessera/cluster/tls/tls_options.h"
#include "tessera/comm/job_state.h"

namespace tessera::cluster {

// By what this process shows who it is at a scheduler: the certificates of options.tls_config, else options.secret.
TlsOptions tls_options_of(const SchedulerPlace& options, TlsSide side);

// A node id that no other process has.
std::string random_node_id();

// What a process says that stays when its work is done, for it has lost a scheduler that keeps a state: one that is
// started again, and does not hear that all has ended well, takes the job for failed.
std::string words_for_return(int64_t limit_ms);

class SchedulerLink {
 public:
  // Starts connecting as these nodes. `find_idle`: a launcher's, as in rendezvous::ClientOptions.
  SchedulerLink(const SchedulerPlace& place, rendezvous::PeerRole role, std::vector<std::string> node_ids,
                std::function<std::vector<uint32_t>(int64_t node_timeout_ms)> find_idle = {});

  // The ranks of the nodes; nullopt where they have none within `limit_ms`. Throws IoError when they will have none.
  std::optional<rendezvous::Generation> find_generation(int64_t limit_ms);
  // Waits until the nodes have ranks. Throws IoError naming who has not come.
  rendezvous::Generation wait_for_generation() { return client_.wait_for_generation(); }
  // From now on, an end that the scheduler tells of is a failure in `job`; one that it has told of before, too.
  void watch(std::shared_ptr<comm::JobState> job, int own_rank);
  // From now on `ended` is called, from another thread, for each end that the scheduler tells of: of a generation, of
  // the job, of this process's part in it, or of one of its nodes'. For an end that it has told of before, `ended` is
  // called at once.
  void on_end(std::function<void(const rendezvous::RendezvousEnd&)> ended);
  // The newest end that the scheduler has told of; nullopt where there is none. No later one replaces the job's.
  std::optional<rendezvous::RendezvousEnd> end() const;
  // Whether the generation has ended as planned, with nobody failing, as far as the scheduler has said. Never blocks.
  bool has_ended_as_planned() const { return has_ended_as_planned_.load(); }
  // Why this process cannot take part in another generation; "" where it can.
  std::string why_over() const;
  // Of a worker: why it has no part in the job any more, which goes on without it, or ends because it cannot; "" where
  // the scheduler has not said that.
  std::string why_dropped() const;
  // Waits until the scheduler has told of an end, or `limit_ms`.
  void wait_for_end(int64_t limit_ms) { client_.wait_for_end(limit_ms); }

  rendezvous::RendezvousClient& client() { return client_; }

 private:
  void hear(const rendezvous::RendezvousEnd& end);

  mutable std::mutex mutex_;
  std::shared_ptr<comm::JobState> job_;
  int own_rank_ = 0;
  std::function<void(const rendezvous::RendezvousEnd&)> ended_;
  std::optional<rendezvous::RendezvousEnd> end_;
  std::string why_dropped_;
  std::atomic<bool> has_ended_as_planned_{false};
  rendezvous::RendezvousClient client_;
};

// ScheduledMembership tells the scheduler of this rank's steps and of its end, of which the other ranks hear, too.
class ScheduledMembership final : public Membership {
 public:
  // `recovery`: null where a loss is the job's end. `has_launcher`: somebody else says how the process ends where this
  // one could not. `on_first_step` is called after the process's first step.
  ScheduledMembership(std::unique_ptr<Membership> among_ranks, std::shared_ptr<SchedulerLink> link, std::string node_id,
                      std::unique_ptr<Recovery> recovery, bool has_launcher, std::function<void()> on_first_step = {})
      : among_ranks_(std::move(among_ranks)),
        link_(std::move(link)),
        node_id_(std::move(node_id)),
        recovery_(std::move(recovery)),
        has_launcher_(has_launcher),
        on_first_step_(std::move(on_first_step)) {}

  void announce_failure(int origin, const std::string& message) override;
  void finish() override;
  Recovery* recovery() override { return recovery_.get(); }
  void report_step(int64_t step) override {
    if (const auto call = std::exchange(on_first_step_, {})) call();
    link_->client().report_step(step);
  }
  comm::RankProgress* progress() override { return among_ranks_->progress(); }
  void write_report(int origin, const std::string& message) override { among_ranks_->write_report(origin, message); }

 private:
  std::unique_ptr<Membership> among_ranks_;
  std::shared_ptr<SchedulerLink> link_;
  std::string node_id_;
  std::unique_ptr<Recovery> recovery_;
  bool has_launcher_;
  std::function<void()> on_first_step_;
};

}  // namespace tessera::cluster
