#include "tessera/mesh/exchange_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include "tessera/base/error.h"

namespace tessera::mesh {
namespace {

// A slice of the tensor, and the ranks that have or need it, ascending.
struct Cell {
  Box box;
  std::vector<int> ranks;

  bool contains(int rank) const { return std::binary_search(ranks.begin(), ranks.end(), rank); }
  int64_t ranks_below(int rank) const { return std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin(); }
};

// Of a partial layout the ranks that share `peer`'s coordinates on the partial axes, else all; ascending.
std::vector<int> ranks_beside(const Layout& layout, int peer) {
  std::vector<int> others;
  for (int axis = 0; axis < layout.mesh.num_axes(); ++axis) {
    const auto& partial = layout.sharding.partial;
    const auto is_axis = [axis](const Partial& p) { return p.axis == axis; };
    if (std::none_of(partial.begin(), partial.end(), is_axis)) others.push_back(axis);
  }
  std::vector<int> ranks =
      layout.sharding.is_partial() ? ordered_group(layout.mesh, peer, others) : std::vector<int>(layout.mesh.ranks());
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// The distinct slices that ranks_beside() have of a layout and that are not empty, in the order of their offsets.
std::vector<Cell> cells_of(const Shape& shape, const Layout& layout, int peer) {
  const auto slices = all_slices(shape, layout.mesh, layout.sharding);
  const auto ndim = static_cast<size_t>(shape.ndim());
  const auto taking_part = ranks_beside(layout, peer);
  std::map<std::vector<std::pair<int64_t, int64_t>>, Cell> cells;
  for (size_t position = 0; position < layout.mesh.ranks().size(); ++position) {
    const int rank = layout.mesh.ranks()[position];
    if (!std::binary_search(taking_part.begin(), taking_part.end(), rank)) continue;
    const std::span<const Range> box(slices.data() + position * ndim, ndim);
    if (num_elements(box) == 0) continue;
    std::vector<std::pair<int64_t, int64_t>> key;
    for (const Range& range : box) key.emplace_back(range.offset, range.size);
    auto& cell = cells[key];
    cell.box.assign(box.begin(), box.end());
    cell.ranks.push_back(rank);
  }
  std::vector<Cell> result;
  for (auto& [key, cell] : cells) {
    std::sort(cell.ranks.begin(), cell.ranks.end());
    result.push_back(std::move(cell));
  }
  return result;
}

int64_t num_common_elements(const Box& a, const Box& b) {
  int64_t count = 1;
  for (size_t dim = 0; dim < a.size(); ++dim) count *= intersection(a[dim], b[dim]).size;
  return count;
}

const Cell* find_cell(const std::vector<Cell>& cells, int rank) {
  const auto it = std::find_if(cells.begin(), cells.end(), [rank](const Cell& cell) { return cell.contains(rank); });
  return it == cells.end() ? nullptr : &*it;
}

// How the holders of one cell share what others need of it. The needed boxes, one per rank that lacks it, ordered by
// slice and then rank, form one row of elements, and each holder serves an equal stretch of it; where a stretch ends
// within a box, the box is cut along its longest dim.
class Shares {
 public:
  Shares(const Cell& held, const std::vector<Cell>& needs) : held_(held) {
    for (const auto& need : needs) {
      // Of a thousand boxes that share elements with this one a rank looks at one: only their sizes count here.
      const int64_t elements = num_common_elements(held.box, need.box);
      if (elements == 0) continue;
      needs_.push_back({&need, elements, total_});
      total_ += elements * (static_cast<int64_t>(need.ranks.size()) - num_holders_in(need, INT_MAX));
    }
  }

  // visit(holder, box) for each part of what `rank`, in `need`, gets from this cell.
  template <typename Visit>
  void for_each_source(const Cell& need, int rank, const Visit& visit) const {
    for (const auto& entry : needs_) {
      if (entry.cell != &need) continue;
      const int64_t index = need.ranks_below(rank) - num_holders_in(need, rank);
      cut(intersection(held_.box, need.box), entry.begin + index * entry.elements, visit);
    }
  }

  // visit(holder, receiver, box) for all that the holders send.
  template <typename Visit>
  void for_each_piece(const Visit& visit) const {
    for (const auto& entry : needs_) {
      const Box box = intersection(held_.box, entry.cell->box);
      int64_t begin = entry.begin;
      for (const int receiver : entry.cell->ranks) {
        if (held_.contains(receiver)) continue;
        cut(box, begin, [&](int holder, const Box& part) { visit(holder, receiver, part); });
        begin += entry.elements;
      }
    }
  }

 private:
  struct Need {
    const Cell* cell;
    int64_t elements;  // of it that this one has
    int64_t begin;     // in the row of elements
  };

  // Of the holders below `rank`, those that need the cell too: they have it already.
  int64_t num_holders_in(const Cell& need, int rank) const {
    return std::count_if(held_.ranks.begin(), held_.ranks.end(),
                         [&](int holder) { return holder < rank && need.contains(holder); });
  }

  template <typename Visit>
  void cut(const Box& needed, int64_t begin, const Visit& visit) const {
    const auto longest =
        std::max_element(needed.begin(), needed.end(), [](const Range& a, const Range& b) { return a.size < b.size; });
    if (longest == needed.end()) {  // a scalar goes whole
      visit(held_.ranks[holder_at(begin)], needed);
      return;
    }
    const int64_t size = longest->size;
    const int64_t slab = num_elements(needed) / size;
    const auto dim = static_cast<size_t>(longest - needed.begin());
    // The first slab that the holder at `index` serves: the one whose begin lies in its stretch.
    const auto first_slab = [&](size_t index) {
      const auto num_holders = static_cast<__int128>(held_.ranks.size());
      const __int128 stretch = static_cast<__int128>(total_) * static_cast<int64_t>(index);
      const __int128 ahead = stretch - begin * num_holders;
      if (ahead <= 0) return int64_t{0};
      const __int128 unit = slab * num_holders;
      return static_cast<int64_t>(std::min<__int128>((ahead + unit - 1) / unit, size));
    };
    int64_t from = 0;
    for (size_t index = holder_at(begin); from < size; ++index) {
      const int64_t to = index + 1 < held_.ranks.size() ? first_slab(index + 1) : size;
      if (to == from) continue;
      Box box = needed;
      box[dim] = {box[dim].offset + from, to - from};
      visit(held_.ranks[index], box);
      from = to;
    }
  }

  // The holder in whose stretch an element of the row lies.
  size_t holder_at(int64_t element) const {
    const auto num_holders = static_cast<__int128>(held_.ranks.size());
    return static_cast<size_t>(element * num_holders / total_);
  }

  const Cell& held_;
  std::vector<Need> needs_;
  int64_t total_ = 0;
};

void require_exchange(const Shape& shape, const Layout& from, const Layout& to) {
  validate(shape, from);
  validate(shape, to);
  if (from.sharding.partial != to.sharding.partial || (from.sharding.is_partial() && !(from.mesh == to.mesh))) {
    throw InvalidArgument("exchange from {} to {}: partial axes must be the same, on equal meshes", from.to_string(),
                          to.to_string());
  }
}

}  // namespace

ExchangePlan exchange_plan(const Shape& shape, const Layout& from, const Layout& to, int rank) {
  require_exchange(shape, from, to);
  const auto held = cells_of(shape, from, rank);
  const auto needed = cells_of(shape, to, rank);
  const Cell* own = find_cell(held, rank);
  const Cell* wanted = find_cell(needed, rank);
  ExchangePlan plan;
  if (own != nullptr) {
    Shares(*own, needed).for_each_piece([&](int holder, int receiver, const Box& box) {
      if (holder == rank) plan.sends.push_back({receiver, relative_to(box, own->box)});
    });
  }
  if (wanted != nullptr) {
    for (const auto& cell : held) {
      if (!meet(cell.box, wanted->box)) continue;
      const Box both = intersection(cell.box, wanted->box);
      if (&cell == own) {
        plan.kept = {relative_to(both, own->box), relative_to(both, wanted->box)};
        continue;
      }
      Shares(cell, needed).for_each_source(*wanted, rank, [&](int holder, const Box& box) {
        plan.receives.push_back({holder, relative_to(box, wanted->box)});
      });
    }
  }
  const auto by_rank = [](const ExchangePiece& a, const ExchangePiece& b) { return a.rank < b.rank; };
  std::sort(plan.sends.begin(), plan.sends.end(), by_rank);
  std::sort(plan.receives.begin(), plan.receives.end(), by_rank);
  return plan;
}

void visit_exchange(const Shape& shape, const Layout& from, const Layout& to, const VisitPiece& visit) {
  require_exchange(shape, from, to);
  std::set<int> visited;
  for (const int first : from.mesh.ranks()) {
    if (visited.contains(first)) continue;
    const auto taking_part = ranks_beside(from, first);
    visited.insert(taking_part.begin(), taking_part.end());
    const auto held = cells_of(shape, from, first);
    const auto needed = cells_of(shape, to, first);
    for (const auto& cell : held) {
      Shares(cell, needed).for_each_piece([&](int holder, int receiver, const Box& box) {
        visit(holder, receiver, num_elements(box));
      });
    }
  }
}

int64_t exchange_elements(const Shape& shape, const Mesh& from_mesh, const Sharding& from, const Mesh& to_mesh,
                          const Sharding& to) {
  const auto ndim = static_cast<size_t>(shape.ndim());
  const auto held = all_slices(shape, from_mesh, from);
  const auto needed = all_slices(shape, to_mesh, to);
  const bool same_order = from_mesh.ranks() == to_mesh.ranks();
  std::unordered_map<int, size_t> position_of;
  if (!same_order) {
    for (size_t i = 0; i < from_mesh.ranks().size(); ++i) position_of[from_mesh.ranks()[i]] = i;
  }
  int64_t most = 0;
  for (size_t position = 0; position < to_mesh.ranks().size(); ++position) {
    const Range* need = needed.data() + position * ndim;
    size_t at = position;
    bool holds = true;
    if (!same_order) {
      const auto it = position_of.find(to_mesh.ranks()[position]);
      holds = it != position_of.end();
      if (holds) at = it->second;
    }
    int64_t wanted = 1;
    int64_t present = holds ? 1 : 0;
    for (size_t dim = 0; dim < ndim; ++dim) {
      wanted *= need[dim].size;
      if (holds) present *= intersection(held[at * ndim + dim], need[dim]).size;
    }
    most = std::max(most, wanted - present);
  }
  return most;
}

}  // namespace tessera::mesh
