// Rows that have one number: add_up_rows makes one of them, list_rows finds which rows to look up so that each is
// looked up once, and spread_rows puts those to the places that ask for them.
#pragma once

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

void add_equal_rows(OpRegistry& registry);

}  // namespace tessera::ops
