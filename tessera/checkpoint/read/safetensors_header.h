// The safetensors format: eight bytes, the length of a JSON header; the header, which gives dtype, shape and place of
// each tensor; the values. https://github.com/huggingface/safetensors describes it.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/read/source_file.h"

namespace tessera::checkpoint {

// The member of the header that holds texts instead of a tensor's place.
inline constexpr const char* kSafetensorsMetadata = "__metadata__";
// The format's name of a dtype: "F32", "BOOL".
const char* safetensors_type_name(DType dtype);

// Where the tensors of a file are, in the order of their places. Texts and other metadata are left out. Reads the
// header only. Throws InvalidArgument naming file and tensor for what is no whole file: a header that is too long or
// not JSON, an unknown dtype, a place that does not fit the shape, overlaps with another, leaves a hole or lies
// outside.
std::vector<SourceTensor> read_safetensors_header(FileSystem& files, const std::string& path);

}  // namespace tessera::checkpoint
