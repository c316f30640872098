#include "tessera/checkpoint/read/safetensors_header.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/checkpoint/manifest/json_field.h"

namespace tessera::checkpoint {
namespace {

constexpr int64_t kLengthBytes = 8;
// As the format's own library has it.
constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxTensors = size_t{1} << 20;

constexpr std::array<std::pair<const char*, DType>, 13> kTypeNames = {{{"F64", DType::kF64},
                                                                       {"F32", DType::kF32},
                                                                       {"F16", DType::kF16},
                                                                       {"BF16", DType::kBF16},
                                                                       {"I64", DType::kI64},
                                                                       {"I32", DType::kI32},
                                                                       {"I16", DType::kI16},
                                                                       {"I8", DType::kI8},
                                                                       {"U64", DType::kU64},
                                                                       {"U32", DType::kU32},
                                                                       {"U16", DType::kU16},
                                                                       {"U8", DType::kU8},
                                                                       {"BOOL", DType::kBool}}};

DType read_dtype(const JsonField& field) {
  const auto name = field.text();
  const auto it =
      std::find_if(kTypeNames.begin(), kTypeNames.end(), [&](const auto& entry) { return entry.first == name; });
  if (it == kTypeNames.end()) field.fail("must be a dtype");
  return it->second;
}

SourceTensor read_tensor(const std::string& name, const JsonField& field, int64_t data_begin, int64_t data_bytes) {
  SourceTensor tensor{.name = name, .dtype = read_dtype(field["dtype"])};
  auto bytes = static_cast<int64_t>(size_bytes(tensor.dtype));
  for (const auto& item : field["shape"].items(kMaxNdim)) {
    tensor.shape.push_back(item.count());
    if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes)) {
      field["shape"].fail("must have no more bytes than an int64 counts");
    }
  }
  const auto offsets = field["data_offsets"].items(2);
  if (offsets.size() != 2) field["data_offsets"].fail("must have 2 elements");
  const int64_t begin = offsets[0].count(data_bytes);
  const int64_t end = offsets[1].count(data_bytes);
  if (end - begin != bytes) field["data_offsets"].fail(fmt::format("must be {} bytes apart", bytes));
  tensor.size_bytes = bytes;
  if (bytes > 0) tensor.pieces.push_back({data_begin + begin, bytes});
  return tensor;
}

// The tensors' places must follow each other without holes: what nobody describes could hold anything.
void require_no_holes(const std::vector<SourceTensor>& tensors, int64_t data_begin, int64_t file_bytes,
                      const std::string& path) {
  int64_t at = data_begin;
  for (const auto& tensor : tensors) {
    if (tensor.pieces.empty()) continue;
    if (tensor.pieces[0].offset != at) {
      throw InvalidArgument("{}: tensor \"{}\" begins at byte {}, it must begin at {}: a hole, or an overlap", path,
                            tensor.name, tensor.pieces[0].offset, at);
    }
    at += tensor.size_bytes;
  }
  if (at != file_bytes) throw InvalidArgument("{}: has {} bytes, its tensors end at {}", path, file_bytes, at);
}

}  // namespace

const char* safetensors_type_name(DType dtype) {
  const auto it =
      std::find_if(kTypeNames.begin(), kTypeNames.end(), [&](const auto& entry) { return entry.second == dtype; });
  check(it != kTypeNames.end(), "a dtype without a name");
  return it->first;
}

std::vector<SourceTensor> read_safetensors_header(FileSystem& files, const std::string& path) {
  const auto file_bytes = files.size_bytes(path);
  if (file_bytes < kLengthBytes) throw InvalidArgument("{}: has {} bytes, too few for safetensors", path, file_bytes);
  const auto reader = open_ranges(files, path);
  uint64_t length = 0;
  reader->read(0, std::as_writable_bytes(std::span(&length, 1)));
  const auto limit = static_cast<uint64_t>(std::min(kMaxHeaderBytes, file_bytes - kLengthBytes));
  if (length > limit) {
    throw InvalidArgument("{}: the header has {} bytes, at most {} can be: not safetensors, or truncated", path, length,
                          limit);
  }
  std::string header(length, '\0');
  reader->read(kLengthBytes, std::as_writable_bytes(std::span(header)));
  const auto json = parse_json(header, path);
  const JsonField root(path, "the header", json);
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
  std::vector<SourceTensor> tensors;
  for (const auto& [name, field] : root.members(kMaxTensors)) {
    if (name != kSafetensorsMetadata) tensors.push_back(read_tensor(name, field, data_begin, file_bytes - data_begin));
  }
  const auto place = [](const SourceTensor& tensor) { return tensor.pieces.empty() ? 0 : tensor.pieces[0].offset; };
  std::stable_sort(tensors.begin(), tensors.end(),
                   [&](const SourceTensor& a, const SourceTensor& b) { return place(a) < place(b); });
  require_no_holes(tensors, data_begin, file_bytes, path);
  return tensors;
}

}  // namespace tessera::checkpoint
