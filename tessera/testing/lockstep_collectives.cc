#include "tessera/testing/lockstep_collectives.h"

#include "tessera/base/error.h"
#include "tessera/testing/tensor_pieces.h"

namespace tessera::testing_support {
namespace {

mesh::Reduction parse_reduction(const std::string& text) {
  for (const auto reduction :
       {mesh::Reduction::kSum, mesh::Reduction::kMax, mesh::Reduction::kMin, mesh::Reduction::kProd}) {
    if (text == mesh::to_string(reduction)) return reduction;
  }
  throw InvalidArgument("reduction \"{}\" is not known", text);
}

std::vector<const Tensor*> operands_of(std::span<const CollectiveMember> members) {
  std::vector<const Tensor*> operands;
  for (const CollectiveMember& member : members) operands.push_back(member.operand);
  return operands;
}

void require_equal_types(std::span<const CollectiveMember> members) {
  for (const CollectiveMember& member : members) {
    if (member.operand->type() == members[0].operand->type()) continue;
    throw InternalError(fmt::format("{} brings {}, {} brings {}", members[0].place(), members[0].operand->type(),
                                    member.place(), member.operand->type()));
  }
}

// What each member has along a dim: as the attribute says, else equal parts of the whole.
Ints sizes_along(const Attributes& attributes, int64_t whole) {
  const Ints& sizes = attributes.get_ints("sizes");
  const size_t n = attributes.get_ints("ranks").size();
  return sizes.empty() ? Ints(n, whole / static_cast<int64_t>(n)) : sizes;
}

Tensor gathered(std::span<const CollectiveMember> members, const Attributes& attributes) {
  const auto dim = static_cast<int>(attributes.get_int("dim"));
  Type type = members[0].operand->type();
  type.shape[dim] = 0;
  for (const CollectiveMember& member : members) type.shape[dim] += member.operand->shape()[dim];
  Tensor all = unwritten(type);
  int64_t offset = 0;
  const Ints sizes = sizes_along(attributes, type.shape[dim]);
  for (size_t i = 0; i < members.size(); ++i) {
    const Tensor& piece = *members[i].operand;
    if (piece.shape()[dim] != sizes[i]) {
      throw InternalError(fmt::format("{} brings {} along dim {}, the sizes are [{}]", members[i].place(), piece.type(),
                                      dim, fmt::join(sizes, ",")));
    }
    copy_box(piece.view(), mesh::piece_of(all.view(), slab(type.shape, dim, offset, piece.shape()[dim])));
    offset += piece.shape()[dim];
  }
  return all;
}

std::vector<Tensor> scattered(const Tensor& sum, const Attributes& attributes) {
  const auto dim = static_cast<int>(attributes.get_int("dim"));
  std::vector<Tensor> pieces;
  int64_t offset = 0;
  for (const int64_t size : sizes_along(attributes, sum.shape()[dim])) {
    pieces.push_back(Tensor::copy_of(mesh::piece_of(sum.view(), slab(sum.shape(), dim, offset, size))));
    offset += size;
  }
  return pieces;
}

std::vector<Tensor> all_to_all(std::span<const CollectiveMember> members, const Attributes& attributes) {
  const auto split = static_cast<int>(attributes.get_int("split_dim"));
  const auto concat = static_cast<int>(attributes.get_int("concat_dim"));
  const auto n = static_cast<int64_t>(members.size());
  const Type& type = members[0].operand->type();
  const int64_t part = type.shape[split] / n;
  Type result_type = type;
  result_type.shape[split] /= n;
  result_type.shape[concat] *= n;
  const int64_t width = result_type.shape[concat] / n;
  std::vector<Tensor> results;
  for (int64_t to = 0; to < n; ++to) {
    Tensor result = unwritten(result_type);
    for (int64_t from = 0; from < n; ++from) {
      const TensorView sent = members[static_cast<size_t>(from)].operand->view();
      copy_box(mesh::piece_of(sent, slab(type.shape, split, to * part, part)),
               mesh::piece_of(result.view(), slab(result_type.shape, concat, from * width, width)));
    }
    results.push_back(result);
  }
  return results;
}

std::vector<Tensor> exchanged(std::span<const CollectiveMember> members) {
  std::vector<ops::ExchangeBoxes> boxes;
  for (const CollectiveMember& member : members) {
    boxes.push_back(ops::exchange_boxes(member.node().attributes, member.operand->ndim()));
  }
  std::vector<Tensor> results;
  for (size_t to = 0; to < members.size(); ++to) {
    Tensor result = Tensor::zeros({members[to].operand->dtype(), members[to].node().attributes.get_shape("shape")});
    for (size_t from = 0; from < members.size(); ++from) {
      const mesh::Box& sent = boxes[from].send[to];
      const mesh::Box& received = boxes[to].receive[from];
      if (mesh::num_elements(sent) == 0 && mesh::num_elements(received) == 0) continue;
      if (!(mesh::shape_of(sent) == mesh::shape_of(received))) {
        throw InternalError(fmt::format("{} sends {} to rank {}, which expects {}", members[from].place(),
                                        mesh::shape_of(sent), members[to].rank, mesh::shape_of(received)));
      }
      copy_box(mesh::piece_of(members[from].operand->view(), sent), mesh::piece_of(result.view(), received));
    }
    results.push_back(result);
  }
  return results;
}

}  // namespace

std::string CollectiveMember::place() const {
  const auto& attributes = node().attributes;
  return fmt::format("rank {} is at {}, group \"{}\" of ranks [{}], order {}", rank, graph->node_name(id),
                     attributes.get_string("group"), fmt::join(attributes.get_ints("ranks"), ","),
                     attributes.get_int("order"));
}

std::vector<Tensor> run_collective(std::span<const CollectiveMember> members) {
  const ir::Node& node = members[0].node();
  const Attributes& attributes = node.attributes;
  const auto reduction = [&] { return parse_reduction(attributes.get_string("reduction")); };
  const auto on_all = [&](const Tensor& result) { return std::vector<Tensor>(members.size(), result); };
  if (node.op == "all_gather") return on_all(gathered(members, attributes));
  if (node.op == "exchange") return exchanged(members);
  require_equal_types(members);
  if (node.op == "all_reduce") return on_all(reduce(operands_of(members), reduction()));
  if (node.op == "reduce_scatter") return scattered(reduce(operands_of(members), reduction()), attributes);
  if (node.op == "broadcast") return on_all(*members[static_cast<size_t>(attributes.get_int("root"))].operand);
  if (node.op == "all_to_all") return all_to_all(members, attributes);
  throw InvalidArgument("{}: this collective is not known here", members[0].place());
}

}  // namespace tessera::testing_support
