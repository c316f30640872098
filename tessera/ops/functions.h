// The operators as functions of values: what networks are written with. Each adds nodes to the graph of its operands
// and returns their results; nothing is computed. Shapes and dtypes are checked at once: every function throws
// InvalidArgument naming the operator, the cell it is called from and the operands' types.
//
//   using namespace tessera::ops;
//   Value loss = reduce_mean(square(matmul(x, w) + 1.0 - y));
//
// Axes and dims may be negative: they count from the end.
#pragma once

#include "tessera/ops/collective_functions.h"
#include "tessera/ops/creation_functions.h"
#include "tessera/ops/custom_gradient.h"
#include "tessera/ops/elementwise_functions.h"
#include "tessera/ops/network_functions.h"
#include "tessera/ops/reduce_functions.h"
#include "tessera/ops/shape_functions.h"
