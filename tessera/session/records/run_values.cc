#include "tessera/session/records/run_values.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::session {

std::vector<ValueName> names_of_values(const ir::Graph& logical) {
  std::vector<ValueName> names(static_cast<size_t>(logical.num_values()));
  for (const ir::Input& input : logical.inputs()) {
    const bool is_data = input.kind == ir::InputKind::kInput;
    names[static_cast<size_t>(input.value)] = {.moment = is_data ? ValueMoment::kInput : ValueMoment::kBefore,
                                               .source = input.name};
  }
  std::map<std::tuple<std::string, std::string, bool>, int64_t> counts;
  for (ir::NodeId n = 0; n < logical.num_nodes(); ++n) {
    const ir::Node& node = logical.node(n);
    const bool is_gradient = node.forward != ir::kNone;
    const int64_t ordinal = ++counts[{node.op, node.source, is_gradient}];
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      names[static_cast<size_t>(node.outputs[o])] = {.op = node.op,
                                                     .source = node.source,
                                                     .is_gradient = is_gradient,
                                                     .ordinal = ordinal,
                                                     .output = static_cast<int64_t>(o)};
    }
  }
  return names;
}

namespace {

// What ranks hold terms of; nullptr where each has the whole sum, as where there is one.
const mesh::Partial* sum_over_ranks(const mesh::Layout& layout) {
  for (const mesh::Partial& partial : layout.sharding.partial) {
    if (layout.mesh.axis(partial.axis).size > 1) return &partial;
  }
  return nullptr;
}

}  // namespace

ValueEntry entry_of(const ValueName& name, int64_t number, const Type& type, const mesh::Layout& layout, int rank) {
  ValueEntry entry{.name = name, .number = number, .type = type};
  for (const auto& [offset, size] : mesh::slice_of(type.shape, layout.sharding, layout.mesh, rank)) {
    entry.region.offset.push_back(offset);
    entry.region.shape.push_back(size);
  }
  if (const auto* sum = sum_over_ranks(layout)) entry.reduction = mesh::to_string(sum->reduction);
  return entry;
}

RunValues::RunValues(const compiler::Compiled& compiled, int rank, int64_t run)
    : compiled_(compiled),
      rank_(rank),
      names_(names_of_values(compiled.logical)),
      is_whole_seen_(names_.size()),
      is_part_seen_(names_.size()) {
  for (ValueName& name : names_) name.run = run;
}

void RunValues::add_input(const ir::Input& input, const TensorView& piece) {
  const Type& type = compiled_.logical.type(input.value);
  ValueEntry entry =
      entry_of(names_[static_cast<size_t>(input.value)], input.value, type, compiled_.plan.layout(input.value), rank_);
  describe_piece(entry, Tensor::copy_of(piece));
  entries_.push_back(std::move(entry));
}

const ir::LogicalPlace& RunValues::place_of(int value) const {
  return compiled_.schedule.values[static_cast<size_t>(value)].logical;
}

RunValues::Found RunValues::find(const ir::LogicalPlace& place) const {
  const auto index = static_cast<size_t>(place.index);
  if (place.kind == ir::LogicalPlace::Kind::kOutput) {
    return {compiled_.logical.outputs()[index].value, compiled_.plan.output_layout(compiled_.logical, index)};
  }
  const ir::Node& node = compiled_.logical.node(place.node);
  if (place.kind == ir::LogicalPlace::Kind::kOperand) {
    return {node.inputs[index], compiled_.plan.operand_layout(place.node, index)};
  }
  return {node.outputs[index], compiled_.plan.layout(node.outputs[index])};
}

bool RunValues::wants(int value) const {
  const ir::LogicalPlace& place = place_of(value);
  if (!place.is_known()) return false;
  const Found found = find(place);
  const bool is_part = sum_over_ranks(found.layout) != nullptr;
  return !(is_part ? is_part_seen_ : is_whole_seen_)[static_cast<size_t>(found.value)];
}

void RunValues::see(int value, const Tensor& elements) {
  const Found found = find(place_of(value));
  const auto v = static_cast<size_t>(found.value);
  const ir::Graph& logical = compiled_.logical;
  const ir::NodeId made_by = logical.info(found.value).node;
  ValueEntry entry = entry_of(names_[v], found.value, logical.type(found.value), found.layout, rank_);
  if (made_by != ir::kNone) entry.line = logical.node(made_by).line;
  check_equal(elements.shape(), entry.region.shape, "shape of a piece that a step has made");
  // The terms of a sum of a half type are wider than it.
  entry.type.dtype = elements.dtype();
  describe_piece(entry, elements);
  (entry.reduction.empty() ? is_whole_seen_ : is_part_seen_)[v] = true;
  entries_.push_back(std::move(entry));
}

int64_t RunValues::num_missing() const {
  int64_t missing = 0;
  for (ir::NodeId n = 0; n < compiled_.logical.num_nodes(); ++n) {
    for (const ir::ValueId v : compiled_.logical.node(n).outputs) {
      if (!is_whole_seen_[static_cast<size_t>(v)] && !is_part_seen_[static_cast<size_t>(v)]) ++missing;
    }
  }
  return missing;
}

}  // namespace tessera::session
