// Claims about what a scheduler's dashboard shows of its job.
#include "tessera/cluster/dashboard/status_board.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera::cluster {
namespace {

namespace wire = rendezvous;
using nlohmann::json;

wire::NodeStatus node(const std::string& id, uint32_t rank, wire::NodeState state, bool is_started = true) {
  return {.node_id = id, .host = "left", .state = state, .has_rank = true, .rank = rank, .is_started = is_started};
}

TEST(StatusBoard, ShowsFiguresAndHeartbeatsOfEachNode) {
  JobBoard board("a job");
  wire::JobStatus status{.phase = wire::JobPhase::kRunning, .num_workers = 4, .nodes = {}, .blobs = {}};
  status.nodes = {node("a/0", 0, wire::NodeState::kPresent), node("a/1", 1, wire::NodeState::kPresent),
                  node("a/2", 2, wire::NodeState::kLost), node("a/3", 3, wire::NodeState::kPresent, false)};
  status.nodes[1].said = {
      .step = 5, .doing = "matmul", .waits_for = 0, .waits_in = "barrier", .slow_rank = 0, .slow_percent = 40};
  show_status(board, status, [](const std::string& id) {
    return id == "a/0" ? std::string(R"({"epoch":1,"step":6,"loss":0.25})") : std::string("no figures");
  });
  const json said = json::parse(board.state_json());
  EXPECT_EQ(said["state"], "running");
  EXPECT_EQ(said["num_ranks"], 4);
  EXPECT_EQ(said["ranks"][0]["state"], "training");
  EXPECT_EQ(said["ranks"][0]["loss"], 0.25);
  EXPECT_EQ(said["ranks"][0]["host"], "left");
  EXPECT_EQ(said["ranks"][1]["state"], "waiting");
  EXPECT_EQ(said["ranks"][1]["step"], 5);
  EXPECT_EQ(said["ranks"][2]["state"], "lost");
  EXPECT_EQ(said["ranks"][3]["state"], "starting");
  EXPECT_EQ(said["slowest"], (json{{"rank", 0}, {"percent", 40}, {"waiting", 1}}));
}

TEST(StatusBoard, ShowsHowTheJobHasFailed) {
  JobBoard board("a job");
  show_status(
      board, {.phase = wire::JobPhase::kFailed, .num_workers = 1, .reason = "a disk is full", .nodes = {}, .blobs = {}},
      [](const std::string&) { return std::string(); });
  const json said = json::parse(board.state_json());
  EXPECT_EQ(said["state"], "failed");
  EXPECT_EQ(said["reason"], "a disk is full");
}

}  // namespace
}  // namespace tessera::cluster
