#include "tessera/checkpoint/format/ckpt_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/base/utf8.h"
#include "tessera/checkpoint/format/crc32.h"
#include "tessera/checkpoint/format/encryption.h"
#include "tessera/checkpoint/threads/copy_views.h"
#include "tessera/tensor/dlpack/truths.h"

namespace tessera::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "contents are copied as they lie in memory");

// Bounds on what a file may claim. A record takes at least ten bytes, so a file of hostile records costs no more than a
// small multiple of its size, and no more than this many entries.
constexpr size_t kMaxEntries = size_t{1} << 20;
constexpr uint64_t kMaxNameBytes = 1 << 16;
constexpr uint64_t kMaxTypeNameBytes = 64;

// What is read of a file around a record's header at first. As long as the next header lies in what was read, or just
// behind it, twice as much is read the next time: of small tensors many in one go, of large ones the headers only.
constexpr int64_t kMinFetchBytes = 8 << 10;
constexpr int64_t kMaxFetchBytes = 1 << 20;

// Each header that is looked at brings the pages around it into memory, some 64 KiB.
constexpr size_t kEntriesPerRelease = 64;

constexpr std::string_view kTrailerMark = "crc_num";
constexpr size_t kTrailerBytes = kTrailerMark.size() + 10;

// One Value message as it stands in the file.
struct Record {
  size_t offset = 0;
  std::string_view name;
  std::string_view type_name;
  std::array<int64_t, kMaxNdim> dims{};
  size_t num_dims = 0;
  std::span<const std::byte> content;
};

void read_dim(WireCursor& cursor, Record& record) {
  const size_t start = cursor.offset();
  const auto dim = static_cast<int64_t>(cursor.varint("a dim"));
  if (dim < 0) {
    cursor.fail(start, "tensor {}: dim {} is {}, it must not be negative", quoted_name(record.name), record.num_dims,
                dim);
  }
  if (record.num_dims == kMaxNdim) {
    cursor.fail(start, "tensor {} has more than {} dims", quoted_name(record.name), kMaxNdim);
  }
  record.dims[record.num_dims++] = dim;
}

void read_tensor(WireCursor cursor, Record& record) {
  const size_t start = cursor.offset();
  bool has_type = false;
  bool has_content = false;
  while (!cursor.done()) {
    const size_t at = cursor.offset();
    const auto [field, wire_type] = cursor.key();
    if (field == 1 && wire_type == kVarint) {
      read_dim(cursor, record);
    } else if (field == 1 && wire_type == kLengthDelimited) {  // packed: legal for a reader, written by nobody
      for (WireCursor packed = cursor.message("dims"); !packed.done();) read_dim(packed, record);
    } else if (field == 2 && wire_type == kLengthDelimited && !has_type) {
      const auto text = cursor.message("tensor_type").rest();
      if (text.size() > kMaxTypeNameBytes)
        cursor.fail(at, "tensor {}: tensor_type has {} bytes", quoted_name(record.name), text.size());
      record.type_name = as_text(text);
      has_type = true;
    } else if (field == 3 && wire_type == kLengthDelimited && !has_content) {
      record.content = cursor.message("tensor_content").rest();
      has_content = true;
    } else if (field >= 1 && field <= 3) {
      cursor.fail(at, "tensor {}: field {} is repeated or has wire type {}", quoted_name(record.name), field,
                  wire_type);
    } else {
      cursor.skip(wire_type);
    }
  }
  if (!has_type) cursor.fail(start, "tensor {} has no tensor_type", quoted_name(record.name));
  if (!has_content) cursor.fail(start, "tensor {} has no tensor_content", quoted_name(record.name));
}

Record read_value(WireCursor cursor, size_t offset) {
  Record record;
  record.offset = offset;
  bool has_name = false;
  std::optional<WireCursor> tensor;
  while (!cursor.done()) {
    const size_t at = cursor.offset();
    const auto [field, wire_type] = cursor.key();
    if (field == 1 && wire_type == kLengthDelimited && !has_name) {
      const auto name = cursor.message("a name").rest();
      if (name.size() > kMaxNameBytes) cursor.fail(at, "a name of {} bytes", name.size());
      record.name = as_text(name);
      if (!is_utf8(record.name)) cursor.fail(at, "a name is not UTF-8");
      has_name = true;
    } else if (field == 2 && wire_type == kLengthDelimited && !tensor) {
      tensor.emplace(cursor.message("a tensor"));
    } else if (field == 3) {
      cursor.fail(at, "value {} is a map tensor; map tensors are not available", quoted_name(record.name));
    } else if (field == 1 || field == 2) {
      cursor.fail(at, "field {} of a value is repeated or has wire type {}", field, wire_type);
    } else {
      cursor.skip(wire_type);
    }
  }
  if (!has_name) cursor.fail(offset, "a value has no name");
  if (!tensor) cursor.fail(offset, "value {} has no tensor", quoted_name(record.name));
  read_tensor(*tensor, record);
  return record;
}

// Reads a file's headers ahead of who looks at them in order.
class HeaderFetch {
 public:
  explicit HeaderFetch(const ReadableFile& file) : file_(file) {}

  void come_to(size_t header) {
    const auto begin = static_cast<int64_t>(header);
    if (begin + kMinFetchBytes / 2 <= end_) return;
    bytes_ = begin <= end_ + bytes_ ? std::min(2 * bytes_, kMaxFetchBytes) : kMinFetchBytes;
    end_ = begin + bytes_;
    file_.fetch(begin, bytes_);
  }

 private:
  const ReadableFile& file_;
  int64_t bytes_ = kMinFetchBytes / 2;
  int64_t end_ = 0;
};

uint32_t code_point(std::span<const std::byte> content, size_t index) {
  uint32_t code = 0;
  std::memcpy(&code, content.data() + index * 4, 4);
  return code;
}

StoredEntry text_entry(const WireCursor& cursor, const Record& record) {
  if (record.content.size() % 4 != 0) {
    cursor.fail(record.offset, "text {} has {} bytes, no multiple of 4 (UTF-32)", quoted_name(record.name),
                record.content.size());
  }
  for (size_t i = 0; i < record.content.size() / 4; ++i) {
    const uint32_t code = code_point(record.content, i);
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      cursor.fail(record.offset, "text {}: character {} is {:#x}, no code point", quoted_name(record.name), i, code);
    }
  }
  return {.name = std::string(record.name),
          .is_text = true,
          .size_bytes = static_cast<int64_t>(record.content.size()),
          .offset = static_cast<int64_t>(record.offset),
          .pieces = {record.content}};
}

std::optional<DType> dtype_named(std::string_view type_name) {
  try {
    return parse_dtype(type_name);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

StoredEntry tensor_entry(const WireCursor& cursor, const Record& record) {
  StoredEntry entry{.name = std::string(record.name), .offset = static_cast<int64_t>(record.offset)};
  const auto dtype = dtype_named(record.type_name);
  if (!dtype) {
    cursor.fail(record.offset, "tensor {} has the unknown dtype {}", quoted_name(record.name),
                quoted_name(record.type_name));
  }
  entry.dtype = *dtype;
  entry.shape = Shape(std::span(record.dims.data(), record.num_dims));
  const auto element_bytes = static_cast<int64_t>(size_bytes(entry.dtype));
  // Releases before 2.x wrote a scalar with the one dim 0.
  const bool old_scalar = entry.shape == Shape{0} && static_cast<int64_t>(record.content.size()) == element_bytes;
  if (old_scalar) entry.shape = Shape{};
  int64_t bytes = element_bytes;
  bool overflow = false;
  for (const int64_t dim : entry.shape) overflow |= __builtin_mul_overflow(bytes, std::max<int64_t>(dim, 1), &bytes);
  if (overflow) {
    cursor.fail(record.offset, "tensor {}: dims {} have more bytes than an int64 counts", quoted_name(record.name),
                entry.shape);
  }
  entry.size_bytes = entry.shape.num_elements() * element_bytes;
  return entry;
}

// Adds a record's content to its entry, of which `missing_bytes` had not come yet.
void append_piece(const WireCursor& cursor, const Record& record, StoredEntry& entry, int64_t& missing_bytes) {
  const auto bytes = static_cast<int64_t>(record.content.size());
  if (bytes > missing_bytes) {
    cursor.fail(record.offset, "tensor {} {} needs {} bytes, the file has {}", quoted_name(record.name), entry.type(),
                entry.size_bytes, entry.size_bytes - missing_bytes + bytes);
  }
  if (bytes > 0) entry.pieces.push_back(record.content);
  missing_bytes -= bytes;
}

void check_trailer(const WireCursor& cursor, std::span<const std::byte> covered) {
  const auto number = cursor.rest().subspan(kTrailerMark.size());
  uint64_t stored = 0;  // ten bytes, big-endian; more than 64 bits cannot match either
  bool too_large = false;
  for (const std::byte byte : number) {
    too_large |= stored >> 56 != 0;
    stored = stored << 8 | static_cast<uint64_t>(byte);
  }
  const uint32_t computed = crc32(covered);
  if (too_large || stored != computed) {
    cursor.fail(cursor.offset(), "the checksum trailer says {:#010x}, the content has {:#010x}: the file is damaged",
                stored, computed);
  }
}

void refuse_encrypted(const std::string& path, std::span<const std::byte> bytes) {
  if (const auto mode = encryption_mode_of(bytes)) {
    throw InvalidArgument("{}: is encrypted ({}); its key is needed to read it", path, *mode);
  }
}

bool same_tensor(const Record& record, const StoredEntry& entry) {
  if (entry.name != record.name) return false;
  if (!std::equal(entry.shape.begin(), entry.shape.end(), record.dims.begin(), record.dims.begin() + record.num_dims)) {
    return false;
  }
  return dtype_named(record.type_name) == entry.dtype;
}

}  // namespace

CkptFile CkptFile::open(FileSystem& files, const std::string& path) { return {files.open(path), path}; }

CkptFile::CkptFile(std::unique_ptr<ReadableFile> file, std::string path)
    : file_(std::move(file)), path_(std::move(path)), guard_(std::make_shared<MappedGuard>(file_->bytes(), path_)) {
  try {
    file_->expect_far_places(true);
    parse();
    file_->expect_far_places(false);
  } catch (const InvalidArgument&) {
    guard_->require_whole();  // zeros where the file was cut short are no fault of the file's
    throw;
  }
  guard_->require_whole();
  for (auto& entry : entries_) entry.guard = guard_;
}

void CkptFile::parse() {
  const auto bytes = file_->bytes();
  if (bytes.empty()) throw InvalidArgument("{}: is empty, it must hold a checkpoint", path_);
  refuse_encrypted(path_, bytes);
  std::unordered_set<std::string_view> names;  // views into the mapped file
  WireCursor cursor(path_, bytes, 0);
  HeaderFetch fetch(*file_);
  int64_t missing_bytes = 0;  // of the last entry, when more records must follow
  const auto require_complete = [&] {
    if (missing_bytes == 0) return;
    const auto& entry = entries_.back();
    cursor.fail(static_cast<size_t>(entry.offset), "tensor {} {} needs {} bytes, the file has {}",
                quoted_name(entry.name), entry.type(), entry.size_bytes, entry.size_bytes - missing_bytes);
  };
  while (!cursor.done()) {
    const size_t offset = cursor.offset();
    fetch.come_to(offset);
    if (entries_.size() % kEntriesPerRelease == kEntriesPerRelease - 1) file_->release_pages();
    if (cursor.remaining() == kTrailerBytes && as_text(cursor.rest()).starts_with(kTrailerMark)) {
      file_->expect_far_places(false);
      check_trailer(cursor, bytes.first(offset));
      has_trailer_ = true;
      break;
    }
    const auto [field, wire_type] = cursor.key();
    if (field != 1 || wire_type != kLengthDelimited) {
      cursor.fail(offset, "field {} of wire type {} where a value must begin: not a .ckpt file, or damaged", field,
                  wire_type);
    }
    const Record record = read_value(cursor.message("a value"), offset);
    const bool is_text = record.type_name == "str";
    if (missing_bytes > 0 && !is_text && same_tensor(record, entries_.back())) {
      append_piece(cursor, record, entries_.back(), missing_bytes);
      continue;
    }
    require_complete();
    if (!names.insert(record.name).second) cursor.fail(offset, "the name {} occurs twice", quoted_name(record.name));
    if (entries_.size() == kMaxEntries) cursor.fail(offset, "more than {} values", kMaxEntries);
    if (is_text) {
      file_->fetch(record.content.data() - bytes.data(), std::ssize(record.content));
      entries_.push_back(text_entry(cursor, record));
    } else {
      entries_.push_back(tensor_entry(cursor, record));
      missing_bytes = entries_.back().size_bytes;
      append_piece(cursor, record, entries_.back(), missing_bytes);
    }
  }
  require_complete();
}

Tensor StoredEntry::read() const {
  if (is_text) throw InvalidArgument("{}: is a text, not a tensor", name);
  Tensor tensor(type());
  read_into(tensor.view());
  return tensor;
}

void StoredEntry::read_into(const TensorView& to) const {
  if (is_text) throw InvalidArgument("{}: is a text, not a tensor", name);
  if (to.shape != shape) throw InvalidArgument("{}: shape {} in the checkpoint, {} wanted", name, shape, to.shape);
  if (to.dtype != dtype || !to.is_dense()) {
    copy_elements(read().view(), to);
    return;
  }
  auto* at = static_cast<std::byte*>(to.data);
  std::vector<ViewCopy> copies;
  for (const auto piece : pieces) {
    if (dtype == DType::kBool) {
      std::copy(piece.begin(), piece.end(), at);
      make_truths({at, piece.size()});
    } else {
      const Type bytes{DType::kU8, {std::ssize(piece)}};
      copies.push_back({{const_cast<std::byte*>(piece.data()), bytes}, {at, bytes}});
    }
    at += piece.size();
  }
  copy_views(copies);
  if (guard) guard->require_whole();
}

std::string StoredEntry::read_text() const {
  if (!is_text) throw InvalidArgument("{}: is a tensor {}, not a text", name, type());
  std::string text;
  for (const auto piece : pieces) {
    for (size_t i = 0; i < piece.size() / 4; ++i) {
      const uint32_t code = code_point(piece, i);
      const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
      if (code < 0x80) {
        text += static_cast<char>(code);
      } else if (code < 0x800) {
        text += static_cast<char>(0xC0 | code >> 6);
        tail(0);
      } else if (code < 0x10000) {
        text += static_cast<char>(0xE0 | code >> 12);
        tail(6), tail(0);
      } else {
        text += static_cast<char>(0xF0 | code >> 18);
        tail(12), tail(6), tail(0);
      }
    }
  }
  if (guard) guard->require_whole();
  return text;
}

uint32_t StoredEntry::crc32c() const {
  uint32_t crc = 0;
  for (const auto piece : pieces) crc = tessera::crc32c(piece, crc);
  if (guard) guard->require_whole();
  return crc;
}

}  // namespace tessera::checkpoint
