#include "tessera/base/error.h"
#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/panel.h"
#include "tessera/kernels/reference/loops/result_dtype.h"

namespace tessera::kernels::reference {
namespace {

// How output positions and taps meet along height or width. Forward: output o reads pixel o * stride - padding + tap *
// dilation. Backward (the cotangent of the image): pixel o reads the output position whose window has it at the tap.
struct Axis {
  int64_t stride;
  int64_t padding;
  int64_t dilation;
  int64_t taps;
  int64_t source_size;
  bool backward;

  // -1 where it reads padding, or nothing.
  int64_t source(int64_t o, int64_t tap) const {
    int64_t at;
    if (backward) {
      at = o + padding - tap * dilation;
      if (at < 0 || at % stride != 0) return -1;
      at /= stride;
    } else {
      at = o * stride - padding + tap * dilation;
    }
    return at >= 0 && at < source_size ? at : -1;
  }
  // Neighbours at this distance read neighbouring sources by the same taps.
  int64_t step() const { return backward ? stride : 1; }
};

Axis make_axis(const Attributes& attributes, size_t d, int64_t taps, int64_t source_size, bool backward) {
  return {attributes.get_ints("strides")[d],
          attributes.get_ints("padding")[2 * d],
          attributes.get_ints("dilation")[d],
          taps,
          source_size,
          backward};
}

// The weight [co,ci/groups,kh,kw] as panels: forward, columns are output channels and rows input channels; backward,
// the reverse.
struct Channels {
  int64_t groups;
  int64_t rows;     // per group: channels that are summed over
  int64_t columns;  // per group: channels of the result
  int64_t row_stride;
  int64_t column_stride;
  int64_t group_stride;

  Channels(const TensorView& weight, int64_t groups, bool backward) : groups(groups) {
    const int64_t outputs = weight.shape[0] / groups;
    const int64_t inputs = weight.shape[1];
    rows = backward ? outputs : inputs;
    columns = backward ? inputs : outputs;
    row_stride = weight.strides[backward ? 0 : 1];
    column_stride = weight.strides[backward ? 1 : 0];
    group_stride = outputs * weight.strides[0];
  }
};

// out[n,column,y,x] = sum over taps, rows of source[n,row,y',x'] * weight[row,column,tap].
template <int Width, typename T, typename Out>
void gather(const KernelArgs& args, bool backward) {
  const TensorView& source = args.inputs[0];
  const TensorView& weight = args.inputs[1];
  const TensorView& out = args.outputs[0];
  const Channels channels(weight, args.attributes.get_int("groups"), backward);
  const Axis height = make_axis(args.attributes, 0, weight.shape[2], source.shape[2], backward);
  const Axis width = make_axis(args.attributes, 1, weight.shape[3], source.shape[3], backward);
  const int64_t taps = height.taps * width.taps;
  const int64_t blocks = num_blocks(channels.columns, Width);
  const int64_t panel_size = taps * channels.rows * Width;
  auto* packed = reinterpret_cast<Sum<T>*>(args.scratch.data());

  args.parallel_for(channels.groups * blocks * taps, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t tap = item % taps;
      const int64_t block = item / taps % blocks;
      const int64_t group = item / taps / blocks;
      const T* from = weight.as<T>() + group * channels.group_stride + tap / width.taps * weight.strides[2] +
                      tap % width.taps * weight.strides[3];
      Sum<T>* to = packed + item * channels.rows * Width;
      for (int64_t row = 0; row < channels.rows; ++row) {
        for (int64_t j = 0; j < Width; ++j, ++to) {
          const int64_t column = block * Width + j;
          *to = column < channels.columns
                    ? static_cast<Sum<T>>(from[row * channels.row_stride + column * channels.column_stride])
                    : Sum<T>(0);
        }
      }
    }
  });

  // The pixels of one line, up to four at a time.
  const auto run_pixels = [&](int64_t n, int64_t y, const int64_t* pixels, int num_pixels) {
    for (int64_t group = 0; group < channels.groups; ++group) {
      const T* from = source.as<T>() + n * source.strides[0] + group * channels.rows * source.strides[1];
      for (int64_t block = 0; block < blocks; ++block) {
        const Sum<T>* panel = packed + (group * blocks + block) * panel_size;
        Sum<T> sums[kMaxRows * Width] = {};
        for (int64_t ky = 0; ky < height.taps; ++ky) {
          const int64_t source_y = height.source(y, ky);
          if (source_y < 0) continue;
          for (int64_t kx = 0; kx < width.taps; ++kx) {
            int64_t offsets[kMaxRows];
            bool all_inside = true;
            for (int r = 0; r < num_pixels; ++r) {
              const int64_t source_x = width.source(pixels[r], kx);
              offsets[r] = source_x < 0 ? -1 : source_y * source.strides[2] + source_x * source.strides[3];
              all_inside = all_inside && source_x >= 0;
            }
            const Sum<T>* tap = panel + (ky * width.taps + kx) * channels.rows * Width;
            if (all_inside) {
              multiply_panel<Width>(from, offsets, num_pixels, source.strides[1], channels.rows, tap, sums);
              continue;
            }
            for (int r = 0; r < num_pixels; ++r) {
              if (offsets[r] < 0) continue;
              multiply_panel<Width>(from, offsets + r, 1, source.strides[1], channels.rows, tap, sums + r * Width);
            }
          }
        }
        const int64_t columns = std::min<int64_t>(Width, channels.columns - block * Width);
        Out* to = out.as<Out>() + n * out.strides[0] + (group * channels.columns + block * Width) * out.strides[1] +
                  y * out.strides[2];
        for (int r = 0; r < num_pixels; ++r) {
          for (int64_t j = 0; j < columns; ++j) {
            to[j * out.strides[1] + pixels[r] * out.strides[3]] = static_cast<Out>(sums[r * Width + j]);
          }
        }
      }
    }
  };

  args.parallel_for(out.shape[0] * out.shape[2], 1, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      for (int64_t phase = 0; phase < width.step(); ++phase) {
        for (int64_t first = phase; first < out.shape[3]; first += kMaxRows * width.step()) {
          int64_t pixels[kMaxRows];
          int count = 0;
          for (; count < kMaxRows && first + count * width.step() < out.shape[3]; ++count) {
            pixels[count] = first + count * width.step();
          }
          run_pixels(line / out.shape[2], line % out.shape[2], pixels, count);
        }
      }
    }
  });
}

// Output channels of one task, and pixels that are copied together.
constexpr int64_t kChannels = 64;
constexpr int64_t kPixels = 32;

// out[co,ci,ky,kx] = sum over n, y, x of dy[n,co,y,x] * image[n,ci,y',x']: a product with the pixels contracted.
// Columns are (ky, kx, ci), ci fastest, of one group.
template <int Width, typename T, typename Out>
void sum_over_pixels(const KernelArgs& args) {
  const TensorView& dy = args.inputs[0];
  const TensorView& image = args.inputs[1];
  const TensorView& out = args.outputs[0];
  const int64_t groups = args.attributes.get_int("groups");
  const Axis height = make_axis(args.attributes, 0, out.shape[2], image.shape[2], false);
  const Axis width = make_axis(args.attributes, 1, out.shape[3], image.shape[3], false);
  const int64_t outputs = out.shape[0] / groups;
  const int64_t inputs = out.shape[1];
  const int64_t columns = height.taps * width.taps * inputs;
  const int64_t output_blocks = num_blocks(outputs, kChannels);
  const int64_t column_blocks = num_blocks(columns, Width);
  const int64_t line = dy.shape[3];
  const int64_t pixels = dy.shape[0] * dy.shape[2] * line;

  // Copies image elements that the columns [first, first + count) of group `group` meet at one pixel of dy.
  const auto copy_columns = [&](int64_t group, int64_t first, int64_t count, int64_t n, int64_t y, int64_t x,
                                Sum<T>* to) {
    for (int64_t j = 0; j < count;) {
      const int64_t tap = (first + j) / inputs;
      const int64_t channel = (first + j) % inputs;
      const int64_t run = std::min(count - j, inputs - channel);
      const int64_t source_y = height.source(y, tap / width.taps);
      const int64_t source_x = width.source(x, tap % width.taps);
      if (source_y < 0 || source_x < 0) {
        std::fill_n(to + j, run, Sum<T>(0));
      } else {
        const T* from = image.as<T>() + n * image.strides[0] + (group * inputs + channel) * image.strides[1] +
                        source_y * image.strides[2] + source_x * image.strides[3];
        for (int64_t i = 0; i < run; ++i) to[j + i] = static_cast<Sum<T>>(from[i * image.strides[1]]);
      }
      j += run;
    }
  };

  args.parallel_for(groups * output_blocks * column_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first_column = item % column_blocks * Width;
      const int64_t first_output = item / column_blocks % output_blocks * kChannels;
      const int64_t group = item / column_blocks / output_blocks;
      const int64_t num_columns = std::min<int64_t>(Width, columns - first_column);
      const int64_t num_outputs = std::min(kChannels, outputs - first_output);
      alignas(64) Sum<T> sums[kChannels * Width] = {};
      alignas(64) Sum<T> lhs[kPixels * kChannels];
      alignas(64) Sum<T> panel[kPixels * Width] = {};
      for (int64_t pixel = 0; pixel < pixels; pixel += kPixels) {
        const int64_t count = std::min(kPixels, pixels - pixel);
        for (int64_t p = 0; p < count; ++p) {
          const int64_t x = (pixel + p) % line;
          const int64_t y = (pixel + p) / line % dy.shape[2];
          const int64_t n = (pixel + p) / line / dy.shape[2];
          const T* from = dy.as<T>() + n * dy.strides[0] + (group * outputs + first_output) * dy.strides[1] +
                          y * dy.strides[2] + x * dy.strides[3];
          for (int64_t c = 0; c < num_outputs; ++c) {
            lhs[p * kChannels + c] = static_cast<Sum<T>>(from[c * dy.strides[1]]);
          }
          copy_columns(group, first_column, num_columns, n, y, x, panel + p * Width);
        }
        for (int64_t c = 0; c < num_outputs; c += kMaxRows) {
          const int64_t offsets[kMaxRows] = {c, c + 1, c + 2, c + 3};
          const int rows = static_cast<int>(std::min<int64_t>(kMaxRows, num_outputs - c));
          multiply_panel<Width>(lhs, offsets, rows, kChannels, count, panel, sums + c * Width);
        }
      }
      int64_t offsets[Width];
      for (int64_t j = 0; j < num_columns; ++j) {
        const int64_t tap = (first_column + j) / inputs;
        const int64_t channel = (first_column + j) % inputs;
        offsets[j] = channel * out.strides[1] + tap / width.taps * out.strides[2] + tap % width.taps * out.strides[3];
      }
      Out* to = out.as<Out>() + (group * outputs + first_output) * out.strides[0];
      for (int64_t c = 0; c < num_outputs; ++c) {
        for (int64_t j = 0; j < num_columns; ++j) {
          to[c * out.strides[0] + offsets[j]] = static_cast<Out>(sums[c * Width + j]);
        }
      }
    }
  });
}

template <bool Backward>
void run_gather(const KernelArgs& args) {
  if (args.outputs[0].num_elements() == 0) return;
  const Channels channels(args.inputs[1], args.attributes.get_int("groups"), Backward);
  dispatch_width(panel_width(channels.columns), [&](auto width) {
    dispatch_floating(args.inputs[0].dtype, "conv2d", [&](auto zero) {
      dispatch_result<decltype(zero)>(args.outputs[0].dtype, [&](auto result) {
        gather<decltype(width)::value, decltype(zero), decltype(result)>(args, Backward);
      });
    });
  });
}

template <bool Backward>
KernelFactory gather_factory(const char* name) {
  return [name](const KernelRequest& request) -> std::optional<PreparedKernel> {
    const TensorView& weight = request.inputs[1];
    const Channels channels(weight, request.attributes.get_int("groups"), Backward);
    const int64_t depth = weight.shape[2] * weight.shape[3] * channels.rows;
    return PreparedKernel{.name = name,
                          .run = run_gather<Backward>,
                          .scratch_bytes = channels.groups * panels_bytes(depth, channels.columns)};
  };
}

void run_grad_weight(const KernelArgs& args) {
  const TensorView& out = args.outputs[0];
  if (out.num_elements() == 0) return;
  dispatch_width(panel_width(out.shape[1] * out.shape[2] * out.shape[3]), [&](auto width) {
    dispatch_floating(args.inputs[0].dtype, "conv2d_grad_weight", [&](auto zero) {
      dispatch_result<decltype(zero)>(out.dtype, [&](auto result) {
        sum_over_pixels<decltype(width)::value, decltype(zero), decltype(result)>(args);
      });
    });
  });
}

}  // namespace

void add_convolution(KernelRegistry& registry) {
  registry.add("conv2d", gather_factory<false>("reference.conv2d"));
  registry.add("conv2d_grad_input", gather_factory<true>("reference.conv2d_grad_input"));
  registry.add_function("conv2d_grad_weight", "reference", run_grad_weight);
}

}  // namespace tessera::kernels::reference
