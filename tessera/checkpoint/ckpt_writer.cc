#include <algorithm>
#include <bit>
#include <cstring>

#include "tessera/base/crc32c.h"
#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/ckpt_file.h"
#include "tessera/checkpoint/ckpt_record.h"
#include "tessera/checkpoint/crc32.h"
#include "tessera/checkpoint/element_hash.h"
#include "tessera/checkpoint/wire.h"

namespace tessera::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "contents are written as they lie in memory");

// What one write hands to the system: large enough for full disk speed, small enough to stay in the cache between the
// two checksums and the write.
constexpr int64_t kChunkBytes = 1 << 20;
constexpr size_t kBufferBytes = 1 << 16;

using Sink = CkptWriter::Sink;

// Gives the elements row-major, in pieces of at most about kChunkBytes.
void stream_row_major(const TensorView& view, Sink sink) {
  const int64_t total = view.size_bytes();
  if (view.is_dense()) {
    const std::span bytes(static_cast<const std::byte*>(view.data), static_cast<size_t>(total));
    for (int64_t at = 0; at < total; at += kChunkBytes) {
      sink(bytes.subspan(static_cast<size_t>(at), static_cast<size_t>(std::min(kChunkBytes, total - at))));
    }
    return;
  }
  if (total <= kChunkBytes) {
    sink(Tensor::copy_of(view).bytes());
    return;
  }
  // Cut along the outermost dim; rows that are still too large are cut further.
  const int64_t rows = view.shape[0];
  const int64_t step = std::max<int64_t>(1, kChunkBytes / (total / rows));
  for (int64_t row = 0; row < rows; row += step) {
    TensorView part = view;
    part.data =
        static_cast<std::byte*>(view.data) + row * view.strides[0] * static_cast<int64_t>(size_bytes(view.dtype));
    part.shape[0] = std::min(step, rows - row);
    if (part.shape[0] == 1) {  // drop the dim, so that the next call cuts along the one below
      part.shape = Shape(std::span(view.shape.begin() + 1, view.shape.end()));
      part.strides = Strides(std::span(view.strides.begin() + 1, view.strides.end()));
    }
    stream_row_major(part, sink);
  }
}

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
  if (!name.empty() && is_utf8(name)) return;
  throw InvalidArgument("checkpoint: the name of a value must be UTF-8 and not empty, got {} bytes", name.size());
}

// Spreads one content over records of at most max_record_bytes.
struct CkptWriter::Splitter {
  CkptWriter& writer;
  std::string_view name;
  std::string_view type_name;
  std::span<const int64_t> dims;
  int64_t left;  // of the content
  int64_t left_in_record = 0;
  int64_t record_bytes = 0;
  uint32_t record_crc = 0;
  uint32_t crc = 0;  // of the complete records

  void next_record() {
    left_in_record = record_bytes = std::min(left, writer.options_.max_record_bytes);
    record_crc = 0;
    const auto header = record_header(name, type_name, dims, static_cast<uint64_t>(left_in_record));
    writer.put(std::as_bytes(std::span(header)));
  }
  // Each byte is looked at once: the file's checksum is put together from the records'.
  void feed(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (left_in_record == 0) next_record();
      const auto part = bytes.first(static_cast<size_t>(std::min<int64_t>(left_in_record, std::ssize(bytes))));
      record_crc = tessera::crc32c(part, record_crc);
      writer.put_unsummed(part);
      left_in_record -= std::ssize(part);
      if (left_in_record == 0) {
        const auto size = static_cast<uint64_t>(record_bytes);
        crc = crc32c_combine(crc, record_crc, size);
        writer.crc32c_ = crc32c_combine(writer.crc32c_, record_crc, size);
      }
      left -= std::ssize(part);
      bytes = bytes.subspan(part.size());
    }
  }
};

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

CkptWriter::CkptWriter(WritableFile& file, const Options& options) : file_(file), options_(options) {
  check(options.max_record_bytes > 0, "records must have room for content");
}

void CkptWriter::take_name(const std::string& name) {
  require_value_name(name);
  if (!names_.insert(name).second) throw InvalidArgument("checkpoint: the name \"{}\" occurs twice", name);
}

Written CkptWriter::add(const Entry& entry) {
  if (!entry.is_text) {
    const auto type = entry.value.type();
    const auto part = entry.part.value_or(Entry::Part{Box::whole(type.shape), type.shape});
    return add(entry.name, type, part, [&](Sink sink) { stream_row_major(entry.value, sink); });
  }
  take_name(entry.name);
  if (!is_utf8(entry.text)) throw InvalidArgument("checkpoint: the text \"{}\" is not UTF-8", entry.name);
  const auto codes = code_points(entry.text);
  const auto bytes = std::as_bytes(std::span(codes));
  if (std::ssize(bytes) > options_.max_record_bytes) {
    throw InvalidArgument("checkpoint: the text \"{}\" has {} bytes, at most {} fit", entry.name, bytes.size(),
                          options_.max_record_bytes);
  }
  constexpr int64_t kTextDims[] = {0};
  Splitter splitter{*this, entry.name, "str", kTextDims, std::ssize(bytes)};
  if (bytes.empty()) splitter.next_record();
  splitter.feed(bytes);
  return {.size_bytes = std::ssize(bytes), .crc32c = splitter.crc};
}

Written CkptWriter::add(const std::string& name, const Type& type, const Entry::Part& part,
                        FunctionRef<void(Sink)> produce) {
  take_name(name);
  check(part.box.shape == type.shape, "a part has the shape of its value");
  const int64_t total = type.size_bytes();
  if (total == 0) return {.hash = 0};
  BoxHash hash(part.box, part.global, static_cast<int64_t>(tessera::size_bytes(type.dtype)));
  Splitter splitter{*this, name, ckpt_type_name(type.dtype), std::span(type.shape.begin(), type.shape.end()), total};
  produce([&](std::span<const std::byte> bytes) {
    hash.add(bytes);
    splitter.feed(bytes);
  });
  check_equal(splitter.left, int64_t{0}, "bytes of a tensor not written");
  return {.size_bytes = total, .crc32c = splitter.crc, .hash = hash.sum()};
}

void CkptWriter::finish() {
  if (options_.trailer) {
    // "crc_num" and ten bytes, big-endian: the upper six of a CRC-32 are zero.
    const uint32_t crc = crc32_;
    std::string trailer = "crc_num";
    trailer.append(6, '\0');
    for (int shift = 24; shift >= 0; shift -= 8) trailer += static_cast<char>(crc >> shift);
    put(std::as_bytes(std::span(trailer)));
  }
  flush();
}

void CkptWriter::put(std::span<const std::byte> bytes) {
  crc32c_ = tessera::crc32c(bytes, crc32c_);
  put_unsummed(bytes);
}

void CkptWriter::put_unsummed(std::span<const std::byte> bytes) {
  if (options_.trailer) crc32_ = checkpoint::crc32(bytes, crc32_);
  size_bytes_ += std::ssize(bytes);
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes) {
    file_.append(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void CkptWriter::flush() {
  if (!buffer_.empty()) file_.append(std::span<const std::byte>(buffer_));
  buffer_.clear();
}

}  // namespace tessera::checkpoint
