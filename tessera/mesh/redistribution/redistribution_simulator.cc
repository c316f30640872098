#include "tessera/mesh/redistribution/redistribution_simulator.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "tessera/base/error.h"

namespace tessera::mesh {
namespace {

using Index = std::vector<int64_t>;

uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

int64_t linear(const Index& index, const std::vector<int64_t>& shape) {
  int64_t result = 0;
  for (size_t d = 0; d < shape.size(); ++d) result = result * shape[d] + index[d];
  return result;
}

void for_each_index(const std::vector<int64_t>& shape, const std::function<void(const Index&)>& visit) {
  Index index(shape.size());
  for (int64_t i = 0; i < product(shape); ++i) {
    int64_t rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
    visit(index);
  }
}

std::vector<int64_t> sizes_of(const Box& box) {
  std::vector<int64_t> sizes;
  for (const Range& range : box) sizes.push_back(range.size);
  return sizes;
}

Box whole(const std::vector<int64_t>& shape) {
  Box box;
  for (const int64_t size : shape) box.push_back({0, size});
  return box;
}

// to[to_box] = from[from_box]; false when sizes differ or a box does not fit.
bool copy_box(const auto& from, const Box& from_box, auto& to, const Box& to_box) {
  if (sizes_of(from_box) != sizes_of(to_box)) return false;
  for (size_t d = 0; d < from_box.size(); ++d) {
    if (from_box[d].offset < 0 || from_box[d].offset + from_box[d].size > from.shape[d]) return false;
    if (to_box[d].offset < 0 || to_box[d].offset + to_box[d].size > to.shape[d]) return false;
  }
  for_each_index(sizes_of(from_box), [&](const Index& index) {
    Index source = index;
    Index target = index;
    for (size_t d = 0; d < index.size(); ++d) {
      source[d] += from_box[d].offset;
      target[d] += to_box[d].offset;
    }
    to.values[static_cast<size_t>(linear(target, to.shape))] =
        from.values[static_cast<size_t>(linear(source, from.shape))];
  });
  return true;
}

Box with_range(Box box, int dim, Range range) {
  box[static_cast<size_t>(dim)] = range;
  return box;
}

constexpr int64_t kUnwritten = INT64_MIN;

}  // namespace

Simulator::Simulator(const Shape& shape, const Layout& layout, uint64_t seed)
    : shape_(shape), layout_(layout), seed_(seed) {
  std::vector<int> partial_axes;
  for (const auto& partial : layout.sharding.partial) partial_axes.push_back(partial.axis);
  const Reduction reduction = partial_axes.empty() ? Reduction::kSum : layout.sharding.partial[0].reduction;
  for (const int rank : layout.mesh.ranks()) {
    const auto members = ordered_group(layout.mesh, rank, partial_axes);
    const int64_t member = std::find(members.begin(), members.end(), rank) - members.begin();
    const auto box = slice_of(shape, layout.sharding, layout.mesh, rank);
    Local local{sizes_of(box), {}};
    for_each_index(local.shape, [&](Index index) {
      for (size_t d = 0; d < box.size(); ++d) index[d] += box[d].offset;
      local.values.push_back(
          contribution(linear(index, shape.to_vector()), member, static_cast<int64_t>(members.size()), reduction));
    });
    locals_[rank] = std::move(local);
  }
}

int64_t Simulator::global_value(int64_t index) const {
  return static_cast<int64_t>(mix(seed_ + static_cast<uint64_t>(index)) % 100000);
}

int64_t Simulator::contribution(int64_t index, int64_t member, int64_t num_members, Reduction reduction) const {
  const auto share = [&](int64_t m) {
    return static_cast<int64_t>(mix(seed_ * 31 + static_cast<uint64_t>(index * 64 + m)) % 1000) - 500;
  };
  if (reduction == Reduction::kMax) {
    return index % num_members == member ? global_value(index) : global_value(index) - 501 - share(member);
  }
  if (member + 1 < num_members) return share(member);
  int64_t rest = global_value(index);
  for (int64_t m = 0; m < member; ++m) rest -= share(m);
  return rest;
}

std::string Simulator::run(const Redistribution& redistribution, const Layout& to, int64_t element_bytes) {
  for (const auto& step : redistribution.steps) {
    const Layout after{redistribution.meshes[static_cast<size_t>(step.mesh)], step.after};
    if (auto wrong = apply(step, after, element_bytes); !wrong.empty()) {
      return fmt::format("{} from {}: {}", to_string(step.kind), layout_.to_string(), wrong);
    }
    layout_ = after;
  }
  if (!(layout_ == to)) return "ends in " + layout_.to_string();
  return check_result();
}

Simulator::Local Simulator::reduced(const std::vector<int>& members, Reduction reduction) const {
  Local result = locals_.at(members[0]);
  for (size_t m = 1; m < members.size(); ++m) {
    const Local& other = locals_.at(members[m]);
    check(other.shape == result.shape, "members of a reduction have equal shapes");
    for (size_t i = 0; i < result.values.size(); ++i) {
      auto& value = result.values[i];
      value = reduction == Reduction::kMax ? std::max(value, other.values[i]) : value + other.values[i];
    }
  }
  return result;
}

Simulator::Local Simulator::apply_to(const RedistributionStep& step, int rank, int64_t& received) const {
  const Local& own = locals_.at(rank);
  const auto members = ordered_group(layout_.mesh, rank, step.axes);
  const auto member = static_cast<size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  if (step.kind == MoveKind::kAllReduce) {
    const auto n = static_cast<int>(members.size());
    const auto elements = static_cast<int64_t>(own.values.size());
    const int64_t stretch = balanced_part(elements, n, static_cast<int>(member)).size;
    received = (n - 1) * stretch + elements - stretch;
    return reduced(members, step.reduction);
  }
  const auto part_range = [&](const Local& local, int dim) {
    const int64_t block = step.after.block(dim);
    const auto sizes = part_sizes(local.shape[static_cast<size_t>(dim)], layout_.mesh, step.axes, block);
    const auto begin = sizes.begin() + static_cast<std::ptrdiff_t>(member);
    return Range{std::accumulate(sizes.begin(), begin, int64_t{0}), *begin};
  };
  if (step.kind == MoveKind::kReduceScatter) {
    const Local sum = reduced(members, step.reduction);
    const auto box = with_range(whole(sum.shape), step.dim, part_range(sum, step.dim));
    Local result{sizes_of(box), std::vector<int64_t>(static_cast<size_t>(num_elements(box)))};
    copy_box(sum, box, result, whole(result.shape));
    received = (static_cast<int64_t>(members.size()) - 1) * num_elements(box);
    return result;
  }
  // A gather, or an all_to_all: the members' pieces one after the other along `dim`.
  std::vector<std::pair<int, Box>> pieces;
  Local result{own.shape, {}};
  result.shape[static_cast<size_t>(step.dim)] = 0;
  for (const int other : members) {
    const Local& local = locals_.at(other);
    auto box = whole(local.shape);
    if (step.kind == MoveKind::kAllToAll) box = with_range(box, step.to_dim, part_range(local, step.to_dim));
    pieces.emplace_back(other, box);
    result.shape[static_cast<size_t>(step.dim)] += local.shape[static_cast<size_t>(step.dim)];
    if (step.kind == MoveKind::kAllToAll) {
      result.shape[static_cast<size_t>(step.to_dim)] = box[static_cast<size_t>(step.to_dim)].size;
    }
    if (other != rank) received += num_elements(box);
  }
  result.values.assign(static_cast<size_t>(product(result.shape)), kUnwritten);
  int64_t offset = 0;
  for (const auto& [other, box] : pieces) {
    const int64_t size = box[static_cast<size_t>(step.dim)].size;
    const auto target = with_range(whole(result.shape), step.dim, {offset, size});
    check(copy_box(locals_.at(other), box, result, target), "gathered pieces fit");
    offset += size;
  }
  return result;
}

std::string Simulator::exchange(const Layout& after, Locals& next, std::map<int, int64_t>& received) const {
  std::map<int, ExchangePlan> plans;
  for (const int rank : layout_.mesh.ranks()) plans[rank] = exchange_plan(shape_, layout_, after, rank);
  for (const int rank : after.mesh.ranks()) plans[rank] = exchange_plan(shape_, layout_, after, rank);
  size_t num_sends = 0;
  size_t num_receives = 0;
  for (const auto& [rank, plan] : plans) num_sends += plan.sends.size();
  for (const int rank : after.mesh.ranks()) {
    Local local{sizes_of(slice_of(shape_, after.sharding, after.mesh, rank)), {}};
    local.values.assign(static_cast<size_t>(product(local.shape)), kUnwritten);
    const auto& plan = plans[rank];
    int64_t written = 0;
    if (plan.kept) {
      if (!copy_box(locals_.at(rank), plan.kept->from_box, local, plan.kept->to_box)) return "kept box does not fit";
      written += num_elements(plan.kept->to_box);
    }
    num_receives += plan.receives.size();
    for (const auto& piece : plan.receives) {
      const auto& sends = plans[piece.rank].sends;
      const auto sent =
          std::find_if(sends.begin(), sends.end(), [r = rank](const ExchangePiece& p) { return p.rank == r; });
      if (sent == sends.end()) return fmt::format("rank {} expects a box that {} does not send", rank, piece.rank);
      if (piece.rank == rank) return fmt::format("rank {} sends to itself", rank);
      if (!copy_box(locals_.at(piece.rank), sent->box, local, piece.box)) return "sent and received boxes differ";
      written += num_elements(piece.box);
      received[rank] += num_elements(piece.box);
    }
    if (written != product(local.shape)) return fmt::format("rank {} is written {} elements", rank, written);
    next[rank] = std::move(local);
  }
  return num_sends == num_receives ? "" : fmt::format("{} boxes sent, {} received", num_sends, num_receives);
}

std::string Simulator::apply(const RedistributionStep& step, const Layout& after, int64_t element_bytes) {
  Locals next;
  std::map<int, int64_t> received;
  if (step.kind == MoveKind::kExchange) {
    if (auto wrong = exchange(after, next, received); !wrong.empty()) return wrong;
  } else {
    for (const int rank : after.mesh.ranks()) {
      const auto target = slice_of(shape_, after.sharding, after.mesh, rank);
      if (step.kind == MoveKind::kRelabel || step.kind == MoveKind::kSlice) {
        auto box = target;
        const auto own = slice_of(shape_, layout_.sharding, layout_.mesh, rank);
        for (size_t d = 0; d < box.size(); ++d) box[d].offset -= own[d].offset;
        Local local{sizes_of(box), std::vector<int64_t>(static_cast<size_t>(num_elements(box)))};
        if (step.kind == MoveKind::kRelabel && own != target) return fmt::format("rank {} would change", rank);
        if (num_elements(box) > 0 && !copy_box(locals_.at(rank), box, local, whole(local.shape))) {
          return fmt::format("rank {} lacks what it should keep", rank);
        }
        next[rank] = std::move(local);
      } else {
        next[rank] = apply_to(step, rank, received[rank]);
      }
      if (next[rank].shape != sizes_of(target)) return fmt::format("rank {} has a wrong shape", rank);
    }
  }
  int64_t busiest = 0;
  for (const auto& [rank, elements] : received) busiest = std::max(busiest, elements);
  if (busiest * element_bytes != step.bytes) {
    return fmt::format("states {} B, the busiest rank receives {} B", step.bytes, busiest * element_bytes);
  }
  locals_ = std::move(next);
  return "";
}

std::string Simulator::check_result() const {
  std::vector<int> partial_axes;
  for (const auto& partial : layout_.sharding.partial) partial_axes.push_back(partial.axis);
  const Reduction reduction = partial_axes.empty() ? Reduction::kSum : layout_.sharding.partial[0].reduction;
  std::string wrong;
  for (const int rank : layout_.mesh.ranks()) {
    const auto box = slice_of(shape_, layout_.sharding, layout_.mesh, rank);
    const Local value = reduced(ordered_group(layout_.mesh, rank, partial_axes), reduction);
    for_each_index(sizes_of(box), [&](Index index) {
      const auto local_index = static_cast<size_t>(linear(index, value.shape));
      for (size_t d = 0; d < box.size(); ++d) index[d] += box[d].offset;
      const int64_t expected = global_value(linear(index, shape_.to_vector()));
      if (value.values[local_index] != expected) wrong = fmt::format("rank {} has a wrong value", rank);
    });
  }
  return wrong;
}

}  // namespace tessera::mesh
