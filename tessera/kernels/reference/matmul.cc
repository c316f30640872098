#include "tessera/kernels/reference/matmul.h"
#include "tessera/base/error.h"
#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/panel.h"
#include "tessera/kernels/reference/loops/result_dtype.h"

namespace tessera::kernels::reference {
namespace {

// One product: out[m,n] = lhs[m,k] rhs[k,n], each with its two strides as the flags read it.
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 0;

  Matrix(const TensorView& view, bool transposed) {
    const int ndim = view.shape.ndim();
    const int row = transposed ? ndim - 1 : ndim - 2;
    const int column = transposed ? ndim - 2 : ndim - 1;
    rows = view.shape[row];
    columns = view.shape[column];
    row_stride = view.strides[row];
    column_stride = view.strides[column];
  }
};

// Where the matrix with linear index `index` over the leading dims begins.
int64_t batch_offset(const TensorView& view, int64_t index) {
  int64_t offset = 0;
  for (int dim = view.shape.ndim() - 3; dim >= 0; --dim) {
    offset += index % view.shape[dim] * view.strides[dim];
    index /= view.shape[dim];
  }
  return offset;
}
int64_t batch_size(const Shape& shape) {
  int64_t size = 1;
  for (int dim = 0; dim < shape.ndim() - 2; ++dim) size *= shape[dim];
  return size;
}

template <int Width, typename T, typename Out>
void multiply(const KernelArgs& args) {
  const TensorView& lhs = args.inputs[0];
  const TensorView& rhs = args.inputs[1];
  const TensorView& out = args.outputs[0];
  const Matrix a(lhs, args.attributes.get_bool("transpose_a"));
  const Matrix b(rhs, args.attributes.get_bool("transpose_b"));
  const Matrix c(out, false);
  const int64_t batch = batch_size(out.shape);
  const int64_t depth = a.columns;
  const int64_t panels = num_blocks(c.columns, Width);
  auto* packed = reinterpret_cast<Sum<T>*>(args.scratch.data());

  args.parallel_for(batch * panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const T* from = rhs.as<T>() + batch_offset(rhs, item / panels);
      const int64_t first = item % panels * Width;
      Sum<T>* to = packed + item * depth * Width;
      for (int64_t i = 0; i < depth; ++i) {
        for (int64_t j = 0; j < Width; ++j, ++to) {
          const bool inside = first + j < b.columns;
          *to = inside ? static_cast<Sum<T>>(from[i * b.row_stride + (first + j) * b.column_stride]) : Sum<T>(0);
        }
      }
    }
  });

  const int64_t row_blocks = num_blocks(c.rows, kMaxRows);
  args.parallel_for(batch * row_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t entry = item / row_blocks;
      const int64_t row = item % row_blocks * kMaxRows;
      const int rows = static_cast<int>(std::min<int64_t>(kMaxRows, c.rows - row));
      int64_t offsets[kMaxRows];
      for (int r = 0; r < rows; ++r) offsets[r] = (row + r) * a.row_stride;
      const T* from = lhs.as<T>() + batch_offset(lhs, entry);
      Out* to = out.as<Out>() + batch_offset(out, entry);
      for (int64_t panel = 0; panel < panels; ++panel) {
        Sum<T> sums[kMaxRows * Width] = {};
        multiply_panel<Width>(from, offsets, rows, a.column_stride, depth,
                              packed + (entry * panels + panel) * depth * Width, sums);
        const int64_t columns = std::min<int64_t>(Width, c.columns - panel * Width);
        for (int r = 0; r < rows; ++r) {
          for (int64_t j = 0; j < columns; ++j) {
            to[(row + r) * c.row_stride + (panel * Width + j) * c.column_stride] =
                static_cast<Out>(sums[r * Width + j]);
          }
        }
      }
    }
  });
}

void run_matmul(const KernelArgs& args) {
  if (args.outputs[0].num_elements() == 0) return;
  dispatch_width(panel_width(args.outputs[0].shape.back()), [&](auto width) {
    dispatch_dtype(args.inputs[0].dtype, "matmul", [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_same_v<T, bool>) {
        throw_unsupported_dtype(DType::kBool, "matmul");
      } else {
        dispatch_result<T>(args.outputs[0].dtype,
                           [&](auto out) { multiply<decltype(width)::value, T, decltype(out)>(args); });
      }
    });
  });
}

KernelFactory matmul_factory(const std::string& name) {
  return [name](const KernelRequest& request) -> std::optional<PreparedKernel> {
    const Shape& out = request.outputs[0].shape;
    if (request.outputs[0].dtype == DType::kBool) return std::nullopt;
    const Matrix lhs(request.inputs[0], request.attributes.get_bool("transpose_a"));
    return PreparedKernel{
        .name = name, .run = run_matmul, .scratch_bytes = batch_size(out) * panels_bytes(lhs.columns, out.back())};
  };
}

// Sums in the compute type, integers modulo 2^bits.
template <typename T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return static_cast<T>(static_cast<ComputeType<T>>(a) + static_cast<ComputeType<T>>(b));
  }
}

void run_bias_add(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& bias = args.inputs[1];
  const TensorView& y = args.outputs[0];
  if (y.num_elements() == 0) return;
  // Dims beyond the second one, of which there may be up to six.
  Shape tail;
  for (int dim = 2; dim < x.shape.ndim(); ++dim) tail.push_back(x.shape[dim]);
  const int64_t pixels = tail.num_elements();
  const int64_t channels = x.shape[1];
  dispatch_dtype(y.dtype, "bias_add", [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, bool>) {
      throw_unsupported_dtype(DType::kBool, "bias_add");
    } else {
      const T* x_data = x.as<T>();
      const T* bias_data = bias.as<T>();
      T* y_data = y.as<T>();
      args.parallel_for(x.shape[0] * pixels, 64, [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
          int64_t from = item / pixels * x.strides[0];
          int64_t to = item / pixels * y.strides[0];
          int64_t rest = item % pixels;
          for (int dim = x.shape.ndim() - 1; dim >= 2; --dim) {
            from += rest % x.shape[dim] * x.strides[dim];
            to += rest % x.shape[dim] * y.strides[dim];
            rest /= x.shape[dim];
          }
          for (int64_t c = 0; c < channels; ++c) {
            y_data[to + c * y.strides[1]] = add(x_data[from + c * x.strides[1]], bias_data[c * bias.strides[0]]);
          }
        }
      });
    }
  });
}

}  // namespace

std::optional<PreparedKernel> prepare_matmul(const KernelRequest& request) {
  return matmul_factory("reference.matmul")(request);
}

void add_matmul(KernelRegistry& registry) {
  registry.add("matmul", prepare_matmul);
  registry.add("batch_matmul", matmul_factory("reference.batch_matmul"));
  registry.add_function("bias_add", "reference", run_bias_add, {{0, 0}});
}

}  // namespace tessera::kernels::reference
