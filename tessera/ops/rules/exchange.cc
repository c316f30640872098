#include "tessera/ops/rules/exchange.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/rules/member_pieces.h"

namespace tessera::ops {
namespace {

// The boxes in an attribute, read in place: one of a thousand ranks has a thousand of them.
class BoxList {
 public:
  // Throws InvalidArgument where there is not one for each rank of the group.
  BoxList(const Attributes& attributes, std::string_view name, int ndim)
      : flat_(attributes.get_ints(name)), ndim_(static_cast<size_t>(ndim)) {
    const size_t num_ranks = attributes.get_ints("ranks").size();
    if (flat_.size() != num_ranks * 2 * ndim_) {
      throw InvalidArgument("attribute {} must have offset and size of {} dims for each of {} ranks, has {} numbers",
                            name, ndim, num_ranks, flat_.size());
    }
    size_ = num_ranks;
  }

  size_t size() const { return size_; }
  mesh::Range range(size_t rank, size_t dim) const {
    const size_t at = 2 * (rank * ndim_ + dim);
    return {flat_[at], flat_[at + 1]};
  }
  Box box(size_t rank) const {
    Box box;
    for (size_t dim = 0; dim < ndim_; ++dim) box.push_back(range(rank, dim));
    return box;
  }
  int64_t num_elements(size_t rank) const {
    int64_t count = 1;
    for (size_t dim = 0; dim < ndim_; ++dim) count *= range(rank, dim).size;
    return count;
  }
  std::vector<Box> boxes() const {
    std::vector<Box> boxes;
    boxes.reserve(size_);
    for (size_t rank = 0; rank < size_; ++rank) boxes.push_back(box(rank));
    return boxes;
  }

 private:
  const Ints& flat_;
  size_t ndim_;
  size_t size_ = 0;
};

Ints write_boxes(std::span<const Box> boxes) {
  Ints flat;
  for (const Box& box : boxes) {
    for (const auto& range : box) flat.insert(flat.end(), {range.offset, range.size});
  }
  return flat;
}

void require_inside(const BoxList& boxes, const Shape& shape, std::string_view what) {
  for (size_t rank = 0; rank < boxes.size(); ++rank) {
    for (int dim = 0; dim < shape.ndim(); ++dim) {
      const auto range = boxes.range(rank, static_cast<size_t>(dim));
      if (range.offset < 0 || range.size < 0 || range.offset + range.size > shape[dim]) {
        throw InvalidArgument("a box that is {} lies at [{}, {}) of dim {}, which has size {}", what, range.offset,
                              range.offset + range.size, dim, shape[dim]);
      }
    }
  }
}

int64_t elements_of_others(const BoxList& boxes, int64_t own) {
  int64_t sum = 0;
  for (size_t rank = 0; rank < boxes.size(); ++rank) {
    if (static_cast<int64_t>(rank) != own) sum += boxes.num_elements(rank);
  }
  return sum;
}

// Which ranks hold the same box.
class Holders {
 public:
  explicit Holders(std::span<const Box> held) {
    for (size_t rank = 0; rank < held.size(); ++rank) {
      auto& holders = by_box_[write_boxes(held.subspan(rank, 1))];
      holders.push_back(rank);
      by_rank_.push_back(&holders);
    }
  }
  // The rank that sends `to` its part of what `from` holds: of the ranks with that same box, `to` itself, else the
  // first after it.
  size_t sender(size_t from, size_t to) const {
    const auto& holders = *by_rank_[from];
    const auto it = std::lower_bound(holders.begin(), holders.end(), to);
    return it == holders.end() ? holders.front() : *it;
  }

 private:
  std::map<Ints, std::vector<size_t>> by_box_;  // ascending
  std::vector<const std::vector<size_t>*> by_rank_;
};

std::vector<int64_t> elements_by_member(const CollectiveCall& call) {
  const BoxList boxes(call.attributes, "receive", call.inputs[0].shape.ndim());
  std::vector<int64_t> elements(boxes.size());
  for (size_t rank = 0; rank < elements.size(); ++rank) elements[rank] = boxes.num_elements(rank);
  return elements;
}

// What is sent lies in front, what is received behind it.
int64_t exchange_staging(const CollectiveCall& call) {
  const int ndim = call.inputs[0].shape.ndim();
  const int64_t elements = elements_of_others(BoxList(call.attributes, "send", ndim), call.own()) +
                           elements_of_others(BoxList(call.attributes, "receive", ndim), call.own());
  return std::max<int64_t>(1, static_cast<int64_t>(size_bytes(call.inputs[0].dtype)) * elements);
}

// An all_to_all with boxes packed before and unpacked after it.
std::function<void()> prepare_exchange(const CollectiveRun& run) {
  const TensorView& in = run.inputs[0];
  const TensorView& staging = run.inputs[1];
  const TensorView& out = run.outputs[0];
  auto& group = run.group;
  const auto boxes = exchange_boxes(run.attributes, in.shape.ndim());
  const auto own = static_cast<size_t>(group.rank());
  auto sent = cut_boxes(in, boxes.send, group.rank(), staging.data);
  const auto received_bytes =
      static_cast<int64_t>(size_bytes(out.dtype)) *
      std::accumulate(boxes.receive.begin(), boxes.receive.end(), -mesh::num_elements(boxes.receive[own]),
                      [](int64_t sum, const Box& box) { return sum + mesh::num_elements(box); });
  auto* second = static_cast<std::byte*>(staging.data) + (staging.size_bytes() - received_bytes);
  auto received = cut_boxes(out, boxes.receive, group.rank(), second);
  // With what the rank keeps.
  sent.strided.push_back(mesh::piece_of(in, boxes.send[own]));
  sent.blocks.push_back(mesh::piece_of(out, boxes.receive[own]));
  const TensorView& kept_to = sent.blocks.back();
  const bool covers = received_bytes + kept_to.size_bytes() == out.size_bytes();
  return
      [&group, in, staging, second, clears = covers ? std::function<void()>([] {}) : run.own.zeros(out),
       packs = run.own.copies(sent.strided, sent.blocks), send_counts = sent.counts, receive_counts = received.counts,
       unpacks = run.own.copies(received.blocks, received.strided), who = run.who] {
        clears();
        packs();
        group.all_to_all(staging.data, send_counts, second, receive_counts, in.dtype, who);
        unpacks();
      };
}

}  // namespace

ExchangeBoxes exchange_boxes(const Attributes& attributes, int ndim) {
  return {BoxList(attributes, "send", ndim).boxes(), BoxList(attributes, "receive", ndim).boxes()};
}

ExchangeBoxes no_boxes(size_t num_ranks, int ndim) {
  const std::vector<Box> none(num_ranks, mesh::empty_box(ndim));
  return {none, none};
}

void set_exchange(Attributes& group, const ExchangeBoxes& boxes, const Shape& result) {
  group.set("shape", result.to_vector());
  group.set("send", write_boxes(boxes.send));
  group.set("receive", write_boxes(boxes.receive));
}

Attributes exchange_attributes(const Attributes& group, std::span<const Box> held, std::span<const Box> wanted) {
  const auto own = static_cast<size_t>(group.get_int("rank_in_group"));
  check_equal(held.size(), group.get_ints("ranks").size(), "boxes held in an exchange");
  check_equal(wanted.size(), held.size(), "boxes wanted in an exchange");
  const Holders holders(held);
  auto [send, receive] = no_boxes(held.size(), static_cast<int>(held[own].size()));
  for (size_t peer = 0; peer < held.size(); ++peer) {
    if (holders.sender(peer, own) == peer) {
      receive[peer] = relative_to(intersection(held[peer], wanted[own]), wanted[own]);
    }
    if (holders.sender(own, peer) == own) {
      send[peer] = relative_to(intersection(held[own], wanted[peer]), held[own]);
    }
  }
  Attributes attributes;
  for (const char* name : {"ranks", "group", "rank_in_group"}) attributes.set(name, *group.find(name));
  set_exchange(attributes, {send, receive}, shape_of(wanted[own]));
  return attributes;
}

Value exchange(Value x, const Attributes& group, std::span<const Box> held, std::span<const Box> wanted) {
  const auto attributes = exchange_attributes(group, held, wanted);
  check(x.shape() == shape_of(held[static_cast<size_t>(group.get_int("rank_in_group"))]),
        "an exchange's operand has the shape of what the rank holds");
  return apply1("exchange", {x}, attributes);
}

void add_exchange(OpRegistry& registry) {
  static const CollectiveDef communication{
      .names_boxes = true,
      .own_attributes = {"shape", "send", "receive"},
      .received = "what its boxes hold",
      .traffic = [](const CollectiveCall& call) -> Traffic {
        Traffic traffic{.by_sender = elements_by_member(call)};
        for (int64_t& sent : traffic.by_sender) sent *= static_cast<int64_t>(size_bytes(call.inputs[0].dtype));
        return traffic;
      },
      .boxes = [](const CollectiveCall& call) { return exchange_boxes(call.attributes, call.inputs[0].shape.ndim()); },
      .staging_bytes = exchange_staging,
      // What a rank sends, receives and keeps. What it keeps is among both, and copied once.
      .packed = [](const CollectiveCall& call, int64_t own) -> std::vector<Packed> {
        auto boxes = exchange_boxes(call.attributes, call.inputs[0].shape.ndim());
        boxes.send[static_cast<size_t>(own)] = mesh::empty_box(call.inputs[0].shape.ndim());
        auto packed = packed_boxes(call.inputs[0], boxes.send);
        const auto received = packed_boxes(call.outputs[0], boxes.receive);
        packed.insert(packed.end(), received.begin(), received.end());
        return packed;
      },
      .agreement = [](const CollectiveCall& call) { return fmt::format("of {}", call.inputs[0].dtype); },
      .prepare = prepare_exchange,
      // Two ranks swap rows, and keep one.
      .examples =
          {{{{2, 2}, {3, 2}},
            {{{"shape", Ints{3, 2}}, {"send", Ints{0, 1, 0, 2, 1, 1, 0, 2}}, {"receive", Ints{0, 1, 0, 2, 1, 2, 0, 2}}},
             {{"shape", Ints{2, 2}},
              {"send", Ints{0, 2, 0, 2, 2, 1, 0, 2}},
              {"receive", Ints{0, 1, 0, 2, 1, 1, 0, 2}}}}}}};
  registry.add(
      {.name = "exchange",
       .doc = "Pieces of x go to the ranks of the group, and the pieces that they send are put together to a result of "
              "another shape; zeros where nothing arrives. Halos, and values that change their mesh, move so.",
       .inputs = {"x"},
       .attributes = {of_run({"ranks", std::nullopt, "world ranks of the group, in order"}),
                      of_run({"group", std::nullopt, "name of the group"}),
                      {"rank_in_group", int64_t{0}, "this rank's place in `ranks`"},
                      {"order", int64_t{0}, "place in the job's total order of collectives"},
                      {"lane", int64_t{0}, "1: beside those of lane 0, since computing waits for it"},
                      of_run({"shape", std::nullopt, "of the result"}),
                      {"send", std::nullopt, "per rank of the group offset and size in each dim of x"},
                      {"receive", std::nullopt, "per rank of the group offset and size in each dim of the result"}},
       .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
         require_kind(types[0], Kind::kCompute, "the operand");
         const Shape shape = attributes.get_shape("shape");
         if (shape.ndim() != types[0].shape.ndim()) {
           throw InvalidArgument("shape {} must have as many dims as the operand", shape);
         }
         const BoxList send(attributes, "send", shape.ndim());
         const BoxList receive(attributes, "receive", shape.ndim());
         require_inside(send, types[0].shape, "sent");
         require_inside(receive, shape, "received");
         const auto own = static_cast<size_t>(attributes.get_int("rank_in_group"));
         if (own >= send.size()) throw InvalidArgument("rank_in_group={} is not in the group", own);
         const Shape leaves = shape_of(send.box(own));
         const Shape arrives = shape_of(receive.box(own));
         if (!(leaves == arrives)) {
           throw InvalidArgument("what stays on the rank is {} in the operand and {} in the result", leaves, arrives);
         }
         return {{types[0].dtype, shape}};
       },
       .collective = &communication});
}

}  // namespace tessera::ops
