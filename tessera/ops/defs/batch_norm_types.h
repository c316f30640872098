// The operators of batch normalisation share these types, attributes and examples. Internal to this folder.
#pragma once

#include <string_view>
#include <vector>

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

// The type of the statistics of x [n,c,...]: [c], or [G,c] when grouped. Throws InvalidArgument for what x or `counts`
// cannot be.
Type batch_norm_statistics_of(const Attributes& attributes, const Type& x);
// Throws InvalidArgument unless `given` is [c], of x's dtype or that of its statistics.
void require_channels(const Type& given, const Type& x, std::string_view what);

// counts and grouped, behind `more`.
std::vector<AttributeDef> batch_norm_attributes(std::vector<AttributeDef> more = {});
AttributeDef eps_attribute();

// What an example of one of the operators is made of.
struct BatchNormExample {
  DType dtype;
  Shape x;
  Ints counts;
  bool grouped = false;

  Type image() const { return {dtype, x}; }
  Type statistics() const;
  Type channels() const;
  Attributes attributes() const { return {{"counts", counts}, {"grouped", grouped}}; }
  Attributes attributes(double eps) const { return {{"counts", counts}, {"grouped", grouped}, {"eps", eps}}; }
  bool is_wide() const { return dtype == DType::kF32 || dtype == DType::kF64; }
};
std::vector<BatchNormExample> batch_norm_examples();

}  // namespace tessera::ops
