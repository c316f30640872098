#include "tessera/checkpoint/format/ckpt_file.h"

#include "tessera/base/error.h"

namespace tessera::checkpoint {

const char* ckpt_type_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "Float32";
    case DType::kF64: return "Float64";
    case DType::kBF16: return "BFloat16";
    case DType::kF16: return "Float16";
    case DType::kI32: return "Int32";
    case DType::kI64: return "Int64";
    case DType::kU8: return "UInt8";
    case DType::kBool: return "Bool";
    case DType::kI8: return "Int8";
    case DType::kI16: return "Int16";
    case DType::kU16: return "UInt16";
    case DType::kU32: return "UInt32";
    case DType::kU64: return "UInt64";
  }
  check(false, "a dtype without a name");
  return "";
}

}  // namespace tessera::checkpoint
