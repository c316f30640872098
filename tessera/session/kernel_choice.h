// How a session chooses between the kernels that an operator can be computed with.
#pragma once

#include <string_view>

namespace tessera::session {

enum class KernelChoice {
  kFixed,     // the usual one
  kMeasured,  // the fastest; measured once per operator and shape, remembered where the session is told
};

// "fixed", "measured"; throws InvalidArgument naming the text and these names.
KernelChoice parse_kernel_choice(std::string_view text);
// "fixed": what parse_kernel_choice() reads.
std::string_view to_string(KernelChoice choice);

}  // namespace tessera::session
