#include "tessera/kernels/cuda/normalization/row_tiles.h"

#include "tessera/base/error.h"

namespace tessera::cuda {
namespace {

// The same views, with "row_" or "at_" in front of their names.
std::vector<NamedStrides> with_prefix(std::vector<NamedStrides> views, const std::string& prefix) {
  for (auto& view : views) view.name = prefix + view.name;
  return views;
}

}  // namespace

RowTiles::RowTiles(Shape line_shape, std::vector<NamedStrides> lines, Shape element_shape,
                   std::vector<NamedStrides> elements)
    : line_shape_(std::move(line_shape)),
      lines_(with_prefix(std::move(lines), "row_")),
      element_shape_(std::move(element_shape)),
      elements_(with_prefix(std::move(elements), "at_")) {
  is_block_ = size() > 1024;
  if (is_block_) threads_ = size() > 8192 ? 1024 : 256;
  per_thread_ = (size() + threads_ - 1) / threads_;
}

std::string RowTiles::begin_text() const {
  std::string text;
  if (is_block_) {
    text = "const i64 row = blockIdx.x;\nconst int lane = threadIdx.x;\n";
  } else {
    text = fmt::format(
        "const i64 row = i64(blockIdx.x) * 4 + threadIdx.x / 32;\nconst int lane = threadIdx.x % 32;\n"
        "if (row >= {}) return;\n",
        count());
  }
  return text + offsets_text(line_shape_, lines_, "row");
}

std::string RowTiles::loop_text() const {
  const std::string type = index_type(element_shape_, elements_);
  std::string text;
  if (keeps()) {
    text = fmt::format(
        "#pragma unroll\nfor (int k = 0; k < {0}; ++k) {{\nconst {1} i = lane + k * {2};\n"
        "if (i >= {3}) break;\n",
        per_thread_, type, threads_, size());
    if (size() % threads_ == 0) {
      text = fmt::format("#pragma unroll\nfor (int k = 0; k < {0}; ++k) {{\nconst {1} i = lane + k * {2};\n",
                         per_thread_, type, threads_);
    }
  } else {
    text = fmt::format("#pragma unroll 4\nfor ({0} i = lane; i < {1}; i += {2}) {{\nconst int k = 0; (void)k;\n", type,
                       size(), threads_);
  }
  return text + offsets_text(element_shape_, elements_, "i");
}

std::string RowTiles::functions_text() const {
  const char* all = is_block_ ? "block" : "warp";
  return fmt::format(
      "struct Larger {{ template <typename T> TESSERA_DEVICE T operator()(T a, T b) const {{ return b > a ? b : a; }} "
      "}};\n"
      "template <typename T> TESSERA_DEVICE T sum_row(T x) {{ return sum_{0}(x); }}\n"
      "template <typename T> TESSERA_DEVICE T max_row(T x) {{ return reduce_{0}(x, Larger()); }}\n",
      all);
}

}  // namespace tessera::cuda
