#include "tessera/session/kernel_choice.h"

#include "tessera/base/error.h"

namespace tessera::session {

KernelChoice parse_kernel_choice(std::string_view text) {
  if (text == "fixed") return KernelChoice::kFixed;
  if (text == "measured") return KernelChoice::kMeasured;
  throw InvalidArgument("unknown choice of kernels \"{}\"; the known ones are fixed, measured", text);
}

std::string_view to_string(KernelChoice choice) { return choice == KernelChoice::kFixed ? "fixed" : "measured"; }

}  // namespace tessera::session
