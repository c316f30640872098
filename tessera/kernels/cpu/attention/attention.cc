// Attention and its gradient, block by block: the scores of a block are made, weighed and used while they lie in the
// cache (Dao et al., "FlashAttention", 2022; a block has whole rows of scores, so that no row is rescaled).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "tessera/kernels/cpu/attention/attention_blocks.h"
#include "tessera/kernels/cpu/registry/families.h"

namespace tessera::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

// Which block: some heads and query positions of a batch row.
struct Block {
  int64_t row, head, query;
  int64_t heads, rows;
};

// Scratch of one thread for the scores of a block, and for the same numbers as a half type where products are made of
// those.
struct ScoreMatrix {
  int64_t offset = 0;
  int64_t half_offset = 0;
  DType dtype;

  ScoreMatrix(const AttentionProblem& problem, const BlockSize& block, DType dtype, ScratchPlan& scratch)
      : dtype(dtype) {
    const int64_t elements = block.heads * block.rows * problem.keys;
    offset = scratch.add(elements * kFloatBytes);
    if (dtype != DType::kF32) half_offset = scratch.add(elements * static_cast<int64_t>(size_bytes(dtype)));
  }
  float* row(const KernelArgs& args, int64_t index, int64_t keys) const {
    return reinterpret_cast<float*>(args.scratch.data() + offset) + index * keys;
  }
  void* floats(const KernelArgs& args) const { return args.scratch.data() + offset; }
  // What products read.
  const void* factor(const KernelArgs& args) const {
    return args.scratch.data() + (dtype == DType::kF32 ? offset : half_offset);
  }
  // Rounds a finished row for the products.
  void finish(const KernelArgs& args, int64_t index, int64_t keys) const {
    if (dtype == DType::kF32) return;
    auto* to = args.scratch.data() + half_offset + index * keys * static_cast<int64_t>(size_bytes(dtype));
    row_store(dtype)(row(args, index, keys), to, static_cast<size_t>(keys));
  }
};

float* lse_at(const TensorView& lse, const Block& block, int64_t head, int64_t row) {
  return lse.as<float>() + block.row * lse.strides[0] + (block.head + head) * lse.strides[1] +
         (block.query + row) * lse.strides[2];
}

// Calls f(block) for the blocks that a thread has of all.
template <typename F>
void for_each_block(const AttentionProblem& problem, const BlockSize& size, int64_t begin, int64_t end, F&& f) {
  const int64_t per_sequence = (problem.queries + size.rows - 1) / size.rows;
  const int64_t groups = problem.heads / size.heads;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t query = i % per_sequence * size.rows;
    const int64_t group = i / per_sequence;
    f(Block{group / groups, group % groups * size.heads, query, size.heads,
            std::min(size.rows, problem.queries - query)});
  }
}

// Forward
// --------------------------------------------------------------------------------------------------------------

class Forward {
 public:
  Forward(const KernelRequest& request, bool widen, ScratchPlan& scratch)
      : problem_(request, 0, 3),
        size_(block_size(problem_, request.num_threads)),
        operands_(request, 3, 1, widen, scratch) {
    for (int i = 0; i < request.num_threads; ++i) threads_.emplace_back(*this, scratch);
  }

  bool is_slow() const { return threads_[0].whole.is_slow(); }

  void run(const KernelArgs& given) {
    operands_.run(given, [&](const KernelArgs& args) {
      const int64_t per_sequence = (problem_.queries + size_.rows - 1) / size_.rows;
      const int64_t blocks = problem_.batch * problem_.heads / size_.heads * per_sequence;
      args.parallel_for.with_parts(blocks, 1, [&](int64_t begin, int64_t end, int part) {
        const OpenMpThreads alone(1);
        Thread& thread = threads_[static_cast<size_t>(part)];
        for_each_block(problem_, size_, begin, end, [&](const Block& block) { attend(args, block, thread); });
      });
    });
  }

 private:
  struct Products {
    HeadProduct scores, mix;
    Products(const Forward& f, int64_t rows, DType dtype, ScratchPlan& scratch)
        : scores({f.operands_.input(0), f.size_.heads, rows},
                 HeadMatrix(f.operands_.input(1), f.size_.heads, f.problem_.keys).transposed(),
                 {DType::kF32, f.size_.heads, rows, f.problem_.keys}, false, scratch),
          mix({dtype, f.size_.heads, rows, f.problem_.keys}, {f.operands_.input(2), f.size_.heads, f.problem_.keys},
              {f.operands_.output(0), f.size_.heads, rows}, false, scratch) {}
    bool is_slow() const { return scores.is_slow() || mix.is_slow(); }
  };
  struct Thread {
    Products whole;
    std::optional<Products> rest;  // of the last block of a sequence, where it has fewer rows
    ScoreMatrix weights;
    RowExtras extras;
    Thread(const Forward& f, ScratchPlan& scratch)
        : whole(f, f.size_.rows, f.dtype(), scratch),
          weights(f.problem_, f.size_, f.dtype(), scratch),
          extras(f.problem_, scratch) {
      const int64_t left = f.problem_.queries % f.size_.rows;
      if (left > 0) rest.emplace(f, left, f.dtype(), scratch);
    }
  };
  DType dtype() const { return operands_.input(0).dtype; }

  void attend(const KernelArgs& args, const Block& block, Thread& thread) const {
    Products& products = block.rows == size_.rows ? thread.whole : *thread.rest;
    products.scores.run(at(args.inputs[0], block.row, block.query, block.head),
                        at(args.inputs[1], block.row, 0, block.head), thread.weights.floats(args), args.scratch);
    for (int64_t head = 0; head < block.heads; ++head) {
      for (int64_t row = 0; row < block.rows; ++row) weigh(args, block, head, row, thread);
    }
    products.mix.run(thread.weights.factor(args), at(args.inputs[2], block.row, 0, block.head),
                     at(args.outputs[0], block.row, block.query, block.head), args.scratch);
  }

  // The weights of one query over its scores.
  void weigh(const KernelArgs& args, const Block& block, int64_t head, int64_t row, const Thread& thread) const {
    const AttentionRows& rows = attention_rows();
    const int64_t index = head * block.rows + row;
    const int64_t query = block.query + row;
    float* x = thread.weights.row(args, index, problem_.keys);
    const int64_t visible = problem_.visible(query);
    const float* mask = thread.extras.mask(args, block.row, block.head + head, query);
    const float largest = rows.scale_and_mask(x, static_cast<float>(problem_.scale), mask, visible);
    float* lse = lse_at(args.outputs[1], block, head, row);
    if (largest == -kInfinity) {  // sees no key
      std::fill_n(x, problem_.keys, 0.0F);
      *lse = kInfinity;
    } else {
      const float sum = rows.exponentials(x, largest, x, visible);
      rows.multiply(x, 1 / sum, visible);
      std::fill_n(x + visible, problem_.keys - visible, 0.0F);
      *lse = largest + std::log(sum);
      if (problem_.step) {
        thread.extras.draw(args, block.row, block.head + head, query);
        thread.extras.drop(args, x, x);
      }
    }
    thread.weights.finish(args, index, problem_.keys);
  }

  AttentionProblem problem_;
  BlockSize size_;
  AttentionOperands operands_;
  std::vector<Thread> threads_;
};

// Backward
// -------------------------------------------------------------------------------------------------------------

// S = scale Q K' + mask, W = exp(S - lse), dV = W' dO, dW = dO V', dS = W (dW - delta) with delta the sum of dO O over
// a row's features, dQ = scale dS K, dK = scale dS' Q. The blocks of a sequence follow one another on one thread, which
// adds up dK and dV.
class Backward {
 public:
  Backward(const KernelRequest& request, bool widen, ScratchPlan& scratch)
      : problem_(request, 1, 6),
        size_(block_size(problem_, request.num_threads)),
        operands_(request, 5, 3, widen, scratch),
        adds_up_(size_.rows < problem_.queries) {
    for (int i = 0; i < request.num_threads; ++i) threads_.emplace_back(*this, scratch);
  }

  bool is_slow() const { return threads_[0].whole.is_slow(); }

  void run(const KernelArgs& given) {
    operands_.run(given, [&](const KernelArgs& args) {
      const int64_t groups = problem_.heads / size_.heads;
      args.parallel_for.with_parts(problem_.batch * groups, 1, [&](int64_t begin, int64_t end, int part) {
        const OpenMpThreads alone(1);
        Thread& thread = threads_[static_cast<size_t>(part)];
        for (int64_t i = begin; i < end; ++i) {
          find_gradients(args, i / groups, i % groups * size_.heads, thread);
        }
      });
    });
  }

 private:
  struct Products {
    HeadProduct scores, by_weights, value, query, key;
    Products(const Backward& b, int64_t rows, ScratchPlan& scratch)
        : scores(b.of(1, rows), b.of(2, b.problem_.keys).transposed(), b.floats(rows, b.problem_.keys), false, scratch),
          by_weights(b.of(0, rows), b.of(3, b.problem_.keys).transposed(), b.floats(rows, b.problem_.keys), false,
                     scratch),
          value(b.factor(rows).transposed(), b.of(0, rows), b.sum(2), b.adds_up_, scratch),
          query(b.factor(rows), b.of(2, b.problem_.keys), {b.operands_.output(0), b.size_.heads, rows}, false, scratch),
          key(b.factor(rows).transposed(), b.of(1, rows), b.sum(1), b.adds_up_, scratch) {}
    bool is_slow() const {
      return scores.is_slow() || by_weights.is_slow() || value.is_slow() || query.is_slow() || key.is_slow();
    }
  };
  struct Thread {
    Products whole;
    std::optional<Products> rest;
    ScoreMatrix weights, by_weights;
    RowExtras extras;
    int64_t key_sums, value_sums;       // of all blocks of a sequence, f32
    int64_t out_offset, by_out_offset;  // a row of out and of dout as f32, where they are not
    Thread(const Backward& b, ScratchPlan& scratch)
        : whole(b, b.size_.rows, scratch),
          weights(b.problem_, b.size_, b.dtype(), scratch),
          by_weights(b.problem_, b.size_, b.dtype(), scratch),
          extras(b.problem_, scratch),
          key_sums(scratch.add(b.adds_up_ ? b.problem_.keys * b.problem_.depth * b.size_.heads * kFloatBytes : 0)),
          value_sums(
              scratch.add(b.adds_up_ ? b.problem_.keys * b.problem_.value_depth * b.size_.heads * kFloatBytes : 0)),
          out_offset(scratch.add(b.problem_.value_depth * kFloatBytes)),
          by_out_offset(scratch.add(b.problem_.value_depth * kFloatBytes)) {
      const int64_t left = b.problem_.queries % b.size_.rows;
      if (left > 0) rest.emplace(b, left, scratch);
    }
  };

  DType dtype() const { return operands_.input(0).dtype; }
  HeadMatrix of(size_t input, int64_t tokens) const { return {operands_.input(input), size_.heads, tokens}; }
  HeadMatrix floats(int64_t rows, int64_t columns) const { return {DType::kF32, size_.heads, rows, columns}; }
  HeadMatrix factor(int64_t rows) const { return {dtype(), size_.heads, rows, problem_.keys}; }
  // Where dkey (1) or dvalue (2) is added up.
  HeadMatrix sum(size_t output) const {
    if (!adds_up_) return {operands_.output(output), size_.heads, problem_.keys};
    return floats(problem_.keys, operands_.output(output).shape[3]);
  }

  void find_gradients(const KernelArgs& args, int64_t row, int64_t head, Thread& thread) const {
    const auto sums_at = [&](int64_t offset) { return reinterpret_cast<float*>(args.scratch.data() + offset); };
    const int64_t tokens = problem_.keys * size_.heads;
    void* dkey = at(args.outputs[1], row, 0, head);
    void* dvalue = at(args.outputs[2], row, 0, head);
    if (adds_up_) {
      dkey = sums_at(thread.key_sums);
      dvalue = sums_at(thread.value_sums);
      std::fill_n(sums_at(thread.key_sums), tokens * problem_.depth, 0.0F);
      std::fill_n(sums_at(thread.value_sums), tokens * problem_.value_depth, 0.0F);
    }
    for (int64_t query = 0; query < problem_.queries; query += size_.rows) {
      const Block block{row, head, query, size_.heads, std::min(size_.rows, problem_.queries - query)};
      add_block(args, block, dkey, dvalue, thread);
    }
    if (adds_up_) {
      store_sums(args.outputs[1], row, head, sums_at(thread.key_sums));
      store_sums(args.outputs[2], row, head, sums_at(thread.value_sums));
    }
  }

  void store_sums(const TensorView& to, int64_t row, int64_t head, const float* sums) const {
    const auto features = static_cast<size_t>(to.shape[3]);
    const RowStore store = row_store(to.dtype);
    for (int64_t h = 0; h < size_.heads; ++h) {
      for (int64_t s = 0; s < problem_.keys; ++s, sums += features) store(sums, at(to, row, s, head + h), features);
    }
  }

  void add_block(const KernelArgs& args, const Block& block, void* dkey, void* dvalue, Thread& thread) const {
    Products& products = block.rows == size_.rows ? thread.whole : *thread.rest;
    const auto of_queries = [&](size_t i) { return at(args.inputs[i], block.row, block.query, block.head); };
    const auto of_keys = [&](size_t i) { return at(args.inputs[i], block.row, 0, block.head); };
    products.scores.run(of_queries(1), of_keys(2), thread.weights.floats(args), args.scratch);
    products.by_weights.run(of_queries(0), of_keys(3), thread.by_weights.floats(args), args.scratch);
    for (int64_t head = 0; head < block.heads; ++head) {
      for (int64_t row = 0; row < block.rows; ++row) weigh(args, block, head, row, thread);
    }
    products.value.run(thread.weights.factor(args), of_queries(0), dvalue, args.scratch);
    products.query.run(thread.by_weights.factor(args), of_keys(2),
                       at(args.outputs[0], block.row, block.query, block.head), args.scratch);
    products.key.run(thread.by_weights.factor(args), of_queries(1), dkey, args.scratch);
  }

  // The weights of one query over its scores, and what flows back into the scores over the cotangents of the weights.
  void weigh(const KernelArgs& args, const Block& block, int64_t head, int64_t row, const Thread& thread) const {
    const int64_t index = head * block.rows + row;
    const int64_t query = block.query + row;
    const int64_t keys = problem_.keys;
    const int64_t visible = problem_.visible(query);
    float* w = thread.weights.row(args, index, keys);
    float* dw = thread.by_weights.row(args, index, keys);
    const float* mask = thread.extras.mask(args, block.row, block.head + head, query);
    if (problem_.step) {
      thread.extras.draw(args, block.row, block.head + head, query);
      thread.extras.drop(args, dw, dw);
    }
    const float lse = *lse_at(args.inputs[5], block, head, row);
    attention_rows().weights_and_gradients(w, dw, mask, static_cast<float>(problem_.scale), lse,
                                           delta(args, block, head, row, thread), visible);
    std::fill_n(w + visible, keys - visible, 0.0F);
    std::fill_n(dw + visible, keys - visible, 0.0F);
    if (problem_.step) thread.extras.drop(args, w, w);
    thread.weights.finish(args, index, keys);
    thread.by_weights.finish(args, index, keys);
  }

  float delta(const KernelArgs& args, const Block& block, int64_t head, int64_t row, const Thread& thread) const {
    const auto floats_of = [&](size_t input, int64_t scratch) {
      const TensorView& view = args.inputs[input];
      const void* from = at(view, block.row, block.query + row, block.head + head);
      if (view.dtype == DType::kF32) return static_cast<const float*>(from);
      auto* to = reinterpret_cast<float*>(args.scratch.data() + scratch);
      row_load(view.dtype)(from, to, static_cast<size_t>(problem_.value_depth));
      return static_cast<const float*>(to);
    };
    return attention_rows().dot(floats_of(0, thread.by_out_offset), floats_of(4, thread.out_offset),
                                problem_.value_depth);
  }

  AttentionProblem problem_;
  BlockSize size_;
  AttentionOperands operands_;
  bool adds_up_;
  std::vector<Thread> threads_;
};

// In their own dtype where oneDNN has fast code for it on this CPU, else in f32.
template <typename Kernel>
std::optional<PreparedKernel> prepare(const KernelRequest& request) {
  for (const auto& views : {request.inputs, request.outputs}) {
    for (const TensorView& view : views) {
      if (view.dtype == DType::kF64 || view.num_elements() == 0) return std::nullopt;
    }
  }
  const OpenMpThreads alone(1);
  const auto make = [&](bool widen) -> std::optional<PreparedKernel> {
    ScratchPlan scratch;
    const auto kernel = std::make_shared<Kernel>(request, widen, scratch);
    if (kernel->is_slow() && !widen) return std::nullopt;
    return PreparedKernel{.name = "cpu." + request.op,
                          .run = [kernel](const KernelArgs& args) { kernel->run(args); },
                          .scratch_bytes = scratch.bytes()};
  };
  try {
    if (auto kernel = make(false)) return kernel;
  } catch (const dnnl::error&) {
    // No code at all for this dtype.
  }
  return make(true);
}

}  // namespace

void add_attention(KernelRegistry& registry) {
  registry.add("attention", prepare<Forward>);
  registry.add("attention_grad", prepare<Backward>);
}

}  // namespace tessera::kernels::cpu
