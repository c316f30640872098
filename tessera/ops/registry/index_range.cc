#include "tessera/ops/registry/index_range.h"

#include "tessera/base/error.h"

namespace tessera::ops {

std::optional<IndexRange> index_range(const std::string& op, const Attributes& attributes,
                                      std::span<const Type> inputs) {
  const OpDef& def = OpRegistry::instance().get(op);
  auto range = def.indices ? def.indices(attributes, inputs) : std::nullopt;
  if (range && attributes.has("valid")) {
    const Ints& valid = attributes.get_ints("valid");
    range->begin = valid[0];
    range->end = valid[1];
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
