// RankContext: the Context of every kind of job: a transport for the groups, a membership for what ranks tell each
// other about their ends.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cluster/ranks/context.h"
#include "tessera/comm/transport.h"

namespace tessera::cluster {

// Cores that this process may run on, at least 1.
int num_cores();
// How many of `wanted` further threads the system has room for now; warns where it is fewer. OpenMP, which computes
// with them, ends the process when it cannot start one.
int usable_threads(int wanted);

struct RankPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int num_compute_threads = 1;
  int num_servers = 0;
  std::string job_id = {};
};

// Membership says how this rank's failure or end reaches the other ranks. What they say of theirs arrives in the job's
// JobState.
class Membership {
 public:
  virtual ~Membership() = default;
  // `origin`: the rank with whose failure it began.
  virtual void announce_failure(int origin, const std::string& message) = 0;
  // Announces this rank's end and waits for all other ranks' ends; throws PeerFailure when one fails.
  virtual void finish() = 0;
  // As of a Context.
  virtual Recovery* recovery() { return nullptr; }
  virtual void report_step(int64_t /*step*/) {}
  virtual comm::RankProgress* progress() { return nullptr; }
  virtual void write_report(int /*origin*/, const std::string& /*message*/) {}
  // From now on `asked` is called, by any thread, when another rank that waits long asks what this one does. It must
  // not block, nor call this object. An empty one: nothing is called any more.
  virtual void on_asked(std::function<void()> /*asked*/) {}
};

// Ranks of one process share the JobState itself.
class LocalMembership final : public Membership {
 public:
  // The thread that makes it makes the rank's calls.
  LocalMembership(std::shared_ptr<comm::JobState> job, int rank);
  void announce_failure(int origin, const std::string& message) override { job_->fail(origin, message); }
  // Whoever joins the threads waits for them.
  void finish() override { job_->leave(rank_); }
  comm::RankProgress* progress() override { return &job_->notes_of(rank_)->progress(); }

 private:
  std::shared_ptr<comm::JobState> job_;
  int rank_;
};

class RankContext final : public Context {
 public:
  // `transport` may be null for a job of one rank.
  RankContext(const RankPlace& place, std::unique_ptr<comm::Transport> transport,
              std::unique_ptr<Membership> membership);

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  int local_rank() const override { return place_.local_rank; }
  int num_servers() const override { return place_.num_servers; }
  int local_size() const override { return place_.local_size; }
  std::string job_id() const override { return place_.job_id; }
  std::string transport() const override { return transport_ ? transport_->name() : "single"; }
  int num_compute_threads() const override { return place_.num_compute_threads; }

  comm::Communicator* create_group(const std::string& name, const std::vector<int>& ranks) override;
  void destroy_group(const std::string& name) override;
  comm::Communicator& group(const std::string& name) override;
  bool has_group(const std::string& name) const override;
  std::string new_group_name(const std::string& wanted) override;

  const comm::GroupSpeed& speed() override;
  std::shared_ptr<void> reserve_shared_memory(size_t size_bytes) override;
  using Context::abort;
  void abort(int origin, const std::string& message) override {
    membership_->announce_failure(origin, message);
    recorder_.write();
  }
  void finish() override {
    recorder_.write();
    // Others may work for hours, and who waits for this rank is to hear at once that it does not come.
    if (transport_) transport_->leave();
    membership_->finish();
  }
  Recovery* recovery() override { return membership_->recovery(); }
  void report_step(int64_t step) override { membership_->report_step(step); }
  comm::RankProgress* progress() override { return progress_; }
  timeline::TimelineRecorder* recorder() override { return &recorder_; }
  void write_report(int origin, const std::string& message) override { membership_->write_report(origin, message); }

 private:
  RankPlace place_;
  timeline::TimelineRecorder recorder_;
  std::unique_ptr<Membership> membership_;
  comm::RankProgress* progress_;  // the membership's
  std::unique_ptr<comm::Transport> transport_;
  std::map<std::string, std::unique_ptr<comm::Communicator>> groups_;  // null: exists, without this rank
  std::map<std::string, int> num_names_;  // that new_group_name() has given, by what was wanted
  int num_created_ = 0;
  std::optional<comm::GroupSpeed> speed_;
};

}  // namespace tessera::cluster
