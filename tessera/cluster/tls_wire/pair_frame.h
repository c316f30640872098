// Two ranks send each other frames, within TLS. Each begins with a header of 24 bytes, little-endian:
//     u32 kind   u32 tag   u64 bytes   u64 total
// A small message is sent as it is, within the credit that the receiver has given. A large one waits for `kReady`: its
// bytes go straight into the memory that waits for them. So a rank never keeps more than it has promised, and a
// message that nobody receives yet stands in nobody's way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::cluster {

inline constexpr size_t kFrameHeaderBytes = 24;
// Up to here a message is sent without being asked for.
inline constexpr int64_t kEagerBytes = int64_t{64} << 10;
// What a rank keeps of another one's small messages at most, and what each costs beside its bytes.
inline constexpr int64_t kCreditBytes = int64_t{512} << 10;
inline constexpr int64_t kMessageCost = 64;
// Of a large message that are sent at a time: other tags have their turn then.
inline constexpr int64_t kChunkBytes = int64_t{1} << 20;

enum class PairFrameKind : uint32_t {
  kEager = 1,    // a whole message of `bytes` follows
  kData = 2,     // the next `bytes` of a message of `total` follow
  kReady = 3,    // one more receive of this tag waits for kData
  kRequest = 4,  // a small message of `bytes` waits for kReady, for want of credit
  kCredit = 5,   // `bytes` of credit are given back
};

struct FrameHeader {
  PairFrameKind kind = PairFrameKind::kEager;
  uint32_t tag = 0;
  uint64_t bytes = 0;
  uint64_t total = 0;
};

// Both have kFrameHeaderBytes.
void print_frame_header(const FrameHeader& header, std::byte* text);
FrameHeader parse_frame_header(const std::byte* text);

}  // namespace tessera::cluster
