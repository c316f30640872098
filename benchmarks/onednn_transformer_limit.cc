// What oneDNN alone needs for the matrix products of one Transformer training step: forward, by data and by weights, of
// all projections, attentions and the head, with weights packed as oneDNN likes them best beforehand. Everything else
// (normalisation, softmax, embedding, the loss, the update) is not counted: a step that uses the same kernels cannot be
// faster than this.
#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "benchmarks/protocol.h"

namespace tessera::benchmarks {
namespace {

using dnnl::memory;

constexpr int64_t kWidth = 512;
constexpr int64_t kInner = 2048;
constexpr int64_t kHeads = 8;
constexpr int64_t kLayers = 6;  // of encoder and decoder each

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// [batch,m,k] x [batch,k,n], so many times.
struct Product {
  int64_t count, batch, m, k, n;
};

std::vector<Product> forward_products(int64_t batch, int64_t tokens, int64_t vocabulary) {
  const int64_t rows = batch * tokens;
  const int64_t attentions = 3 * kLayers;
  return {{4 * attentions, 1, rows, kWidth, kWidth},
          {2 * kLayers, 1, rows, kWidth, kInner},
          {2 * kLayers, 1, rows, kInner, kWidth},
          {attentions, batch * kHeads, tokens, kWidth / kHeads, tokens},
          {attentions, batch * kHeads, tokens, tokens, kWidth / kHeads},
          {1, 1, rows, kWidth, vocabulary}};
}

// Forward, the gradient by the first operand and that by the second.
std::vector<Product> step_products(int64_t batch, int64_t tokens, int64_t vocabulary) {
  std::vector<Product> all;
  for (const Product& p : forward_products(batch, tokens, vocabulary)) {
    all.push_back(p);
    all.push_back({p.count, p.batch, p.m, p.n, p.k});
    all.push_back({p.count, p.batch, p.k, p.m, p.n});
  }
  return all;
}

dnnl::matmul::primitive_desc describe(const Product& p, memory::data_type type, const dnnl::engine& engine) {
  using Tag = memory::format_tag;
  const memory::desc lhs({p.batch, p.m, p.k}, type, Tag::abc);
  const memory::desc rhs({p.batch, p.k, p.n}, type, p.batch == 1 ? Tag::any : Tag::abc);
  const memory::desc out({p.batch, p.m, p.n}, type, Tag::abc);
  return {engine, lhs, rhs, out};
}

// Whether oneDNN has a kernel of its own for it on this CPU; its plain loops ("ref") are no limit of anything.
bool has_kernel(const Product& p, memory::data_type type, const dnnl::engine& engine) {
  try {
    return !std::string_view(describe(p, type, engine).impl_info_str()).starts_with("ref");
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) throw;
    return false;
  }
}

// One product with memory of its own, once written so that no page is untouched.
class Matmul {
 public:
  Matmul(const Product& p, memory::data_type type, const dnnl::engine& engine) : count_(p.count) {
    const dnnl::matmul::primitive_desc desc = describe(p, type, engine);
    primitive_ = dnnl::matmul(desc);
    const auto add = [&](int argument, const memory::desc& of) {
      const memory made(of, engine);
      std::memset(made.get_data_handle(), 0, of.get_size());
      arguments_.emplace(argument, made);
    };
    add(DNNL_ARG_SRC, desc.src_desc());
    add(DNNL_ARG_WEIGHTS, desc.weights_desc());
    add(DNNL_ARG_DST, desc.dst_desc());
  }
  void run(dnnl::stream& stream) const {
    for (int64_t i = 0; i < count_; ++i) primitive_.execute(stream, arguments_);
  }

 private:
  int64_t count_;
  dnnl::matmul primitive_;
  std::unordered_map<int, memory> arguments_;
};

int run(int argc, char** argv) {
  int64_t batch_size = 32;
  int64_t tokens = 64;
  int64_t vocabulary = 20000;
  int threads = 2;
  int warmup_steps = 1;
  std::string precision = "float32";
  CLI::App app("The matrix products of one Transformer training step, by oneDNN alone; see benchmarks/README.md");
  app.add_option("--batch_size", batch_size)->check(CLI::Range(1, 4096));
  app.add_option("--tokens", tokens)->check(CLI::Range(1, 65536));
  app.add_option("--vocabulary", vocabulary)->check(CLI::Range(1, 1 << 24));
  app.add_option("--precision", precision)->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024));
  app.add_option("--warmup_steps", warmup_steps)->check(CLI::Range(0, 1000));
  CLI11_PARSE(app, argc, argv);
  omp_set_num_threads(threads);

  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const std::vector<Product> described = step_products(batch_size, tokens, vocabulary);
  // float32 where oneDNN has no bfloat16 for this CPU: what a step could reach at most is then what float32 reaches.
  const bool half = precision == "bfloat16" && std::all_of(described.begin(), described.end(), [&](const Product& p) {
                      return has_kernel(p, memory::data_type::bf16, engine);
                    });
  const auto type = half ? memory::data_type::bf16 : memory::data_type::f32;
  std::vector<Matmul> products;
  double flops = 0;
  for (const Product& p : described) {
    products.emplace_back(p, type, engine);
    flops += 2.0 * static_cast<double>(p.count) * static_cast<double>(p.batch) * static_cast<double>(p.m) *
             static_cast<double>(p.k) * static_cast<double>(p.n);
  }
  const auto step = [&] {
    const double start = seconds_now();
    for (const Matmul& product : products) product.run(stream);
    stream.wait();
    return seconds_now() - start;
  };
  double last = 1;
  for (int i = 0; i < std::max(warmup_steps, 1); ++i) last = step();
  serve_rounds(
      "tokens/s",
      fmt::format("{}, {:.0f} GFLOP, {:.0f} GFLOP/s", half ? "bfloat16" : "float32", flops / 1e9, flops / last / 1e9),
      [&] { return static_cast<double>(batch_size * tokens) / seconds_of_step_in_round(step); });
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
