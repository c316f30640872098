#include "tessera/checkpoint/format/record_writer.h"

#include <algorithm>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/checkpoint/format/ckpt_record.h"
#include "tessera/checkpoint/format/crc32.h"

namespace tessera::checkpoint {
namespace {

// What one write hands to the system: large enough for full disk speed, small enough that what is written and summed at
// the same time comes out of memory once.
constexpr int64_t kChunkBytes = 1 << 20;
constexpr size_t kBufferBytes = 1 << 16;

// What is written of one record at a time: its header, where it begins here, and content.
struct Part {
  std::string header;
  std::span<const std::byte> content;
  bool ends_record = false;
};

}  // namespace

void stream_row_major(const TensorView& view, CkptWriter::Sink sink) {
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

// One content on its way into records of at most max_record_bytes.
class RecordWriter::Content {
 public:
  Content(RecordWriter& writer, const Value& value, RegionHash* hash)
      : writer_(writer), value_(value), hash_(hash), left_(value.size_bytes) {}

  void add(std::span<const std::byte> bytes) {
    check(std::ssize(bytes) <= left_, "more bytes of a value than it has");
    const auto parts = split(bytes);
    const auto write = [&] {
      for (const auto& part : parts) {
        writer_.put(std::as_bytes(std::span(part.header)));
        writer_.put(part.content);
      }
    };
    const auto sum = [&] {
      for (const auto& part : parts) add_to_sums(part);
      if (hash_ != nullptr) hash_->add(bytes);
    };
    if (bytes.size() > kBufferBytes) return writer_.worker_.run_both(write, sum);
    sum();
    write();
  }
  uint32_t finish() const {
    check_equal(left_, int64_t{0}, "bytes of a value not written");
    return crc_;
  }

 private:
  std::vector<Part> split(std::span<const std::byte> bytes) {
    std::vector<Part> parts;
    do {
      auto& part = parts.emplace_back();
      if (left_in_record_ == 0) {
        left_in_record_ = std::min(left_, writer_.options_.max_record_bytes);
        part.header = record_header(value_.name, value_.type_name, value_.dims, static_cast<uint64_t>(left_in_record_));
      }
      part.content = bytes.first(static_cast<size_t>(std::min<int64_t>(left_in_record_, std::ssize(bytes))));
      left_in_record_ -= std::ssize(part.content);
      left_ -= std::ssize(part.content);
      part.ends_record = left_in_record_ == 0;
      bytes = bytes.subspan(part.content.size());
    } while (!bytes.empty());
    return parts;
  }

  // Each byte is looked at once: the file's checksum is put together from the records'.
  void add_to_sums(const Part& part) {
    writer_.add_to_sums(std::as_bytes(std::span(part.header)));
    if (writer_.options_.trailer) writer_.crc32_ = checkpoint::crc32(part.content, writer_.crc32_);
    if (!writer_.options_.checksums) return;
    record_crc_ = tessera::crc32c(part.content, record_crc_);
    record_bytes_ += part.content.size();
    if (!part.ends_record) return;
    crc_ = crc32c_combine(crc_, record_crc_, record_bytes_);
    writer_.crc32c_ = crc32c_combine(writer_.crc32c_, record_crc_, record_bytes_);
    record_crc_ = 0;
    record_bytes_ = 0;
  }

  RecordWriter& writer_;
  const Value& value_;
  RegionHash* hash_;
  int64_t left_;  // of the content
  int64_t left_in_record_ = 0;
  uint32_t record_crc_ = 0;
  uint64_t record_bytes_ = 0;
  uint32_t crc_ = 0;  // of the complete records
};

RecordWriter::RecordWriter(WritableFile& file, const Options& options) : file_(file), options_(options) {
  check(options.max_record_bytes > 0, "records must have room for content");
}

uint32_t RecordWriter::add(const Value& value, RegionHash* hash, FunctionRef<void(CkptWriter::Sink)> produce) {
  Content content(*this, value, hash);
  if (value.size_bytes == 0) content.add({});
  produce([&](std::span<const std::byte> bytes) {
    if (!bytes.empty()) content.add(bytes);
  });
  return content.finish();
}

void RecordWriter::finish() {
  if (options_.trailer) {
    // "crc_num" and ten bytes, big-endian: the upper six of a CRC-32 are zero.
    const uint32_t crc = crc32_;
    std::string trailer = "crc_num";
    trailer.append(6, '\0');
    for (int shift = 24; shift >= 0; shift -= 8) trailer += static_cast<char>(crc >> shift);
    add_to_sums(std::as_bytes(std::span(trailer)));
    put(std::as_bytes(std::span(trailer)));
  }
  flush();
}

void RecordWriter::add_to_sums(std::span<const std::byte> bytes) {
  if (options_.checksums) crc32c_ = tessera::crc32c(bytes, crc32c_);
  if (options_.trailer) crc32_ = checkpoint::crc32(bytes, crc32_);
}

void RecordWriter::put(std::span<const std::byte> bytes) {
  size_bytes_ += std::ssize(bytes);
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes) {
    file_.append(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void RecordWriter::flush() {
  if (!buffer_.empty()) file_.append(std::span<const std::byte>(buffer_));
  buffer_.clear();
}

}  // namespace tessera::checkpoint
