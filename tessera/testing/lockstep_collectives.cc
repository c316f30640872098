#include "tessera/testing/lockstep_collectives.h"

#include "tessera/base/error.h"
#include "tessera/ops/registry/collective_def.h"
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

// The piece that one member sends another.
Tensor sent_piece(const CollectiveMember& from, const mesh::Box& sent, const CollectiveMember& to,
                  const mesh::Box& expected) {
  if (!(mesh::shape_of(sent) == mesh::shape_of(expected))) {
    throw InternalError(fmt::format("{} sends {} to rank {}, which expects {}", from.place(), mesh::shape_of(sent),
                                    to.rank, mesh::shape_of(expected)));
  }
  return Tensor::copy_of(mesh::piece_of(from.operand->view(), sent));
}

}  // namespace

std::string CollectiveMember::place() const {
  const auto& attributes = node().attributes;
  return fmt::format("rank {} is at {}, group \"{}\" of ranks [{}], order {}", rank, graph->node_name(id),
                     attributes.get_string("group"), fmt::join(attributes.get_ints("ranks"), ","),
                     attributes.get_int("order"));
}

std::vector<Tensor> run_collective(std::span<const CollectiveMember> members) {
  const auto& collective = *ops::collective_of(members[0].node());
  std::vector<ops::ExchangeBoxes> boxes;
  for (const CollectiveMember& member : members) {
    boxes.push_back(collective.boxes(ops::call_of(*member.graph, member.node())));
  }
  std::vector<Tensor> results;
  for (size_t to = 0; to < members.size(); ++to) {
    Tensor result = Tensor::zeros(members[to].graph->type(members[to].node().outputs[0]));
    std::vector<Tensor> terms;
    for (size_t from = 0; from < members.size(); ++from) {
      const mesh::Box& sent = boxes[from].send[to];
      const mesh::Box& received = boxes[to].receive[from];
      if (mesh::num_elements(sent) == 0 && mesh::num_elements(received) == 0) continue;
      const Tensor piece = sent_piece(members[from], sent, members[to], received);
      if (collective.reduces) {
        terms.push_back(piece);
      } else {
        copy_box(piece.view(), mesh::piece_of(result.view(), received));
      }
    }
    if (!terms.empty()) {
      // All of them come to lie in one place.
      std::vector<const Tensor*> pointers;
      for (const Tensor& term : terms) pointers.push_back(&term);
      const auto reduction = parse_reduction(members[to].node().attributes.get_string("reduction"));
      copy_box(reduce(pointers, reduction).view(), mesh::piece_of(result.view(), boxes[to].receive[0]));
    }
    results.push_back(result);
  }
  return results;
}

}  // namespace tessera::testing_support
