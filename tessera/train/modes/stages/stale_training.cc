#include "tessera/train/modes/stages/stale_training.h"

#include <utility>

#include "tessera/base/error.h"
#include "tessera/comm/job_state.h"
#include "tessera/train/modes/stages/stale_step.h"

namespace tessera::train {

using Kind = ServerExchange::Kind;

double StaleTraining::serve_step() {
  ++step;
  apply_and_answer();  // what came when no step was done
  while (order.num_applied_by_all() < step) {
    require_workers();
    handle(exchange.take([this] { return awaited_in_step(); }));
  }
  return order.take_loss(step);
}

// The servers wait for a step that a worker will not do.
void StaleTraining::require_workers() const {
  const auto missing = order.find_missing(step, training);
  if (!missing) return;
  const auto& [worker, why] = *missing;
  const int64_t done = order.num_pushed(worker);
  const int rank = rank_of(worker);
  if (why == UpdateOrder::Absence::kMet) {
    throw comm::PeerFailure(
        rank,
        fmt::format("worker {} (rank {}) waits in an evaluation, a prediction, a save or the end of a training after "
                    "{} steps, parameter servers wait for step {}: every rank must make the same calls, of train, "
                    "eval, predict or save, in the same order",
                    worker, rank, done, step));
  }
  throw comm::PeerFailure(
      rank,
      fmt::format("worker {} (rank {}) has ended its training after {} steps, parameter servers wait for step {}{}",
                  worker, rank, done, step,
                  why == UpdateOrder::Absence::kEnded
                      ? ""
                      : ": a callback that stops a training, by request_stop(), must do so on all ranks "
                        "after the same step"));
}

ServerExchange::Awaited StaleTraining::awaited_in_step() const {
  const auto worker = order.awaited();
  if (!worker) {
    return {.rank = ranks.first(0),
            .step = step,
            .words = fmt::format("the first server (rank {}) says in which order updates are applied", ranks.first(0))};
  }
  return {.rank = rank_of(*worker),
          .step = step,
          .words = fmt::format("worker {} (rank {}) has done {} steps, step {} is waited for", *worker,
                               rank_of(*worker), order.num_pushed(*worker), step)};
}

ServerExchange::Awaited StaleTraining::awaited_at_meeting() const {
  const int worker = order.find_not_met().value();
  return {
      .rank = rank_of(worker),
      .step = step,
      .words = fmt::format("worker {} (rank {}) has done {} steps, and has not come to an evaluation, a prediction, a "
                           "save or the end of a training after step {}",
                           worker, rank_of(worker), order.num_pushed(worker), step)};
}

void StaleTraining::come_together() {
  if (!std::exchange(are_apart, false)) return;
  if (ranks.stage_of(rank_) != 0) {
    exchange.send(ranks.first(0), {.kind = Kind::kMeet, .step = step}, {});
    exchange.receive_reply(ranks.first(0), 0);
    return;
  }
  // The others have done the step, too, once the first one has: they wait for it in the call that all make.
  if (!is_first_server()) return;
  while (const auto worker = order.find_not_met()) {
    if (order.has_ended(*worker)) {
      const int rank = rank_of(*worker);
      throw comm::PeerFailure(
          rank, fmt::format("worker {} (rank {}) has ended after {} steps, the others have come to an evaluation, a "
                            "prediction, a save or the end of a training: every rank must make the same calls",
                            *worker, rank, order.num_pushed(*worker)));
    }
    handle(exchange.take([this] { return awaited_at_meeting(); }));
  }
  order.leave_meeting();
  for (int worker = 0; worker < ranks.count(1); ++worker) exchange.reply(worker, {});
}

void StaleTraining::handle(ServerExchange::Message message) {
  switch (message.head.kind) {
    case Kind::kPull: order.add_pull(std::move(message)); break;
    case Kind::kPush:
      if (is_first_server()) {
        order.order(message.worker);
        for (const int server : ranks.ranks_of(0)) {
          if (server != rank_) exchange.send(server, {.kind = Kind::kApply, .worker = message.worker}, {});
        }
      }
      order.add_push(std::move(message));
      break;
    case Kind::kMeet: order.meet(message.worker); break;
    case Kind::kApply: order.order(message.worker); break;
    case Kind::kStop: order.stop(message.worker, message.head.training); break;
    case Kind::kEnd:
      if (message.worker >= 0) order.end(message.worker);
      break;
    case Kind::kGoesOn:
    case Kind::kReply: check(false, "a server's own messages come to no server"); break;
  }
  apply_and_answer();
}

StaleStep& StaleTraining::graph_of(const ServerExchange::Message& message) const {
  StaleStep* const graph = graphs.at(static_cast<size_t>(message.head.graph));
  check(graph != nullptr, "a worker's message belongs to a training graph that is there");
  return *graph;
}

void StaleTraining::apply_and_answer() {
  bool has_applied = false;
  while (const auto push = order.take_push()) {
    graph_of(*push).apply(*push);
    has_applied = true;
  }
  while (const auto pull = order.take_pull()) exchange.reply(pull->worker, graph_of(*pull).answer(*pull));
  if (has_applied) exchange.tell_waiting();
}

}  // namespace tessera::train
