// Batch normalisation of images of any layout, the two passes of its statistics, and moving averages. What is
// elementwise, per channel or not, is a tile program; the statistics are sums over columns (channels-last: a matrix of
// pixels by channels) or over planes (dense NCHW). What channels-last images need besides is in batch_norm.cc.
#include <algorithm>
#include <cmath>

#include "tessera/kernels/cpu/normalization/batch_norm_groups.h"
#include "tessera/kernels/cpu/registry/families.h"
#include "tessera/kernels/cpu/rows/reduce_rows.h"
#include "tessera/kernels/cpu/rows/strided.h"
#include "tessera/kernels/cpu/rows/tile_program.h"
#include "tessera/tensor/alignment.h"

namespace tessera::kernels::cpu {
namespace {

// A per-channel vector [c], or row `group` of statistics [G,c], seen as [c,1,1...] against images of `ndim` dims.
OperandPart per_channel(const TensorView& view, int64_t group, int ndim) {
  const int last = view.shape.ndim() - 1;
  OperandPart slice{view, last == 1 ? group * view.strides[0] * static_cast<int64_t>(size_bytes(view.dtype)) : 0};
  slice.view.shape = Shape{view.shape[last]};
  slice.view.strides = Strides{view.strides[last]};
  for (int dim = 2; dim < ndim; ++dim) {
    slice.view.shape.push_back(1);
    slice.view.strides.push_back(1);
  }
  return slice;
}

// The kernel that runs make(group) on each group: the first `num_images` inputs and the output are images, the other
// inputs per-channel.
template <typename Make>
std::optional<PreparedKernel> per_group(const KernelRequest& request, size_t num_images, Make&& make) {
  const Shape& shape = request.outputs[0].shape;
  if (shape.num_elements() == 0) return std::nullopt;
  const BatchNormGroups groups(request.attributes, shape);
  const auto sliced = std::make_shared<SlicedKernel>();
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    const BatchNormGroups::Group& group = groups.groups[g];
    std::vector<OperandPart> inputs;
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      inputs.push_back(i < num_images ? slice_dim(request.inputs[i], 0, group.first_row, group.num_rows)
                                      : per_channel(request.inputs[i], static_cast<int64_t>(g), shape.ndim()));
    }
    const OperandPart output = slice_dim(request.outputs[0], 0, group.first_row, group.num_rows);
    KernelRequest part{.op = request.op, .outputs = {output.view}, .num_threads = request.num_threads};
    for (const OperandPart& input : inputs) part.inputs.push_back(input.view);
    auto kernel = prepare_tile_program(part, make(group), "");
    if (!kernel) return std::nullopt;
    sliced->add(std::move(*kernel), std::move(inputs), {output});
  }
  return SlicedKernel::finish(sliced, "cpu." + request.op);
}

std::optional<PreparedKernel> prepare_batch_norm(const KernelRequest& request) {
  enum { kX, kMean, kVariance, kGamma, kBeta };
  return per_group(request, 1, [&](const BatchNormGroups::Group&) {
    TileProgram p{.num_inputs = 5};
    const int eps = p.constant(request.attributes.get_double("eps"));
    const int inverse = p.add(ElementOp::kRsqrt, p.add(ElementOp::kAdd, kVariance, eps));
    const int scale = p.add(ElementOp::kMul, kGamma, inverse);
    const int scaled = p.add(ElementOp::kMul, p.add(ElementOp::kSub, kX, kMean), scale);
    p.results = {p.add(ElementOp::kAdd, scaled, kBeta)};
    return p;
  });
}

std::optional<PreparedKernel> prepare_grad_input(const KernelRequest& request) {
  enum { kDy, kX, kMean, kVariance, kGamma, kSumDy, kSumDyXhat };
  return per_group(request, 2, [&](const BatchNormGroups::Group& group) {
    TileProgram p{.num_inputs = 7};
    const int eps = p.constant(request.attributes.get_double("eps"));
    const int count = p.constant(group.count);
    const int inverse = p.add(ElementOp::kRsqrt, p.add(ElementOp::kAdd, kVariance, eps));
    const int scale = p.add(ElementOp::kMul, kGamma, inverse);
    const int shift = p.add(ElementOp::kDiv, kSumDy, count);
    const int slope = p.add(ElementOp::kDiv, p.add(ElementOp::kMul, kSumDyXhat, inverse), count);
    const int centred = p.add(ElementOp::kSub, kX, kMean);
    const int rest = p.add(ElementOp::kSub, p.add(ElementOp::kSub, kDy, shift), p.add(ElementOp::kMul, centred, slope));
    p.results = {p.add(ElementOp::kMul, scale, rest)};
    return p;
  });
}

std::optional<PreparedKernel> prepare_moving_average(const KernelRequest& request) {
  const Doubles& scales = request.attributes.get_doubles("scales");
  const double momentum = request.attributes.get_double("momentum");
  const auto program = [&](double scale) {
    TileProgram p{.num_inputs = 2};
    const int keep = p.constant(momentum);
    const int take = p.constant((1 - momentum) * scale);
    p.results = {p.add(ElementOp::kAdd, p.add(ElementOp::kMul, keep, 0), p.add(ElementOp::kMul, take, 1))};
    return p;
  };
  const std::string name = "cpu." + request.op;
  if (scales.size() == 1) return prepare_tile_program(request, program(scales[0]), name);
  const auto num_scales = static_cast<int64_t>(scales.size());
  const Shape& shape = request.outputs[0].shape;
  if (shape.ndim() == 0 || shape[0] != num_scales) return std::nullopt;
  const auto sliced = std::make_shared<SlicedKernel>();
  for (int64_t g = 0; g < num_scales; ++g) {
    const std::vector<OperandPart> inputs = {slice_dim(request.inputs[0], 0, g, 1),
                                             slice_dim(request.inputs[1], 0, g, 1)};
    const OperandPart output = slice_dim(request.outputs[0], 0, g, 1);
    const KernelRequest part{.op = request.op,
                             .inputs = {inputs[0].view, inputs[1].view},
                             .outputs = {output.view},
                             .num_threads = request.num_threads};
    auto kernel = prepare_tile_program(part, program(scales[static_cast<size_t>(g)]), "");
    if (!kernel) return std::nullopt;
    sliced->add(std::move(*kernel), inputs, {output});
  }
  return SlicedKernel::finish(sliced, name);
}

// How the elements of one channel lie in an image [n,c,...]: every column of a matrix, or planes.
enum class ImageLayout { kColumns, kPlanes };
std::optional<ImageLayout> layout_of(const TensorView& x) {
  if (x.shape.ndim() < 2) return std::nullopt;
  if (is_channels_last(x.shape, x.strides)) return ImageLayout::kColumns;
  if (is_dense(x.shape, x.strides)) return ImageLayout::kPlanes;
  return std::nullopt;
}

enum class Statistic { kMean, kVariance, kGradients };

// batch_norm_mean, _variance and, of planes, _grad_reduce: sums over all elements of a channel, group by group.
struct ChannelSums {
  Statistic statistic;
  ImageLayout layout;
  BatchNormGroups groups;
  int64_t channels, pixels;
  double eps;
  RowLoad load;      // of an image that is not f32: a block of rows at a time is converted
  int64_t num_sums;  // per channel
  int64_t part_bytes;
  const ReduceFunctions* functions;

  // Splitting pays from some ten thousand elements on.
  int64_t grain(int64_t elements_per_item) const { return std::max<int64_t>(1, 16384 / elements_per_item); }

  double* sums(const KernelArgs& args, int part) const {
    return reinterpret_cast<double*>(args.scratch.data() + part * part_bytes);
  }

  // Rows of an image that are converted at a time, so that they are still in cache when they are summed.
  int64_t block_rows() const { return std::max<int64_t>(1, 8192 / channels); }

  // Adds rows [begin, end) of x to the sums of `part`.
  void add_columns(const KernelArgs& args, const float* mean, int64_t begin, int64_t end, int part) const {
    double* to = sums(args, part);
    auto* partial = reinterpret_cast<float*>(to + num_sums * channels);
    std::fill_n(to, num_sums * channels, 0.0);
    const auto* x = static_cast<const std::byte*>(args.inputs[0].data);
    if (load == nullptr) {
      return add_rows({reinterpret_cast<const float*>(x) + begin * channels, end - begin, channels, channels}, mean,
                      partial, to);
    }
    const auto element = static_cast<int64_t>(size_bytes(args.inputs[0].dtype));
    float* converted = partial + channels;
    for (int64_t first = begin; first < end; first += block_rows()) {
      const int64_t count = std::min(block_rows(), end - first);
      load(x + first * channels * element, converted, static_cast<size_t>(count * channels));
      add_rows({converted, count, channels, channels}, mean, partial, to);
    }
  }

  void add_rows(const Rows& x, const float* mean, float* partial, double* to) const {
    if (statistic == Statistic::kMean) return functions->add_columns(x, partial, to);
    functions->add_column_squares(x, mean, partial, to);
  }

  void sum_planes(const KernelArgs& args, const BatchNormGroups::Group& group, const float* mean,
                  int64_t channel) const {
    double* to = sums(args, 0);
    double& first = to[channel];
    first = 0;
    if (statistic == Statistic::kGradients) to[channels + channel] = 0;
    for (int64_t n = group.first_row; n < group.first_row + group.num_rows; ++n) {
      const auto plane = [&](size_t input) {
        return static_cast<const float*>(args.inputs[input].data) + (n * channels + channel) * pixels;
      };
      switch (statistic) {
        case Statistic::kMean: first += functions->sum(plane(0), pixels); break;
        case Statistic::kVariance: first += functions->sum_squares(plane(0), mean[channel], pixels); break;
        case Statistic::kGradients:
          first += functions->sum(plane(0), pixels);
          to[channels + channel] += functions->sum_products(plane(0), plane(1), mean[channel], pixels);
          break;
      }
    }
  }

  void run(const KernelArgs& args) const {
    for (size_t g = 0; g < groups.groups.size(); ++g) {
      const BatchNormGroups::Group& group = groups.groups[g];
      const float* mean = nullptr;
      if (statistic == Statistic::kVariance) mean = row_of(args.inputs[1], g);
      if (statistic == Statistic::kGradients) mean = row_of(args.inputs[2], g);
      int parts = 1;
      if (layout == ImageLayout::kColumns) {
        const int64_t first = group.first_row * pixels;
        const int64_t rows = group.num_rows * pixels;
        parts = args.parallel_for.num_parts(rows, grain(channels));
        args.parallel_for.with_parts(rows, grain(channels), [&](int64_t begin, int64_t end, int part) {
          add_columns(args, mean, first + begin, first + end, part);
        });
        if (rows == 0) {
          parts = 1;
          std::fill_n(sums(args, 0), num_sums * channels, 0.0);
        }
      } else {
        args.parallel_for(channels, grain(std::max<int64_t>(1, group.num_rows * pixels)),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t c = begin; c < end; ++c) sum_planes(args, group, mean, c);
                          });
      }
      // In the order of the parts, so that equal numbers of threads give equal bits.
      double* total = sums(args, 0);
      for (int part = 1; part < parts; ++part) {
        const double* more = sums(args, part);
        for (int64_t i = 0; i < num_sums * channels; ++i) total[i] += more[i];
      }
      finish(args, g, group, total);
    }
  }

  void finish(const KernelArgs& args, size_t g, const BatchNormGroups::Group& group, const double* total) const {
    float* out = row_of(args.outputs[0], g);
    if (statistic != Statistic::kGradients) {
      for (int64_t c = 0; c < channels; ++c) out[c] = static_cast<float>(total[c] / group.count);
      return;
    }
    float* products = row_of(args.outputs[1], g);
    const float* variance = row_of(args.inputs[3], g);
    for (int64_t c = 0; c < channels; ++c) {
      out[c] = static_cast<float>(total[c]);
      products[c] = static_cast<float>(total[channels + c] / std::sqrt(static_cast<double>(variance[c]) + eps));
    }
  }
};

std::optional<PreparedKernel> prepare_statistic(const KernelRequest& request, Statistic statistic) {
  const TensorView& x = request.inputs[0];
  const auto layout = layout_of(x);
  if (!layout || x.num_elements() == 0) return std::nullopt;
  const bool is_f32 = x.dtype == DType::kF32;
  const bool is_half = x.dtype == DType::kBF16 || x.dtype == DType::kF16;
  if (!is_f32 && !(is_half && layout == ImageLayout::kColumns)) return std::nullopt;
  if (statistic == Statistic::kGradients && layout == ImageLayout::kColumns) return std::nullopt;
  const size_t num_images = statistic == Statistic::kGradients ? 2 : 1;
  if (num_images == 2 && (layout_of(request.inputs[1]) != layout || request.inputs[1].dtype != x.dtype)) {
    return std::nullopt;
  }
  for (size_t i = num_images; i < request.inputs.size(); ++i) {
    if (!is_batch_norm_statistic(request.inputs[i])) return std::nullopt;
  }
  if (!std::all_of(request.outputs.begin(), request.outputs.end(), is_batch_norm_statistic)) return std::nullopt;

  ChannelSums sums{.statistic = statistic,
                   .layout = *layout,
                   .groups = BatchNormGroups(request.attributes, x.shape),
                   .channels = x.shape[1],
                   .pixels = x.num_elements() / (x.shape[0] * x.shape[1]),
                   .eps = statistic == Statistic::kGradients ? request.attributes.get_double("eps") : 0,
                   .load = is_f32 ? nullptr : row_load(x.dtype),
                   .num_sums = statistic == Statistic::kGradients ? 2 : 1,
                   .part_bytes = 0,
                   .functions = &reduce_functions()};
  const auto float_bytes = static_cast<int64_t>(sizeof(float));
  int64_t bytes = sums.num_sums * sums.channels * (static_cast<int64_t>(sizeof(double)) + float_bytes);
  if (!is_f32) bytes += sums.block_rows() * sums.channels * float_bytes;
  sums.part_bytes = aligned(bytes);
  const int64_t scratch_bytes = sums.part_bytes * request.num_threads;
  return PreparedKernel{
      .name = "cpu." + request.op,
      .run = [sums = std::make_shared<const ChannelSums>(std::move(sums))](const KernelArgs& args) { sums->run(args); },
      .scratch_bytes = scratch_bytes};
}

}  // namespace

void add_normalization(KernelRegistry& registry) {
  registry.add("batch_norm_mean", [](const KernelRequest& r) { return prepare_statistic(r, Statistic::kMean); });
  registry.add("batch_norm_variance",
               [](const KernelRequest& r) { return prepare_statistic(r, Statistic::kVariance); });
  registry.add("batch_norm_grad_reduce",
               [](const KernelRequest& r) { return prepare_statistic(r, Statistic::kGradients); });
  registry.add("batch_norm", prepare_batch_norm);
  registry.add("batch_norm_grad_input", prepare_grad_input);
  registry.add("moving_average", prepare_moving_average);
}

}  // namespace tessera::kernels::cpu
