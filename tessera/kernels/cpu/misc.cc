// Bias, dropout, gather, scatter_add, add_up_rows, list_rows and fills.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "tessera/base/table_rows.h"
#include "tessera/kernels/cpu/registry/families.h"
#include "tessera/kernels/cpu/rows/random_rows.h"
#include "tessera/kernels/cpu/rows/row_ops.h"
#include "tessera/kernels/cpu/rows/strided.h"
#include "tessera/kernels/cpu/rows/tile_program.h"

namespace tessera::kernels::cpu {
namespace {

constexpr int64_t kGrain = 16384;
// Words of 8 bytes that are filled between two signs that the kernel comes further.
constexpr int64_t kPieceWords = int64_t{1} << 23;

std::optional<PreparedKernel> prepare_bias_add(const KernelRequest& request) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  const TensorView& bias = request.inputs[1];
  if (x.dtype != y.dtype || bias.dtype != y.dtype || y.dtype == DType::kU8 || y.dtype == DType::kBool) {
    return std::nullopt;
  }
  // [c] against [n,c,...] is [c,1,...] as NumPy broadcasts.
  OperandPart seen{bias};
  for (int dim = 2; dim < y.shape.ndim(); ++dim) {
    seen.view.shape.push_back(1);
    seen.view.strides.push_back(1);
  }
  KernelRequest part = request;
  part.inputs[1] = seen.view;
  TileProgram program{.num_inputs = 2};
  program.results = {program.add(ElementOp::kAdd, 0, 1)};
  auto kernel = prepare_tile_program(part, std::move(program), "cpu." + request.op);
  if (kernel) std::erase_if(kernel->in_place, [](const auto& pair) { return pair.first == 1; });
  return kernel;
}

std::optional<PreparedKernel> prepare_dropout(const KernelRequest& request) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  const bool is_half = x.dtype == DType::kBF16 || x.dtype == DType::kF16;
  if ((x.dtype != DType::kF32 && !is_half) || y.dtype != x.dtype || y.num_elements() == 0) return std::nullopt;
  const Ints& global = request.attributes.get_ints("global_shape");
  const Ints& offset = request.attributes.get_ints("offset");
  const Strides index_strides = dense_strides(global.empty() ? y.shape : Shape(global));
  int64_t first = 0;
  for (size_t d = 0; d < offset.size(); ++d) first += offset[d] * index_strides[static_cast<int>(d)];
  auto dims = merge_dims(y.shape, {x.strides, y.strides, index_strides}, 1);
  if (!dims) return std::nullopt;
  const MergedDim inner = dims->back();
  if (inner.strides[0] != 1 || inner.strides[1] != 1) return std::nullopt;
  dims->pop_back();
  DimCounter outer;
  for (const MergedDim& dim : *dims) outer.add(dim);
  const double keep_prob = request.attributes.get_double("keep_prob");
  // u < keep_prob for u = k / 2^24 is k < keep_prob * 2^24, which is exact in f64.
  const auto threshold = static_cast<uint32_t>(std::clamp(std::ceil(keep_prob * 0x1p24), 0.0, 0x1p24));
  const auto run = [=](const KernelArgs& args) {
    constexpr int64_t kPiece = 512;
    const TensorView& step = args.inputs[1];
    const RandomStream stream{static_cast<uint64_t>(args.attributes.get_int("seed")),
                              static_cast<uint64_t>(args.attributes.get_int("stream")),
                              static_cast<uint64_t>(*step.as<int64_t>())};
    const UniformBits draw = uniform_bits();
    const DropRow drop = drop_row();
    const DType dtype = args.outputs[0].dtype;
    const auto element = static_cast<int64_t>(size_bytes(dtype));
    const auto* from = static_cast<const std::byte*>(args.inputs[0].data);
    auto* to = static_cast<std::byte*>(args.outputs[0].data);
    const RowLoad load = row_load(dtype);
    const RowStore store = row_store(dtype);
    // Pieces of rows, so that one long row is shared out too.
    const int64_t pieces = (inner.size + kPiece - 1) / kPiece;
    const int64_t piece_size = std::min(kPiece, inner.size);
    args.parallel_for(outer.count() * pieces, std::max<int64_t>(1, 4096 / piece_size), [&](int64_t begin, int64_t end) {
      uint32_t bits[kPiece];
      float wide[kPiece];
      for (int64_t item = begin; item < end; ++item) {
        const int64_t row = item / pieces;
        const int64_t i = item % pieces * kPiece;
        const int64_t n = std::min(kPiece, inner.size - i);
        const int64_t index = first + outer.offset(row, 2) + i * inner.strides[2];
        draw(stream, static_cast<uint64_t>(index), static_cast<uint64_t>(inner.strides[2]), bits, n);
        const std::byte* source = from + (outer.offset(row, 0) + i) * element;
        std::byte* target = to + (outer.offset(row, 1) + i) * element;
        const auto divisor = static_cast<float>(keep_prob);
        if (dtype == DType::kF32) {
          drop(reinterpret_cast<const float*>(source), bits, threshold, divisor, reinterpret_cast<float*>(target), n);
          continue;
        }
        load(source, wide, static_cast<size_t>(n));
        drop(wide, bits, threshold, divisor, wide, n);
        store(wide, target, static_cast<size_t>(n));
      }
    });
  };
  PreparedKernel kernel{.name = "cpu." + request.op, .run = run};
  if (x.strides == y.strides) kernel.in_place = {{0, 0}};
  return kernel;
}

bool is_index(const TensorView& view) {
  return (view.dtype == DType::kI32 || view.dtype == DType::kI64) && view.is_dense();
}
int64_t index_at(const TensorView& indices, int64_t i) {
  return indices.dtype == DType::kI32 ? static_cast<const int32_t*>(indices.data)[i]
                                      : static_cast<const int64_t*>(indices.data)[i];
}

// A table [rows, ...] and a tensor [indices..., ...] whose rows are runs of memory of equal size.
struct TableRows {
  int64_t num_rows, row_size, table_stride;
};
std::optional<TableRows> rows_of(const KernelRequest& request, const TensorView& table, const TensorView& indices,
                                 const TensorView& expanded) {
  if (table.shape.ndim() == 0 || expanded.num_elements() == 0 || table.num_elements() == 0) return std::nullopt;
  if (normalize_axis(request.attributes.get_int("axis"), table.shape.ndim(), "axis") != 0) return std::nullopt;
  if (!is_index(indices) || !expanded.is_dense() || table.dtype != expanded.dtype) return std::nullopt;
  int64_t row_size = 1;
  for (int dim = table.shape.ndim() - 1; dim > 0; --dim) {
    if (table.shape[dim] != 1 && table.strides[dim] != row_size) return std::nullopt;
    row_size *= table.shape[dim];
  }
  return TableRows{table.shape[0], row_size, table.strides[0]};
}

std::optional<PreparedKernel> prepare_gather(const KernelRequest& request) {
  const auto rows = rows_of(request, request.inputs[0], request.inputs[1], request.outputs[0]);
  if (!rows) return std::nullopt;
  const auto element = static_cast<int64_t>(size_bytes(request.outputs[0].dtype));
  const int64_t row_bytes = rows->row_size * element;
  const int64_t table_stride = rows->table_stride * element;
  const int64_t ahead = prefetched_rows(row_bytes);
  const bool skips = request.attributes.has("skipped");
  const int64_t skipped = skips ? request.attributes.get_int("skipped") : 0;
  const auto gather = [rows = *rows, row_bytes, table_stride, ahead, skips, skipped](const KernelArgs& args,
                                                                                     const auto* indices) {
    const auto* table = static_cast<const std::byte*>(args.inputs[0].data);
    auto* to = static_cast<std::byte*>(args.outputs[0].data);
    const auto is_row = [&](int64_t row) { return row >= 0 && row < rows.num_rows; };
    args.parallel_for(args.inputs[1].num_elements(), std::max<int64_t>(1, 4 * kGrain / row_bytes),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          const int64_t next = i + ahead < end ? static_cast<int64_t>(indices[i + ahead]) : -1;
                          if (is_row(next)) prefetch_row(table + next * table_stride, row_bytes);
                          const auto row = static_cast<int64_t>(indices[i]);
                          if (is_row(row)) {
                            copy_row(table + row * table_stride, to + i * row_bytes, row_bytes);
                          } else if (!skips || row != skipped) {
                            std::memset(to + i * row_bytes, 0, static_cast<size_t>(row_bytes));
                          }
                        }
                      });
  };
  const auto run = [gather](const KernelArgs& args) {
    const TensorView& indices = args.inputs[1];
    indices.dtype == DType::kI32 ? gather(args, indices.as<int32_t>()) : gather(args, indices.as<int64_t>());
  };
  return PreparedKernel{.name = "cpu." + request.op, .run = run};
}

std::optional<PreparedKernel> prepare_scatter_add(const KernelRequest& request) {
  const TensorView& base = request.inputs[0];
  const auto rows = rows_of(request, request.outputs[0], request.inputs[1], request.inputs[2]);
  if (!rows || base.dtype != DType::kF32 || request.outputs[0].dtype != DType::kF32) return std::nullopt;
  if (!base.is_dense() || !request.outputs[0].is_dense()) return std::nullopt;
  const auto run = [rows = *rows](const KernelArgs& args) {
    const auto* from = static_cast<const float*>(args.inputs[0].data);
    const auto* updates = static_cast<const float*>(args.inputs[2].data);
    auto* to = static_cast<float*>(args.outputs[0].data);
    const TensorView& indices = args.inputs[1];
    const int64_t num_updates = indices.num_elements();
    const RowFunction add = row_function(ElementOp::kAdd);
    const int64_t elements = rows.num_rows * rows.row_size;
    if (from != to) {
      args.parallel_for(elements, kGrain, [&](int64_t begin, int64_t end) {
        std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin) * sizeof(float));
      });
    }
    // Every thread has columns of its own and goes through the indices in order: duplicates add up in their order.
    const int64_t grain = std::max<int64_t>(16, kGrain / std::max<int64_t>(1, num_updates));
    args.parallel_for(rows.row_size, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < num_updates; ++i) {
        const int64_t row = index_at(indices, i);
        if (row < 0 || row >= rows.num_rows) continue;
        float* target = to + row * rows.row_size + begin;
        add(target, updates + i * rows.row_size + begin, nullptr, target, static_cast<size_t>(end - begin));
      }
    });
  };
  return PreparedKernel{.name = "cpu." + request.op, .run = run, .in_place = {{0, 0}}};
}

constexpr int64_t kMostIds = int64_t{1} << 30;  // that places count

// Finds the numbers of each part, once each, and where they stand. The ids are dense, and there are some.
class RowNumbers {
 public:
  RowNumbers(const TensorView& ids, const Attributes& attributes)
      : num_rows_(attributes.get_int("num_rows")), num_ids_(ids.num_elements()) {
    const int64_t ids_of_row = num_ids_ / ids.shape[0];
    int64_t longest = 0;
    for (const int64_t bound : attributes.get_ints("bounds")) {
      bounds_.push_back(bound * ids_of_row);
      if (bounds_.size() > 1) longest = std::max(longest, bounds_.back() - bounds_[bounds_.size() - 2]);
    }
    // Half full at most.
    num_buckets_ = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * longest + 2)));
  }

  int64_t num_ids() const { return num_ids_; }
  const std::vector<int64_t>& bounds() const { return bounds_; }  // of the parts, in ids
  int64_t num_buckets() const { return num_buckets_; }

  // `places`: of each id, that of its number among all; -1 where it is passed over. `buckets`: room for as many.
  void find(const TensorView& ids, const TensorView& numbers, int32_t* places, int32_t* buckets) const {
    if (ids.dtype == DType::kI32) {
      find<int32_t>(ids, numbers, places, buckets);
    } else {
      find<int64_t>(ids, numbers, places, buckets);
    }
  }

 private:
  // A bucket has the place of a number, counted from 1; 0: none.
  template <typename Id>
  void find(const TensorView& from, const TensorView& to, int32_t* places, int32_t* buckets) const {
    const auto* ids = static_cast<const Id*>(from.data);
    auto* numbers = static_cast<Id*>(to.data);
    const int shift = 64 - std::countr_zero(static_cast<uint64_t>(num_buckets_));
    const int64_t mask = num_buckets_ - 1;
    for (size_t part = 0; part + 1 < bounds_.size(); ++part) {
      std::memset(buckets, 0, static_cast<size_t>(num_buckets_) * sizeof(int32_t));
      const int64_t end = bounds_[part + 1];
      int64_t next = bounds_[part];
      for (int64_t i = next; i < end; ++i) {
        const Id id = ids[i];
        if (id < 0 || id >= num_rows_) {
          places[i] = -1;
          continue;
        }
        // Fibonacci hashing: neighbours go far apart.
        auto bucket = static_cast<int64_t>((static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15U) >> shift);
        while (buckets[bucket] != 0 && numbers[buckets[bucket] - 1] != id) bucket = (bucket + 1) & mask;
        if (buckets[bucket] == 0) {
          numbers[next++] = id;
          buckets[bucket] = static_cast<int32_t>(next);
        }
        places[i] = buckets[bucket] - 1;
      }
      std::fill(numbers + next, numbers + end, Id{-1});
    }
  }

  int64_t num_rows_;
  int64_t num_ids_;
  std::vector<int64_t> bounds_;
  int64_t num_buckets_ = 0;
};

// add_up_rows, of rows that are runs of memory.
class RowSummer {
 public:
  explicit RowSummer(const KernelRequest& request)
      : numbers_(request.inputs[1], request.attributes),
        clears_(request.attributes.get_bool("clears")),
        row_size_(request.inputs[0].num_elements() / numbers_.num_ids()) {}

  int64_t scratch_bytes() const {
    return (numbers_.num_buckets() + numbers_.num_ids()) * static_cast<int64_t>(sizeof(int32_t));
  }

  template <typename Element>
  void run(const KernelArgs& args) const {
    auto* places = reinterpret_cast<int32_t*>(args.scratch.data());
    numbers_.find(args.inputs[1], args.outputs[1], places, places + numbers_.num_ids());
    // Every thread has columns of its own and goes through the rows in order. A row's place is not behind it, so that
    // sums may take the memory of rows.
    const int64_t grain = std::max<int64_t>(16, kGrain / numbers_.num_ids());
    args.parallel_for(row_size_, grain, [&](int64_t begin, int64_t end) { add_up<Element>(args, places, begin, end); });
  }

 private:
  template <typename Element>
  void add_up(const KernelArgs& args, const int32_t* places, int64_t begin, int64_t end) const {
    const auto* rows = static_cast<const Element*>(args.inputs[0].data);
    auto* sums = static_cast<Element*>(args.outputs[0].data);
    const auto size = static_cast<size_t>(end - begin);
    const auto& bounds = numbers_.bounds();
    for (size_t part = 0; part + 1 < bounds.size(); ++part) {
      int64_t next = bounds[part];
      for (int64_t i = next; i < bounds[part + 1]; ++i) {
        if (places[i] < 0) continue;
        const Element* row = rows + i * row_size_ + begin;
        Element* sum = sums + places[i] * row_size_ + begin;
        if (places[i] == next) {
          if (row != sum) std::memcpy(sum, row, size * sizeof(Element));
          ++next;
        } else if constexpr (std::is_same_v<Element, float>) {
          add_(sum, row, nullptr, sum, size);
        } else {
          for (size_t k = 0; k < size; ++k) sum[k] += row[k];
        }
      }
      for (; clears_ && next < bounds[part + 1]; ++next) {
        std::memset(sums + next * row_size_ + begin, 0, size * sizeof(Element));
      }
    }
  }

  RowNumbers numbers_;
  bool clears_;
  int64_t row_size_;
  RowFunction add_ = row_function(ElementOp::kAdd);
};

std::optional<PreparedKernel> prepare_add_up_rows(const KernelRequest& request) {
  const TensorView& rows = request.inputs[0];
  const TensorView& ids = request.inputs[1];
  if (rows.num_elements() == 0 || ids.num_elements() > kMostIds || !is_index(ids)) return std::nullopt;
  if (!rows.is_dense() || !request.outputs[0].is_dense() || !request.outputs[1].is_dense()) return std::nullopt;
  const RowSummer summer(request);
  PreparedKernel kernel{.name = "cpu." + request.op, .scratch_bytes = summer.scratch_bytes(), .in_place = {{0, 0}}};
  if (rows.dtype == DType::kF32) {
    kernel.run = [summer](const KernelArgs& args) { summer.run<float>(args); };
  } else if (rows.dtype == DType::kF64) {
    kernel.run = [summer](const KernelArgs& args) { summer.run<double>(args); };
  } else {
    return std::nullopt;
  }
  return kernel;
}

std::optional<PreparedKernel> prepare_list_rows(const KernelRequest& request) {
  const TensorView& ids = request.inputs[0];
  if (ids.num_elements() == 0 || ids.num_elements() > kMostIds || !is_index(ids)) return std::nullopt;
  if (!request.outputs[0].is_dense() || !request.outputs[1].is_dense()) return std::nullopt;
  const RowNumbers numbers(ids, request.attributes);
  const auto run = [numbers](const KernelArgs& args) {
    auto* places = static_cast<int32_t*>(args.outputs[1].data);
    numbers.find(args.inputs[0], args.outputs[0], places, reinterpret_cast<int32_t*>(args.scratch.data()));
    const auto& bounds = numbers.bounds();
    for (size_t part = 0; part + 1 < bounds.size(); ++part) {
      const auto begin = static_cast<int32_t>(bounds[part]);
      for (int64_t i = bounds[part]; begin > 0 && i < bounds[part + 1]; ++i) {
        if (places[i] >= 0) places[i] -= begin;
      }
    }
  };
  return PreparedKernel{.name = "cpu." + request.op,
                        .run = run,
                        .scratch_bytes = numbers.num_buckets() * static_cast<int64_t>(sizeof(int32_t))};
}

// fill, zeros_like, ones_like: the bits of one element, repeated over memory without gaps.
std::optional<PreparedKernel> prepare_fill(const KernelRequest& request, double value) {
  const TensorView& y = request.outputs[0];
  if (y.num_elements() == 0) return std::nullopt;
  const auto dims = merge_dims(y.shape, {y.strides}, 0);
  if (!dims || dims->size() != 1 || dims->back().strides[0] != 1) return std::nullopt;
  const Tensor element = Tensor::full({y.dtype, {}}, value);
  const size_t bytes = size_bytes(y.dtype);
  uint64_t bits = 0;
  for (size_t at = 0; at < sizeof bits; at += bytes) {
    std::memcpy(reinterpret_cast<std::byte*>(&bits) + at, element.bytes().data(), bytes);
  }
  const auto total = static_cast<size_t>(y.size_bytes());
  const auto run = [bits, total](const KernelArgs& args) {
    auto* to = static_cast<std::byte*>(args.outputs[0].data);
    const auto words = static_cast<int64_t>(total / sizeof bits);
    args.for_pieces(words, kPieceWords, 4 * kGrain, [&](int64_t begin, int64_t end) {
      if (bits == 0) {
        std::memset(to + begin * 8, 0, static_cast<size_t>(end - begin) * sizeof bits);
        return;
      }
      for (int64_t i = begin; i < end; ++i) std::memcpy(to + i * 8, &bits, sizeof bits);
    });
    std::memcpy(to + words * 8, &bits, total % sizeof bits);
  };
  PreparedKernel kernel{.name = "cpu." + request.op, .run = run};
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (request.inputs[i].type() == y.type()) kernel.in_place.emplace_back(static_cast<int>(i), 0);
  }
  return kernel;
}

}  // namespace

void add_misc(KernelRegistry& registry) {
  registry.add("bias_add", prepare_bias_add);
  registry.add("dropout", prepare_dropout);
  registry.add("gather", prepare_gather);
  registry.add("scatter_add", prepare_scatter_add);
  registry.add("add_up_rows", prepare_add_up_rows);
  registry.add("list_rows", prepare_list_rows);
  registry.add("fill", [](const KernelRequest& request) {
    return prepare_fill(request, request.attributes.get_double("value"));
  });
  registry.add("zeros_like", [](const KernelRequest& request) { return prepare_fill(request, 0); });
  registry.add("ones_like", [](const KernelRequest& request) { return prepare_fill(request, 1); });
}

}  // namespace tessera::kernels::cpu
