#include "tessera/compiler/schedule/fit_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/passes/node_order.h"
#include "tessera/compiler/passes/repeat.h"
#include "tessera/compiler/schedule/memory_report.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// Chains of what is computed again take at most this part of the peak at first, then twice as much, and so on.
constexpr int64_t kMostParts = 64;
// Operations for each byte from which on a node is a matrix product or a convolution: others do a few for each element.
constexpr double kContraction = 8;
// A rank of a few processor cores. Only what the two are to each other matters for what is chosen.
constexpr double kFlopsPerSecond = 150e9;
constexpr double kBytesPerSecond = 15e9;
constexpr NodeId kNever = std::numeric_limits<NodeId>::max();

// Asking for a kernel may build it, and a node asks for the same in every schedule that is tried.
class RememberedKernels : public ops::KernelCatalogue {
 public:
  explicit RememberedKernels(const ops::KernelCatalogue& catalogue) : catalogue_(catalogue) {}
  ops::ChosenKernel choose(const KernelRequest& request) const override {
    std::string key = request.op + request.attributes.to_string();
    for (const auto* views : {&request.inputs, &request.outputs}) {
      for (const TensorView& view : *views) key += fmt::format(" {}{}", view.type(), fmt::join(view.strides, ","));
      key += ";";
    }
    const auto it = known_.find(key);
    if (it != known_.end()) return it->second;
    return known_.emplace(std::move(key), catalogue_.choose(request)).first->second;
  }
  int num_threads() const override { return catalogue_.num_threads(); }

 private:
  const ops::KernelCatalogue& catalogue_;
  mutable std::map<std::string, ops::ChosenKernel> known_;
};

// Chooses what to drop.
class Fitter {
 public:
  // What is computed again in one go, results from results, takes at most `max_chain_bytes`: it is all there at once.
  Fitter(const Graph& local, int64_t max_chain_bytes)
      : local_(local),
        max_chain_bytes_(max_chain_bytes),
        chain_(static_cast<size_t>(local.num_nodes()), ir::kNone),
        dropped_(static_cast<size_t>(local.num_values())),
        readers_(dropped_.size()),
        first_gradient_(dropped_.size(), kNever),
        last_forward_(dropped_.size(), ir::kNone),
        is_result_(dropped_.size()) {
    for (NodeId n = 0; n < local.num_nodes(); ++n) {
      const Node& node = local.node(n);
      for (const ValueId v : node.inputs) {
        const auto at = static_cast<size_t>(v);
        if (node.forward == ir::kNone) {
          last_forward_[at] = n;
          readers_[at].push_back(n);
        } else {
          first_gradient_[at] = std::min(first_gradient_[at], n);
        }
      }
      costs_.push_back(cost_of_node(node));
    }
    for (const auto& output : local.outputs()) is_result_[static_cast<size_t>(output.value)] = true;
  }

  const std::vector<bool>& dropped() const { return dropped_; }

  // Drops what is cheapest to compute again among the values that are only kept over node `at`, until it comes to
  // `wanted` bytes: contractions after all else. False: there is nothing left to drop.
  bool drop(NodeId at, int64_t wanted) {
    std::vector<Choice> choices;
    for (NodeId n = 0; n < at; ++n) {
      if (auto choice = choice_of(n, at)) choices.push_back(std::move(*choice));
    }
    std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
      return std::make_pair(a.contracts, a.seconds_per_byte()) < std::make_pair(b.contracts, b.seconds_per_byte());
    });
    bool any = false;
    for (const Choice& choice : choices) {
      if (wanted <= 0) break;
      if (!join_chain(choice)) continue;
      for (const NodeId n : choice.nodes) drop_results(n);
      wanted -= choice.bytes;
      any = true;
    }
    return any;
  }

  std::vector<RecomputedNode> recomputed() const {
    std::vector<RecomputedNode> nodes;
    for (NodeId n = 0; n < local_.num_nodes(); ++n) {
      int64_t bytes = 0;
      for (const ValueId v : local_.node(n).outputs) {
        if (dropped_[static_cast<size_t>(v)] && is_kept_for_gradients(v)) bytes += local_.type(v).size_bytes();
      }
      if (is_dropped(n)) nodes.push_back({local_.node_name(n), bytes, seconds_of(n)});
    }
    return nodes;
  }

 private:
  // Nodes that are computed again together: the last for its results, those before it for the operands that would not
  // be there any more.
  struct Choice {
    std::vector<NodeId> nodes;
    int64_t bytes = 0;
    double seconds = 0;
    bool contracts = false;  // matrix products, convolutions
    double seconds_per_byte() const { return seconds / static_cast<double>(bytes); }
  };

  ops::Cost cost_of_node(const Node& node) const {
    std::vector<Type> inputs;
    std::vector<Type> outputs;
    for (const ValueId v : node.inputs) inputs.push_back(local_.type(v));
    for (const ValueId v : node.outputs) outputs.push_back(local_.type(v));
    return ops::cost_of(ops::OpRegistry::instance().get(node.op), node.attributes, inputs, outputs);
  }
  double seconds_of(NodeId n) const {
    const auto& cost = costs_[static_cast<size_t>(n)];
    return std::max(cost.flops / kFlopsPerSecond, cost.bytes / kBytesPerSecond);
  }
  bool contracts(NodeId n) const {
    const auto& cost = costs_[static_cast<size_t>(n)];
    return cost.flops > kContraction * cost.bytes;
  }

  bool is_kept_for_gradients(ValueId v) const { return first_gradient_[static_cast<size_t>(v)] != kNever; }
  bool is_dropped(NodeId n) const {
    const auto& outputs = local_.node(n).outputs;
    return std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return dropped_[static_cast<size_t>(v)]; });
  }
  bool may_repeat(NodeId n) const {
    const Node& node = local_.node(n);
    return node.forward == ir::kNone && !node.outputs.empty() && !ops::OpRegistry::instance().get(node.op).collective;
  }

  // Kept anyway for gradients, or made again for them.
  bool is_there_for_gradients(ValueId v) const {
    if (is_kept_for_gradients(v) || is_result_[static_cast<size_t>(v)]) return true;
    const NodeId from = local_.info(v).node;
    return from == ir::kNone ? !is_data_input(v) : is_dropped(from);
  }
  bool is_data_input(ValueId v) const {
    return local_.inputs()[static_cast<size_t>(local_.info(v).index)].kind == ir::InputKind::kInput;
  }

  // Of what the node makes: bytes that are kept over node `at` for nothing but gradients behind it.
  int64_t bytes_over(NodeId n, NodeId at) const {
    int64_t bytes = 0;
    for (const ValueId v : local_.node(n).outputs) {
      const auto i = static_cast<size_t>(v);
      if (dropped_[i] || is_result_[i] || !is_kept_for_gradients(v)) continue;
      if (last_forward_[i] < at && first_gradient_[i] > at) bytes += local_.type(v).size_bytes();
    }
    return bytes;
  }

  // The cheaper of two ways: operands that are read nowhere behind are kept for it, or computed again, too.
  std::optional<Choice> choice_of(NodeId n, NodeId at) const {
    if (!may_repeat(n) || is_dropped(n)) return std::nullopt;
    const int64_t bytes = bytes_over(n, at);
    if (bytes == 0) return std::nullopt;
    Choice keeping{{n}, bytes, seconds_of(n), contracts(n)};
    for (const ValueId v : local_.node(n).inputs) {
      if (!is_there_for_gradients(v)) keeping.bytes -= local_.type(v).size_bytes();
    }
    Choice repeating{{}, bytes, 0};
    add_with_operands(n, repeating);
    const bool is_gain = repeating.bytes > 0;
    const bool is_cheaper =
        keeping.contracts < repeating.contracts || keeping.seconds_per_byte() <= repeating.seconds_per_byte();
    if (keeping.bytes > 0 && (!is_gain || is_cheaper)) return keeping;
    if (is_gain) return repeating;
    return std::nullopt;
  }

  void add_with_operands(NodeId n, Choice& choice) const {
    if (std::find(choice.nodes.begin(), choice.nodes.end(), n) != choice.nodes.end()) return;
    for (const ValueId v : local_.node(n).inputs) {
      if (is_there_for_gradients(v)) continue;
      const NodeId from = local_.info(v).node;
      if (from != ir::kNone && may_repeat(from)) {
        add_with_operands(from, choice);
      } else {
        choice.bytes -= local_.type(v).size_bytes();
      }
    }
    choice.nodes.push_back(n);
    choice.seconds += seconds_of(n);
    choice.contracts = choice.contracts || contracts(n);
  }

  int64_t result_bytes(NodeId n) const {
    int64_t bytes = 0;
    for (const ValueId v : local_.node(n).outputs) bytes += local_.type(v).size_bytes();
    return bytes;
  }

  // The choice's nodes become one chain with those whose results they read and those that read theirs. False, and
  // nothing happens, where that would be too long.
  bool join_chain(const Choice& choice) {
    std::set<NodeId> chains;  // by their first node
    for (const NodeId n : choice.nodes) {
      for (const ValueId v : local_.node(n).inputs) {
        const NodeId from = local_.info(v).node;
        if (from != ir::kNone && chain_of(from) != ir::kNone) chains.insert(chain_of(from));
      }
      for (const ValueId v : local_.node(n).outputs) {
        for (const NodeId reader : readers_[static_cast<size_t>(v)]) {
          if (chain_of(reader) != ir::kNone) chains.insert(chain_of(reader));
        }
      }
    }
    int64_t bytes = 0;
    for (const NodeId n : choice.nodes) bytes += is_dropped(n) ? 0 : result_bytes(n);
    for (const NodeId chain : chains) bytes += chain_bytes_.at(chain);
    if (bytes > max_chain_bytes_) return false;
    const NodeId first = chains.empty() ? choice.nodes[0] : *chains.begin();
    for (NodeId& chain : chain_) {
      if (chains.contains(chain)) chain = first;
    }
    for (const NodeId n : choice.nodes) chain_[static_cast<size_t>(n)] = first;
    chain_bytes_[first] = bytes;
    return true;
  }
  NodeId chain_of(NodeId n) const { return chain_[static_cast<size_t>(n)]; }

  void drop_results(NodeId n) {
    for (const ValueId v : local_.node(n).outputs)
      dropped_[static_cast<size_t>(v)] = !is_result_[static_cast<size_t>(v)];
  }

  const Graph& local_;
  int64_t max_chain_bytes_;
  std::vector<NodeId> chain_;                 // by node that is dropped: the first of its chain
  std::map<NodeId, int64_t> chain_bytes_;     // by that one
  std::vector<bool> dropped_;                 // by value
  std::vector<std::vector<NodeId>> readers_;  // by value: forward nodes
  std::vector<NodeId> first_gradient_;        // by value: the first gradient node that reads it
  std::vector<NodeId> last_forward_;          // by value: the last other node that reads it
  std::vector<bool> is_result_;               // by value
  std::vector<ops::Cost> costs_;              // by node
};

// The node of the old graph that stands at the peak, or the first behind it that is no repetition. Updates stand where
// there is time for them; what counts is the last other node before them.
NodeId node_at_peak(const Repeated& now, const ir::Schedule& schedule) {
  const auto uses = find_uses(now.graph);
  std::map<std::string, NodeId> makers;
  int number = 0;
  for (NodeId n = 0; n < now.graph.num_nodes(); ++n) {
    for (size_t i = 0; i < now.graph.node(n).outputs.size(); ++i) makers[fmt::format("%{}", ++number)] = n;
  }
  for (int s = schedule.peak_step; s >= 0; --s) {
    for (const int v : schedule.steps[static_cast<size_t>(s)].outputs) {
      const auto it = makers.find(schedule.values[static_cast<size_t>(v)].name);
      if (it == makers.end() || uses.is_update(now.graph.node(it->second))) continue;
      NodeId n = it->second;
      while (n + 1 < now.graph.num_nodes() && now.graph.node(n).again) ++n;
      return now.origin[static_cast<size_t>(n)];
    }
  }
  return 0;
}

// Whether it takes less time, of two that fit; else less memory.
bool is_better(const FittedSchedule& fitted, const FittedSchedule& than, int64_t limit_bytes) {
  const auto excess = [&](const FittedSchedule& f) {
    return std::max<int64_t>(f.schedule.arena_bytes - limit_bytes, 0);
  };
  const auto seconds = [](const FittedSchedule& f) {
    double sum = 0;
    for (const auto& node : f.recomputed) sum += node.seconds;
    return sum;
  };
  return std::make_pair(excess(fitted), seconds(fitted)) < std::make_pair(excess(than), seconds(than));
}

[[noreturn]] void throw_does_not_fit(const Graph& graph, const ir::Schedule& schedule, int64_t limit_bytes,
                                     int64_t spilled_bytes) {
  throw InvalidArgument(
      "graph {} needs {}, {} more than its memory limit of {}, even if all that can be is recomputed: {}", graph.name(),
      format_bytes(schedule.arena_bytes - spilled_bytes),
      format_bytes(schedule.arena_bytes - spilled_bytes - limit_bytes), format_bytes(limit_bytes),
      describe_peak(graph, schedule, spilled_bytes));
}

}  // namespace

FittedSchedule fit_memory(const Graph& local, const ir::PersistentLayout& persistent,
                          const ops::KernelCatalogue& catalogue, const ScheduleOptions& options, int64_t most_bytes,
                          const Deadline& deadline) {
  const int64_t limit_bytes = most_bytes + options.spilled_bytes;  // of the arena, in which these are
  const RememberedKernels kernels(catalogue);
  FittedSchedule best{local, make_schedule(local, persistent, kernels, options), {}};
  if (best.schedule.arena_bytes <= limit_bytes) return best;
  const int64_t peak_bytes = best.schedule.peak_bytes;
  // Which length of chains is best depends on the network: long ones free more, short ones are there at once.
  for (int64_t parts = kMostParts; parts > 0; parts /= 2) {
    deadline.throw_if_over();
    Fitter fitter(local, peak_bytes / parts);
    Repeated now = repeat_for_gradients(local, fitter.dropped());
    auto schedule = make_schedule(now.graph, persistent, kernels, options);
    while (schedule.arena_bytes > limit_bytes &&
           fitter.drop(node_at_peak(now, schedule), schedule.arena_bytes - limit_bytes)) {
      deadline.throw_if_over();
      now = repeat_for_gradients(local, fitter.dropped());
      schedule = make_schedule(now.graph, persistent, kernels, options);
    }
    FittedSchedule fitted{std::move(now.graph), std::move(schedule), fitter.recomputed()};
    if (is_better(fitted, best, limit_bytes)) best = std::move(fitted);
  }
  if (best.schedule.arena_bytes > limit_bytes) {
    throw_does_not_fit(best.local, best.schedule, most_bytes, options.spilled_bytes);
  }
  return best;
}

}  // namespace tessera::compiler
