#include <bit>

#include "tessera/checkpoint/format/ckpt_file.h"
#include "tessera/checkpoint/format/ckpt_record.h"
#include "tessera/checkpoint/format/element_hash.h"
#include "tessera/checkpoint/format/protobuf_wire.h"
#include "tessera/checkpoint/format/record_writer.h"

namespace tessera::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "contents are written as they lie in memory");

using Sink = CkptWriter::Sink;

size_t field_bytes(uint64_t length) { return 1 + varint_bytes(length) + length; }

// Keys of the length-delimited fields 1 to 3 and of the varint field 1.
constexpr char kField1 = 0x0A;
constexpr char kField2 = 0x12;
constexpr char kField3 = 0x1A;
constexpr char kDim = 0x08;

// UTF-8, already checked, to UTF-32 little-endian.
std::vector<uint32_t> code_points(std::string_view text) {
  std::vector<uint32_t> codes;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : 4;
    uint32_t code = length == 1 ? lead : lead & (0x7FU >> length);
    for (size_t k = 1; k < length; ++k) code = code << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3FU);
    codes.push_back(code);
    i += length;
  }
  return codes;
}

}  // namespace

std::string record_header(std::string_view name, std::string_view type_name, std::span<const int64_t> dims,
                          uint64_t content_bytes) {
  uint64_t tensor_bytes = field_bytes(type_name.size()) + field_bytes(content_bytes);
  for (const int64_t dim : dims) tensor_bytes += 1 + varint_bytes(static_cast<uint64_t>(dim));
  const uint64_t value_bytes = field_bytes(name.size()) + field_bytes(tensor_bytes);
  std::string header;
  const auto field = [&](char key, uint64_t length) {
    header += key;
    append_varint(header, length);
  };
  field(kField1, value_bytes);
  field(kField1, name.size());
  header += name;
  field(kField2, tensor_bytes);
  for (const int64_t dim : dims) field(kDim, static_cast<uint64_t>(dim));
  field(kField2, type_name.size());
  header += type_name;
  field(kField3, content_bytes);
  return header;
}

void require_value_name(const std::string& name) {
  if (is_utf8(name)) return;
  throw InvalidArgument("checkpoint: the name of a value must be UTF-8, got {} bytes", name.size());
}

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

std::string with_ckpt_suffix(const std::string& path) { return path.ends_with(".ckpt") ? path : path + ".ckpt"; }

std::string ckpt_to_write(FileSystem& files, const std::string& path) {
  auto file = with_ckpt_suffix(path);
  for (const auto& name : {path, file}) {
    if (!name.ends_with('/') && !files.is_directory(name)) continue;
    throw InvalidArgument("{}: is a directory; a checkpoint needs the name of a file, such as {}", name,
                          join_path(name, "model.ckpt"));
  }
  return file;
}

CkptWriter::CkptWriter(WritableFile& file, const Options& options)
    : max_record_bytes_(options.max_record_bytes),
      records_(std::make_unique<RecordWriter>(
          file, RecordWriter::Options{.trailer = options.trailer, .max_record_bytes = options.max_record_bytes})) {}

CkptWriter::~CkptWriter() = default;

void CkptWriter::take_name(const std::string& name) {
  require_value_name(name);
  if (!names_.insert(name).second) throw InvalidArgument("checkpoint: the name \"{}\" occurs twice", name);
}

Written CkptWriter::add(const Entry& entry) {
  if (!entry.is_text) {
    const auto type = entry.value.type();
    const auto part = entry.part.value_or(GlobalBox{Box::whole(type.shape), type.shape});
    return add(entry.name, type, part, [&](Sink sink) { stream_row_major(entry.value, sink); });
  }
  take_name(entry.name);
  if (!is_utf8(entry.text)) throw InvalidArgument("checkpoint: the text \"{}\" is not UTF-8", entry.name);
  const auto codes = code_points(entry.text);
  const auto bytes = std::as_bytes(std::span(codes));
  if (std::ssize(bytes) > max_record_bytes_) {
    throw InvalidArgument("checkpoint: the text \"{}\" has {} bytes, at most {} fit", entry.name, bytes.size(),
                          max_record_bytes_);
  }
  constexpr int64_t kTextDims[] = {0};
  const uint32_t crc =
      records_->add({entry.name, "str", kTextDims, std::ssize(bytes)}, nullptr, [&](Sink sink) { sink(bytes); });
  return {.size_bytes = std::ssize(bytes), .crc32c = crc};
}

Written CkptWriter::add(const std::string& name, const Type& type, const GlobalBox& part,
                        FunctionRef<void(Sink)> produce) {
  take_name(name);
  check(part.box.shape == type.shape, "a part has the shape of its value");
  const int64_t total = type.size_bytes();
  if (total == 0) return {.hash = 0};
  BoxHash hash(part.box, part.global, static_cast<int64_t>(tessera::size_bytes(type.dtype)));
  const std::span dims(type.shape.begin(), type.shape.end());
  const uint32_t crc = records_->add({name, ckpt_type_name(type.dtype), dims, total}, &hash, produce);
  return {.size_bytes = total, .crc32c = crc, .hash = hash.sum()};
}

void CkptWriter::finish() { records_->finish(); }
int64_t CkptWriter::size_bytes() const { return records_->size_bytes(); }
uint32_t CkptWriter::crc32c() const { return records_->crc32c(); }

}  // namespace tessera::checkpoint
