#include "tessera/checkpoint/threads/crc_sum.h"

#include <algorithm>
#include <vector>

#include "tessera/base/files/crc32c.h"
#include "tessera/base/workers/in_threads.h"

namespace tessera::checkpoint {

uint32_t crc32c_in_threads(std::span<const std::byte> bytes) {
  constexpr size_t kPieceBytes = 16 << 20;  // long stretches, which the system reads ahead of a thread
  std::vector<std::span<const std::byte>> pieces;
  for (auto left = bytes; !left.empty(); left = left.subspan(pieces.back().size())) {
    pieces.push_back(left.first(std::min(kPieceBytes, left.size())));
  }
  std::vector<uint32_t> sums(pieces.size());
  for_each_in_threads(threads_for(std::ssize(bytes)), pieces.size(),
                      [&](size_t i) { sums[i] = tessera::crc32c(pieces[i]); });
  uint32_t crc = 0;
  for (size_t i = 0; i < pieces.size(); ++i) crc = crc32c_combine(crc, sums[i], pieces[i].size());
  return crc;
}

uint32_t crc32c_of_file(const RangeReader& file, int64_t size_bytes) {
  constexpr int64_t kPieceBytes = 1 << 20;
  const int64_t num_pieces = (size_bytes + kPieceBytes - 1) / kPieceBytes;
  const auto size_of = [&](int64_t i) { return std::min(kPieceBytes, size_bytes - i * kPieceBytes); };
  std::vector<uint32_t> sums(static_cast<size_t>(num_pieces));
  std::vector<std::vector<std::byte>> pieces(kReadsInFlight);
  for_each_in_threads(kReadsInFlight, sums.size(), [&](const ThreadTurn& turn) {
    const auto i = static_cast<int64_t>(turn.i);
    auto& piece = pieces[turn.thread];
    piece.resize(static_cast<size_t>(size_of(i)));
    file.read(i * kPieceBytes, piece);
    sums[turn.i] = tessera::crc32c(piece);
  });
  uint32_t crc = 0;
  for (int64_t i = 0; i < num_pieces; ++i) {
    crc = crc32c_combine(crc, sums[static_cast<size_t>(i)], static_cast<uint64_t>(size_of(i)));
  }
  return crc;
}

void CrcSum::add(std::span<const std::byte> bytes, int64_t offset, int64_t size_bytes) {
  const int64_t num_after = size_bytes - offset - std::ssize(bytes);
  add({std::ssize(bytes), crc32c_combine(tessera::crc32c(bytes), 0, static_cast<uint64_t>(num_after))});
}

void CrcSum::add(const CrcSum& other) {
  crc32c_ ^= other.crc32c_;
  num_bytes_ += other.num_bytes_;
}

}  // namespace tessera::checkpoint
