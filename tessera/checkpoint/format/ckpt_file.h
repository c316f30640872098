// The .ckpt file: named tensors in the reference's protobuf wire form, byte-compatible with its release 2.10. Every
// byte is described in docs/checkpoint_format.md. This header has what those share who write it (ckpt_writer.h) and who
// read it (ckpt_reader.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "tessera/checkpoint/format/element_stream.h"
#include "tessera/checkpoint/format/region.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

// Above this a tensor is cut into several records of equal name and dims.
inline constexpr int64_t kMaxRecordBytes = int64_t{512} << 20;

// The file's word for a dtype: "Float32", "BFloat16", "UInt8", "Bool".
const char* ckpt_type_name(DType dtype);

// One value to be saved: a tensor or a text.
struct Entry {
  std::string name;
  TensorView value;      // any strides; the file holds it row-major
  bool is_text = false;  // then `text` (UTF-8) is saved, and `value` means nothing
  std::string text;
  Tensor owner;  // what `value` looks at, where the entry owns it
  // Where the value lies in the global one, when it is only a part of that.
  std::optional<GlobalRegion> part;
  // Has the elements where `value` has no memory: then that says their type only.
  std::optional<StreamedRegion> streamed;

  Entry(std::string name, Tensor tensor) : name(std::move(name)), value(tensor.view()), owner(std::move(tensor)) {}
  // The memory must live until the entry was saved.
  Entry(std::string name, const TensorView& view) : name(std::move(name)), value(view) {}
  Entry(std::string name, std::string text) : name(std::move(name)), is_text(true), text(std::move(text)) {}
  // 0-d values, such as epoch_num and step_num: i64, f32, bool.
  static Entry number(std::string name, int64_t value) { return {std::move(name), Tensor::scalar(value)}; }
  static Entry number(std::string name, float value) { return {std::move(name), Tensor::scalar(value)}; }
  static Entry number(std::string name, bool value) { return {std::move(name), Tensor::scalar(value)}; }
};

}  // namespace tessera::checkpoint
