// WatchedMembership: a rank's membership in its job, with a watch that looks on while it lasts and writes the rank's
// report when it fails.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tessera/cluster/ranks/rank_context.h"
#include "tessera/cluster/report/rank_watch.h"

namespace tessera::cluster {

class WatchedMembership final : public Membership {
 public:
  WatchedMembership(std::unique_ptr<Membership> inner, std::shared_ptr<comm::JobState> job, int rank,
                    WatchOptions options)
      : inner_(std::move(inner)), rank_(rank), watch_(std::move(job), {rank}, std::move(options)) {
    inner_->on_asked([this] { watch_.note_asked(); });
  }
  ~WatchedMembership() override { inner_->on_asked({}); }
  WatchedMembership(const WatchedMembership&) = delete;
  WatchedMembership& operator=(const WatchedMembership&) = delete;

  // The others hear of it first.
  void announce_failure(int origin, const std::string& message) override {
    inner_->announce_failure(origin, message);
    watch_.note_failure(rank_, origin, message);
    close();
  }
  void finish() override {
    watch_.note_end(rank_);
    inner_->finish();
    close();
  }
  Recovery* recovery() override { return inner_->recovery(); }
  void report_step(int64_t step) override { inner_->report_step(step); }
  comm::RankProgress* progress() override { return inner_->progress(); }
  void write_report(int origin, const std::string& message) override { watch_.note_failure(rank_, origin, message); }

 private:
  void close() {
    const std::lock_guard lock(close_mutex_);
    watch_.close();
  }

  std::unique_ptr<Membership> inner_;
  int rank_;
  std::mutex close_mutex_;
  RankWatch watch_;
};

}  // namespace tessera::cluster
