#include "tessera/ops/exchange.h"

#include <algorithm>
#include <map>

#include "tessera/ops/families.h"
#include "tessera/ops/infer_helpers.h"

namespace tessera::ops {
namespace {

std::vector<Box> read_boxes(const Attributes& attributes, std::string_view name, int ndim) {
  const Ints& flat = attributes.get_ints(name);
  const size_t num_ranks = attributes.get_ints("ranks").size();
  const size_t per_box = 2 * static_cast<size_t>(ndim);
  if (flat.size() != num_ranks * per_box) {
    throw InvalidArgument("attribute {} must have offset and size of {} dims for each of {} ranks, has {} numbers",
                          name, ndim, num_ranks, flat.size());
  }
  std::vector<Box> boxes;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    Box& box = boxes.emplace_back();
    for (size_t at = rank * per_box; at < (rank + 1) * per_box; at += 2) box.push_back({flat[at], flat[at + 1]});
  }
  return boxes;
}

Ints write_boxes(std::span<const Box> boxes) {
  Ints flat;
  for (const Box& box : boxes) {
    for (const auto& range : box) flat.insert(flat.end(), {range.offset, range.size});
  }
  return flat;
}

void require_inside(std::span<const Box> boxes, const Shape& shape, std::string_view what) {
  for (const Box& box : boxes) {
    for (int dim = 0; dim < shape.ndim(); ++dim) {
      const auto& range = box[static_cast<size_t>(dim)];
      if (range.offset < 0 || range.size < 0 || range.offset + range.size > shape[dim]) {
        throw InvalidArgument("a box that is {} lies at [{}, {}) of dim {}, which has size {}", what, range.offset,
                              range.offset + range.size, dim, shape[dim]);
      }
    }
  }
}

int64_t elements_of_others(std::span<const Box> boxes, int64_t own) {
  int64_t sum = 0;
  for (size_t rank = 0; rank < boxes.size(); ++rank) {
    if (static_cast<int64_t>(rank) != own) sum += num_elements(boxes[rank]);
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

}  // namespace

ExchangeBoxes exchange_boxes(const Attributes& attributes, int ndim) {
  return {read_boxes(attributes, "send", ndim), read_boxes(attributes, "receive", ndim)};
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

int64_t exchange_sent_elements(const Attributes& attributes, int ndim) {
  return elements_of_others(read_boxes(attributes, "send", ndim), attributes.get_int("rank_in_group"));
}

int64_t exchange_received_elements(const Attributes& attributes, int ndim) {
  return elements_of_others(read_boxes(attributes, "receive", ndim), attributes.get_int("rank_in_group"));
}

Value exchange(Value x, const Attributes& group, std::span<const Box> held, std::span<const Box> wanted) {
  const auto own = static_cast<size_t>(group.get_int("rank_in_group"));
  check_equal(held.size(), group.get_ints("ranks").size(), "boxes held in an exchange");
  check_equal(wanted.size(), held.size(), "boxes wanted in an exchange");
  check(x.shape() == shape_of(held[own]), "an exchange's operand has the shape of what the rank holds");
  const int ndim = x.ndim();
  const Holders holders(held);
  auto [send, receive] = no_boxes(held.size(), ndim);
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
  return apply1("exchange", {x}, attributes);
}

void add_exchange(OpRegistry& registry) {
  registry.add(
      {.name = "exchange",
       .doc = "Pieces of x go to the ranks of the group, and the pieces that they send are put together to a result of "
              "another shape; zeros where nothing arrives. Halos, and values that change their mesh, move so.",
       .inputs = {"x"},
       .attributes = {{"ranks", std::nullopt, "world ranks of the group, in order"},
                      {"group", std::nullopt, "name of the group"},
                      {"rank_in_group", int64_t{0}, "this rank's place in `ranks`"},
                      {"order", int64_t{0}, "place in the job's total order of collectives"},
                      {"lane", int64_t{0}, "1: beside those of lane 0, since computing waits for it"},
                      {"shape", std::nullopt, "of the result"},
                      {"send", std::nullopt, "per rank of the group offset and size in each dim of x"},
                      {"receive", std::nullopt, "per rank of the group offset and size in each dim of the result"}},
       .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
         require_kind(types[0], Kind::kCompute, "the operand");
         const Shape shape = attributes.get_shape("shape");
         if (shape.ndim() != types[0].shape.ndim()) {
           throw InvalidArgument("shape {} must have as many dims as the operand", shape);
         }
         const auto boxes = exchange_boxes(attributes, shape.ndim());
         require_inside(boxes.send, types[0].shape, "sent");
         require_inside(boxes.receive, shape, "received");
         const auto own = static_cast<size_t>(attributes.get_int("rank_in_group"));
         if (own >= boxes.send.size()) throw InvalidArgument("rank_in_group={} is not in the group", own);
         if (!(shape_of(boxes.send[own]) == shape_of(boxes.receive[own]))) {
           throw InvalidArgument("what stays on the rank is {} in the operand and {} in the result",
                                 shape_of(boxes.send[own]), shape_of(boxes.receive[own]));
         }
         return {{types[0].dtype, shape}};
       },
       .collective = true});
}

}  // namespace tessera::ops
