#include "tessera/testing/lockstep.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/registry.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/index_range.h"
#include "tessera/testing/lockstep_collectives.h"
#include "tessera/testing/tensor_pieces.h"

namespace tessera::testing_support {
namespace {

using ir::Node;
using ir::NodeId;

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
  CollectiveMember as_member() const {
    const auto& inputs = node().inputs;
    return {rank(), &graph_, next_, inputs.empty() ? nullptr : &values_[static_cast<size_t>(inputs[0])]};
  }
  // What it waits at, for messages.
  std::string place() const { return has_ended() ? fmt::format("rank {} has ended", rank()) : as_member().place(); }

  // Computes up to the next collective or the end.
  void advance() {
    for (; !has_ended(); ++next_) {
      if (ops::collective_of(node()) != nullptr) return;
      compute();
    }
  }
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
    require_good_indices();
    const auto kernel = kernels::reference_kernels().find(request_);
    if (!kernel) throw InvalidArgument("{}: no reference kernel", graph_.node_name(next_));
    const Tensor scratch(DType::kU8, {kernel->scratch_bytes});
    kernel->run({request_.inputs, request_.outputs, node().attributes, scratch.bytes(), serial_});
  }

  // As the executor does: kernels skip a bad index.
  void require_good_indices() const {
    std::vector<Type> types;
    for (const auto v : node().inputs) types.push_back(graph_.type(v));
    const auto range = ops::index_range(node().op, node().attributes, types);
    if (!range) return;
    const auto operand = node().inputs[static_cast<size_t>(range->operand)];
    for (const double index : values_[static_cast<size_t>(operand)].to_doubles()) {
      if (index >= static_cast<double>(range->begin) && index < static_cast<double>(range->end)) continue;
      throw InvalidArgument("{}: an index is {}, which must be from {} to {}", place(), index, range->begin,
                            range->end - 1);
    }
  }

  const LocalProgram& program_;
  const ir::Graph& graph_;
  std::vector<Tensor> values_;
  NodeId next_ = 0;
  KernelRequest request_;
  ParallelFor serial_{1};
};

using ops::CollectiveDef;

// What the members of one collective may differ in.
bool is_own(const std::string& op, const std::string& name) {
  const auto& own = ops::collective_of(op)->own_attributes;
  return name == "rank_in_group" || std::find(own.begin(), own.end(), name) != own.end();
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
  static bool is_transfer(const Walker& walker) { return ops::collective_of(walker.node())->is_transfer(); }
  static bool sends(const Walker& walker) {
    return ops::collective_of(walker.node())->members == CollectiveDef::Members::kSender;
  }

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
    std::vector<Walker*> members;
    for (const int64_t rank : ranks) {
      Walker& member = at_rank(walker, rank);
      member.advance();
      if (member.has_ended() || is_transfer(member)) return false;
      members.push_back(&member);
    }
    for (const Walker* member : members) {
      if (!agree(walker.node(), member->node())) return false;
    }
    std::vector<CollectiveMember> operands;
    for (const Walker* member : members) operands.push_back(member->as_member());
    const auto results = run_collective(operands);
    for (size_t i = 0; i < members.size(); ++i) members[i]->finish(results[i]);
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
    if (peer.has_ended() || !is_transfer(peer) || sends(peer) == sends(walker)) return false;
    if (&peer_of(peer) != &walker) return false;
    Walker& sender = sends(walker) ? walker : peer;
    Walker& receiver = sends(walker) ? peer : walker;
    const Tensor sent = *sender.as_member().operand;
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

}  // namespace

std::vector<NamedTensors> run_lockstep(std::span<const LocalProgram> programs) { return Job(programs).run(); }

NamedTensors run_alone(const ir::Graph& graph, const NamedTensors& inputs) {
  const LocalProgram program{0, graph, inputs};
  return run_lockstep({&program, 1})[0];
}

}  // namespace tessera::testing_support
