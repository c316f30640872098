#include "tessera/checkpoint/format/ckpt_writer.h"

#include <bit>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/utf8.h"
#include "tessera/checkpoint/format/ckpt_record.h"
#include "tessera/checkpoint/format/element_hash.h"
#include "tessera/checkpoint/format/record_writer.h"

namespace tessera::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "contents are written as they lie in memory");

using Sink = CkptWriter::Sink;

// UTF-32 of well-formed UTF-8.
std::vector<uint32_t> code_points(std::string_view text) {
  std::vector<uint32_t> codes;
  while (!text.empty()) {
    const auto [num_bytes, code] = first_character(text);
    codes.push_back(code);
    text.remove_prefix(num_bytes);
  }
  return codes;
}

}  // namespace

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
    const auto part = entry.part.value_or(GlobalRegion{Region::whole(type.shape), type.shape});
    const auto& streamed = entry.streamed;
    if (streamed) check_equal(streamed->type().size_bytes(), type.size_bytes(), "bytes of a value that is streamed");
    return add(entry.name, type, part, [&](Sink sink) {
      streamed ? streamed->stream->read(streamed->region, sink) : stream_row_major(entry.value, sink);
    });
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

Written CkptWriter::add(const std::string& name, const Type& type, const GlobalRegion& part,
                        FunctionRef<void(Sink)> produce) {
  take_name(name);
  check(part.region.shape == type.shape, "a part has the shape of its value");
  const int64_t total = type.size_bytes();
  if (total == 0) return {.hash = 0};
  RegionHash hash(part.region, part.global, static_cast<int64_t>(tessera::size_bytes(type.dtype)));
  const std::span dims(type.shape.begin(), type.shape.end());
  const uint32_t crc = records_->add({name, ckpt_type_name(type.dtype), dims, total}, &hash, produce);
  return {.size_bytes = total, .crc32c = crc, .hash = hash.sum()};
}

void CkptWriter::finish() { records_->finish(); }
int64_t CkptWriter::size_bytes() const { return records_->size_bytes(); }
uint32_t CkptWriter::crc32c() const { return records_->crc32c(); }

}  // namespace tessera::checkpoint
