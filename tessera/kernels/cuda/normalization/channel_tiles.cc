#include "tessera/kernels/cuda/normalization/channel_tiles.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/writer.h"

namespace tessera::cuda {
namespace {

bool is_channels_last(const TensorView& view) { return view.strides == channels_last_strides(view.shape); }

std::string table(const std::string& name, const std::vector<int64_t>& values) {
  std::string text = fmt::format("TESSERA_DEVICE i64 {}(int group) {{\n", name);
  for (size_t g = 0; g + 1 < values.size(); ++g) text += fmt::format("if (group == {}) return {};\n", g, values[g]);
  return text + fmt::format("return {};\n}}\n", values.back());
}

}  // namespace

ChannelTiles::ChannelTiles(const KernelRequest& request, const Gpu& gpu, std::vector<TileImage> images, bool sums)
    : images_(std::move(images)) {
  const Shape& shape = images_[0].view.shape;
  channels_ = shape[1];
  int64_t pixels = 1;
  position_shape_.push_back(shape[0]);
  for (int d = 2; d < shape.ndim(); ++d) {
    position_shape_.push_back(shape[d]);
    pixels *= shape[d];
  }
  const Ints& counts = request.attributes.get_ints("counts");
  counts_.assign(counts.begin(), counts.end());
  int64_t at = 0;
  for (const int64_t count : counts_) {
    const bool grouped = request.attributes.get_bool("grouped");
    first_.push_back(at);
    positions_.push_back(grouped ? count : shape[0] * pixels);
    at += grouped ? count : 0;
  }
  const int64_t positions = *std::max_element(positions_.begin(), positions_.end());
  bool reads_packs = shape.ndim() >= 2;
  size_t narrowest = 8;
  for (const auto& image : images_) {
    reads_packs = reads_packs && is_channels_last(image.view);
    narrowest = std::min(narrowest, size_bytes(image.view.dtype));
  }
  pack_ = reads_packs ? static_cast<int>(std::min<size_t>(8, 16 / narrowest)) : 1;
  while (channels_ % pack_ != 0) pack_ /= 2;
  const int64_t packs = channels_ / pack_;
  // With few positions a block has few channels, and adds them up alone.
  packs_of_block_ = 1;
  if (reads_packs) {
    const int most = sums && positions <= 4096 ? 2 : 32;
    while (packs_of_block_ < most && packs_of_block_ < packs) packs_of_block_ *= 2;
  }
  bands_ = (packs + packs_of_block_ - 1) / packs_of_block_;
  const int64_t room = int64_t{gpu.num_multiprocessors()} * (sums ? 4 : 16);
  const int64_t useful = sums ? positions / (int64_t{lanes()} * 8) : positions / (int64_t{lanes()} * 4);
  chunks_ = std::clamp<int64_t>(room / (bands_ * groups()), 1, std::max<int64_t>(useful, 1));
  if (sums && positions <= int64_t{lanes()} * 32) chunks_ = 1;
}

std::string ChannelTiles::functions_text() const {
  return table("first_position", first_) + table("num_positions", positions_) + table("group_count", counts_);
}

std::string ChannelTiles::begin_text() const {
  std::string text = fmt::format(
      "const int tx = threadIdx.x % {0}, ty = threadIdx.x / {0};\n"
      "const int band = blockIdx.x % {1}; const int chunk = blockIdx.x / {1} % {2}; const int group = blockIdx.x / "
      "{3};\n"
      "const int c0 = (band * {0} + tx) * {4};\nconst bool is_active = c0 < {5};\n",
      packs_of_block_, bands_, chunks_, bands_ * chunks_, pack_, channels_);
  text += fmt::format(
      "const i64 in_chunk = (num_positions(group) + {0} - 1) / {0};\n"
      "const i64 begin_r = first_position(group) + chunk * in_chunk;\n"
      "i64 end_r = begin_r + in_chunk;\n"
      "if (end_r > first_position(group) + num_positions(group)) end_r = first_position(group) + "
      "num_positions(group);\n",
      chunks_);
  return text;
}

std::string ChannelTiles::loop_begin_text() const {
  std::string text = fmt::format("#pragma unroll {}\nfor (i64 r = begin_r + ty; r < end_r; r += {}) {{\n",
                                 images_.size() > 3 ? 2 : 4, lanes());
  if (pack_ > 1) {
    text += fmt::format("const i64 at_r = r * {} + c0;\n", channels_);
  } else {
    std::vector<NamedStrides> views;
    for (const auto& image : images_) {
      NamedStrides named{"at_" + image.name, {}};
      named.strides.push_back(image.view.strides[0]);
      for (int d = 2; d < image.view.shape.ndim(); ++d) named.strides.push_back(image.view.strides[d]);
      views.push_back(std::move(named));
    }
    text += offsets_text(position_shape_, views, "r");
  }
  for (const auto& image : images_) {
    const char* dtype = to_string(image.view.dtype);
    if (image.is_result) {
      text += fmt::format("Pack<{}, {}> {};\n", dtype, pack_, image.name);
    } else if (pack_ > 1) {
      text += fmt::format("const auto {0} = *reinterpret_cast<const Pack<{1}, {2}>*>({3} + at_r);\n", image.name, dtype,
                          pack_, image.pointer);
    } else {
      text += fmt::format("const Pack<{1}, 1> {0} = {{{{{2}[at_{0} + i64(c0) * {3}]}}}};\n", image.name, dtype,
                          image.pointer, image.view.strides[1]);
    }
  }
  return text;
}

std::string ChannelTiles::loop_end_text() const {
  std::string text;
  for (const auto& image : images_) {
    if (!image.is_result) continue;
    const char* dtype = to_string(image.view.dtype);
    if (pack_ > 1) {
      text += fmt::format("*reinterpret_cast<Pack<{1}, {2}>*>({3} + at_r) = {0};\n", image.name, dtype, pack_,
                          image.pointer);
    } else {
      text += fmt::format("{1}[at_{0} + i64(c0) * {2}] = {0}[0];\n", image.name, image.pointer, image.view.strides[1]);
    }
  }
  return text + "}\n";
}

std::string ChannelTiles::statistic_offset(const TensorView& view, const std::string& channel) {
  const int last = view.shape.ndim() - 1;
  return last == 1 ? fmt::format("group * {} + ({}) * {}", view.strides[0], channel, view.strides[1])
                   : fmt::format("({}) * {}", channel, view.strides[0]);
}

}  // namespace tessera::cuda
