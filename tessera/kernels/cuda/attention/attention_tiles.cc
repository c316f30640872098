#include "tessera/kernels/cuda/attention/attention_tiles.h"

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/writer.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kSharedBytes = 47 << 10;

// Elements from one row of a tile to the next: an odd number of banks apart.
int64_t pitch_of(const kernels::AttentionProblem& problem, size_t element_bytes) {
  const int64_t width = std::max(problem.depth, problem.value_depth);
  return element_bytes == 2 ? (width + 1) / 2 * 2 + ((width + 1) / 2 % 2 == 0 ? 2 : 0) : width | 1;
}

}  // namespace

AttentionTiles::AttentionTiles(const KernelRequest& request, size_t query, size_t num_fixed)
    : request_(request),
      problem_(request, query, num_fixed),
      type_(to_string(computed_in(request.outputs[0].dtype))),
      element_(to_string(request.outputs[0].dtype)) {}

std::optional<AttentionTiles> AttentionTiles::make(const KernelRequest& request, size_t query, size_t num_fixed,
                                                   int tiles_of_queries, int tiles_of_keys) {
  AttentionTiles tiles(request, query, num_fixed);
  const size_t bytes = size_bytes(request.outputs[0].dtype);
  const auto wide = static_cast<int64_t>(size_bytes(computed_in(request.outputs[0].dtype)));
  const int64_t pitch = pitch_of(tiles.problem_, bytes);
  static constexpr int kSizes[][2] = {{4, 4}, {2, 4}, {2, 2}, {1, 2}, {1, 1}};
  for (const auto& [rows, columns] : kSizes) {
    const int64_t kept = (int64_t{tiles_of_queries} * rows + int64_t{tiles_of_keys} * columns) * 16 * pitch *
                         static_cast<int64_t>(bytes);
    const int64_t scores = int64_t{16} * rows * (16 * columns + 1) * wide;
    tiles.rows_ = rows;
    tiles.columns_ = columns;
    if (kept + scores + 1024 <= kSharedBytes) return tiles;
  }
  return std::nullopt;
}

std::string AttentionTiles::functions_text() const {
  const auto& p = problem_;
  std::string text = fmt::format(
      "using T = {};\nusing A = {};\nconstexpr int QUERIES = {}, KEYS = {}, HEADS = {}, DEPTH = {}, VALUE_DEPTH = {};\n"
      "constexpr int ROWS = {}, COLUMNS = {}, PITCH = {};\nconstexpr int WIDTH = {};\n",
      element_, type_, p.queries, p.keys, p.heads, p.depth, p.value_depth, rows_, columns_,
      pitch_of(p, size_bytes(request_.outputs[0].dtype)), (std::max(p.depth, p.value_depth) + 15) / 16);
  const bool wide = type_ == "f64";
  const DType dtype = wide ? DType::kF64 : DType::kF32;
  text += fmt::format("constexpr A SCALE = {};\n#define MINUS_INFINITY (-{})\n", literal(p.scale, dtype),
                      wide ? "INFINITY_F64" : "INFINITY_F32");
  // A query sees the keys [0, this).
  text += p.causal ? fmt::format(
                         "TESSERA_DEVICE int visible(int query) {{ const i64 n = {}LL + query + 1; "
                         "return n < 0 ? 0 : n > KEYS ? KEYS : int(n); }}\n",
                         p.first[1])
                   : "TESSERA_DEVICE int visible(int) { return KEYS; }\n";
  std::string mask_type = "u8";
  std::string added = "A(0)";
  if (p.mask) {
    const TensorView& mask = request_.inputs[*p.mask];
    mask_type = to_string(mask.dtype);
    const std::string at = fmt::format("mask[row * {}LL + head * {}LL + i64(query) * {} + i64(key) * {}]",
                                       p.mask_strides[0], p.mask_strides[1], p.mask_strides[2], p.mask_strides[3]);
    added = mask.dtype == DType::kBool ? "(" + at + " ? A(0) : MINUS_INFINITY)" : "A(wide(" + at + "))";
  }
  text += fmt::format(
      "TESSERA_DEVICE A score(A product, const {0}* mask, i64 row, i64 head, int query, int key) {{\n"
      "if (query >= QUERIES || key >= visible(query)) return MINUS_INFINITY;\nreturn SCALE * product + {1};\n}}\n",
      mask_type, added);
  text += "TESSERA_DEVICE A kept(u64 step, i64 row, i64 head, int query, int key) {\n";
  if (p.step) {
    text += fmt::format(
        "const i64 position = ({0}LL + row) * {1}LL + {2}LL + query;\n"
        "const u64 index = u64((position * {3}LL + {4}LL + head) * KEYS) + u64(key);\n"
        "return double(random_uniform({5}ULL, {6}ULL, step, index)) < {7} ? {8} : A(0);\n",
        p.first[0], p.all_queries, p.first[1], p.all_heads, p.first[2],
        static_cast<uint64_t>(request_.attributes.get_int("seed")),
        static_cast<uint64_t>(request_.attributes.get_int("stream")), literal(p.keep_prob, DType::kF64),
        literal(1 / p.keep_prob, dtype));
  } else {
    text += "return A(1);\n";
  }
  text += "}\n";
  // products[r][c] = rows ty * ROWS + r of one tile with rows tx + 16 c of another.
  text +=
      "TESSERA_DEVICE void dot_tiles(const T (*a)[PITCH], const T (*b)[PITCH], int depth, int tx, int ty, A "
      "(&products)[ROWS][COLUMNS]) {\n"
      "#pragma unroll\nfor (int r = 0; r < ROWS; ++r)\n#pragma unroll\nfor (int c = 0; c < COLUMNS; ++c) "
      "products[r][c] = 0;\n"
      "#pragma unroll 8\nfor (int d = 0; d < depth; ++d) {\nA left[ROWS], right[COLUMNS];\n"
      "#pragma unroll\nfor (int r = 0; r < ROWS; ++r) left[r] = wide(a[ty * ROWS + r][d]);\n"
      "#pragma unroll\nfor (int c = 0; c < COLUMNS; ++c) right[c] = wide(b[tx + 16 * c][d]);\n"
      "#pragma unroll\nfor (int r = 0; r < ROWS; ++r)\n#pragma unroll\nfor (int c = 0; c < COLUMNS; ++c) "
      "products[r][c] += left[r] * right[c];\n"
      "}\n}\n"
      "template <typename F> TESSERA_DEVICE A reduce_half(A x, F f) {\n"
      "for (int distance = 8; distance > 0; distance /= 2) x = f(x, __shfl_xor_sync(0xFFFFFFFFU, x, "
      "distance));\nreturn x;\n}\n"
      "struct Larger { TESSERA_DEVICE A operator()(A a, A b) const { return b > a ? b : a; } };\n";
  return text;
}

std::string AttentionTiles::tile_text(const std::string& name, int rows) const {
  return fmt::format("__shared__ T {}[{}][PITCH];\n", name, rows);
}

std::string AttentionTiles::feature(const TensorView& view, const std::string& token, const std::string& i) {
  return fmt::format("row * {}LL + head * {}LL + i64({}) * {} + i64({}) * {}", view.strides[0], view.strides[2], token,
                     view.strides[1], i, view.strides[3]);
}

std::string AttentionTiles::load_text(const std::string& tile, const std::string& pointer, const TensorView& view,
                                      int rows, const std::string& first, int64_t tokens, int64_t width) const {
  return fmt::format(
      "#pragma unroll 4\nfor (int e = threadIdx.x; e < {0} * {1}; e += 256) {{\nconst int token = ({2}) + e / {1}, i = "
      "e % {1};\n"
      "{3}[e / {1}][i] = token < {4} ? {5}[{6}] : T(A(0));\n}}\n",
      rows, width, first, tile, tokens, pointer, feature(view, "token", "i"));
}

std::string AttentionTiles::begin_text(int tiles) const {
  return fmt::format(
      "const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;\nconst int tile = blockIdx.x % {0};\n"
      "const i64 row = blockIdx.x / {0} / HEADS, head = blockIdx.x / {0} % HEADS;\n",
      tiles);
}

}  // namespace tessera::cuda
