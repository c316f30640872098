// What is known of values while they are traced: those that are made of constants alone have elements already, so that
// Python may decide by them and count with them.
#pragma once

#include <optional>

#include "python/src/tracing.h"

namespace tessera::python {

// Its elements; nothing where they depend on an input, a parameter, a random number or another rank. Of a value of the
// trace that this thread is in.
std::optional<Tensor> known_value(const ir::Value& value);
// When the outermost trace ends.
void forget_known_values();

}  // namespace tessera::python
