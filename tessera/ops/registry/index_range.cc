#include "tessera/ops/registry/index_range.h"

#include "tessera/base/error.h"
#include "tessera/ops/registry/infer_helpers.h"

namespace tessera::ops {

std::optional<IndexRange> index_range(const std::string& op, const Attributes& attributes,
                                      std::span<const Type> inputs) {
  IndexRange range;
  if (op == "gather" || op == "scatter_add") {
    range = {1, 0, inputs[0].shape[axis_of(attributes, inputs[0])]};
  } else if (op == "softmax_cross_entropy") {
    range = {1, 0, inputs[0].shape[1]};
  } else if (op != "one_hot" || !attributes.has("valid")) {
    return std::nullopt;
  }
  if (attributes.has("valid")) {
    const Ints& valid = attributes.get_ints("valid");
    range.begin = valid[0];
    range.end = valid[1];
  }
  return range;
}

AttributeDef valid_attribute(const std::string& if_absent) {
  return {"valid", std::nullopt,
          "[begin, end): an index outside of it stops the step that reads it; absent: " + if_absent,
          /*may_be_absent=*/true};
}

void require_valid(const Attributes& attributes) {
  if (!attributes.has("valid")) return;
  if (const auto& valid = attributes.get_ints("valid"); valid.size() != 2) {
    throw InvalidArgument("valid must be [begin, end), has {} numbers", valid.size());
  }
}

void set_valid_rows(Attributes& attributes, int64_t offset, int64_t held, int64_t size) {
  if (held != size) attributes.set("valid", Ints{-offset, size - offset});
}

}  // namespace tessera::ops
