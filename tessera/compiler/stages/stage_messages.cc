#include "tessera/compiler/stages/stage_messages.h"

#include <algorithm>
#include <set>

#include "tessera/compiler/stages/listed_lookups.h"

namespace tessera::compiler {
namespace {

std::optional<int> distance_between(const StagedPlan& plan, int from, int to) {
  if (plan.kind_of(from) != plan.kind_of(to)) return std::nullopt;
  return plan.ranks.first(to) - plan.ranks.first(from);
}

mesh::Box whole_box(const StageMessage& message, const mesh::Layout& layout, int rank) {
  const auto shape = mesh::local_shape(message.type.shape, layout.sharding, layout.mesh, rank);
  mesh::Box box;
  for (int dim = 0; dim < shape.ndim(); ++dim) box.push_back({0, shape[dim]});
  return box;
}

// The part of the whole value that a rank has.
mesh::Box slice_of(const StageMessage& message, const mesh::Layout& layout, int rank) {
  return mesh::slice_of(message.type.shape, layout.sharding, layout.mesh, rank);
}

std::optional<mesh::Box> box_of_peer(const std::vector<mesh::ExchangePiece>& pieces, int peer) {
  const auto it = std::find_if(pieces.begin(), pieces.end(), [&](const auto& piece) { return piece.rank == peer; });
  return it == pieces.end() ? std::nullopt : std::optional(it->box);
}

int64_t num_elements_of(const std::vector<mesh::ExchangePiece>& pieces) {
  int64_t count = 0;
  for (const auto& piece : pieces) count += mesh::num_elements(piece.box);
  return count;
}

mesh::ExchangePlan exchange_of(const StageMessage& message, int rank) {
  return mesh::exchange_plan(message.type.shape, message.from, message.to, rank);
}

}  // namespace

StageMessage message_between(const StagedPlan& plan, const ChunkMessage& message) {
  const auto& placement = plan.placement;
  const ir::NodeId producer = plan.micro.info(message.value).node;
  const auto& of_sender = plan.of_chunk(message.from).micro;
  return {
      .type = plan.micro.type(message.value),
      .from = plan.layout_in_chunk(message.value, message.from),
      .to = plan.layout_in_chunk(message.value, message.to),
      .distance = distance_between(plan, placement.stage_of_chunk(message.from), placement.stage_of_chunk(message.to)),
      .is_of_each = find_lookup_in_place(plan.micro, of_sender, placement, producer) != ir::kNone};
}

StageMessage message_between(const StagedPlan& plan, const std::string& value, int from, int to) {
  return {plan.micro.type(plan.micro.find_input(value)->value), plan.layout_sent(value, from),
          plan.layout_received(value, to), distance_between(plan, from, to)};
}

std::vector<std::pair<int, int>> pairs_of(const std::vector<StageMessage>& messages) {
  std::set<std::pair<int, int>> pairs;
  for (const auto& message : messages) {
    for (const int rank : message.from.mesh.ranks()) {
      if (message.is_of_each) {
        for (const int to : message.to.mesh.ranks()) {
          if (received_box(message, rank, to)) pairs.emplace(rank, to);
        }
        continue;
      }
      if (message.distance) {
        pairs.emplace(rank, rank + *message.distance);
        continue;
      }
      for (const auto& piece : exchange_of(message, rank).sends) pairs.emplace(rank, piece.rank);
    }
  }
  return {pairs.begin(), pairs.end()};
}

std::optional<mesh::Box> sent_box(const StageMessage& message, int from, int to) {
  if (message.is_of_each) {
    auto box = slice_of(message, message.to, to);
    return mesh::num_elements(box) == 0 ? std::nullopt : std::optional(std::move(box));
  }
  if (message.distance) return whole_box(message, message.from, from);
  return box_of_peer(exchange_of(message, from).sends, to);
}

std::optional<mesh::Box> received_box(const StageMessage& message, int from, int to) {
  if (message.is_of_each) {
    auto box = whole_box(message, message.to, to);
    return mesh::num_elements(box) == 0 ? std::nullopt : std::optional(std::move(box));
  }
  if (message.distance) return whole_box(message, message.to, to);
  return box_of_peer(exchange_of(message, to).receives, from);
}

int64_t busiest_bytes(const StageMessage& message) {
  int64_t most = 0;
  if (message.distance) {
    most = mesh::num_elements(whole_box(message, message.from, message.from.mesh.ranks()[0]));
  } else {
    for (const int rank : message.from.mesh.ranks()) {
      most = std::max(most, num_elements_of(exchange_of(message, rank).sends));
    }
    for (const int rank : message.to.mesh.ranks()) {
      most = std::max(most, num_elements_of(exchange_of(message, rank).receives));
    }
  }
  return most * Type{message.type.dtype, {}}.size_bytes();
}

}  // namespace tessera::compiler
