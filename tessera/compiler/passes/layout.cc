#include "tessera/compiler/passes/passes.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {

// Whether its kernels have their images channels-last, whatever the order of the operands.
bool is_image_op(const Node& node) {
  const auto* def = ops::OpRegistry::instance().find(node.op);
  return def != nullptr && def->images == ops::ImageOrder::kChannelsLast;
}

// Whether the only result is a weight, or its cotangent: row-major.
bool gives_weight(const Node& node) {
  const auto* def = ops::OpRegistry::instance().find(node.op);
  return def != nullptr && def->convolution && def->convolution->weight.is_result;
}

bool is_image(const Type& type) { return type.shape.ndim() == 4; }

// With a spatial size of 1x1 both layouts are the same memory: such a value says nothing about its neighbours.
bool tells_layout(const Type& type) { return is_image(type) && type.shape[2] * type.shape[3] > 1 && type.shape[1] > 1; }

}  // namespace

std::vector<Strides> assign_layouts(const Graph& local, bool channels_last) {
  const auto num_values = static_cast<size_t>(local.num_values());
  std::vector<bool> image(num_values, false);
  if (channels_last) {
    std::vector<std::vector<NodeId>> users(num_values);
    for (NodeId n = 0; n < local.num_nodes(); ++n) {
      for (const ValueId v : local.node(n).inputs) users[static_cast<size_t>(v)].push_back(n);
    }
    // A value without four-dim operands takes the layout that its readers work in.
    const auto read_as_image = [&](ValueId v) {
      for (const NodeId n : users[static_cast<size_t>(v)]) {
        const Node& node = local.node(n);
        if (is_image_op(node)) return true;
        for (const ValueId other : node.inputs) {
          if (other != v && image[static_cast<size_t>(other)] && local.type(other).shape == local.type(v).shape) {
            return true;
          }
        }
      }
      return false;
    };
    for (const auto& input : local.inputs()) {
      // Weights stay row-major: their layout is the checkpoint's.
      if (input.kind == ir::InputKind::kInput && is_image(local.type(input.value))) {
        image[static_cast<size_t>(input.value)] = read_as_image(input.value);
      }
    }
    for (NodeId n = 0; n < local.num_nodes(); ++n) {
      const Node& node = local.node(n);
      bool has_evidence = is_image_op(node);
      bool from_images = has_evidence && !gives_weight(node);
      if (!has_evidence) {
        for (const ValueId v : node.inputs) {
          if (!tells_layout(local.type(v))) continue;
          has_evidence = true;
          from_images = from_images || image[static_cast<size_t>(v)];
        }
      }
      for (const ValueId v : node.outputs) {
        if (!is_image(local.type(v))) continue;
        image[static_cast<size_t>(v)] = has_evidence ? from_images : read_as_image(v);
      }
    }
  }
  std::vector<Strides> strides;
  for (ValueId v = 0; v < local.num_values(); ++v) {
    const Shape& shape = local.type(v).shape;
    strides.push_back(image[static_cast<size_t>(v)] ? channels_last_strides(shape) : dense_strides(shape));
  }
  return strides;
}

}  // namespace tessera::compiler
