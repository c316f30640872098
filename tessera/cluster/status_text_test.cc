// The live status of a job as text and JSON.
#include "tessera/cluster/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera::cluster {
namespace {

using rendezvous::JobPhase;
using rendezvous::JobStatus;
using rendezvous::NodeState;
using rendezvous::NodeStatus;
using testing::HasSubstr;
using testing::Not;

NodeStatus node(uint32_t rank, int64_t step) {
  NodeStatus made;
  made.node_id = "left/" + std::to_string(rank);
  made.host = "left";
  made.state = NodeState::kPresent;
  made.has_rank = made.is_started = true;
  made.rank = rank;
  made.heard_ms_ago = 400;
  made.said.step = step;
  return made;
}

JobStatus status_of(std::vector<NodeStatus> nodes) {
  JobStatus status;
  status.phase = JobPhase::kRunning;
  status.num_workers = static_cast<uint32_t>(nodes.size());
  status.up_ms = 60'000;
  status.nodes = std::move(nodes);
  return status;
}

TEST(Status, NamesWhoIsWaitedForAndWhoIsSlow) {
  std::vector<NodeStatus> nodes = {node(0, 41), node(1, 41), node(2, 40), node(3, 41)};
  for (const int rank : {0, 1, 3}) {
    auto& said = nodes[static_cast<size_t>(rank)].said;
    said.waits_for = 2;
    said.waits_in = "all_reduce \"fc\" #82 of group \"world\"";
    said.slow_rank = 2;
    said.slow_percent = static_cast<uint32_t>(40 + rank);
    said.slow_in = "all_reduce \"fc\" of group \"world\"";
  }
  nodes[2].said.doing = "matmul \"fc\", made by model.py:41";
  EXPECT_EQ(
      status_text(status_of(nodes), 1),
      "running: generation 1, 4 of 4 workers, up 60 s\n"
      " rank  role    node    host  state         heard      step\n"
      "    0  worker  left/0  left  present      0.4 s        41\n"
      "    1  worker  left/1  left  present      0.4 s        41\n"
      "    2  worker  left/2  left  present      0.4 s        40\n"
      "    3  worker  left/3  left  present      0.4 s        41\n"
      "slowest: rank 2, node left/2, at step 40\n"
      "ranks 0, 1, 3 wait for rank 2 in all_reduce \"fc\" #82 of group \"world\"; rank 2 is at matmul \"fc\", made by "
      "model.py:41\n"
      "slowest in all_reduce \"fc\" of group \"world\": rank 2, for which ranks 0, 1, 3 wait up to 43 % of the time\n");
  const auto json = nlohmann::json::parse(status_json(status_of(nodes), 1));
  EXPECT_EQ(json.at("nodes").at(0).at("waits_for"), 2);
  EXPECT_EQ(json.at("nodes").at(2).at("waits_for"), nullptr);
  EXPECT_EQ(json.at("nodes").at(2).at("doing"), "matmul \"fc\", made by model.py:41");
  EXPECT_EQ(json.at("nodes").at(3).at("slow_percent"), 43);
}

TEST(Status, SaysNothingOfARankThatCostsTheOthersLittle) {
  std::vector<NodeStatus> nodes = {node(0, 41), node(1, 41)};
  nodes[0].said.slow_rank = 1;
  nodes[0].said.slow_percent = 3;
  EXPECT_THAT(status_text(status_of(nodes), 1), Not(HasSubstr("slowest")));
}

TEST(Status, PrintsNothingRawOfWhatRanksSay) {
  std::vector<NodeStatus> nodes = {node(0, 41), node(1, 41)};
  const std::string evil = "\x1b[2Jx\nrunning: all is well";
  nodes[0].said.waits_for = nodes[0].said.slow_rank = 1;
  nodes[0].said.slow_percent = 50;
  nodes[0].said.waits_in = nodes[0].said.slow_in = nodes[1].said.doing = evil;
  for (const std::string& text : {status_text(status_of(nodes), 1), status_json(status_of(nodes), 1)}) {
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
    EXPECT_THAT(text, Not(HasSubstr("\nrunning: all is well")));
  }
}

TEST(Status, NamesNoRankThatIsNotThere) {
  std::vector<NodeStatus> nodes = {node(0, 41)};
  nodes[0].said.waits_for = 2'000'000'000;
  nodes[0].said.waits_in = "barrier #1 of group \"world\"";
  EXPECT_THAT(status_text(status_of(nodes), 1), HasSubstr("waits for rank 2000000000 in barrier #1"));
}

TEST(Status, TellsServersFromWorkers) {
  std::vector<NodeStatus> nodes = {node(0, 41), node(1, 41)};
  nodes[0].is_server = true;
  const std::string text = status_text(status_of(nodes), 1);
  EXPECT_THAT(text, HasSubstr("    0  server  left/0  left  present"));
  EXPECT_THAT(text, HasSubstr("    1  worker  left/1  left  present"));
  const auto json = nlohmann::json::parse(status_json(status_of(nodes), 1));
  EXPECT_EQ(json.at("nodes").at(0).at("role"), "server");
  EXPECT_EQ(json.at("nodes").at(1).at("role"), "worker");
}

TEST(Status, OfOneWorkerIsInTheSingular) {
  EXPECT_THAT(status_text(status_of({node(0, 3)}), 1),
              testing::StartsWith("running: generation 1, 1 of 1 worker, up 60 s\n"));
  JobStatus waiting;
  waiting.num_workers = waiting.num_missing = 1;
  EXPECT_EQ(status_text(waiting, 0),
            "waiting: generation 0, 0 of 1 worker, up 0 s\nwaited for: 1 worker of no name yet\n");
}

// Ranks that have begun anew have made no step yet: the one that they wait for has made more.
TEST(Status, NamesTheRankThatHangsInAGenerationThatHasEnded) {
  std::vector<NodeStatus> nodes = {node(0, 0), node(1, 4), node(2, 0)};
  nodes[1].state = NodeState::kBehind;
  nodes[1].said.doing = "the callbacks";
  nodes[2].said.waits_for = 0;  // as it did before
  nodes[2].said.waits_in = "all_reduce \"fc\" #82 of group \"world\"";
  JobStatus status = status_of(nodes);
  status.phase = JobPhase::kWaiting;
  status.num_missing = 1;
  EXPECT_EQ(status_text(status, 1),
            "waiting: generation 1, 2 of 3 workers, up 60 s\n"
            " rank  role    node    host  state         heard      step\n"
            "    0  worker  left/0  left  present      0.4 s         0\n"
            "    1  worker  left/1  left  behind       0.4 s         4\n"
            "    2  worker  left/2  left  present      0.4 s         0\n"
            "rank 1 has not left the generation that has ended; it is at the callbacks\n"
            "waited for: left/1\n");
  const auto json = nlohmann::json::parse(status_json(status, 1));
  EXPECT_EQ(json.at("slowest_rank"), nullptr);
  EXPECT_EQ(json.at("nodes").at(1).at("state"), "behind");
}

TEST(Resize, SaysWhatWasAskedForWhatTheJobDoesAndWhen) {
  const JobStatus four = status_of({node(0, 9), node(1, 9), node(2, 9), node(3, 9)});
  JobStatus after = status_of({node(0, 9), node(1, 9)});
  after.phase = JobPhase::kWaiting;
  EXPECT_EQ(resize_text(four, after, 2, "10.0.0.1:6667"),
            "asked for 2 ranks in place of 4: left/2, left/3 leave now, and the other ranks leave the step that they "
            "are in and begin anew\n"
            "they train on after the newest step that all of them have kept; `tessera cluster status 10.0.0.1:6667` "
            "says when the next generation runs\n");
  JobStatus waits = status_of({node(0, 9), node(1, 9), node(7, 0)});
  waits.num_workers = 2;
  waits.nodes[2].has_rank = false;
  EXPECT_THAT(resize_text(waits, after, 3, "h:1"),
              HasSubstr("asked for 3 ranks in place of 2: left/7 is taken in now, and the other ranks"));
  EXPECT_EQ(resize_text(four, four, 4, "h:1"), "asked for 4 ranks: the job has 4 ranks and goes on as it is\n");
  JobStatus stops = four;
  stops.reason = "asked for 2 ranks in place of 4, which the job cannot have: it trains in pipeline";
  EXPECT_EQ(resize_text(four, stops, 2, "h:1"),
            "asked for 2 ranks in place of 4, which the job cannot have: it trains in pipeline\n"
            "it saves the step that it is in, on all ranks, and stops; its last words say where that is saved, and how "
            "it goes on\n");
}

}  // namespace
}  // namespace tessera::cluster
