// The text that every kernel begins with: the files of device_code/ and tensor/element_op.h, embedded when Tessera is
// built.
#pragma once

#include <string>

namespace tessera::cuda {

const std::string& device_code();

}  // namespace tessera::cuda
