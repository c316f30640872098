#include "tessera/cluster/status_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tessera/base/printable.h"
#include "tessera/cluster/ranks/rank_words.h"

namespace tessera::cluster {
namespace {

using rendezvous::JobPhase;
using rendezvous::JobStatus;
using rendezvous::NodeState;
using rendezvous::NodeStatus;

// By rank; those that have none come last.
std::vector<NodeStatus> by_rank(const JobStatus& status) {
  std::vector<NodeStatus> nodes = status.nodes;
  std::ranges::stable_sort(nodes, [](const NodeStatus& a, const NodeStatus& b) {
    return a.has_rank != b.has_rank ? a.has_rank : a.has_rank && a.rank < b.rank;
  });
  return nodes;
}

// The rank that has finished the fewest steps, where they differ. Nodes say theirs with their heartbeats, so two steps
// that are near each other may be of different moments. While ranks meet for a generation, those that have begun anew
// have made no step, and are slow for that in nobody's eyes.
const NodeStatus* slowest_of(const JobStatus& status, const std::vector<NodeStatus>& nodes) {
  if (status.phase != JobPhase::kRunning) return nullptr;
  const NodeStatus* least = nullptr;
  int64_t most = 0;
  for (const NodeStatus& node : nodes) {
    if (!node.has_rank || !node.is_started) continue;
    if (least == nullptr || node.said.step < least->said.step) least = &node;
    most = std::max(most, node.said.step);
  }
  return least == nullptr || least->said.step == most ? nullptr : least;
}

// Text of others as part of a line.
std::string in_line(const std::string& text) {
  std::string shown = printable(text);
  std::ranges::replace_if(
      shown, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return shown;
}

// Less of their time is nothing that ranks lose to another one.
constexpr uint32_t kLeastPercent = 5;

// Ranks that wait for one in a call, or have waited for it most lately, by call and rank.
struct Waiting {
  std::vector<int> ranks;
  uint32_t percent = 0;  // the most of them
};
using WaitingRanks = std::map<std::pair<std::string, int>, Waiting>;

WaitingRanks waiting_now(const std::vector<NodeStatus>& nodes) {
  WaitingRanks found;
  for (const NodeStatus& node : nodes) {
    if (!node.has_rank || node.said.waits_in.empty()) continue;
    found[{node.said.waits_in, node.said.waits_for}].ranks.push_back(static_cast<int>(node.rank));
  }
  return found;
}

// The slowest rank of each call.
WaitingRanks waiting_often(const std::vector<NodeStatus>& nodes) {
  WaitingRanks found;
  for (const NodeStatus& node : nodes) {
    if (!node.has_rank || node.said.slow_rank < 0 || node.said.slow_percent < kLeastPercent) continue;
    Waiting& waiting = found[{node.said.slow_in, node.said.slow_rank}];
    waiting.ranks.push_back(static_cast<int>(node.rank));
    waiting.percent = std::max(waiting.percent, node.said.slow_percent);
  }
  return found;
}

const NodeStatus* node_of(const std::vector<NodeStatus>& nodes, int rank) {
  const auto found = std::ranges::find_if(
      nodes, [&](const NodeStatus& node) { return node.has_rank && static_cast<int>(node.rank) == rank; });
  return found == nodes.end() ? nullptr : &*found;
}

// Who waits for whom, and who is slow.
std::string waits_text(const std::vector<NodeStatus>& nodes) {
  const auto size = static_cast<int>(nodes.size());
  std::string text;
  for (const auto& [where, waiting] : waiting_now(nodes)) {
    const auto& [call, rank] = where;
    const NodeStatus* node = node_of(nodes, rank);
    const bool is_known = node != nullptr && !node->said.doing.empty();
    text += fmt::format("{} {} for {} in {}{}\n", name_ranks(waiting.ranks, size),
                        waiting.ranks.size() == 1 ? "waits" : "wait",
                        rank < 0 ? "another rank" : fmt::format("rank {}", rank), in_line(call),
                        is_known ? fmt::format("; rank {} is at {}", rank, in_line(node->said.doing)) : "");
  }
  for (const auto& [where, waiting] : waiting_often(nodes)) {
    const auto& [call, rank] = where;
    text += fmt::format("slowest in {}: rank {}, for which {} {} up to {} % of the time\n", in_line(call), rank,
                        name_ranks(waiting.ranks, size), waiting.ranks.size() == 1 ? "waits" : "wait", waiting.percent);
  }
  return text;
}

// Who still works in the generation that has ended, and so is waited for.
std::string behind_text(const std::vector<NodeStatus>& nodes) {
  std::string text;
  for (const NodeStatus& node : nodes) {
    if (node.state != NodeState::kBehind) continue;
    text += fmt::format("rank {} has not left the generation that has ended{}\n", node.rank,
                        node.said.doing.empty() ? "" : "; it is at " + in_line(node.said.doing));
  }
  return text;
}

nlohmann::ordered_json rank_or_null(int32_t rank) {
  return rank < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(rank);
}

const char* role_of(const NodeStatus& node) { return node.is_server ? "server" : "worker"; }

double seconds(int64_t ms) { return static_cast<double>(ms) / 1000; }

}  // namespace

std::string status_text(const JobStatus& status, uint64_t generation) {
  std::string text = fmt::format("{}: generation {}, {} of {}, up {:.0f} s", name_of(status.phase), generation,
                                 status.num_workers - status.num_missing, plural(status.num_workers, "worker"),
                                 seconds(static_cast<int64_t>(status.up_ms)));
  if (!status.reason.empty()) text += ": " + printable(status.reason);
  text += "\n";
  const std::vector<NodeStatus> nodes = by_rank(status);
  std::vector<std::string> waited_for;
  size_t width = 4;
  size_t host_width = 4;
  for (const NodeStatus& node : nodes) {
    width = std::max(width, node.node_id.size());
    host_width = std::max(host_width, printable(node.host).size());
    const bool is_there = node.state == NodeState::kPresent || node.state == NodeState::kLeft;
    if (!is_there) waited_for.push_back(printable(node.node_id));
  }
  if (!nodes.empty()) {
    text += fmt::format("{:>5}  {:<6}  {:<{}}  {:<{}}  {:<8}  {:>9}  {:>8}\n", "rank", "role", "node", width, "host",
                        host_width, "state", "heard", "step");
  }
  for (const NodeStatus& node : nodes) {
    const std::string_view state =
        node.state == NodeState::kPresent && !node.is_started ? "launched" : name_of(node.state);
    text += fmt::format("{:>5}  {:<6}  {:<{}}  {:<{}}  {:<8}  {:>6.1f} s  {:>8}\n",
                        node.has_rank ? std::to_string(node.rank) : "-", role_of(node), printable(node.node_id), width,
                        printable(node.host), host_width, state, seconds(node.heard_ms_ago), node.said.step);
  }
  if (const NodeStatus* slowest = slowest_of(status, nodes)) {
    text += fmt::format("slowest: rank {}, node {}, at step {}\n", slowest->rank, printable(slowest->node_id),
                        slowest->said.step);
  }
  text += status.phase == JobPhase::kRunning ? waits_text(nodes) : behind_text(nodes);
  if (!waited_for.empty()) text += fmt::format("waited for: {}\n", fmt::join(waited_for, ", "));
  const size_t unknown = status.num_workers > nodes.size() ? status.num_workers - nodes.size() : 0;
  if (unknown > 0)
    text += fmt::format("waited for: {} of no name yet\n", plural(static_cast<int64_t>(unknown), "worker"));
  return text;
}

std::string resize_text(const JobStatus& before, const JobStatus& after, int num_ranks, const std::string& address) {
  const auto wanted = static_cast<uint32_t>(num_ranks);
  const auto ranks_of = [](uint32_t count) { return plural(count, "rank"); };
  if (before.num_workers == wanted && after.phase == JobPhase::kRunning) {
    return fmt::format("asked for {}: the job has {} and goes on as it is\n", ranks_of(wanted), ranks_of(wanted));
  }
  if (after.phase == JobPhase::kRunning && !after.reason.empty()) {
    return fmt::format(
        "{}\nit saves the step that it is in, on all ranks, and stops; its last words say where that is saved, and how "
        "it goes on\n",
        printable(after.reason));
  }
  std::vector<std::string> leaving, coming;
  for (const NodeStatus& node : by_rank(before)) {
    if (node.has_rank && node.rank >= wanted) leaving.push_back(printable(node.node_id));
    if (!node.has_rank) coming.push_back(printable(node.node_id));
  }
  const bool is_fewer = wanted < before.num_workers;
  const std::vector<std::string>& nodes = is_fewer ? leaving : coming;
  return fmt::format(
      "asked for {} in place of {}: {} {} now, and the other ranks leave the step that they are in and begin anew\n"
      "they train on after the newest step that all of them have kept; `tessera cluster status {}` says when the next "
      "generation runs\n",
      ranks_of(wanted), before.num_workers,
      nodes.empty() ? (is_fewer ? "the highest ranks" : "those that wait") : fmt::format("{}", fmt::join(nodes, ", ")),
      is_fewer ? (nodes.size() == 1 ? "leaves" : "leave") : (nodes.size() == 1 ? "is taken in" : "are taken in"),
      address);
}

std::string status_json(const JobStatus& status, uint64_t generation) {
  nlohmann::ordered_json json;
  json["phase"] = name_of(status.phase);
  json["generation"] = generation;
  json["workers"] = status.num_workers;
  json["missing"] = status.num_missing;
  json["up_s"] = seconds(static_cast<int64_t>(status.up_ms));
  json["reason"] = printable(status.reason);
  json["states"] = nlohmann::ordered_json::object();
  for (const auto& blob : status.blobs) json["states"][printable(blob.name)] = blob.size_bytes;
  const std::vector<NodeStatus> nodes = by_rank(status);
  const NodeStatus* slowest = slowest_of(status, nodes);
  json["slowest_rank"] = slowest == nullptr ? nlohmann::ordered_json() : nlohmann::ordered_json(slowest->rank);
  json["nodes"] = nlohmann::ordered_json::array();
  for (const NodeStatus& node : nodes) {
    nlohmann::ordered_json entry;
    entry["node_id"] = printable(node.node_id);
    entry["role"] = role_of(node);
    entry["state"] = name_of(node.state);
    entry["rank"] = node.has_rank ? nlohmann::ordered_json(node.rank) : nlohmann::ordered_json();
    entry["host"] = printable(node.host);
    entry["started"] = node.is_started;
    entry["heard_s_ago"] = seconds(node.heard_ms_ago);
    entry["step"] = node.said.step;
    entry["doing"] = printable(node.said.doing);
    entry["waits_for"] = rank_or_null(node.said.waits_for);
    entry["waits_in"] = printable(node.said.waits_in);
    entry["slow_rank"] = rank_or_null(node.said.slow_rank);
    entry["slow_percent"] = node.said.slow_percent;
    entry["slow_in"] = printable(node.said.slow_in);
    json["nodes"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

}  // namespace tessera::cluster
