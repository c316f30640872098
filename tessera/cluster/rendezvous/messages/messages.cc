#include "tessera/cluster/rendezvous/messages/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/cluster/rendezvous/messages/fields.h"

namespace tessera::cluster::rendezvous {
namespace {

// The fields of each message, in the order of the wire.

template <typename Fields>
void visit_fields(Fields& fields, Register& message) {
  fields.choice(message.role, PeerRole::kObserver);
  fields.number(message.incarnation);
  fields.number(message.clock_id);
  fields.number(message.started_ns);
  fields.number(message.token);
  fields.number(message.num_workers);
  fields.text(message.host, kMaxHostName);
  fields.list(message.node_ids, kMaxNodesOfLauncher,
              [](Fields& of_node, std::string& id) { of_node.node_id(id, kMaxNodeId); });
  fields.number(message.num_servers);
  fields.number(message.program);
}

template <typename Fields>
void visit_fields(Fields& fields, Heartbeat& message) {
  fields.number(message.step);
  fields.text(message.doing, kMaxDoing);
  fields.number(message.waits_for);
  fields.text(message.waits_in, kMaxDoing);
  fields.number(message.slow_rank);
  fields.number(message.slow_percent);
  fields.text(message.slow_in, kMaxDoing);
  fields.list(message.idle, kMaxNodesOfLauncher, [](Fields& of_node, uint32_t& place) { of_node.number(place); });
}

template <typename Fields>
void visit_fields(Fields& fields, SetValue& message) {
  fields.text(message.name, kMaxValueName);
  fields.text(message.value, kMaxValueBytes);
}

template <typename Fields>
void visit_fields(Fields& fields, GetValue& message) {
  fields.text(message.name, kMaxValueName);
}

template <typename Fields>
void visit_fields(Fields& fields, SetBlob& message) {
  fields.text(message.name, kMaxValueName);
  fields.text(message.bytes, kMaxBlobBytes);
}

template <typename Fields>
void visit_fields(Fields& fields, GetBlob& message) {
  fields.text(message.name, kMaxValueName);
}

template <typename Fields>
void visit_fields(Fields& fields, Leave& message) {
  fields.node_id(message.node_id, kMaxNodeId);
  fields.number(message.at_ns);
  fields.flag(message.failed);
  fields.text(message.reason, kMaxReason);
  fields.flag(message.for_good);
}

template <typename Fields>
void visit_fields(Fields& /*fields*/, AskStatus& /*message*/) {}

template <typename Fields>
void visit_fields(Fields& fields, ForgetValue& message) {
  fields.text(message.name, kMaxValueName);
}

template <typename Fields>
void visit_fields(Fields& fields, ResizeJob& message) {
  fields.number(message.num_ranks);
}

template <typename Fields>
void visit_fields(Fields& fields, FixRanks& message) {
  fields.text(message.reason, kMaxReason);
  fields.text(message.unsaved_for, kMaxReason);
}

template <typename Fields>
void visit_fields(Fields& fields, TellFigures& message) {
  fields.text(message.figures, kMaxFigures);
}

template <typename Fields>
void visit_fields(Fields& fields, TellLastSave& message) {
  fields.flag(message.is_training);
  fields.text(message.unsaved_for, kMaxReason);
}

template <typename Fields>
void visit_fields(Fields& fields, Welcome& message) {
  fields.number(message.token);
  fields.number(message.heartbeat_ms);
  fields.number(message.timeout_ms);
  fields.number(message.max_restarts);
  fields.number(message.min_ranks);
  fields.flag(message.is_newcomer);
  fields.flag(message.is_spare);
  fields.flag(message.wants_figures);
  fields.flag(message.keeps_state);
}

template <typename Fields>
void visit_fields(Fields& fields, Assigned& message) {
  fields.number(message.size);
  fields.flag(message.is_one_host);
  fields.list(message.nodes, kMaxNodesOfLauncher, [](Fields& of_node, NodeRank& node) {
    of_node.node_id(node.node_id, kMaxNodeId);
    of_node.number(node.rank);
  });
  fields.number(message.num_servers);
  fields.text(message.last_reason, kMaxReason);
}

template <typename Fields>
void visit_fields(Fields& fields, HeartbeatAnswer& message) {
  fields.number(message.num_newcomers);
  fields.text(message.stop_reason, kMaxReason);
}

template <typename Fields>
void visit_fields(Fields& fields, ValueAnswer& message) {
  fields.text(message.name, kMaxValueName);
  fields.text(message.value, kMaxValueBytes);
}

template <typename Fields>
void visit_fields(Fields& fields, BlobAnswer& message) {
  fields.text(message.name, kMaxValueName);
  fields.flag(message.is_there);
  fields.text(message.bytes, kMaxBlobBytes);
}

template <typename Fields>
void visit_fields(Fields& fields, GenerationEnded& message) {
  fields.text(message.node_id, kMaxNodeId);
  fields.number(message.rank);
  fields.flag(message.is_lost);
  fields.flag(message.ends_by_itself);
  fields.number(message.num_losses);
  fields.text(message.reason, kMaxReason);
}

template <typename Fields>
void visit_fields(Fields& fields, Fenced& message) {
  fields.text(message.reason, kMaxReason);
}

template <typename Fields>
void visit_fields(Fields& fields, Refused& message) {
  fields.text(message.reason, kMaxReason);
}

template <typename Fields>
void visit_fields(Fields& fields, JobEnded& message) {
  fields.flag(message.failed);
  fields.text(message.node_id, kMaxNodeId);
  fields.number(message.rank);
  fields.text(message.reason, kMaxReason);
}

template <typename Fields>
void visit_fields(Fields& fields, JobStatus& message) {
  constexpr size_t kMaxBlobs = 16;
  fields.choice(message.phase, JobPhase::kFailed);
  fields.number(message.num_workers);
  fields.number(message.num_missing);
  fields.number(message.up_ms);
  fields.text(message.reason, kMaxReason / 2);
  fields.list(message.nodes, kMaxNodes, [](Fields& of_node, NodeStatus& node) {
    of_node.node_id(node.node_id, kMaxNodeId);
    of_node.text(node.host, kMaxHostName);
    of_node.choice(node.state, NodeState::kBehind);
    of_node.flag(node.has_rank);
    of_node.number(node.rank);
    of_node.flag(node.is_started);
    of_node.flag(node.is_server);
    of_node.number(node.heard_ms_ago);
    visit_fields(of_node, node.said);
  });
  fields.list(message.blobs, kMaxBlobs, [](Fields& of_blob, BlobStatus& blob) {
    of_blob.text(blob.name, kMaxValueName / 4);
    of_blob.number(blob.size_bytes);
  });
}

template <typename Fields>
void visit_fields(Fields& fields, NodeDropped& message) {
  fields.node_id(message.node_id, kMaxNodeId);
  fields.text(message.reason, kMaxReason);
  fields.flag(message.ends_job);
}

template <typename Body>
std::optional<Message> parse_body(const RawFrame& frame, FrameError& error) {
  Body message;
  FieldReader fields(frame.body);
  visit_fields(fields, message);
  fields.end();
  if (!fields.has_failed()) return message;
  error.what = fmt::format("a frame \"{}\" that cannot be: {}", find_rules(static_cast<uint8_t>(frame.type))->name,
                           fields.why());
  return std::nullopt;
}

using Parser = std::optional<Message> (*)(const RawFrame&, FrameError&);

template <size_t... kIndex>
constexpr auto make_parsers(std::index_sequence<kIndex...> /*indices*/) {
  return std::array<Parser, sizeof...(kIndex)>{&parse_body<std::variant_alternative_t<kIndex, Message>>...};
}

constexpr auto kParsers = make_parsers(std::make_index_sequence<std::variant_size_v<Message>>());

}  // namespace

FrameType type_of(const Message& message) { return all_rules()[message.index()].type; }

std::string print_message(const Message& message, uint64_t generation) {
  FieldWriter fields;
  std::visit([&](auto body) { visit_fields(fields, body); },  // a copy: the lists of fields serve the reader, too
             message);
  return print_frame(type_of(message), generation, fields.bytes());
}

std::optional<Message> parse_message(const RawFrame& frame, FrameError& error) {
  const auto index = static_cast<size_t>(find_rules(static_cast<uint8_t>(frame.type)) - all_rules().data());
  return kParsers[index](frame, error);
}

std::string why_impossible(const Assigned& assigned, const std::vector<std::string>& node_ids, bool may_lack_some) {
  if (assigned.size == 0 || assigned.size > kMaxNodes) return fmt::format("a job of {} ranks", assigned.size);
  std::set<std::string> given;
  for (const NodeRank& node : assigned.nodes) {
    if (node.rank >= assigned.size) return fmt::format("rank {} of {}", node.rank, assigned.size);
    given.insert(node.node_id);
  }
  const std::set<std::string> own(node_ids.begin(), node_ids.end());
  const bool are_own = may_lack_some ? !given.empty() && std::ranges::includes(own, given) : given == own;
  return are_own ? "" : "ranks of other nodes than this process's";
}

std::string_view name_of(PeerRole role) {
  constexpr std::string_view kNames[] = {"worker", "launcher", "observer"};
  return kNames[static_cast<size_t>(role)];
}

std::string_view name_of(JobPhase phase) {
  constexpr std::string_view kNames[] = {"waiting", "running", "finished", "failed"};
  return kNames[static_cast<size_t>(phase)];
}

std::string_view name_of(NodeState state) {
  constexpr std::string_view kNames[] = {"present", "silent", "lost", "left", "behind"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace tessera::cluster::rendezvous
