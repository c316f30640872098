#include "tessera/checkpoint/format/element_stream.h"

#include <cstring>

#include "tessera/base/error.h"

namespace tessera::checkpoint {

void read_to(const StreamedRegion& from, const TensorView& to) {
  check(to.type() == from.type(), "a value is read to memory that is not like it");
  if (from.region.is_empty()) return;
  if (!to.is_dense()) {
    const Tensor dense(to.type());
    read_to(from, dense.view());
    return copy_elements(dense.view(), to);
  }
  auto* at = static_cast<std::byte*>(to.data);
  from.stream->read(from.region, [&](std::span<const std::byte> piece) {
    std::memcpy(at, piece.data(), piece.size());
    at += piece.size();
  });
  check_equal(at - static_cast<std::byte*>(to.data), std::ptrdiff_t{to.size_bytes()},
              "bytes of a value that were read");
}

}  // namespace tessera::checkpoint
