// Machine code of kernels, for devices that are not here.
#pragma once

#include <future>
#include <string>

namespace tessera::cuda {

// The machine code of a text for "sm_90" and the like, from this user's cache of kernels or compiled and kept there.
// Throws IoError where this build has no CUDA or the compiler of kernels is not found, InternalError with what the
// compiler says.
std::string compiled_kernel(const std::string& text, const std::string& architecture);
// The same beside the caller.
std::shared_future<std::string> compile_beside(const std::string& text, const std::string& architecture);

}  // namespace tessera::cuda
