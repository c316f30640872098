#include <cmath>

#include "tessera/base/error.h"
#include "tessera/kernels/reference/families.h"

namespace tessera::kernels::reference {
namespace {

struct Window {
  int64_t size[2];
  int64_t strides[2];
  int64_t padding[2];  // top, left: what lies below and to the right follows from the sizes

  explicit Window(const Attributes& attributes) {
    for (size_t d = 0; d < 2; ++d) {
      size[d] = attributes.get_ints("kernel")[d];
      strides[d] = attributes.get_ints("strides")[d];
      padding[d] = attributes.get_ints("padding")[2 * d];
    }
  }
  // The pixel at place 0 of the window of output position `o`; may lie in the padding.
  int64_t begin(size_t d, int64_t o) const { return o * strides[d] - padding[d]; }
  // The output positions, out of `count`, whose windows hold pixel `i`: [first, last).
  int64_t first(size_t d, int64_t i) const {
    const int64_t reach = i + padding[d] - size[d] + 1;
    return reach <= 0 ? 0 : (reach + strides[d] - 1) / strides[d];
  }
  int64_t last(size_t d, int64_t i, int64_t count) const { return std::min(count, (i + padding[d]) / strides[d] + 1); }
};

// The elements of a view [n,c,h,w].
template <typename T>
class Image {
 public:
  explicit Image(const TensorView& view)
      : data_(view.as<T>()), n_(view.strides[0]), c_(view.strides[1]), y_(view.strides[2]), x_(view.strides[3]) {}
  T& operator()(int64_t n, int64_t c, int64_t y, int64_t x) const { return data_[n * n_ + c * c_ + y * y_ + x * x_]; }

 private:
  T* data_;
  int64_t n_, c_, y_, x_;
};

// Calls f(n, c, y, x) for every element of a view [n,c,h,w], lines in parallel.
template <typename F>
void for_each_pixel(const KernelArgs& args, const Shape& shape, F&& f) {
  if (shape.num_elements() == 0) return;
  args.parallel_for(shape[0] * shape[2], 1, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      for (int64_t x = 0; x < shape[3]; ++x) {
        for (int64_t c = 0; c < shape[1]; ++c) f(line / shape[2], c, line % shape[2], x);
      }
    }
  });
}

// Calls f with the index's element type: u8 or i32.
template <typename F>
void dispatch_index(DType dtype, F&& f) {
  if (dtype == DType::kU8) {
    f(uint8_t{});
  } else {
    f(int32_t{});
  }
}

void run_max_pool(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& y = args.outputs[0];
  const TensorView& index = args.outputs[1];
  const Window window(args.attributes);
  dispatch_floating(x.dtype, "max_pool2d", [&](auto zero) {
    using T = decltype(zero);
    dispatch_index(index.dtype, [&](auto index_zero) {
      using Index = decltype(index_zero);
      const Image<T> x_at(x);
      const Image<T> y_at(y);
      const Image<Index> index_at(index);
      for_each_pixel(args, y.shape, [&](int64_t n, int64_t c, int64_t oy, int64_t ox) {
        const int64_t top = window.begin(0, oy);
        const int64_t left = window.begin(1, ox);
        T best{};
        int64_t place = -1;
        for (int64_t ky = std::max<int64_t>(0, -top); ky < std::min(window.size[0], x.shape[2] - top); ++ky) {
          for (int64_t kx = std::max<int64_t>(0, -left); kx < std::min(window.size[1], x.shape[3] - left); ++kx) {
            const T value = x_at(n, c, top + ky, left + kx);
            const auto wide = static_cast<ComputeType<T>>(value);
            const auto best_wide = static_cast<ComputeType<T>>(best);
            // A NaN stays: it is larger than all, and the first of its kind.
            if (place < 0 || wide > best_wide || (std::isnan(wide) && !std::isnan(best_wide))) {
              best = value;
              place = ky * window.size[1] + kx;
            }
          }
        }
        y_at(n, c, oy, ox) = best;
        index_at(n, c, oy, ox) = static_cast<Index>(place);
      });
    });
  });
}

void run_max_pool_grad(const KernelArgs& args) {
  const TensorView& dy = args.inputs[0];
  const TensorView& index = args.inputs[1];
  const TensorView& dx = args.outputs[0];
  const Window window(args.attributes);
  dispatch_floating(dy.dtype, "max_pool2d_grad", [&](auto zero) {
    using T = decltype(zero);
    dispatch_index(index.dtype, [&](auto index_zero) {
      using Index = decltype(index_zero);
      const Image<T> dy_at(dy);
      const Image<Index> index_at(index);
      const Image<T> dx_at(dx);
      for_each_pixel(args, dx.shape, [&](int64_t n, int64_t c, int64_t iy, int64_t ix) {
        double sum = 0;
        for (int64_t oy = window.first(0, iy); oy < window.last(0, iy, dy.shape[2]); ++oy) {
          for (int64_t ox = window.first(1, ix); ox < window.last(1, ix, dy.shape[3]); ++ox) {
            const int64_t place = (iy - window.begin(0, oy)) * window.size[1] + ix - window.begin(1, ox);
            if (index_at(n, c, oy, ox) == place) {
              sum += static_cast<double>(dy_at(n, c, oy, ox));
            }
          }
        }
        dx_at(n, c, iy, ix) = static_cast<T>(sum);
      });
    });
  });
}

void run_max_pool_take(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& index = args.inputs[1];
  const TensorView& y = args.outputs[0];
  const Window window(args.attributes);
  dispatch_floating(x.dtype, "max_pool2d_take", [&](auto zero) {
    using T = decltype(zero);
    dispatch_index(index.dtype, [&](auto index_zero) {
      using Index = decltype(index_zero);
      const Image<T> x_at(x);
      const Image<Index> index_at(index);
      const Image<T> y_at(y);
      for_each_pixel(args, y.shape, [&](int64_t n, int64_t c, int64_t oy, int64_t ox) {
        const int64_t place = index_at(n, c, oy, ox);
        const int64_t iy = window.begin(0, oy) + place / window.size[1];
        const int64_t ix = window.begin(1, ox) + place % window.size[1];
        const bool inside = place >= 0 && place < window.size[0] * window.size[1] && iy >= 0 && iy < x.shape[2] &&
                            ix >= 0 && ix < x.shape[3];
        y_at(n, c, oy, ox) = inside ? x_at(n, c, iy, ix) : T{};
      });
    });
  });
}

// How many places of the window of (oy, ox) its mean divides by.
double divisor(const Window& window, bool count_include_pad, int64_t h, int64_t w, int64_t oy, int64_t ox) {
  if (count_include_pad) return static_cast<double>(window.size[0] * window.size[1]);
  const auto inside = [&](size_t d, int64_t o, int64_t size) {
    const int64_t begin = window.begin(d, o);
    return std::min(begin + window.size[d], size) - std::max<int64_t>(begin, 0);
  };
  return static_cast<double>(inside(0, oy, h) * inside(1, ox, w));
}

void run_avg_pool(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& y = args.outputs[0];
  const Window window(args.attributes);
  const bool count_include_pad = args.attributes.get_bool("count_include_pad");
  dispatch_floating(x.dtype, "avg_pool2d", [&](auto zero) {
    using T = decltype(zero);
    const Image<T> x_at(x);
    const Image<T> y_at(y);
    for_each_pixel(args, y.shape, [&](int64_t n, int64_t c, int64_t oy, int64_t ox) {
      const int64_t top = window.begin(0, oy);
      const int64_t left = window.begin(1, ox);
      double sum = 0;
      for (int64_t iy = std::max<int64_t>(0, top); iy < std::min(top + window.size[0], x.shape[2]); ++iy) {
        for (int64_t ix = std::max<int64_t>(0, left); ix < std::min(left + window.size[1], x.shape[3]); ++ix) {
          sum += static_cast<double>(x_at(n, c, iy, ix));
        }
      }
      y_at(n, c, oy, ox) = static_cast<T>(sum / divisor(window, count_include_pad, x.shape[2], x.shape[3], oy, ox));
    });
  });
}

void run_avg_pool_grad(const KernelArgs& args) {
  const TensorView& dy = args.inputs[0];
  const TensorView& dx = args.outputs[0];
  const Window window(args.attributes);
  const bool count_include_pad = args.attributes.get_bool("count_include_pad");
  dispatch_floating(dy.dtype, "avg_pool2d_grad", [&](auto zero) {
    using T = decltype(zero);
    const Image<T> dy_at(dy);
    const Image<T> dx_at(dx);
    for_each_pixel(args, dx.shape, [&](int64_t n, int64_t c, int64_t iy, int64_t ix) {
      double sum = 0;
      for (int64_t oy = window.first(0, iy); oy < window.last(0, iy, dy.shape[2]); ++oy) {
        for (int64_t ox = window.first(1, ix); ox < window.last(1, ix, dy.shape[3]); ++ox) {
          sum += static_cast<double>(dy_at(n, c, oy, ox)) /
                 divisor(window, count_include_pad, dx.shape[2], dx.shape[3], oy, ox);
        }
      }
      dx_at(n, c, iy, ix) = static_cast<T>(sum);
    });
  });
}

}  // namespace

void add_pooling(KernelRegistry& registry) {
  registry.add_function("max_pool2d", "reference", run_max_pool);
  registry.add_function("max_pool2d_grad", "reference", run_max_pool_grad);
  registry.add_function("max_pool2d_take", "reference", run_max_pool_take);
  registry.add_function("avg_pool2d", "reference", run_avg_pool);
  registry.add_function("avg_pool2d_grad", "reference", run_avg_pool_grad);
}

}  // namespace tessera::kernels::reference
