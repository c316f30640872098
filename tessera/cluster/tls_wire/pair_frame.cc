#include "tessera/cluster/tls_wire/pair_frame.h"

#include <bit>
#include <cstring>

namespace tessera::cluster {

static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(FrameHeader) == kFrameHeaderBytes);

void print_frame_header(const FrameHeader& header, std::byte* text) { std::memcpy(text, &header, kFrameHeaderBytes); }

FrameHeader parse_frame_header(const std::byte* text) {
  FrameHeader header;
  std::memcpy(&header, text, kFrameHeaderBytes);
  return header;
}

}  // namespace tessera::cluster
