#include "tessera/executor/collectives.h"

#include <cstring>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/ops/rules/exchange.h"

namespace tessera::executor {
namespace {

// Sizes along `dim` per rank: the attribute "sizes", else equal parts of the whole.
Ints sizes_along(const Attributes& attributes, int64_t whole, int group_size) {
  if (attributes.has("sizes") && !attributes.get_ints("sizes").empty()) return attributes.get_ints("sizes");
  return Ints(static_cast<size_t>(group_size), whole / group_size);
}

// The piece [offset, offset + size) along `dim` of a view.
TensorView piece(const TensorView& view, int dim, int64_t offset, int64_t size) {
  TensorView result = view;
  result.data =
      static_cast<std::byte*>(view.data) + offset * view.strides[dim] * static_cast<int64_t>(size_bytes(view.dtype));
  result.shape[dim] = size;
  return result;
}

// Per rank: its piece of `whole` along dim, and the same piece as a contiguous block inside `staging`.
struct Pieces {
  std::vector<TensorView> strided;
  std::vector<TensorView> blocks;
  std::vector<int64_t> counts;  // elements
};

Pieces make_pieces(const TensorView& whole, int dim, const Ints& sizes, void* staging) {
  Pieces pieces;
  auto* at = static_cast<std::byte*>(staging);
  int64_t offset = 0;
  for (const int64_t size : sizes) {
    pieces.strided.push_back(piece(whole, dim, offset, size));
    pieces.blocks.emplace_back(at, pieces.strided.back().type());
    pieces.counts.push_back(pieces.strided.back().num_elements());
    at += pieces.blocks.back().size_bytes();
    offset += size;
  }
  return pieces;
}

void copy_all(const std::vector<TensorView>& from, const std::vector<TensorView>& to) {
  for (size_t i = 0; i < from.size(); ++i) copy_elements(from[i], to[i]);
}

// Several wholes, each cut along a dim of its own: rank by rank the members' pieces, side by side in `staging`.
Pieces make_packed(std::span<const TensorView> wholes, const ir::Step& step, int group_size, void* staging) {
  const Ints& dims = step.attributes.get_ints("dims");
  const Ints& sizes = step.attributes.get_ints("sizes");
  Pieces pieces;
  pieces.counts.resize(static_cast<size_t>(group_size));
  std::vector<int64_t> offsets(wholes.size());
  auto* at = static_cast<std::byte*>(staging);
  for (size_t rank = 0; rank < pieces.counts.size(); ++rank) {
    for (size_t member = 0; member < wholes.size(); ++member) {
      const int64_t size = sizes[member * pieces.counts.size() + rank];
      pieces.strided.push_back(piece(wholes[member], static_cast<int>(dims[member]), offsets[member], size));
      pieces.blocks.emplace_back(at, pieces.strided.back().type());
      pieces.counts[rank] += pieces.blocks.back().num_elements();
      at += pieces.blocks.back().size_bytes();
      offsets[member] += size;
    }
  }
  return pieces;
}

// A bucket of all_gathers or reduce_scatters: one call for all of them.
std::function<void()> prepare_packed(const ir::Step& step, std::span<const TensorView> inputs,
                                     std::span<const TensorView> outputs, comm::Communicator& group,
                                     const std::string& who) {
  const auto num_members = outputs.size();
  const auto members = inputs.first(num_members);
  void* staging = inputs[num_members].data;
  const bool gathers = step.op == "all_gather";
  const auto all = make_packed(gathers ? outputs : members, step, group.size(), staging);
  // What this rank sends, or gets.
  Pieces own;
  const auto first = static_cast<ptrdiff_t>(num_members) * group.rank();
  own.strided = gathers ? std::vector<TensorView>(members.begin(), members.end())
                        : std::vector<TensorView>(outputs.begin(), outputs.end());
  own.blocks.assign(all.blocks.begin() + first, all.blocks.begin() + first + static_cast<ptrdiff_t>(num_members));
  const DType dtype = members[0].dtype;
  void* place = own.blocks[0].data;
  if (gathers) {
    return [&group, all, own, staging, place, dtype, who] {
      copy_all(own.strided, own.blocks);
      group.all_gather(place, staging, all.counts, dtype, who);
      copy_all(all.blocks, all.strided);
    };
  }
  const auto reduction = comm::parse_reduce_op(step.attributes.get_string("reduction"));
  return [&group, all, own, staging, place, dtype, reduction, who] {
    copy_all(all.strided, all.blocks);
    group.reduce_scatter(staging, place, all.counts, dtype, reduction, who);
    copy_all(own.blocks, own.strided);
  };
}

// The boxes of all ranks but `own`, each also as a contiguous block inside `staging`.
Pieces make_boxes(const TensorView& whole, const std::vector<mesh::Box>& boxes, int own, void* staging) {
  Pieces pieces;
  auto* at = static_cast<std::byte*>(staging);
  for (size_t rank = 0; rank < boxes.size(); ++rank) {
    const bool stays = static_cast<int>(rank) == own;
    pieces.counts.push_back(stays ? 0 : mesh::num_elements(boxes[rank]));
    if (pieces.counts.back() == 0) continue;
    pieces.strided.push_back(mesh::piece_of(whole, boxes[rank]));
    pieces.blocks.emplace_back(at, pieces.strided.back().type());
    at += pieces.blocks.back().size_bytes();
  }
  return pieces;
}

std::function<void()> prepare_exchange(const ir::Step& step, const TensorView& in, const TensorView& staging,
                                       const TensorView& out, comm::Communicator& group, const std::string& who) {
  const auto boxes = ops::exchange_boxes(step.attributes, in.shape.ndim());
  const auto own = static_cast<size_t>(group.rank());
  auto sent = make_boxes(in, boxes.send, group.rank(), staging.data);
  const auto received_bytes =
      static_cast<int64_t>(size_bytes(out.dtype)) *
      std::accumulate(boxes.receive.begin(), boxes.receive.end(), -mesh::num_elements(boxes.receive[own]),
                      [](int64_t sum, const mesh::Box& box) { return sum + mesh::num_elements(box); });
  auto* second = static_cast<std::byte*>(staging.data) + (staging.size_bytes() - received_bytes);
  auto received = make_boxes(out, boxes.receive, group.rank(), second);
  const auto kept_from = mesh::piece_of(in, boxes.send[own]);
  const auto kept_to = mesh::piece_of(out, boxes.receive[own]);
  const bool covers = received_bytes + kept_to.size_bytes() == out.size_bytes();
  return [&group, in, out, staging, second, sent, received, kept_from, kept_to, covers, who] {
    copy_all(sent.strided, sent.blocks);
    if (!covers) std::memset(out.data, 0, static_cast<size_t>(out.size_bytes()));
    copy_elements(kept_from, kept_to);
    group.all_to_all(staging.data, sent.counts, second, received.counts, in.dtype, who);
    copy_all(received.blocks, received.strided);
  };
}

std::string name_of(const ir::Step& step) {
  return step.source.empty() ? step.op : fmt::format("{} \"{}\"", step.op, step.source);
}

}  // namespace

std::function<void()> prepare_collective(const ir::Step& step, std::span<const TensorView> inputs,
                                         std::span<const TensorView> outputs, comm::Communicator& group) {
  const auto& attributes = step.attributes;
  const auto who = name_of(step);
  const auto reduction = [&] { return comm::parse_reduce_op(attributes.get_string("reduction")); };

  if (step.op == "all_reduce") {
    // In place on the bucket that holds all operands.
    const TensorView bucket = inputs[0];
    return [&group, bucket, op = reduction(), who] {
      group.all_reduce(bucket.data, bucket.num_elements(), bucket.dtype, op, who);
    };
  }
  if (attributes.has("dims")) return prepare_packed(step, inputs, outputs, group, who);
  if (step.op == "all_gather") {
    const TensorView in = inputs[0];
    const TensorView out = outputs[0];
    const int dim = static_cast<int>(attributes.get_int("dim"));
    const auto sizes = sizes_along(attributes, out.shape[dim], group.size());
    if (dim == 0) {
      const auto pieces = make_pieces(out, 0, sizes, out.data);
      return [&group, in, out, counts = pieces.counts, who] {
        group.all_gather(in.data, out.data, counts, in.dtype, who);
      };
    }
    return [&group, in, staging = inputs[1], pieces = make_pieces(out, dim, sizes, inputs[1].data), who] {
      group.all_gather(in.data, staging.data, pieces.counts, in.dtype, who);
      copy_all(pieces.blocks, pieces.strided);
    };
  }
  if (step.op == "reduce_scatter") {
    const TensorView in = inputs[0];
    const TensorView out = outputs[0];
    const int dim = static_cast<int>(attributes.get_int("dim"));
    const auto sizes = sizes_along(attributes, in.shape[dim], group.size());
    if (dim == 0) {
      const auto pieces = make_pieces(in, 0, sizes, in.data);
      return [&group, in, out, counts = pieces.counts, op = reduction(), who] {
        group.reduce_scatter(in.data, out.data, counts, in.dtype, op, who);
      };
    }
    return [&group, out, staging = inputs[1], pieces = make_pieces(in, dim, sizes, inputs[1].data), op = reduction(),
            who] {
      copy_all(pieces.strided, pieces.blocks);
      group.reduce_scatter(staging.data, out.data, pieces.counts, out.dtype, op, who);
    };
  }
  if (step.op == "broadcast") {
    const int root = static_cast<int>(attributes.get_int("root"));
    return [&group, in = inputs[0], out = outputs[0], root, who] {
      if (group.rank() == root) copy_elements(in, out);
      group.broadcast(out.data, out.num_elements(), out.dtype, root, who);
    };
  }
  if (step.op == "all_to_all") {
    const TensorView in = inputs[0];
    const TensorView out = outputs[0];
    const int split = static_cast<int>(attributes.get_int("split_dim"));
    const int concat = static_cast<int>(attributes.get_int("concat_dim"));
    auto* second = static_cast<std::byte*>(inputs[1].data) + inputs[1].num_elements() / 2;
    auto sent = make_pieces(in, split, sizes_along({}, in.shape[split], group.size()), inputs[1].data);
    auto received = make_pieces(out, concat, sizes_along({}, out.shape[concat], group.size()), second);
    return [&group, sent, received, who] {
      copy_all(sent.strided, sent.blocks);
      group.all_to_all(sent.blocks[0].data, sent.counts, received.blocks[0].data, received.counts, sent.blocks[0].dtype,
                       who);
      copy_all(received.blocks, received.strided);
    };
  }
  if (step.op == "exchange") return prepare_exchange(step, inputs[0], inputs[1], outputs[0], group, who);
  if (step.op == "send") {
    const int peer = static_cast<int>(attributes.get_int("peer"));
    return [&group, in = inputs[0], out = outputs[0], peer, who] {
      group.send(in.data, in.num_elements(), in.dtype, peer, who);
      if (out.type() == in.type()) copy_elements(in, out);
    };
  }
  if (step.op == "receive") {
    const int peer = static_cast<int>(attributes.get_int("peer"));
    return [&group, out = outputs[0], peer, who] { group.receive(out.data, out.num_elements(), out.dtype, peer, who); };
  }
  throw InvalidArgument("collective {} is not known to the executor", step.op);
}

}  // namespace tessera::executor
