// UpdateOrder: what a parameter server that does not wait for all workers knows of them: whose gradients it has, in
// which order they are to be applied, and which workers wait for values. All servers apply in one order, which the
// first of them decides: so what several of them have a copy of stays equal.
//
// Used from one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "tessera/train/modes/stages/server_exchange.h"
#include "tessera/train/options/server_staleness.h"

namespace tessera::train {

// The law of bounded staleness. A worker that is about to do its step `step`, from 1, gets the values of servers that
// have applied so many updates of each worker: when its own are all among them, and of every other worker those of the
// steps up to step - 1 - bound.
bool may_begin(std::span<const int64_t> applied, int worker, int64_t step, const ServerStaleness& staleness);

class UpdateOrder {
 public:
  UpdateOrder(int num_workers, const ServerStaleness& staleness);

  // By worker: how many of its updates are applied.
  const std::vector<int64_t>& applied() const { return applied_; }
  // Of the worker that has the fewest.
  int64_t num_applied_by_all() const;
  // How many gradients of this worker have come.
  int64_t num_pushed(int worker) const;
  // The worker whose message is waited for; nullopt where it is the first server's, which has the order.
  std::optional<int> awaited() const;

  void add_pull(ServerExchange::Message pull) { pulls_.push_back(std::move(pull)); }
  void add_push(ServerExchange::Message push);
  // Nothing more comes from this worker.
  void end(int worker) { has_ended_[static_cast<size_t>(worker)] = true; }
  // A callback has stopped this worker's training, the model's `training`th.
  void stop(int worker, int64_t training) { stopped_[static_cast<size_t>(worker)] = training; }
  // This worker waits in a call that all ranks make together, until leave_meeting().
  void meet(int worker) { has_come_[static_cast<size_t>(worker)] = true; }
  void leave_meeting() { has_come_.assign(has_come_.size(), false); }
  // The first worker that is not there; nullopt: all are.
  std::optional<int> find_not_met() const;

  enum class Absence {
    kEnded,    // it has ended
    kStopped,  // a callback has stopped its training
    kMet,      // it waits in a call that all ranks make together
  };
  struct Missing {
    int worker = 0;
    Absence why = Absence::kEnded;
  };
  // A worker that will not push in this step, which is of this training, before servers are done with it; nullopt:
  // there is none.
  std::optional<Missing> find_missing(int64_t step, int64_t training) const;
  bool has_ended(int worker) const { return has_ended_[static_cast<size_t>(worker)]; }
  // This worker's next push comes behind all that were ordered before.
  void order(int worker) { order_.push_back(worker); }
  // The next push to apply; nullopt where none is ordered and there. It counts as applied from now on.
  std::optional<ServerExchange::Message> take_push();
  // A pull that may be answered now; nullopt where there is none.
  std::optional<ServerExchange::Message> take_pull();

  // The mean of all rows' losses in this step, of which all workers' pushes are applied. It is forgotten.
  double take_loss(int64_t step);

 private:
  ServerStaleness staleness_;
  std::vector<int64_t> applied_;
  std::vector<std::deque<ServerExchange::Message>> pushes_;  // by worker, that came and are not applied
  std::vector<bool> has_ended_;                              // by worker
  std::vector<bool> has_come_;                               // by worker, to a call that all ranks make together
  std::vector<int64_t> stopped_;  // by worker, the latest of its trainings that was stopped; 0: none was
  std::deque<int> order_;
  std::deque<ServerExchange::Message> pulls_;
  struct Losses {
    double sum = 0;
    double rows = 0;
  };
  std::map<int64_t, Losses> losses_;  // by step
};

}  // namespace tessera::train
