#include "tessera/checkpoint/threads/copy_views.h"

#include <algorithm>
#include <vector>

#include "tessera/base/workers/in_threads.h"

namespace tessera::checkpoint {
namespace {

// Small enough that threads finish together, large enough that a piece is worth taking.
constexpr int64_t kPieceBytes = 4 << 20;

bool is_plain(const ViewCopy& copy) {
  return copy.from.dtype == copy.to.dtype && copy.from.is_dense() && copy.to.is_dense();
}

// Dense elements as a row of bytes.
TensorView bytes_of(const TensorView& view, int64_t begin, int64_t size) {
  return {static_cast<std::byte*>(view.data) + begin, Type{DType::kU8, {size}}};
}

}  // namespace

std::vector<ViewCopy> cut_copies(std::span<const ViewCopy> copies, int64_t piece_bytes) {
  std::vector<ViewCopy> pieces;
  for (const auto& copy : copies) {
    const int64_t size = copy.from.size_bytes();
    if (!is_plain(copy) || copy.from.shape != copy.to.shape) {
      pieces.push_back(copy);
      continue;
    }
    for (int64_t begin = 0; begin < size; begin += piece_bytes) {
      const int64_t piece = std::min(piece_bytes, size - begin);
      pieces.push_back({bytes_of(copy.from, begin, piece), bytes_of(copy.to, begin, piece)});
    }
  }
  return pieces;
}

void copy_views(std::span<const ViewCopy> copies) {
  int64_t total = 0;
  for (const auto& copy : copies) total += copy.from.size_bytes();
  const auto pieces = cut_copies(copies, kPieceBytes);
  for_each_in_threads(threads_for(total), pieces.size(),
                      [&](size_t i) { copy_elements(pieces[i].from, pieces[i].to); });
}

}  // namespace tessera::checkpoint
