#include "tessera/session/index_fault.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <string>

#include "tessera/base/strings.h"
#include "tessera/compiler/schedule/guarded_updates.h"
#include "tessera/kernels/registry.h"
#include "tessera/ops/registry/index_range.h"
#include "tessera/ops/rules/localize.h"
#include "tessera/session/agree/gather_texts.h"

namespace tessera::session {
namespace {

using ir::Graph;
using ir::Node;
using ir::ValueId;
using ops::Elements;

constexpr const char* kComparingIndices = "comparing bad indices";

// The value of the graph that a schedule calls `name`.
std::optional<ValueId> find_value(const Graph& graph, const std::string& name) {
  for (ValueId v = 0; v < graph.num_values(); ++v) {
    if (graph.value_name(v) == name) return v;
  }
  return std::nullopt;
}

// Operators that change a number's type or what it is counted from, not its place.
bool keeps_places(const Graph& graph, const Node& node) {
  return ops::OpRegistry::instance().get(node.op).elements == Elements::kKept || ops::shifts_indices(graph, node);
}

bool moves_elements(const Node& node) {
  const auto elements = ops::OpRegistry::instance().get(node.op).elements;
  return node.outputs.size() == 1 && (elements == Elements::kRelabelled || elements == Elements::kMoved);
}

// The result of an operator that moves elements.
std::optional<Tensor> move(const Graph& graph, const Node& node, const Tensor& operand) {
  Tensor result(DType::kI64, graph.type(node.outputs[0]).shape);
  KernelRequest request{
      .op = node.op, .inputs = {operand.view()}, .outputs = {result.view()}, .attributes = node.attributes};
  request.inputs[0].data = request.outputs[0].data = nullptr;
  const auto kernel = kernels::reference_kernels().find(request);
  if (!kernel || kernel->scratch_bytes > 0) return std::nullopt;
  const std::vector<TensorView> inputs{operand.view()};
  const std::vector<TensorView> outputs{result.view()};
  const ParallelFor parallel_for(1);
  kernel->run({inputs, outputs, node.attributes, {}, parallel_for});
  return result;
}

struct Place {
  const ir::Input* input = nullptr;
  int64_t position = 0;  // in this rank's piece, row-major
};

// What stands in a select where the other value is the number 0, as nn::CrossEntropy puts it in place of labels that do
// not count: a bad index is not that 0, so it is an element of this. nullopt for any other node.
std::optional<ValueId> masked_value(const Graph& graph, const Node& node) {
  if (node.op != "select" || !(graph.type(node.inputs[1]).shape == graph.type(node.outputs[0]).shape)) {
    return std::nullopt;
  }
  ir::NodeId producer = graph.info(node.inputs[2]).node;
  while (producer != ir::kNone && graph.node(producer).op == "broadcast_to") {
    producer = graph.info(graph.node(producer).inputs[0]).node;
  }
  if (producer == ir::kNone || graph.node(producer).op != "fill") return std::nullopt;
  return graph.node(producer).attributes.get_double("value") == 0 ? std::optional(node.inputs[1]) : std::nullopt;
}

// The element of an input that is the element `position` of `v`; nullopt where it is computed.
std::optional<Place> find_place(const Graph& graph, ValueId v, int64_t position) {
  std::vector<const Node*> moves;
  while (graph.info(v).node != ir::kNone) {
    const Node& node = graph.node(graph.info(v).node);
    if (const auto masked = masked_value(graph, node)) {
      v = *masked;
      continue;
    }
    if (!keeps_places(graph, node)) {
      if (!moves_elements(node)) return std::nullopt;
      moves.push_back(&node);
    }
    v = node.inputs[0];
  }
  const ir::Input& input = graph.inputs()[static_cast<size_t>(graph.info(v).index)];
  Tensor places(DType::kI64, graph.type(v).shape);
  const auto numbers = places.values<int64_t>();
  std::iota(numbers.begin(), numbers.end(), 0);
  std::reverse(moves.begin(), moves.end());
  for (const Node* node : moves) {
    auto moved = move(graph, *node, places);
    if (!moved) return std::nullopt;
    places = std::move(*moved);
  }
  return Place{&input, places.values<int64_t>()[static_cast<size_t>(position)]};
}

// The same for an index that this rank has whole, in the graph of all ranks: there no collective stands between the
// data and the operator. By the place in the network; nothing where that has several such operators of different data.
std::optional<Place> find_global_place(const Graph& logical, const ir::Step& step, const Shape& indices,
                                       int64_t position) {
  const auto is_it = [&](const Node& node) { return node.source == step.source && node.op == step.op; };
  bool is_there = false;
  for (ir::NodeId n = 0; n < logical.num_nodes(); ++n) is_there = is_there || is_it(logical.node(n));
  std::optional<Place> found;
  for (ir::NodeId n = 0; n < logical.num_nodes(); ++n) {
    const Node& node = logical.node(n);
    // One rank's part may be made of other operators, as that of a loss over split classes is.
    if (is_there ? !is_it(node) : node.source != step.source) continue;
    std::vector<Type> types;
    for (const ValueId v : node.inputs) types.push_back(logical.type(v));
    const auto range = ops::index_range(node.op, node.attributes, types);
    if (!range || types[static_cast<size_t>(range->operand)].shape != indices) continue;
    const auto place = find_place(logical, node.inputs[static_cast<size_t>(range->operand)], position);
    if (!place || (found && (found->input != place->input || found->position != place->position))) return std::nullopt;
    found = place;
  }
  return found;
}

Ints coordinates_of(int64_t position, const Shape& shape) {
  Ints at(static_cast<size_t>(shape.ndim()));
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    at[static_cast<size_t>(d)] = position % shape[d];
    position /= shape[d];
  }
  return at;
}

// `column "tokens": row 5 holds 50257 at [5, 17]`.
std::string describe_place(const std::string& noun, const std::string& name, const std::string& value, const Ints& at) {
  const auto row = at.empty() ? std::string() : fmt::format("row {} ", at[0]);
  return fmt::format("{} \"{}\": {}holds {} at [{}]", noun, name, row, value, fmt::join(at, ", "));
}

}  // namespace

std::string describe_non_finite(const DataPiece& data, const TensorView& held, const std::string& noun) {
  if (!is_floating(held.dtype)) return "";
  const auto numbers = Tensor::copy_of(held).to_doubles();
  const auto first = std::ranges::find_if_not(numbers, [](double number) { return std::isfinite(number); });
  if (first == numbers.end()) return "";
  auto at = coordinates_of(first - numbers.begin(), held.shape);
  for (size_t d = 0; d < at.size(); ++d) at[d] += data.slice[d].offset;
  if (!at.empty()) at[0] += data.first_row;
  return describe_place(noun, data.name, shortest(*first), at);
}

std::string describe_bad_index(const compiler::Compiled& compiled, const executor::BadIndex& bad,
                               const FindData& find_data, const std::string& noun) {
  const auto& schedule = compiled.schedule;
  const ir::Step& step = schedule.steps[static_cast<size_t>(bad.step)];
  const auto& op = step.attributes.has("reader") ? step.attributes.get_string("reader") : step.op;
  const auto reader = step.source.empty() ? op : fmt::format("{} \"{}\"", op, step.source);
  const auto range =
      bad.limit == 0 ? std::string("there is no row to name") : fmt::format("must be from 0 to {}", bad.limit - 1);
  // The graph whose values the schedule's are.
  const Graph graph = compiler::find_guarded_updates(compiled.local).graph;
  const auto operand = step.inputs[static_cast<size_t>(bad.operand)];
  const auto value = find_value(graph, schedule.values[static_cast<size_t>(operand)].name);
  const auto data_at = [&](const std::optional<Place>& found) {
    return found ? find_data(*found->input) : std::nullopt;
  };
  auto place = value ? find_place(graph, *value, bad.position) : std::nullopt;
  auto data = data_at(place);
  Ints at;
  if (data) {
    at = coordinates_of(place->position, graph.type(place->input->value).shape);
    for (size_t d = 0; d < at.size(); ++d) at[d] += data->slice[d].offset;
  } else {
    const Shape& indices = schedule.values[static_cast<size_t>(operand)].type.shape;
    place = find_global_place(compiled.logical, step, indices, bad.position);
    data = data_at(place);
    if (!data) return fmt::format("{}: an index is {}; it {}", reader, bad.value, range);
    at = coordinates_of(place->position, compiled.logical.type(place->input->value).shape);
  }
  if (!at.empty()) at[0] += data->first_row;
  return fmt::format("{}; an index of {} {}", describe_place(noun, data->name, std::to_string(bad.value), at), reader,
                     range);
}

void throw_first_bad_index(comm::Communicator& ranks, const std::string& of_this_rank) {
  const std::string first = first_text(ranks, of_this_rank, kComparingIndices);
  if (!first.empty()) throw executor::InvalidIndex(first);
}

}  // namespace tessera::session
