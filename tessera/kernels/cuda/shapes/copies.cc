#include "tessera/kernels/cuda/shapes/copies.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/writer.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kPackBytes = 16;
constexpr int64_t kTile = 64;  // elements along each side
constexpr int64_t kLeastSide = 16;

std::string pointer_text(const char* name, bool is_const, const char* bits, const ElementsPlace& place) {
  const char* qualifier = is_const ? "const " : "";
  return fmt::format("{0}{1}* const {2} = reinterpret_cast<{0}{1}*>({3}) + {4}LL;\n", qualifier, bits, name,
                     place.address, place.offset);
}

// The widest walk over packs that are whole in `q`, where the other view may repeat one element.
struct Packs {
  ViewWalk walk;
  int64_t pack = 1;
  bool is_whole(size_t view) const { return pack > 1 && walk.views[view].strides[walk.shape.ndim() - 1] == pack; }
};
Packs widest_packs(const ViewWalk& walk, size_t element_bytes, std::initializer_list<int64_t> offsets) {
  for (int64_t pack = kPackBytes / static_cast<int64_t>(element_bytes); pack > 1; pack /= 2) {
    const auto packs = packed(walk, pack);
    if (!packs || packs->views[0].strides[packs->shape.ndim() - 1] != pack) continue;
    const Packs made{*packs, pack};
    bool aligned = true;
    size_t view = 0;
    for (const int64_t offset : offsets) aligned = aligned && (!made.is_whole(view++) || offset % pack == 0);
    if (aligned) return made;
  }
  return {walk, 1};
}

// Which dims of a walk over q and p are tiled: neighbours in q, and neighbours in p.
struct Sides {
  int of_q = -1;
  int of_p = -1;
};
std::optional<Sides> sides_of(const ViewWalk& walk) {
  Sides sides;
  for (int d = 0; d < walk.shape.ndim(); ++d) {
    if (walk.views[0].strides[d] == 1) sides.of_q = d;
    if (walk.views[1].strides[d] == 1) sides.of_p = d;
  }
  if (sides.of_q < 0 || sides.of_p < 0 || sides.of_q == sides.of_p) return std::nullopt;
  if (std::min(walk.shape[sides.of_q], walk.shape[sides.of_p]) < kLeastSide) return std::nullopt;
  return sides;
}

}  // namespace

const char* bits_type(size_t element_bytes) {
  switch (element_bytes) {
    case 1: return "u8";
    case 2: return "u16";
    case 4: return "u32";
    default: return "u64";
  }
}

std::string bits_literal(double value, DType dtype) {
  const Tensor one = Tensor::full({dtype, {}}, value);
  uint64_t bits = 0;
  std::memcpy(&bits, one.bytes().data(), one.bytes().size());
  return fmt::format("{}({}ULL)", bits_type(size_bytes(dtype)), bits);
}

PhasePart copy_part(const Gpu& gpu, size_t element_bytes, const Shape& shape, const ElementsPlace& from,
                    const ElementsPlace& to) {
  const ViewWalk walk = in_order_of_first(shape, {{"q", to.strides}, {"p", from.strides}});
  const auto [packs, pack] = widest_packs(walk, element_bytes, {to.offset, from.offset});
  const char* bits = bits_type(element_bytes);
  const int64_t count = packs.shape.num_elements();
  PhasePart part{.blocks = blocks_for(gpu, count, kPartThreads)};
  part.body = pointer_text("from", true, bits, from) + pointer_text("to", false, bits, to) +
              deal_text(index_type(walk.shape, walk.views), "i", count) + offsets_text(packs.shape, packs.views, "i");
  if (pack == 1) {
    part.body += "to[q] = from[p];\n}\n";
    return part;
  }
  const std::string type = fmt::format("Pack<{}, {}>", bits, pack);
  if (Packs{packs, pack}.is_whole(1)) {
    part.body += fmt::format("*reinterpret_cast<{0}*>(to + q) = *reinterpret_cast<const {0}*>(from + p);\n}}\n", type);
  } else {
    part.body += fmt::format(
        "const {0} x = from[p];\n{1} y;\n#pragma unroll\nfor (int j = 0; j < {2}; ++j) y[j] = x;\n"
        "*reinterpret_cast<{1}*>(to + q) = y;\n}}\n",
        bits, type, pack);
  }
  return part;
}

std::optional<PhasePart> tiled_copy_part(const Gpu& gpu, size_t element_bytes, const Shape& shape,
                                         const ElementsPlace& from, const ElementsPlace& to) {
  const ViewWalk walk = in_order_of_first(shape, {{"q", to.strides}, {"p", from.strides}});
  const auto sides = sides_of(walk);
  if (!sides) return std::nullopt;
  const auto [a, b] = *sides;
  Shape outer;
  std::vector<NamedStrides> views = {{"q", {}}, {"p", {}}};
  for (int d = 0; d < walk.shape.ndim(); ++d) {
    if (d == a || d == b) continue;
    outer.push_back(walk.shape[d]);
    for (size_t v = 0; v < 2; ++v) views[v].strides.push_back(walk.views[v].strides[d]);
  }
  const int64_t tiles_a = (walk.shape[a] + kTile - 1) / kTile;
  const int64_t tiles_b = (walk.shape[b] + kTile - 1) / kTile;
  const int64_t tiles = tiles_a * tiles_b * outer.num_elements();
  const char* bits = bits_type(element_bytes);
  const std::string type = index_type(walk.shape, walk.views);
  PhasePart part{.blocks = std::min<int64_t>(tiles, int64_t{gpu.num_multiprocessors()} * 32)};
  part.body = pointer_text("from", true, bits, from) + pointer_text("to", false, bits, to);
  // The rows of a tile are as long as keeps its columns in different banks of shared memory.
  part.body += fmt::format("__shared__ {} tile[{}][{}];\n", bits, kTile,
                           kTile + std::max<int64_t>(1, 4 / static_cast<int64_t>(element_bytes)));
  part.body += "const int x_ = threadIdx.x % 64;\nconst int y_ = threadIdx.x / 64;\n";
  part.body += fmt::format("for ({0} t = block; t < {1}; t += num_blocks) {{\n", type, tiles);
  part.body += fmt::format("const {0} a = t % {1} * 64, b = t / {1} % {2} * 64;\n", type, tiles_a, tiles_b);
  part.body += offsets_text(outer, views, fmt::format("t / {}", tiles_a * tiles_b));
  part.body += fmt::format(
      "#pragma unroll\nfor (int k = 0; k < 64; k += 4) {{\n"
      "  if (a + y_ + k < {0} && b + x_ < {1}) tile[y_ + k][x_] = from[p + (a + y_ + k) * {2} + b + x_];\n}}\n"
      "__syncthreads();\n"
      "#pragma unroll\nfor (int k = 0; k < 64; k += 4) {{\n"
      "  if (b + y_ + k < {1} && a + x_ < {0}) to[q + (b + y_ + k) * {3} + a + x_] = tile[x_][y_ + k];\n}}\n"
      "__syncthreads();\n}}\n",
      walk.shape[a], walk.shape[b], walk.views[1].strides[a], walk.views[0].strides[b]);
  return part;
}

PhasePart fill_part(const Gpu& gpu, size_t element_bytes, const Shape& shape, const std::string& bits,
                    const ElementsPlace& to) {
  const ViewWalk walk = in_order_of_first(shape, {{"q", to.strides}});
  const auto [packs, pack] = widest_packs(walk, element_bytes, {to.offset});
  const char* type = bits_type(element_bytes);
  const int64_t count = packs.shape.num_elements();
  PhasePart part{.blocks = blocks_for(gpu, count, kPartThreads)};
  part.body = pointer_text("to", false, type, to) + deal_text(index_type(walk.shape, walk.views), "i", count) +
              offsets_text(packs.shape, packs.views, "i");
  part.body += fmt::format(
      "Pack<{0}, {1}> y;\n#pragma unroll\nfor (int j = 0; j < {1}; ++j) y[j] = {2};\n"
      "*reinterpret_cast<Pack<{0}, {1}>*>(to + q) = y;\n}}\n",
      type, pack, bits);
  return part;
}

}  // namespace tessera::cuda
