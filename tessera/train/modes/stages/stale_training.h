// StaleTraining: what the training steps of a model have in common whose parameter servers do not wait for all workers,
// for batches of any size: the messages between its ranks, and of a server the order of updates.
//
// Used from one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/cluster/ranks/context.h"
#include "tessera/mesh/stage_ranks.h"
#include "tessera/session/session.h"
#include "tessera/train/modes/stages/server_exchange.h"
#include "tessera/train/modes/stages/update_order.h"

namespace tessera::train {

class StaleStep;

class StaleTraining {
 public:
  StaleTraining(cluster::Context& context, session::Session& session, const mesh::StageRanks& ranks,
                const ServerStaleness& staleness)
      : session(session),
        ranks(ranks),
        exchange(context, ranks),
        order(ranks.count(1), staleness),
        rank_(context.rank()) {}

  // Of a server: answers and updates until all workers have done its next step. Returns the mean of their rows' losses.
  double serve_step();
  // This rank has come to a call that all ranks make together. A worker that is steps ahead waits there until all
  // others have come, for as long as they go on. Collective.
  void come_together();

  session::Session& session;
  mesh::StageRanks ranks;
  ServerExchange exchange;
  UpdateOrder order;               // of a server
  int64_t step = 0;                // that are done
  int64_t training = 0;            // which of the model's, from 1; 0: none was begun
  std::vector<StaleStep*> graphs;  // by number; null: it is gone
  bool are_copies_old = true;      // of what servers update, on workers
  bool are_apart = false;          // workers may be at different steps

 private:
  void handle(ServerExchange::Message message);
  void apply_and_answer();
  void require_workers() const;
  ServerExchange::Awaited awaited_in_step() const;
  ServerExchange::Awaited awaited_at_meeting() const;
  bool is_first_server() const { return rank_ == ranks.first(0); }
  StaleStep& graph_of(const ServerExchange::Message& message) const;
  int rank_of(int worker) const { return ranks.first(1) + worker; }

  int rank_;
};

}  // namespace tessera::train
