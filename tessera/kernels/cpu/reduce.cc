// reduce_sum, reduce_mean, reduce_max and reduce_min of f32 and the half types over any axes, for operands whose
// elements lie next to one another along some dim: that dim is either reduced (rows are summed up) or kept (columns
// are).
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/kernels/cpu/registry/families.h"
#include "tessera/kernels/cpu/rows/reduce_rows.h"
#include "tessera/kernels/cpu/rows/strided.h"
#include "tessera/kernels/cpu/rows/tile_program.h"
#include "tessera/tensor/alignment.h"

namespace tessera::kernels::cpu {
namespace {

// Elements per thread from which on splitting pays.
constexpr int64_t kGrain = 16384;
// Elements that are converted at a time.
constexpr int64_t kPiece = 2048;

struct Reduce {
  RowReduction reduction;
  const ReduceFunctions* functions;
  RowLoad load = nullptr;  // of a half type: a piece at a time is converted
  RowStore store_row = nullptr;
  int64_t element_bytes = 4;
  int64_t result_bytes = 4;  // of an element of the result
  double scale = 1;          // of the result of a sum
  int64_t inner = 1;         // the dim whose elements are neighbours
  bool inner_is_reduced = true;
  int64_t inner_out = 0;  // its stride in the result, where it is kept
  int64_t num_rows = 1;   // where it is kept: the dim next to it if that is reduced
  int64_t row_stride = 0;
  DimCounter kept, reduced;  // the other dims
  int64_t part_bytes = 0;

  float start() const {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    return reduction == RowReduction::kMax ? -kInf : kInf;
  }
  float extreme(const float* x, int64_t n, float so_far) const {
    return reduction == RowReduction::kMax ? functions->max(x, n, so_far) : functions->min(x, n, so_far);
  }

  // A running result: of a sum in f64; an extreme is exact in it.
  double begin() const { return reduction == RowReduction::kSum ? 0 : start(); }
  double combine(double a, double b) const {
    if (reduction == RowReduction::kSum) return a + b;
    if (std::isnan(a)) return a;
    return (reduction == RowReduction::kMax ? a > b : a < b) ? a : b;
  }
  float end(double value) const { return static_cast<float>(reduction == RowReduction::kSum ? value * scale : value); }

  // `so_far` combined with n neighbours from `x` on.
  double row(const std::byte* x, int64_t n, double so_far) const {
    if (load == nullptr) return row_of_floats(reinterpret_cast<const float*>(x), n, so_far);
    float piece[kPiece];
    for (int64_t i = 0; i < n; i += kPiece) {
      const int64_t count = std::min(kPiece, n - i);
      load(x + i * element_bytes, piece, static_cast<size_t>(count));
      so_far = row_of_floats(piece, count, so_far);
    }
    return so_far;
  }
  double row_of_floats(const float* x, int64_t n, double so_far) const {
    if (reduction == RowReduction::kSum) return so_far + functions->sum(x, n);
    return extreme(x, n, static_cast<float>(so_far));
  }
  void put(std::byte* y, double value) const {
    const float rounded = end(value);
    store_row(&rounded, y, 1);
  }

  double* sums_at(const KernelArgs& args, int part) const {
    return reinterpret_cast<double*>(args.scratch.data() + part * part_bytes);
  }

  void run(const KernelArgs& args) const {
    const auto* x = static_cast<const std::byte*>(args.inputs[0].data);
    auto* y = static_cast<std::byte*>(args.outputs[0].data);
    inner_is_reduced ? run_rows(args, x, y) : run_columns(args, x, y);
  }

  // The elements of one result lie in `reduced.count()` rows of `inner` neighbours.
  void run_rows(const KernelArgs& args, const std::byte* x, std::byte* y) const {
    const auto at = [&](int64_t element) { return element * element_bytes; };
    const int threads = args.parallel_for.num_threads();
    const int64_t elements = reduced.count() * inner;
    if (kept.count() >= threads || elements < 2 * kGrain) {
      const int64_t grain = std::max<int64_t>(1, kGrain / elements);
      args.parallel_for(kept.count(), grain, [&](int64_t begin_item, int64_t end_item) {
        if (reduction == RowReduction::kSum && load == nullptr && reduced.count() == 1 && kept.is_line()) {
          return sum_line(x, y, begin_item, end_item);
        }
        for (int64_t k = begin_item; k < end_item; ++k) {
          double result = begin();
          for (int64_t r = 0; r < reduced.count(); ++r) {
            result = row(x + at(kept.offset(k, 0) + reduced.offset(r, 0)), inner, result);
          }
          put(y + kept.offset(k, 1) * result_bytes, result);
        }
      });
      return;
    }
    // Few large results: each is split over the threads, along the rows or within the one there is.
    const bool by_row = reduced.count() >= threads;
    const int64_t items = by_row ? reduced.count() : inner;
    const int64_t grain = by_row ? std::max<int64_t>(1, kGrain / inner) : kGrain;
    const int parts = args.parallel_for.num_parts(items, grain);
    for (int64_t k = 0; k < kept.count(); ++k) {
      const std::byte* from = x + at(kept.offset(k, 0));
      args.parallel_for.with_parts(items, grain, [&](int64_t first, int64_t last, int part) {
        double result = begin();
        for (int64_t r = by_row ? first : 0; r < (by_row ? last : reduced.count()); ++r) {
          const std::byte* data = from + at(reduced.offset(r, 0));
          result = by_row ? row(data, inner, result) : row(data + at(first), last - first, result);
        }
        *sums_at(args, part) = result;
      });
      double result = *sums_at(args, 0);
      for (int part = 1; part < parts; ++part) result = combine(result, *sums_at(args, part));
      put(y + kept.offset(k, 1) * result_bytes, result);
    }
  }

  // Rows at equal distances are summed up without a call for each.
  void sum_line(const std::byte* x, std::byte* y, int64_t first, int64_t last) const {
    constexpr int64_t kRows = 128;
    double sums[kRows];
    float rounded[kRows];
    const int64_t from = kept.distance(0);
    const int64_t to = kept.distance(1);
    for (int64_t k = first; k < last; k += kRows) {
      const int64_t count = std::min(kRows, last - k);
      const auto* rows = reinterpret_cast<const float*>(x) + k * from;
      functions->sum_rows({.data = rows, .rows = count, .stride = from, .columns = inner}, sums);
      for (int64_t i = 0; i < count; ++i) rounded[i] = end(sums[i]);
      if (to == 1) {
        store_row(rounded, y + k * result_bytes, static_cast<size_t>(count));
        continue;
      }
      for (int64_t i = 0; i < count; ++i) store_row(&rounded[i], y + (k + i) * to * result_bytes, 1);
    }
  }

  static int64_t converted_rows(int64_t columns) { return std::max<int64_t>(1, kPiece / columns); }

  // The sums (extremes) of columns [first, last) over rows [row, last_row) of every reduced matrix, in part `part`.
  void reduce_columns(const KernelArgs& args, const std::byte* x, int64_t row, int64_t last_row, int64_t first,
                      int64_t last, int part) const {
    const int64_t columns = last - first;
    double* sums = sums_at(args, part);
    auto* partial = reinterpret_cast<float*>(sums + columns);
    std::fill_n(sums, columns, 0.0);
    if (reduction != RowReduction::kSum) std::fill_n(partial, columns, start());
    const int64_t block_rows = load == nullptr ? last_row - row : converted_rows(columns);
    for (int64_t r = 0; r < reduced.count(); ++r) {
      for (int64_t from = row; from < last_row; from += block_rows) {
        const int64_t count = std::min(block_rows, last_row - from);
        const std::byte* data = x + (reduced.offset(r, 0) + from * row_stride + first) * element_bytes;
        Rows rows{reinterpret_cast<const float*>(data), count, row_stride, columns};
        if (load != nullptr) {
          float* converted = partial + columns;
          for (int64_t i = 0; i < count; ++i) {
            load(data + i * row_stride * element_bytes, converted + i * columns, static_cast<size_t>(columns));
          }
          rows = {converted, count, columns, columns};
        }
        switch (reduction) {
          case RowReduction::kSum: functions->add_columns(rows, partial, sums); break;
          case RowReduction::kMax: functions->max_columns(rows, partial); break;
          case RowReduction::kMin: functions->min_columns(rows, partial); break;
        }
      }
    }
    if (reduction != RowReduction::kSum) std::copy_n(partial, columns, sums);
  }

  void store(const double* sums, std::byte* y, int64_t first, int64_t last) const {
    for (int64_t c = first; c < last; ++c) put(y + c * inner_out * result_bytes, sums[c - first]);
  }

  void run_columns(const KernelArgs& args, const std::byte* x, std::byte* y) const {
    const auto at = [&](int64_t element) { return element * element_bytes; };
    const int threads = args.parallel_for.num_threads();
    const int64_t elements = inner * num_rows * reduced.count();
    if (kept.count() >= threads || elements < 2 * kGrain) {
      args.parallel_for.with_parts(kept.count(), std::max<int64_t>(1, kGrain / elements),
                                   [&](int64_t first, int64_t last, int part) {
                                     for (int64_t k = first; k < last; ++k) {
                                       reduce_columns(args, x + at(kept.offset(k, 0)), 0, num_rows, 0, inner, part);
                                       store(sums_at(args, part), y + kept.offset(k, 1) * result_bytes, 0, inner);
                                     }
                                   });
      return;
    }
    for (int64_t k = 0; k < kept.count(); ++k) {
      const std::byte* from = x + at(kept.offset(k, 0));
      std::byte* to = y + kept.offset(k, 1) * result_bytes;
      if (num_rows < inner) {
        args.parallel_for.with_parts(inner, std::max<int64_t>(64, kGrain / (num_rows * reduced.count())),
                                     [&](int64_t first, int64_t last, int part) {
                                       reduce_columns(args, from, 0, num_rows, first, last, part);
                                       store(sums_at(args, part), to, first, last);
                                     });
        continue;
      }
      const int64_t grain = std::max<int64_t>(1, kGrain / (inner * reduced.count()));
      args.parallel_for.with_parts(num_rows, grain, [&](int64_t first, int64_t last, int part) {
        reduce_columns(args, from, first, last, 0, inner, part);
      });
      double* sums = sums_at(args, 0);
      for (int part = 1; part < args.parallel_for.num_parts(num_rows, grain); ++part) {
        const double* more = sums_at(args, part);
        for (int64_t c = 0; c < inner; ++c) sums[c] = combine(sums[c], more[c]);
      }
      store(sums, to, 0, inner);
    }
  }
};

std::optional<PreparedKernel> prepare(const KernelRequest& request, RowReduction reduction, bool mean) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  const bool is_half = x.dtype == DType::kBF16 || x.dtype == DType::kF16;
  if ((x.dtype != DType::kF32 && !is_half) || x.num_elements() == 0) return std::nullopt;
  const Ints& axes = request.attributes.get_ints("axes");
  if (axes.empty()) {
    if (y.dtype != x.dtype) return std::nullopt;
    TileProgram copy{.num_inputs = 1};
    copy.results = {0};
    return prepare_tile_program(request, std::move(copy), "cpu." + request.op);
  }
  const bool keep_dims = request.attributes.get_bool("keep_dims");
  Strides out = x.strides;
  std::vector<bool> is_reduced(static_cast<size_t>(x.shape.ndim()), false);
  int64_t count = 1;
  for (const int64_t axis : axes) {
    is_reduced[static_cast<size_t>(axis)] = true;
    count *= x.shape[static_cast<int>(axis)];
  }
  for (int dim = 0, kept = 0; dim < x.shape.ndim(); ++dim) {
    out[dim] = is_reduced[static_cast<size_t>(dim)] ? 0 : y.strides[kept];
    if (keep_dims || !is_reduced[static_cast<size_t>(dim)]) ++kept;
  }
  auto dims = merge_dims(x.shape, {x.strides, out}, 0);
  if (!dims || dims->back().strides[0] != 1) return std::nullopt;

  Reduce reduce{.reduction = reduction, .functions = &reduce_functions(), .scale = 1};
  if (is_half) reduce.load = row_load(x.dtype);
  reduce.store_row = row_store(y.dtype);
  reduce.result_bytes = static_cast<int64_t>(size_bytes(y.dtype));
  reduce.element_bytes = static_cast<int64_t>(size_bytes(x.dtype));
  if (mean) reduce.scale = 1.0 / static_cast<double>(count);
  const bool single = x.num_elements() == 1;
  reduce.inner = dims->back().size;
  reduce.inner_out = dims->back().strides[1];
  reduce.inner_is_reduced = single || reduce.inner_out == 0;
  dims->pop_back();
  if (!reduce.inner_is_reduced && !dims->empty() && dims->back().strides[1] == 0) {
    reduce.num_rows = dims->back().size;
    reduce.row_stride = dims->back().strides[0];
    dims->pop_back();
  }
  for (const MergedDim& dim : *dims) (dim.strides[1] == 0 ? reduce.reduced : reduce.kept).add(dim);
  const int64_t columns = reduce.inner_is_reduced ? 1 : reduce.inner;
  int64_t bytes = columns * static_cast<int64_t>(sizeof(double) + sizeof(float));
  if (is_half) bytes += Reduce::converted_rows(columns) * columns * static_cast<int64_t>(sizeof(float));
  reduce.part_bytes = aligned(bytes);
  const int64_t scratch_bytes = reduce.part_bytes * request.num_threads;
  return PreparedKernel{.name = "cpu." + request.op,
                        .run = [reduce = std::make_shared<const Reduce>(std::move(reduce))](
                                   const KernelArgs& args) { reduce->run(args); },
                        .scratch_bytes = scratch_bytes};
}

}  // namespace

void add_reductions(KernelRegistry& registry) {
  registry.add("reduce_sum", [](const KernelRequest& r) { return prepare(r, RowReduction::kSum, /*mean=*/false); });
  registry.add("reduce_mean", [](const KernelRequest& r) { return prepare(r, RowReduction::kSum, /*mean=*/true); });
  registry.add("reduce_max", [](const KernelRequest& r) { return prepare(r, RowReduction::kMax, /*mean=*/false); });
  registry.add("reduce_min", [](const KernelRequest& r) { return prepare(r, RowReduction::kMin, /*mean=*/false); });
}

}  // namespace tessera::kernels::cpu
