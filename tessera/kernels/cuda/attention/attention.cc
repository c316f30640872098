// Attention, a tile of queries in each block, and its gradient, first of keys and values, then of queries: what is
// added up is so in one order. Weights are computed anew from the logarithms of their sums.
#include "tessera/base/error.h"
#include "tessera/kernels/cuda/attention/attention_tiles.h"
#include "tessera/kernels/cuda/core/families.h"

namespace tessera::cuda {
namespace {

std::string mask_of(const kernels::AttentionProblem& problem) {
  return problem.mask ? fmt::format("in{}", *problem.mask) : "(const u8*)nullptr";
}
std::string step_text(const kernels::AttentionProblem& problem) {
  return problem.step ? fmt::format("const u64 step = u64(*in{});\n", *problem.step) : "const u64 step = 0;\n";
}
std::string lse_at(const TensorView& view, const std::string& query) {
  return fmt::format("row * {}LL + head * {}LL + i64({}) * {}", view.strides[0], view.strides[1], query,
                     view.strides[2]);
}
constexpr const char* kEachScore =
    "#pragma unroll\nfor (int r = 0; r < ROWS; ++r) {\nconst int query = first_query + ty * ROWS + r;\n"
    "#pragma unroll\nfor (int c = 0; c < COLUMNS; ++c) {\nconst int key = first_key + tx + 16 * c;\n";

std::optional<DeviceProgram> write_attention(const KernelRequest& request, const Gpu&) {
  DeviceProgram program{.name = "cuda.attention"};
  const auto tiles = AttentionTiles::make(request, 0, 3, 1, 1);
  if (!tiles) return std::nullopt;
  const auto& p = tiles->problem();
  if (tiles->pairs() * p.queries == 0) return program;
  program.functions = tiles->functions_text();
  std::string body = tiles->begin_text(tiles->query_tiles()) + step_text(p) +
                     tiles->tile_text("queries", tiles->queries()) + tiles->tile_text("keys", tiles->keys()) +
                     fmt::format("__shared__ A weights[{}][{}];\n", tiles->queries(), tiles->keys() + 1);
  body += fmt::format("const int first_query = tile * {};\n", tiles->queries());
  body += tiles->load_text("queries", "in0", request.inputs[0], tiles->queries(), "first_query", p.queries, p.depth);
  body +=
      "A largest[ROWS], sum[ROWS], mixed[ROWS][WIDTH];\n#pragma unroll\nfor (int r = 0; r < ROWS; ++r) {\n"
      "largest[r] = MINUS_INFINITY; sum[r] = 0;\n#pragma unroll\nfor (int j = 0; j < WIDTH; ++j) mixed[r][j] = 0;\n}\n";
  body +=
      fmt::format("for (int first_key = 0; first_key < KEYS; first_key += {}) {{\n__syncthreads();\n", tiles->keys());
  body += tiles->load_text("keys", "in1", request.inputs[1], tiles->keys(), "first_key", p.keys, p.depth);
  body += "__syncthreads();\nA products[ROWS][COLUMNS];\ndot_tiles(queries, keys, DEPTH, tx, ty, products);\n";
  body += fmt::format(
      "#pragma unroll\nfor (int r = 0; r < ROWS; ++r) {{\nconst int query = first_query + ty * ROWS + r;\nA most = "
      "largest[r];\n"
      "#pragma unroll\nfor (int c = 0; c < COLUMNS; ++c) {{\nconst int key = first_key + tx + 16 * c;\n"
      "products[r][c] = score(products[r][c], {}, row, head, query, key);\nif (products[r][c] > most) most = "
      "products[r][c];\n}}\n"
      "most = reduce_half(most, Larger());\nconst A shrinks = largest[r] == MINUS_INFINITY ? A(0) : "
      "std::exp(largest[r] - most);\n"
      "A part = 0;\n#pragma unroll\nfor (int c = 0; c < COLUMNS; ++c) {{\nconst int key = first_key + tx + 16 * c;\n"
      "const A weight = products[r][c] == MINUS_INFINITY ? A(0) : std::exp(products[r][c] - most);\npart += weight;\n"
      "weights[ty * ROWS + r][tx + 16 * c] = weight == A(0) ? A(0) : weight * kept(step, row, head, query, key);\n}}\n"
      "sum[r] = sum[r] * shrinks + reduce_half(part, Plus());\nlargest[r] = most;\n"
      "#pragma unroll\nfor (int j = 0; j < WIDTH; ++j) mixed[r][j] *= shrinks;\n}}\n__syncthreads();\n",
      mask_of(p));
  body += tiles->load_text("keys", "in2", request.inputs[2], tiles->keys(), "first_key", p.keys, p.value_depth);
  body += fmt::format(
      "__syncthreads();\n#pragma unroll 4\nfor (int k = 0; k < {}; ++k) {{\nA value[WIDTH];\n"
      "#pragma unroll\nfor (int j = 0; j < WIDTH; ++j) value[j] = tx + 16 * j < VALUE_DEPTH ? A(wide(keys[k][tx + 16 * "
      "j])) : A(0);\n"
      "#pragma unroll\nfor (int r = 0; r < ROWS; ++r) {{\nconst A weight = weights[ty * ROWS + r][k];\n"
      "#pragma unroll\nfor (int j = 0; j < WIDTH; ++j) mixed[r][j] += weight * value[j];\n}}\n}}\n}}\n",
      tiles->keys());
  body += fmt::format(
      "#pragma unroll\nfor (int r = 0; r < ROWS; ++r) {{\nconst int query = first_query + ty * ROWS + r;\nif (query >= "
      "QUERIES) continue;\n"
      "const bool sees_any = largest[r] != MINUS_INFINITY;\nconst A scale = sees_any ? A(1) / sum[r] : A(0);\n"
      "#pragma unroll\nfor (int j = 0; j < WIDTH; ++j) {{\nconst int i = tx + 16 * j;\n"
      "if (i < VALUE_DEPTH) out0[{}] = T(mixed[r][j] * scale);\n}}\n"
      "if (tx == 0) out1[{}] = converted<{}>(sees_any ? largest[r] + std::log(sum[r]) : -MINUS_INFINITY);\n}}\n",
      AttentionTiles::feature(request.outputs[0], "query", "i"), lse_at(request.outputs[1], "query"),
      to_string(request.outputs[1].dtype));
  program.phases.push_back({.body = body, .blocks = tiles->pairs() * tiles->query_tiles(), .threads = 256});
  return program;
}

// Of the tiles that are loaded: the weights w, and by_scores, what flows back to the scores. delta[q] is the product of
// a query's result and its gradient.
std::string gradient_scores(const AttentionTiles& tiles) {
  const auto& p = tiles.problem();
  std::string text =
      "A products[ROWS][COLUMNS], flows[ROWS][COLUMNS];\ndot_tiles(queries, keys, DEPTH, tx, ty, products);\n"
      "dot_tiles(gradients, values, VALUE_DEPTH, tx, ty, flows);\n";
  text += kEachScore;
  text += fmt::format(
      "const A s = score(products[r][c], {}, row, head, query, key);\n"
      "const A w = s == MINUS_INFINITY ? A(0) : std::exp(s - lse[ty * ROWS + r]);\n"
      "const A factor = w == A(0) ? A(0) : kept(step, row, head, query, key);\n"
      "products[r][c] = w * factor;\nflows[r][c] = w * (flows[r][c] * factor - delta[ty * ROWS + r]) * "
      "SCALE;\n}}\n}}\n",
      mask_of(p));
  return text;
}

// Loads a tile of queries, with what belongs to them.
std::string load_queries(const KernelRequest& request, const AttentionTiles& tiles) {
  const auto& p = tiles.problem();
  std::string text =
      tiles.load_text("queries", "in1", request.inputs[1], tiles.queries(), "first_query", p.queries, p.depth) +
      tiles.load_text("gradients", "in0", request.inputs[0], tiles.queries(), "first_query", p.queries, p.value_depth);
  text += fmt::format(
      "for (int q = ty; q < {0}; q += 16) {{\nconst int query = first_query + q;\nA part = 0;\n"
      "for (int i = tx; i < VALUE_DEPTH && query < QUERIES; i += 16) part += A(wide(in0[{1}])) * A(wide(in4[{2}]));\n"
      "part = reduce_half(part, Plus());\n"
      "if (tx == 0) {{ delta[q] = part; lse[q] = query < QUERIES ? A(wide(in5[{3}])) : A(0); }}\n}}\n",
      tiles.queries(), AttentionTiles::feature(request.inputs[0], "query", "i"),
      AttentionTiles::feature(request.inputs[4], "query", "i"), lse_at(request.inputs[5], "query"));
  return text;
}
std::string load_keys(const KernelRequest& request, const AttentionTiles& tiles) {
  const auto& p = tiles.problem();
  return tiles.load_text("keys", "in2", request.inputs[2], tiles.keys(), "first_key", p.keys, p.depth) +
         tiles.load_text("values", "in3", request.inputs[3], tiles.keys(), "first_key", p.keys, p.value_depth);
}

std::string shared_text(const AttentionTiles& tiles) {
  return tiles.tile_text("queries", tiles.queries()) + tiles.tile_text("gradients", tiles.queries()) +
         tiles.tile_text("keys", tiles.keys()) + tiles.tile_text("values", tiles.keys()) +
         fmt::format("__shared__ A scores[{}][{}];\n__shared__ A delta[{}], lse[{}];\n", tiles.queries(),
                     tiles.keys() + 1, tiles.queries(), tiles.queries());
}

// Writes products or flows to scores, between two barriers.
std::string share(const char* name) {
  return fmt::format(
      "__syncthreads();\n{}scores[ty * ROWS + r][tx + 16 * c] = {}[r][c]; (void)query; "
      "(void)key;\n}}\n}}\n__syncthreads();\n",
      kEachScore, name);
}

// sums[k][j] += scores of keys ty * COLUMNS + k, of all queries of the tile, times a tile of these.
std::string add_over_queries(const AttentionTiles& tiles, const char* sums, const char* tile, const char* width) {
  return fmt::format(
      "#pragma unroll 4\nfor (int q = 0; q < {0}; ++q) {{\nA other[WIDTH];\n#pragma unroll\n"
      "for (int j = 0; j < WIDTH; ++j) other[j] = tx + 16 * j < {1} ? A(wide({2}[q][tx + 16 * j])) : A(0);\n"
      "#pragma unroll\nfor (int k = 0; k < COLUMNS; ++k) {{\nconst A weight = scores[q][ty * COLUMNS + k];\n"
      "#pragma unroll\nfor (int j = 0; j < WIDTH; ++j) {3}[k][j] += weight * other[j];\n}}\n}}\n",
      tiles.queries(), width, tile, sums);
}

std::string store_rows(const KernelRequest& request, size_t output, const char* sums, const char* rows,
                       const char* first, const char* limit, const char* width) {
  return fmt::format(
      "#pragma unroll\nfor (int k = 0; k < {0}; ++k) {{\nconst int token = {1} + ty * {0} + k;\nif (token >= {2}) "
      "continue;\n"
      "#pragma unroll\nfor (int j = 0; j < WIDTH; ++j) {{\nconst int i = tx + 16 * j;\n"
      "if (i < {3}) out{4}[{5}] = T({6}[k][j]);\n}}\n}}\n",
      rows, first, limit, width, output, AttentionTiles::feature(request.outputs[output], "token", "i"), sums);
}

std::optional<DeviceProgram> write_attention_grad(const KernelRequest& request, const Gpu&) {
  DeviceProgram program{.name = "cuda.attention_grad"};
  const auto tiles = AttentionTiles::make(request, 1, 6, 2, 2);
  if (!tiles) return std::nullopt;
  const auto& p = tiles->problem();
  if (tiles->pairs() == 0) return program;
  program.functions = tiles->functions_text();
  const bool is_one_tile = tiles->query_tiles() == 1 && tiles->key_tiles() == 1;
  const std::string add_query_gradient = fmt::format(
      "#pragma unroll 4\nfor (int k = 0; k < {}; ++k) {{\nA other[WIDTH];\n#pragma unroll\n"
      "for (int j = 0; j < WIDTH; ++j) other[j] = tx + 16 * j < DEPTH ? A(wide(keys[k][tx + 16 * j])) : A(0);\n"
      "#pragma unroll\nfor (int r = 0; r < ROWS; ++r) {{\nconst A weight = scores[ty * ROWS + r][k];\n"
      "#pragma unroll\nfor (int j = 0; j < WIDTH; ++j) dquery[r][j] += weight * other[j];\n}}\n}}\n",
      tiles->keys());
  const std::string store_query = store_rows(request, 0, "dquery", "ROWS", "first_query", "QUERIES", "DEPTH");

  // Keys and values; queries, too, where there is one tile of all.
  std::string body = tiles->begin_text(tiles->key_tiles()) + step_text(p) + shared_text(*tiles);
  body +=
      fmt::format("const int first_key = tile * {};\nA dkey[COLUMNS][WIDTH] = {{}}, dvalue[COLUMNS][WIDTH] = {{}};\n",
                  tiles->keys());
  body += load_keys(request, *tiles);
  body += fmt::format("for (int first_query = 0; first_query < QUERIES; first_query += {}) {{\n__syncthreads();\n",
                      tiles->queries());
  body += load_queries(request, *tiles) + "__syncthreads();\n" + gradient_scores(*tiles) + share("products") +
          add_over_queries(*tiles, "dvalue", "gradients", "VALUE_DEPTH") + share("flows") +
          add_over_queries(*tiles, "dkey", "queries", "DEPTH");
  if (is_one_tile) body += "A dquery[ROWS][WIDTH] = {};\n" + add_query_gradient + store_query;
  body += "}\n" + store_rows(request, 1, "dkey", "COLUMNS", "first_key", "KEYS", "DEPTH") +
          store_rows(request, 2, "dvalue", "COLUMNS", "first_key", "KEYS", "VALUE_DEPTH");
  if (p.keys > 0)
    program.phases.push_back({.body = body, .blocks = tiles->pairs() * tiles->key_tiles(), .threads = 256});
  if (is_one_tile || p.queries == 0) return program;

  std::string of_queries = tiles->begin_text(tiles->query_tiles()) + step_text(p) + shared_text(*tiles);
  of_queries += fmt::format("const int first_query = tile * {};\nA dquery[ROWS][WIDTH] = {{}};\n", tiles->queries());
  of_queries += load_queries(request, *tiles);
  of_queries +=
      fmt::format("for (int first_key = 0; first_key < KEYS; first_key += {}) {{\n__syncthreads();\n", tiles->keys());
  of_queries += load_keys(request, *tiles) + "__syncthreads();\n" + gradient_scores(*tiles) + share("flows") +
                add_query_gradient + "}\n" + store_query;
  program.phases.push_back({.body = of_queries, .blocks = tiles->pairs() * tiles->query_tiles(), .threads = 256});
  return program;
}

}  // namespace

void add_attention(KernelRegistry& registry, Gpu& gpu) {
  add_writer(registry, gpu, "attention", write_attention);
  add_writer(registry, gpu, "attention_grad", write_attention_grad);
}

}  // namespace tessera::cuda
