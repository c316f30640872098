// add_up_rows: rows that have one number become one.
#pragma once

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

void add_equal_rows(OpRegistry& registry);

}  // namespace tessera::ops
