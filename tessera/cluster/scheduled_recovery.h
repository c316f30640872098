// ScheduledRecovery: the Recovery of a rank whose job has a scheduler that lets it lose ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tessera/cluster/launch.h"
#include "tessera/cluster/recovery/recovery.h"
#include "tessera/cluster/scheduler_link.h"

namespace tessera::cluster {

class ScheduledRecovery final : public Recovery {
 public:
  // `place` has the node id that the process has registered. `job` is the state of this generation.
  ScheduledRecovery(std::shared_ptr<SchedulerLink> link, SchedulerPlace place, uint64_t generation,
                    std::shared_ptr<comm::JobState> job);

  uint64_t generation() const override { return generation_; }
  bool has_failed() const override { return job_->failed(); }
  KeptMemory& memory() override;
  std::string keeper() const override;
  KeptMemory* memory_for_others() override;
  int64_t keep_steps() const override { return place_.keep_steps; }
  std::string begin_anew(const std::string& why) override;
  std::string begin_anew_as_planned(const std::string& why, bool speaks) override;
  std::string planned_end() override;
  std::string why_dropped() const override { return link_->why_dropped(); }
  bool has_launcher() const override;
  bool is_elastic() const override { return link_->client().is_elastic(); }
  int num_newcomers() const override { return link_->client().num_newcomers(); }
  // Rank 0 says once that the number of ranks stays, where it was asked to be less one day.
  void fix_ranks(const std::string& why, const std::string& unsaved_for) override;
  std::string fixed_by() const override { return link_->client().fixed_by(); }
  std::string stop_reason() const override { return link_->client().stop_reason(); }
  void tell_last_save(bool is_training, const std::string& unsaved_for) override {
    link_->client().tell_last_save(is_training, unsaved_for);
  }
  std::string last_reason() const override { return link_->client().generation().last_reason; }
  void leave_for_good() override { link_->client().leave_for_good(); }
  std::optional<std::string> find_state(const std::string& name) override;
  void set_state(const std::string& name, const std::string& text) override;

 private:
  // Returns only where it is impossible, and says why.
  std::string run_again();

  std::shared_ptr<SchedulerLink> link_;
  SchedulerPlace place_;
  uint64_t generation_;
  std::shared_ptr<comm::JobState> job_;
  bool has_said_fixed_ = false;
  std::optional<KeptMemory> memory_;
  std::optional<KeptMemory> memory_for_others_;
};

}  // namespace tessera::cluster
