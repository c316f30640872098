#include "tessera/ops/rules/member_pieces.h"

namespace tessera::ops {

Ints member_sizes(const Attributes& attributes, int64_t whole) {
  if (attributes.has("sizes") && !attributes.get_ints("sizes").empty()) return attributes.get_ints("sizes");
  const auto n = static_cast<int64_t>(attributes.get_ints("ranks").size());
  return Ints(static_cast<size_t>(n), whole / n);
}

mesh::Box slab(const Shape& shape, int dim, int64_t offset, int64_t size) {
  mesh::Box box;
  for (const int64_t whole : shape) box.push_back({0, whole});
  box[static_cast<size_t>(dim)] = {offset, size};
  return box;
}

TensorView slab(const TensorView& view, int dim, int64_t offset, int64_t size) {
  TensorView result = view;
  result.data =
      static_cast<std::byte*>(view.data) + offset * view.strides[dim] * static_cast<int64_t>(size_bytes(view.dtype));
  result.shape[dim] = size;
  return result;
}

std::vector<mesh::Box> slabs(const Shape& shape, int dim, const Ints& sizes) {
  std::vector<mesh::Box> boxes;
  int64_t offset = 0;
  for (const int64_t size : sizes) {
    boxes.push_back(slab(shape, dim, offset, size));
    offset += size;
  }
  return boxes;
}

std::vector<mesh::Box> nothings(int64_t group_size) {
  return std::vector<mesh::Box>(static_cast<size_t>(group_size), mesh::Box{{0, 0}});
}

std::vector<mesh::Box> wholes(const Shape& shape, int64_t group_size) {
  mesh::Box whole;
  for (const int64_t size : shape) whole.push_back({0, size});
  return std::vector<mesh::Box>(static_cast<size_t>(group_size), whole);
}

MemberPieces cut(const TensorView& whole, int dim, const Ints& sizes, void* staging) {
  MemberPieces pieces;
  auto* at = static_cast<std::byte*>(staging);
  int64_t offset = 0;
  for (const int64_t size : sizes) {
    pieces.strided.push_back(slab(whole, dim, offset, size));
    pieces.blocks.emplace_back(at, pieces.strided.back().type());
    pieces.counts.push_back(pieces.strided.back().num_elements());
    at += pieces.blocks.back().size_bytes();
    offset += size;
  }
  return pieces;
}

MemberPieces cut_packed(std::span<const TensorView> wholes, const Attributes& call, int group_size, void* staging) {
  const Ints& dims = call.get_ints("dims");
  const Ints& sizes = call.get_ints("sizes");
  MemberPieces pieces;
  pieces.counts.resize(static_cast<size_t>(group_size));
  std::vector<int64_t> offsets(wholes.size());
  auto* at = static_cast<std::byte*>(staging);
  for (size_t rank = 0; rank < pieces.counts.size(); ++rank) {
    for (size_t value = 0; value < wholes.size(); ++value) {
      const int64_t size = sizes[value * pieces.counts.size() + rank];
      pieces.strided.push_back(slab(wholes[value], static_cast<int>(dims[value]), offsets[value], size));
      pieces.blocks.emplace_back(at, pieces.strided.back().type());
      pieces.counts[rank] += pieces.blocks.back().num_elements();
      at += pieces.blocks.back().size_bytes();
      offsets[value] += size;
    }
  }
  return pieces;
}

MemberPieces cut_boxes(const TensorView& whole, const std::vector<mesh::Box>& boxes, int own, void* staging) {
  MemberPieces pieces;
  auto* at = static_cast<std::byte*>(staging);
  for (size_t rank = 0; rank < boxes.size(); ++rank) {
    const bool stays = static_cast<int>(rank) == own;
    pieces.counts.push_back(stays ? 0 : mesh::num_elements(boxes[rank]));
    if (pieces.counts.back() == 0) continue;
    pieces.strided.push_back(mesh::piece_of(whole, boxes[rank]));
    pieces.blocks.emplace_back(at, pieces.strided.back().type());
    at += pieces.blocks.back().size_bytes();
  }
  return pieces;
}

int64_t piece_bytes(const Type& whole, int dim, int64_t part) {
  int64_t elements = part;
  for (int d = dim + 1; d < whole.shape.ndim(); ++d) elements *= whole.shape[d];
  return elements * static_cast<int64_t>(size_bytes(whole.dtype));
}

Packed packed_along(const Type& whole, int64_t dim, int64_t group_size) {
  const auto at = static_cast<int>(dim);
  const int64_t part = (whole.shape[at] + group_size - 1) / group_size;
  return {whole.size_bytes(), piece_bytes(whole, at, part)};
}

std::vector<Packed> packed_boxes(const Type& whole, const std::vector<mesh::Box>& boxes) {
  std::vector<Packed> packed;
  for (const auto& box : boxes) {
    const int64_t elements = mesh::num_elements(box);
    if (elements == 0) continue;
    // Whole dims lie together with the first, from the last on, that is cut.
    int64_t together = 1;
    for (int d = whole.shape.ndim() - 1; d >= 0; --d) {
      const int64_t size = box[static_cast<size_t>(d)].size;
      together *= size;
      if (size != whole.shape[d]) break;
    }
    const auto element_bytes = static_cast<int64_t>(size_bytes(whole.dtype));
    packed.push_back({elements * element_bytes, together * element_bytes});
  }
  return packed;
}

}  // namespace tessera::ops
