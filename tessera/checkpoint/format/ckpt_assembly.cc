#include "tessera/checkpoint/format/ckpt_assembly.h"

#include <algorithm>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/checkpoint/format/ckpt_record.h"

namespace tessera::checkpoint {
namespace {

// Below this a header is copied in front of the content: one system call is cheaper than two.
constexpr size_t kSmallBytes = 1 << 16;

}  // namespace

CkptAssembly::CkptAssembly(WritableFile& file, std::vector<Value> values, int64_t max_record_bytes)
    : file_(file), max_record_bytes_(max_record_bytes) {
  std::unordered_set<std::string> names;
  for (auto& value : values) {
    require_value_name(value.name);
    if (!names.insert(value.name).second) {
      throw InvalidArgument("checkpoint: the name \"{}\" occurs twice", value.name);
    }
    OpenValue place{.offset = size_bytes_, .size_bytes = value.size_bytes, .left = value.size_bytes};
    if (value.has_record) {
      int64_t left = value.size_bytes;
      do {
        const int64_t record = std::min(left, max_record_bytes_);
        size_bytes_ += std::ssize(header_of(value, record)) + record;
        left -= record;
      } while (left > 0);
    }
    place.value = std::move(value);
    places_.push_back(std::move(place));
  }
}

std::string CkptAssembly::header_of(const Value& value, int64_t record_bytes) const {
  return record_header(value.name, value.type_name, std::span(value.dims.begin(), value.dims.end()),
                       static_cast<uint64_t>(record_bytes));
}

std::string CkptAssembly::next_header(OpenValue& place) const {
  place.record_bytes = place.left_in_record = std::min(place.left, max_record_bytes_);
  place.record_crc = 0;
  auto header = header_of(place.value, place.record_bytes);
  place.file_crc = tessera::crc32c(std::as_bytes(std::span(header)), place.file_crc);
  place.file_bytes += std::ssize(header);
  return header;
}

void CkptAssembly::write(size_t value, std::span<const std::byte> bytes) {
  auto& place = places_[value];
  check(std::ssize(bytes) <= place.left, "more bytes of a value than it has");
  const bool has_begun = place.file_bytes > 0;
  if (!place.value.has_record || (place.left == 0 && has_begun)) return;
  do {
    std::string header;
    if (place.left_in_record == 0) header = next_header(place);
    const auto part = bytes.first(static_cast<size_t>(std::min(place.left_in_record, std::ssize(bytes))));
    if (part.size() <= kSmallBytes && !header.empty()) {
      header.append(reinterpret_cast<const char*>(part.data()), part.size());
      file_.write_at(place.offset, std::as_bytes(std::span(header)));
      place.offset += std::ssize(header);
    } else {
      if (!header.empty()) file_.write_at(place.offset, std::as_bytes(std::span(header)));
      place.offset += std::ssize(header);
      file_.write_at(place.offset, part);
      place.offset += std::ssize(part);
    }
    place.record_crc = tessera::crc32c(part, place.record_crc);
    place.left_in_record -= std::ssize(part);
    place.left -= std::ssize(part);
    if (place.left_in_record == 0) {
      const auto size = static_cast<uint64_t>(place.record_bytes);
      place.crc32c = crc32c_combine(place.crc32c, place.record_crc, size);
      place.file_crc = crc32c_combine(place.file_crc, place.record_crc, size);
      place.file_bytes += place.record_bytes;
    }
    bytes = bytes.subspan(part.size());
  } while (!bytes.empty());
}

uint32_t CkptAssembly::crc32c() const {
  uint32_t crc = 0;
  for (const auto& place : places_) {
    check_equal(place.left, int64_t{0}, "bytes of a value not written");
    crc = crc32c_combine(crc, place.file_crc, static_cast<uint64_t>(place.file_bytes));
  }
  return crc;
}

}  // namespace tessera::checkpoint
