// The operators as functions of values: what networks are written with. Each adds nodes to the graph of its operands
// and returns their results; nothing is computed. Shapes and dtypes are checked at once: every function throws
// InvalidArgument naming the operator, the cell it is called from and the operands' types.
//
//   using namespace tessera::ops;
//   Value loss = reduce_mean(square(matmul(x, w) + 1.0 - y));
//
// Axes and dims may be negative: they count from the end.
#pragma once

#include "tessera/ops/functions/collective_functions.h"
#include "tessera/ops/functions/creation_functions.h"
#include "tessera/ops/functions/custom_gradient.h"
#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/ops/functions/network_functions.h"
#include "tessera/ops/functions/reduce_functions.h"
#include "tessera/ops/functions/shape_functions.h"
