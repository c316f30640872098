// message_examples() gives a message of each type, for tests and for damaging.
#pragma once

#include <vector>

#include "tessera/cluster/rendezvous/messages/messages.h"

namespace tessera::cluster::rendezvous {

// Lists one message of each type, in the order of Message.
inline std::vector<Message> message_examples() {
  return {
      Register{.role = PeerRole::kLauncher,
               .incarnation = 17,
               .clock_id = 29,
               .started_ns = 5,
               .token = 3,
               .num_workers = 4,
               .host = "left",
               .node_ids = {"left-1/0", "left-1/1"},
               .num_servers = 1,
               .program = 23},
      Heartbeat{
          12, "matmul \"fc\"", 2, "all_reduce \"fc\" #3 of group \"world\"", 1, 41, "barrier of group \"world\"", {0}},
      SetValue{"segment/1/1", "/proc/17/fd/5"},
      GetValue{"segment/1/1"},
      SetBlob{"seed", "42"},
      GetBlob{"plan"},
      Leave{"left-1/0", 7, true, "the shape is wrong", true},
      AskStatus{},
      ForgetValue{"segment/1/1"},
      ResizeJob{3},
      FixRanks{"its strategies split values over 4 ranks", "no ModelCheckpoint is among its callbacks"},
      TellFigures{R"({"step":12,"loss":2.25})"},
      TellLastSave{true, "no ModelCheckpoint is among the callbacks"},
      Welcome{.token = 3,
              .heartbeat_ms = 3000,
              .timeout_ms = 30000,
              .max_restarts = 9,
              .min_ranks = 2,
              .is_newcomer = true,
              .is_spare = true,
              .wants_figures = true,
              .keeps_state = true},
      Assigned{.size = 4,
               .is_one_host = true,
               .nodes = {{"left-1/0", 0}, {"left-1/1", 3}},
               .num_servers = 1,
               .last_reason = "no restart is left"},
      HeartbeatAnswer{2, "asked for 2 ranks in place of 4"},
      ValueAnswer{"segment/1/1", "/proc/17/fd/5"},
      BlobAnswer{"seed", true, "42"},
      GenerationEnded{"left-1/0", 2, true, false, 3, "it has said nothing for 30000 ms"},
      Fenced{"a newer process is node left-1/0 now"},
      Refused{"the job has 4 workers, and all places are taken"},
      JobEnded{true, "left-1/0", 2, "the shape is wrong"},
      JobStatus{.phase = JobPhase::kRunning,
                .num_workers = 4,
                .num_missing = 1,
                .up_ms = 60000,
                .reason = "",
                .nodes = {{"left-1/0", "left", NodeState::kPresent, true, 2, true, true, 40, {12, "the callbacks"}}},
                .blobs = {{"seed", 2}}},
      NodeDropped{"left-1/0", "it has not come back within 60000 ms", true},
  };
}

}  // namespace tessera::cluster::rendezvous
