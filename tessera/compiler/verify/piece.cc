#include "tessera/compiler/verify/piece.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"

namespace tessera::compiler {
namespace {

using ir::Node;
using ir::ValueId;
using mesh::Box;
using mesh::Range;

PieceOrReason refused(std::string why) { return {std::nullopt, std::move(why)}; }

class Meeting {
 public:
  Meeting(std::span<const Member> members, size_t own, std::span<const std::vector<int>> groups_of_terms)
      : members_(members), own_(own), groups_of_terms_(groups_of_terms) {}

  PieceOrReason run() const {
    using Parts = ops::CollectiveDef::Parts;
    const auto& collective = *ops::collective_of(node());
    if (collective.reduces && collective.parts == Parts::kCut) return scattered();
    if (collective.reduces && collective.gives_one) return reduced();
    if (!collective.reduces && collective.parts == Parts::kJoined) return gathered();
    if (collective.names_boxes) return exchanged();
    return refused("is no way to move a value between operators");
  }

 private:
  const Piece& own() const { return members_[own_].piece; }
  const Node& node() const { return *members_[own_].node; }
  std::string differs(const char* does, const Member& other) const {
    return fmt::format("{} {} of rank {} and {} of rank {}", does, text_of(own()), members_[own_].rank,
                       text_of(other.piece), other.rank);
  }

  // All members have the same elements and are terms of the same sum. What is then left to add are the ranks at this
  // one's place in the groups that add the other terms.
  PieceOrReason reduced() const {
    const auto& reduction = node().attributes.get_string("reduction");
    for (const Member& member : members_) {
      if (!contains(own().terms, member.rank)) {
        return refused(fmt::format("takes the {} over ranks {} and {} of {}, which is whole or a sum of others",
                                   reduction, members_[own_].rank, member.rank, text_of(own())));
      }
      if (!same_box(member.piece.box, own().box) || !same_terms(member.piece, own())) {
        return refused(differs("reduces", member));
      }
    }
    if (own().terms.size() > 1 && reduction != own().reduction) {
      return refused(fmt::format("takes the {} of {}", reduction, text_of(own())));
    }
    std::set<int> left;
    for (const auto& group : groups_of_terms_) {
      if (own_ < group.size()) left.insert(group[own_]);
    }
    if (left.size() * members_.size() != own().terms.size()) {
      return refused(fmt::format("leaves out terms of {}", text_of(own())));
    }
    Piece result = own();
    result.terms.assign(left.begin(), left.end());
    if (result.terms.size() == 1) result.reduction = "sum";
    return {result, ""};
  }

  PieceOrReason scattered() const {
    PieceOrReason outcome = reduced();
    if (!outcome.piece) return outcome;
    const auto dim = static_cast<size_t>(node().attributes.get_int("dim"));
    auto& range = outcome.piece->box[dim];
    const auto sizes = sizes_along(range.size / static_cast<int64_t>(members_.size()));
    for (size_t i = 0; i < own_; ++i) range.offset += sizes[i];
    range.size = sizes[own_];
    return outcome;
  }

  PieceOrReason gathered() const {
    const auto dim = static_cast<size_t>(node().attributes.get_int("dim"));
    const auto sizes = sizes_along(own().box[dim].size);
    Piece whole = own();
    const Member* last = nullptr;  // of those that have elements; the others lie nowhere
    int64_t total = 0;
    for (size_t i = 0; i < members_.size(); ++i) {
      const Member& member = members_[i];
      const Box& box = member.piece.box;
      if (box[dim].size != sizes[i]) {
        return refused(fmt::format("takes {} along dim {} from rank {}, which has {}", sizes[i], dim, member.rank,
                                   text_of(member.piece)));
      }
      total += sizes[i];
      Box beside = box;
      beside[dim] = own().box[dim];
      if (!(mesh::shape_of(beside) == mesh::shape_of(own().box)) || !belongs_to_own_term(member)) {
        return refused(differs("joins", member));
      }
      if (mesh::num_elements(box) == 0) continue;
      if (last == nullptr) {
        whole.box = box;
      } else {
        const Range& before = last->piece.box[dim];
        beside[dim] = before;
        if (!(beside == last->piece.box) || box[dim].offset != before.offset + before.size) {
          return refused(fmt::format("puts {} of rank {} behind {} of rank {}", text_of(member.piece), member.rank,
                                     text_of(last->piece), last->rank));
        }
      }
      last = &member;
    }
    whole.box[dim].size = total;
    return {whole, ""};
  }

  // Where the boxes that arrive lie in the logical value says where the result does; they must fill it.
  PieceOrReason exchanged() const {
    const auto ndim = static_cast<int>(own().box.size());
    const auto expected = ops::exchange_boxes(node().attributes, ndim).receive;
    Piece result = own();
    const Ints& shape = node().attributes.get_ints("shape");
    for (size_t dim = 0; dim < shape.size(); ++dim) result.box[dim] = {0, shape[dim]};
    int64_t filled = 0;
    for (size_t from = 0; from < members_.size(); ++from) {
      const Member& member = members_[from];
      if (mesh::num_elements(expected[from]) == 0) continue;
      if (!belongs_to_own_term(member)) return refused(differs("joins", member));
      const Box sent = ops::exchange_boxes(member.node->attributes, ndim).send[own_];
      Box at = result.box;
      for (size_t dim = 0; dim < at.size(); ++dim) {
        at[dim].offset = member.piece.box[dim].offset + sent[dim].offset - expected[from][dim].offset;
      }
      if (filled > 0 && !(at == result.box)) {
        return refused(fmt::format("puts elements of {} of rank {} at another place than they have in {}",
                                   text_of(member.piece), member.rank, text_of(result)));
      }
      result.box = at;
      filled += mesh::num_elements(expected[from]);
    }
    if (filled != mesh::num_elements(result.box)) {
      return refused(fmt::format("fills {} of {} elements", filled, mesh::num_elements(result.box)));
    }
    return {result, ""};
  }

  // Not another term of the same sum, and a term of a sum like it.
  bool belongs_to_own_term(const Member& member) const {
    if (member.rank == members_[own_].rank) return true;
    return !contains(own().terms, member.rank) && member.piece.terms.size() == own().terms.size() &&
           member.piece.reduction == own().reduction;
  }

  Ints sizes_along(int64_t equal) const {
    const Ints sizes = node().attributes.get_ints("sizes");
    return sizes.empty() ? Ints(members_.size(), equal) : sizes;
  }

  std::span<const Member> members_;
  size_t own_;
  std::span<const std::vector<int>> groups_of_terms_;
};

}  // namespace

Piece piece_of(const Type& type, ValueId v, const mesh::Layout& layout, int rank) {
  std::vector<int> axes;
  for (const auto& partial : layout.sharding.partial) axes.push_back(partial.axis);
  Piece piece{v, mesh::slice_of(type.shape, layout.sharding, layout.mesh, rank), {rank}};
  if (axes.empty()) return piece;
  piece.terms = layout.mesh.group(rank, axes);
  std::sort(piece.terms.begin(), piece.terms.end());
  if (piece.terms.size() > 1) piece.reduction = mesh::to_string(layout.sharding.partial[0].reduction);
  return piece;
}

bool same_box(const Box& a, const Box& b) {
  if (mesh::num_elements(a) == 0 || mesh::num_elements(b) == 0) return mesh::shape_of(a) == mesh::shape_of(b);
  return a == b;
}

bool same_terms(const Piece& a, const Piece& b) { return a.terms == b.terms && a.reduction == b.reduction; }

std::string text_of(const Piece& piece) {
  std::string text = "[";
  for (size_t dim = 0; dim < piece.box.size(); ++dim) {
    const auto& range = piece.box[dim];
    text += fmt::format("{}{}:{}", dim > 0 ? "," : "", range.offset, range.offset + range.size);
  }
  text += "]";
  if (piece.terms.size() == 1) return text;
  return text + fmt::format(" as the {} of ranks {}", piece.reduction, fmt::join(piece.terms, ","));
}

PieceOrReason slice_piece(const Node& node, const Piece& piece) {
  Piece result = piece;
  for (size_t dim = 0; dim < piece.box.size(); ++dim) {
    if (node.attributes.get_ints("strides")[dim] != 1) return refused("leaves out elements");
    const int64_t begin = node.attributes.get_ints("begin")[dim];
    result.box[dim] = {piece.box[dim].offset + begin, node.attributes.get_ints("end")[dim] - begin};
  }
  return {result, ""};
}

PieceOrReason meet_pieces(std::span<const Member> members, size_t own,
                          std::span<const std::vector<int>> groups_of_terms) {
  return Meeting(members, own, groups_of_terms).run();
}

}  // namespace tessera::compiler
