#include "tessera/testing/lockstep.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/kernels/registry.h"
#include "tessera/ops/exchange.h"
#include "tessera/ops/op_def.h"

namespace tessera::testing_support {
namespace {

using ir::Node;
using ir::NodeId;
using ops::Box;

Tensor unwritten(const Type& type) {
  Tensor tensor(type);
  std::memset(tensor.view().data, type.dtype == DType::kBool ? 1 : 255, static_cast<size_t>(tensor.size_bytes()));
  return tensor;
}

// The box as a part of `whole`.
TensorView box_of(const TensorView& whole, const Box& box) {
  TensorView view = whole;
  int64_t offset = 0;
  for (int dim = 0; dim < whole.shape.ndim(); ++dim) {
    offset += box[static_cast<size_t>(dim)].offset * whole.strides[dim];
    view.shape[dim] = box[static_cast<size_t>(dim)].size;
  }
  if (view.num_elements() > 0) {
    view.data = static_cast<std::byte*>(whole.data) + offset * static_cast<int64_t>(size_bytes(whole.dtype));
  }
  return view;
}

void copy_box(const TensorView& from, const TensorView& to) {
  check_equal(from.shape, to.shape, "shapes of what is sent and received");
  if (from.num_elements() > 0) copy_elements(from, to);
}

// The piece [offset, offset + size) along `dim`.
Box slab(const Shape& shape, int dim, int64_t offset, int64_t size) {
  Box box;
  for (const int64_t whole : shape) box.push_back({0, whole});
  box[static_cast<size_t>(dim)] = {offset, size};
  return box;
}

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

template <typename T>
T combined(T a, T b, mesh::Reduction reduction) {
  switch (reduction) {
    case mesh::Reduction::kSum: return static_cast<T>(a + b);
    case mesh::Reduction::kProd: return static_cast<T>(a * b);
    // A NaN stays, whichever side it is on.
    case mesh::Reduction::kMax: return is_nan(a) || a > b ? a : b;
    case mesh::Reduction::kMin: return is_nan(a) || a < b ? a : b;
  }
  return a;
}

// The elementwise reduction of tensors of one type, in their order; half types in f32.
Tensor reduce(std::span<const Tensor* const> tensors, mesh::Reduction reduction) {
  Tensor result(tensors[0]->type());
  dispatch_dtype(result.dtype(), "a reduction", [&](auto zero) {
    using T = decltype(zero);
    using Compute = ComputeType<T>;
    const auto out = result.values<T>();
    for (size_t i = 0; i < out.size(); ++i) {
      auto sum = static_cast<Compute>(tensors[0]->values<T>()[i]);
      for (size_t k = 1; k < tensors.size(); ++k) {
        sum = combined(sum, static_cast<Compute>(tensors[k]->values<T>()[i]), reduction);
      }
      out[i] = static_cast<T>(sum);
    }
  });
  return result;
}

mesh::Reduction parse_reduction(const std::string& text) {
  for (const auto reduction :
       {mesh::Reduction::kSum, mesh::Reduction::kMax, mesh::Reduction::kMin, mesh::Reduction::kProd}) {
    if (text == mesh::to_string(reduction)) return reduction;
  }
  throw InvalidArgument("reduction \"{}\" is not known", text);
}

// One rank on its way through its graph.
class Walker {
 public:
  explicit Walker(const LocalProgram& program)
      : program_(program), graph_(program.graph), values_(static_cast<size_t>(graph_.num_values())) {
    for (const auto& input : graph_.inputs()) {
      const auto it = program.inputs.find(input.name);
      if (it == program.inputs.end()) throw InvalidArgument("rank {}: no value for input \"{}\"", rank(), input.name);
      if (!(it->second.type() == graph_.type(input.value))) {
        throw InvalidArgument("rank {}: input \"{}\" is {}, the graph wants {}", rank(), input.name, it->second.type(),
                              graph_.type(input.value));
      }
      values_[static_cast<size_t>(input.value)] = it->second;
    }
  }

  int rank() const { return program_.rank; }
  bool has_ended() const { return next_ == graph_.num_nodes(); }
  // The collective that it has arrived at.
  const Node& node() const { return graph_.node(next_); }
  // What it waits at, for messages.
  std::string place() const {
    if (has_ended()) return fmt::format("rank {} has ended", rank());
    const auto& attributes = node().attributes;
    return fmt::format("rank {} is at {}, group \"{}\" of ranks [{}], order {}", rank(), graph_.node_name(next_),
                       attributes.get_string("group"), fmt::join(attributes.get_ints("ranks"), ","),
                       attributes.get_int("order"));
  }

  // Computes up to the next collective or the end.
  void advance() {
    for (; !has_ended(); ++next_) {
      if (ops::OpRegistry::instance().get(node().op).collective) return;
      compute();
    }
  }
  const Tensor& operand() const { return values_[static_cast<size_t>(node().inputs.at(0))]; }
  // Leaves the collective behind.
  void finish(const Tensor& result) {
    const Type& expected = graph_.type(node().outputs[0]);
    if (!(result.type() == expected)) {
      throw InternalError(fmt::format("{}: its result is {}, the graph says {}", place(), result.type(), expected));
    }
    values_[static_cast<size_t>(node().outputs[0])] = result;
    ++next_;
  }

  NamedTensors results() const {
    NamedTensors results;
    for (const auto& output : graph_.outputs()) results[output.name] = values_[static_cast<size_t>(output.value)];
    return results;
  }

 private:
  void compute() {
    request_.op = node().op;
    request_.attributes = node().attributes;
    request_.inputs.clear();
    request_.outputs.clear();
    for (const auto v : node().inputs) request_.inputs.push_back(values_[static_cast<size_t>(v)].view());
    for (const auto v : node().outputs) {
      values_[static_cast<size_t>(v)] = unwritten(graph_.type(v));
      request_.outputs.push_back(values_[static_cast<size_t>(v)].view());
    }
    const auto kernel = kernels::reference_kernels().find(request_);
    if (!kernel) throw InvalidArgument("{}: no reference kernel", graph_.node_name(next_));
    const Tensor scratch(DType::kU8, {kernel->scratch_bytes});
    kernel->run({request_.inputs, request_.outputs, node().attributes, scratch.bytes(), serial_});
  }

  const LocalProgram& program_;
  const ir::Graph& graph_;
  std::vector<Tensor> values_;
  NodeId next_ = 0;
  KernelRequest request_;
  ParallelFor serial_{1};
};

// What the members of one collective may differ in.
bool is_own(const std::string& op, const std::string& name) {
  return name == "rank_in_group" || (op == "exchange" && (name == "shape" || name == "send" || name == "receive"));
}

bool agree(const Node& a, const Node& b) {
  if (a.op != b.op) return false;
  auto other = b.attributes.begin();
  for (const auto& [name, value] : a.attributes) {
    if (other == b.attributes.end() || other->first != name) return false;
    if (!is_own(a.op, name) && !(other->second == value)) return false;
    ++other;
  }
  return other == b.attributes.end();
}

// The members of a collective, in the order of its group.
using Members = std::vector<Walker*>;

std::vector<const Tensor*> operands_of(const Members& members) {
  std::vector<const Tensor*> operands;
  for (const Walker* member : members) operands.push_back(&member->operand());
  return operands;
}

void require_equal_types(const Members& members) {
  for (const Walker* member : members) {
    if (member->operand().type() == members[0]->operand().type()) continue;
    throw InternalError(fmt::format("{} brings {}, {} brings {}", members[0]->place(), members[0]->operand().type(),
                                    member->place(), member->operand().type()));
  }
}

// What each member has along a dim: as the attribute says, else equal parts of the whole.
Ints sizes_along(const Attributes& attributes, int64_t whole) {
  const Ints& sizes = attributes.get_ints("sizes");
  const size_t n = attributes.get_ints("ranks").size();
  return sizes.empty() ? Ints(n, whole / static_cast<int64_t>(n)) : sizes;
}

void finish_all(const Members& members, const std::vector<Tensor>& results) {
  for (size_t i = 0; i < members.size(); ++i) members[i]->finish(results[i]);
}

Tensor gathered(const Members& members, const Attributes& attributes) {
  const auto dim = static_cast<int>(attributes.get_int("dim"));
  Type type = members[0]->operand().type();
  type.shape[dim] = 0;
  for (const Walker* member : members) type.shape[dim] += member->operand().shape()[dim];
  Tensor all = unwritten(type);
  int64_t offset = 0;
  const Ints sizes = sizes_along(attributes, type.shape[dim]);
  for (size_t i = 0; i < members.size(); ++i) {
    const Tensor& piece = members[i]->operand();
    if (piece.shape()[dim] != sizes[i]) {
      throw InternalError(fmt::format("{} brings {} along dim {}, the sizes are [{}]", members[i]->place(),
                                      piece.type(), dim, fmt::join(sizes, ",")));
    }
    copy_box(piece.view(), box_of(all.view(), slab(type.shape, dim, offset, piece.shape()[dim])));
    offset += piece.shape()[dim];
  }
  return all;
}

std::vector<Tensor> scattered(const Tensor& sum, const Attributes& attributes) {
  const auto dim = static_cast<int>(attributes.get_int("dim"));
  std::vector<Tensor> pieces;
  int64_t offset = 0;
  for (const int64_t size : sizes_along(attributes, sum.shape()[dim])) {
    pieces.push_back(Tensor::copy_of(box_of(sum.view(), slab(sum.shape(), dim, offset, size))));
    offset += size;
  }
  return pieces;
}

std::vector<Tensor> all_to_all(const Members& members, const Attributes& attributes) {
  require_equal_types(members);
  const auto split = static_cast<int>(attributes.get_int("split_dim"));
  const auto concat = static_cast<int>(attributes.get_int("concat_dim"));
  const auto n = static_cast<int64_t>(members.size());
  const Type& type = members[0]->operand().type();
  const int64_t part = type.shape[split] / n;
  Type result_type = type;
  result_type.shape[split] /= n;
  result_type.shape[concat] *= n;
  const int64_t width = result_type.shape[concat] / n;
  std::vector<Tensor> results;
  for (int64_t to = 0; to < n; ++to) {
    Tensor result = unwritten(result_type);
    for (int64_t from = 0; from < n; ++from) {
      const TensorView sent = members[static_cast<size_t>(from)]->operand().view();
      copy_box(box_of(sent, slab(type.shape, split, to * part, part)),
               box_of(result.view(), slab(result_type.shape, concat, from * width, width)));
    }
    results.push_back(result);
  }
  return results;
}

std::vector<Tensor> exchanged(const Members& members) {
  std::vector<ops::ExchangeBoxes> boxes;
  for (const Walker* member : members) {
    boxes.push_back(ops::exchange_boxes(member->node().attributes, member->operand().ndim()));
  }
  std::vector<Tensor> results;
  for (size_t to = 0; to < members.size(); ++to) {
    Tensor result = Tensor::zeros({members[to]->operand().dtype(), members[to]->node().attributes.get_shape("shape")});
    for (size_t from = 0; from < members.size(); ++from) {
      const Box& sent = boxes[from].send[to];
      const Box& received = boxes[to].receive[from];
      if (ops::num_elements(sent) == 0 && ops::num_elements(received) == 0) continue;
      if (!(ops::shape_of(sent) == ops::shape_of(received))) {
        throw InternalError(fmt::format("{} sends {} to rank {}, which expects {}", members[from]->place(),
                                        ops::shape_of(sent), members[to]->rank(), ops::shape_of(received)));
      }
      copy_box(box_of(members[from]->operand().view(), sent), box_of(result.view(), received));
    }
    results.push_back(result);
  }
  return results;
}

void run_collective(const Members& members) {
  const Node& node = members[0]->node();
  const Attributes& attributes = node.attributes;
  const auto reduction = [&] { return parse_reduction(attributes.get_string("reduction")); };
  if (node.op == "all_reduce") {
    require_equal_types(members);
    finish_all(members, std::vector<Tensor>(members.size(), reduce(operands_of(members), reduction())));
  } else if (node.op == "all_gather") {
    finish_all(members, std::vector<Tensor>(members.size(), gathered(members, attributes)));
  } else if (node.op == "reduce_scatter") {
    require_equal_types(members);
    finish_all(members, scattered(reduce(operands_of(members), reduction()), attributes));
  } else if (node.op == "broadcast") {
    require_equal_types(members);
    const auto root = static_cast<size_t>(attributes.get_int("root"));
    finish_all(members, std::vector<Tensor>(members.size(), Tensor(members[root]->operand())));
  } else if (node.op == "all_to_all") {
    finish_all(members, all_to_all(members, attributes));
  } else if (node.op == "exchange") {
    finish_all(members, exchanged(members));
  } else {
    throw InvalidArgument("{}: this collective is not known here", members[0]->place());
  }
}

class Job {
 public:
  explicit Job(std::span<const LocalProgram> programs) {
    for (const auto& program : programs) {
      const auto [it, is_new] = walker_of_.emplace(program.rank, walkers_.size());
      if (!is_new) throw InvalidArgument("rank {} is given twice", program.rank);
      walkers_.emplace_back(program);
    }
  }

  std::vector<NamedTensors> run() {
    bool all_ended = false;
    while (!all_ended) {
      all_ended = true;
      bool moved = false;
      for (Walker& walker : walkers_) {
        walker.advance();
        if (walker.has_ended()) continue;
        all_ended = false;
        moved = is_transfer(walker) ? transfer(walker) : meet(walker);
        if (moved) break;
      }
      if (!all_ended && !moved) report_stuck();
    }
    std::vector<NamedTensors> results;
    for (const Walker& walker : walkers_) results.push_back(walker.results());
    return results;
  }

 private:
  static bool is_transfer(const Walker& walker) { return walker.node().op == "send" || walker.node().op == "receive"; }

  Walker& at_rank(const Walker& asking, int64_t rank) {
    const auto it = walker_of_.find(static_cast<int>(rank));
    if (it == walker_of_.end()) throw InternalError(fmt::format("{}: there is no rank {}", asking.place(), rank));
    return walkers_[it->second];
  }

  // Runs the collective of `walker` if all members have arrived at it.
  bool meet(Walker& walker) {
    const Ints& ranks = walker.node().attributes.get_ints("ranks");
    const auto own = static_cast<size_t>(walker.node().attributes.get_int("rank_in_group"));
    if (own >= ranks.size() || ranks[own] != walker.rank()) {
      throw InternalError(fmt::format("{}, as number {} of it", walker.place(), own));
    }
    Members members;
    for (const int64_t rank : ranks) {
      Walker& member = at_rank(walker, rank);
      member.advance();
      if (member.has_ended() || is_transfer(member)) return false;
      members.push_back(&member);
    }
    for (const Walker* member : members) {
      if (!agree(walker.node(), member->node())) return false;
    }
    run_collective(members);
    return true;
  }

  // Sends are matched in order per pair of ranks; either end may have others to do first.
  bool transfer(Walker& walker) {
    const auto peer_of = [&](const Walker& w) -> Walker& {
      const auto& attributes = w.node().attributes;
      return at_rank(w, attributes.get_ints("ranks").at(static_cast<size_t>(attributes.get_int("peer"))));
    };
    Walker& peer = peer_of(walker);
    peer.advance();
    if (peer.has_ended() || !is_transfer(peer) || peer.node().op == walker.node().op) return false;
    if (&peer_of(peer) != &walker) return false;
    Walker& sender = walker.node().op == "send" ? walker : peer;
    Walker& receiver = walker.node().op == "send" ? peer : walker;
    const Tensor sent = sender.operand();
    receiver.finish(sent);
    sender.finish(sent);
    return true;
  }

  [[noreturn]] void report_stuck() const {
    std::string text = "the ranks do not arrive at the same collectives";
    for (const Walker& walker : walkers_) text += "; " + walker.place();
    throw InternalError(text);
  }

  std::vector<Walker> walkers_;
  std::map<int, size_t> walker_of_;
};

// Axes along which ranks hold different pieces: split or partial.
bool distinguishes(const mesh::Sharding& sharding, int axis) {
  return sharding.splits(axis) || std::any_of(sharding.partial.begin(), sharding.partial.end(),
                                              [axis](const mesh::Partial& p) { return p.axis == axis; });
}

}  // namespace

std::vector<NamedTensors> run_lockstep(std::span<const LocalProgram> programs) { return Job(programs).run(); }

NamedTensors run_alone(const ir::Graph& graph, const NamedTensors& inputs) {
  const LocalProgram program{0, graph, inputs};
  return run_lockstep({&program, 1})[0];
}

Tensor cut(const Tensor& whole, const mesh::Sharding& sharding, const mesh::Mesh& mesh, int rank) {
  const auto at = mesh.coordinates(rank);
  const Tensor piece = Tensor::copy_of(box_of(whole.view(), mesh::slice_of(whole.shape(), sharding, mesh, rank)));
  for (const auto& partial : sharding.partial) {
    if (at[static_cast<size_t>(partial.axis)] == 0) continue;
    if (partial.reduction == mesh::Reduction::kSum) return Tensor::zeros(piece.type());
    if (partial.reduction == mesh::Reduction::kProd) return Tensor::full(piece.type(), 1);
  }
  return piece;
}

Tensor assemble(const Type& type, const mesh::Sharding& sharding, const mesh::Mesh& mesh,
                std::span<const Tensor> pieces) {
  check_equal(pieces.size(), mesh.ranks().size(), "pieces of a mesh's ranks");
  Tensor whole = unwritten(type);
  // By the coordinates that matter: the first rank with them, by its place in the mesh.
  std::map<std::vector<int>, size_t> first;
  // By the coordinates that split: the pieces that are completed together.
  std::map<std::vector<int>, std::vector<const Tensor*>> parts;
  std::map<std::vector<int>, Box> boxes;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int rank = mesh.ranks()[i];
    const Box box = mesh::slice_of(type.shape, sharding, mesh, rank);
    if (!(pieces[i].type() == Type{type.dtype, ops::shape_of(box)})) {
      throw InternalError(fmt::format("rank {} holds {} of {} {}, its slice has the shape {}", rank, pieces[i].type(),
                                      type, sharding.to_string(mesh), ops::shape_of(box)));
    }
    auto distinct = mesh.coordinates(rank);
    auto split = distinct;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (!distinguishes(sharding, axis)) distinct[static_cast<size_t>(axis)] = 0;
      if (!sharding.splits(axis)) split[static_cast<size_t>(axis)] = 0;
    }
    const auto [it, is_new] = first.emplace(distinct, i);
    if (!is_new) {
      if (bit_equal(pieces[i], pieces[it->second])) continue;
      throw InternalError(fmt::format("ranks {} and {} should hold equal pieces of {} {} and do not",
                                      mesh.ranks()[it->second], rank, type, sharding.to_string(mesh)));
    }
    parts[split].push_back(&pieces[i]);
    boxes[split] = box;
  }
  for (const auto& [split, tensors] : parts) {
    const auto reduction = sharding.is_partial() ? sharding.partial[0].reduction : mesh::Reduction::kSum;
    for (const auto& partial : sharding.partial) {
      check(partial.reduction == reduction, "a value has partial axes of one reduction");
    }
    const Tensor piece = tensors.size() == 1 ? *tensors[0] : reduce(tensors, reduction);
    copy_box(piece.view(), box_of(whole.view(), boxes[split]));
  }
  return whole;
}

}  // namespace tessera::testing_support
