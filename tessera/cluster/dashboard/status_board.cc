#include "tessera/cluster/dashboard/status_board.h"

#include <algorithm>

#include "tessera/cluster/ranks/training_figures.h"

namespace tessera::cluster {
namespace {

BoardRankState state_of(const rendezvous::NodeStatus& node, rendezvous::JobPhase phase) {
  switch (node.state) {
    case rendezvous::NodeState::kLost: return BoardRankState::kLost;
    case rendezvous::NodeState::kLeft:
      return phase == rendezvous::JobPhase::kFailed ? BoardRankState::kLeft : BoardRankState::kEnded;
    default: break;
  }
  return node.is_started ? BoardRankState::kRunning : BoardRankState::kStarting;
}

BoardJobState state_of(rendezvous::JobPhase phase) {
  switch (phase) {
    case rendezvous::JobPhase::kWaiting: return BoardJobState::kWaiting;
    case rendezvous::JobPhase::kRunning: return BoardJobState::kRunning;
    case rendezvous::JobPhase::kFinished: return BoardJobState::kCompleted;
    case rendezvous::JobPhase::kFailed: break;
  }
  return BoardJobState::kFailed;
}

}  // namespace

void show_status(JobBoard& board, const rendezvous::JobStatus& status,
                 const std::function<std::string(const std::string& node_id)>& figures_of) {
  constexpr uint32_t kMost = rendezvous::kMaxNodes;
  board.set_num_ranks(static_cast<int>(std::min(status.num_workers, kMost)));
  board.set_job(state_of(status.phase), status.reason);
  for (const rendezvous::NodeStatus& node : status.nodes) {
    if (!node.has_rank || node.rank >= kMost) continue;
    const int rank = static_cast<int>(node.rank);
    const bool is_silent = node.state == rendezvous::NodeState::kSilent;
    board.set_rank(rank, state_of(node, status.phase), is_silent ? "it is not connected" : "", node.host);
    auto figures = parse_figures(figures_of(node.node_id)).value_or(TrainingFigures{});
    figures.step = std::max(figures.step, node.said.step);
    figures.doing = node.said.doing;
    figures.waits_for = node.said.waits_for;
    figures.waits_in = node.said.waits_in;
    figures.slow_rank = node.said.slow_rank;
    figures.slow_percent = static_cast<int>(std::min<uint32_t>(node.said.slow_percent, 100));
    const bool is_there = node.is_started && node.state == rendezvous::NodeState::kPresent;
    if (is_there) board.take(rank, figures);
  }
}

}  // namespace tessera::cluster
