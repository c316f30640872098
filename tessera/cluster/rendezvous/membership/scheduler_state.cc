#include "tessera/cluster/rendezvous/membership/scheduler_state.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/base/printable.h"
#include "tessera/cluster/rendezvous/messages/fields.h"

namespace tessera::cluster::rendezvous {
namespace {

constexpr std::string_view kStateMagic = "TRS9";
constexpr size_t kStateHead = 8;
constexpr size_t kChecksumBytes = 4;

// Decisions are plans, which have a line for each node of a graph, and the like; a kernel table has one for each kind
// of operator. Each model that a script makes has a seed, in 23 bytes, and the checkpoints of each of its trainings
// have a name: a search may make thousands of both.
constexpr std::array<BlobRules, 5> kBlobRules = {{{"seed", kMaxBlobBytes},
                                                  {"decisions", kMaxBlobBytes},
                                                  {"kernel table", size_t{4} << 20},
                                                  {"checkpoints", kMaxBlobBytes},
                                                  {kLastSave, size_t{64} << 10}}};

template <typename Fields>
void visit_state(Fields& fields, SchedulerState& state, std::vector<std::pair<std::string, std::string>>& blobs) {
  fields.number(state.num_workers);
  fields.number(state.generation);
  fields.number(state.last_token);
  fields.number(state.num_losses);
  fields.flag(state.is_running);
  fields.flag(state.has_ended_by_itself);
  fields.list(state.nodes, kMaxNodes, [](Fields& of_node, SavedNode& node) {
    of_node.node_id(node.node_id, kMaxNodeId);
    of_node.text(node.host, kMaxHostName);
    of_node.number(node.rank);
    of_node.number(node.incarnation);
    of_node.number(node.clock_id);
    of_node.number(node.started_ns);
    of_node.number(node.token);
    of_node.flag(node.has_left);
    of_node.flag(node.is_server);
    of_node.flag(node.has_finished);
    of_node.flag(node.is_lost);
    of_node.flag(node.is_end_awaited);
    of_node.number(node.ended_ns);
  });
  fields.list(blobs, kBlobRules.size(), [](Fields& of_blob, std::pair<std::string, std::string>& blob) {
    of_blob.text(blob.first, kMaxValueName);
    of_blob.text(blob.second, kMaxBlobBytes);
  });
  fields.number(state.num_ranks);
  fields.number(state.num_first_ranks);
  fields.text(state.fixed_by, kMaxReason);
  fields.list(state.dropped, kMaxNodes, [](Fields& of_node, DroppedNode& node) {
    of_node.node_id(node.node_id, kMaxNodeId);
    of_node.number(node.incarnation);
  });
  fields.flag(state.has_told_of_newcomers);
  fields.flag(state.is_over);
  fields.flag(state.end.failed);
  fields.text(state.end.node_id, kMaxNodeId);
  fields.number(state.end.rank);
  fields.text(state.end.reason, kMaxReason);
}

uint32_t checksum_of(std::string_view bytes) { return crc32c(std::as_bytes(std::span(bytes.data(), bytes.size()))); }

// What is wrong with a state whose fields could be read; "" where nothing is.
std::string why_unsound(const SchedulerState& state, size_t num_blobs) {
  std::vector<uint32_t> ranks;
  for (size_t i = 0; i < state.nodes.size(); ++i) {
    const SavedNode& node = state.nodes[i];
    if (node.rank >= std::max(state.num_workers, state.num_ranks) || node.token > state.last_token)
      return "a node with a rank that cannot be";
    if (i > 0 && node.node_id <= state.nodes[i - 1].node_id) return "nodes that are not in order";
    ranks.push_back(node.rank);
  }
  std::ranges::sort(ranks);
  if (std::ranges::adjacent_find(ranks) != ranks.end()) return "two nodes with one rank";
  if (std::max({state.num_workers, state.num_ranks, state.num_first_ranks}) > kMaxNodes)
    return "more workers than there can be";
  if (state.blobs.size() != num_blobs) return "two states of one name";
  for (const auto& [name, bytes] : state.blobs) {
    const BlobRules* rules = find_blob_rules(name);
    if (rules == nullptr || bytes.size() > rules->max_bytes) return "a state that no job has";
  }
  return "";
}

}  // namespace

const BlobRules* find_blob_rules(std::string_view name) {
  const auto found = std::ranges::find(kBlobRules, name, &BlobRules::name);
  return found == kBlobRules.end() ? nullptr : &*found;
}

std::string print_scheduler_state(const SchedulerState& state) {
  SchedulerState fields_of = state;
  std::vector<std::pair<std::string, std::string>> blobs(state.blobs.begin(), state.blobs.end());
  FieldWriter body;
  visit_state(body, fields_of, blobs);
  return print_state_file(body.bytes());
}

std::string print_state_file(std::string_view body) {
  FieldWriter length;
  length.number(static_cast<uint32_t>(body.size()));
  std::string bytes = std::string(kStateMagic) + length.bytes() + std::string(body);
  FieldWriter checksum;
  checksum.number(checksum_of(bytes));
  return bytes + checksum.bytes();
}

std::optional<SchedulerState> parse_scheduler_state(std::string_view bytes, FrameError& error) {
  const auto refuse = [&](std::string why) {
    error.what = std::move(why);
    return std::nullopt;
  };
  if (!bytes.starts_with(kStateMagic)) {
    const std::string_view kind = kStateMagic.substr(0, kStateMagic.size() - 1);
    const bool is_of_other_version = bytes.starts_with(kind) && bytes.size() > kStateHead;
    return refuse(is_of_other_version ? fmt::format("is of another version of Tessera: it is a {}, this one reads {}",
                                                    printable(bytes.substr(0, kStateMagic.size())), kStateMagic)
                                      : "is no state of a scheduler");
  }
  if (bytes.size() < kStateHead + kChecksumBytes) return refuse("is cut short");
  uint32_t length = 0;
  FieldReader head(bytes.substr(kStateMagic.size(), 4));
  head.number(length);
  if (size_t{length} + kStateHead + kChecksumBytes != bytes.size()) return refuse("has another length than it says");
  uint32_t checksum = 0;
  FieldReader tail(bytes.substr(bytes.size() - kChecksumBytes));
  tail.number(checksum);
  if (checksum != checksum_of(bytes.substr(0, bytes.size() - kChecksumBytes))) return refuse("has a wrong checksum");
  SchedulerState state;
  std::vector<std::pair<std::string, std::string>> blobs;
  FieldReader fields(bytes.substr(kStateHead, length));
  visit_state(fields, state, blobs);
  fields.end();
  if (fields.has_failed()) return refuse("cannot be read: " + fields.why());
  state.blobs.insert(blobs.begin(), blobs.end());
  if (std::string why = why_unsound(state, blobs.size()); !why.empty()) return refuse("has " + why);
  return state;
}

void save_scheduler_state(FileSystem& files, const std::string& path, const SchedulerState& state) {
  files.write_atomically(path, print_scheduler_state(state), 0600);
}

SchedulerState load_scheduler_state(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return {};
  constexpr int64_t kMaxBytes = int64_t{64} << 20;
  if (files.size_bytes(path) > kMaxBytes) {
    throw IoError("the scheduler's state \"{}\" has more than {} bytes: it is none", path, kMaxBytes);
  }
  FrameError error;
  auto state = parse_scheduler_state(files.read_text(path), error);
  if (state) return *std::move(state);
  throw IoError("the scheduler's state \"{}\" {}: remove it to begin a new job", path, error.what);
}

}  // namespace tessera::cluster::rendezvous
