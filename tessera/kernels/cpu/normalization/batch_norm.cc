// Batch normalisation of channels-last images (two dims count as such) of f32 or a half type, alone and fused with
// relu, residuals and its statistics. What is per channel is prepared first, then rows of pixels are split over
// threads.
#include <algorithm>
#include <memory>

#include "tessera/kernels/cpu/normalization/batch_norm_groups.h"
#include "tessera/kernels/cpu/normalization/batch_norm_rows.h"
#include "tessera/kernels/cpu/registry/families.h"
#include "tessera/kernels/cpu/rows/copied.h"
#include "tessera/kernels/cpu/rows/row_ops.h"

namespace tessera::kernels::cpu {
namespace {

// Splitting pays from some ten thousand elements on.
constexpr int64_t kGrain = 16384;
constexpr int64_t kCacheLine = 64;

// What all kernels of this file know.
struct Rows {
  const BatchNormFunctions* functions;
  BatchNormGroups groups;
  int64_t channels, pixels;

  int64_t grain() const { return std::max<int64_t>(1, kGrain / channels); }
  // A vector per channel starts on a cache line.
  int64_t vector_floats() const { return (channels + 15) / 16 * 16; }
  int64_t vector_bytes() const { return vector_floats() * static_cast<int64_t>(sizeof(float)); }
  // The rows of pixels of a group.
  int64_t first(const BatchNormGroups::Group& group) const { return group.first_row * pixels; }
  int64_t count(const BatchNormGroups::Group& group) const { return group.num_rows * pixels; }
  // Scratch: vector `i` of those in front.
  float* vector(const KernelArgs& args, int64_t i) const {
    return reinterpret_cast<float*>(args.scratch.data()) + i * vector_floats();
  }
};

// nullopt unless the images are alike and channels-last, and the others are what the loops read.
std::optional<Rows> rows_of(const KernelRequest& request, const std::vector<TensorView>& images,
                            const std::vector<TensorView>& statistics, const std::vector<TensorView>& vectors) {
  const TensorView& x = images[0];
  const BatchNormFunctions* functions = batch_norm_functions(x.dtype);
  if (functions == nullptr || x.num_elements() == 0) return std::nullopt;
  for (const TensorView& image : images) {
    if (image.dtype != x.dtype || !is_channels_last(image.shape, image.strides)) return std::nullopt;
  }
  if (!std::all_of(statistics.begin(), statistics.end(), is_batch_norm_statistic)) return std::nullopt;
  for (const TensorView& vector : vectors) {
    if (row_load(vector.dtype) == nullptr || !is_dense(vector.shape, vector.strides)) return std::nullopt;
  }
  return Rows{functions, BatchNormGroups(request.attributes, x.shape), x.shape[1],
              x.num_elements() / (x.shape[0] * x.shape[1])};
}

std::vector<TensorView> views_of(const std::vector<TensorView>& all, std::initializer_list<size_t> which) {
  std::vector<TensorView> views;
  for (const size_t i : which) views.push_back(all[i]);
  return views;
}

const float* as_floats(const TensorView& vector, float* buffer) {
  if (vector.dtype == DType::kF32) return vector.as<float>();
  row_load(vector.dtype)(vector.data, buffer, static_cast<size_t>(vector.num_elements()));
  return buffer;
}

// batch_norm's x, mean, variance, gamma and, unless only its gradient is wanted, beta from input `first` on, for group
// `g`; in three vectors of scratch.
constexpr int64_t kAffineVectors = 3;
ChannelAffine affine_of(const Rows& rows, const KernelArgs& args, size_t first, size_t g, double eps,
                        int64_t first_vector, bool has_beta = true) {
  float* scale = rows.vector(args, first_vector);
  const float* gamma = as_floats(args.inputs[first + 3], rows.vector(args, first_vector + 1));
  const float* beta = has_beta ? as_floats(args.inputs[first + 4], rows.vector(args, first_vector + 2)) : nullptr;
  rows.functions->inverse_deviations(row_of(args.inputs[first + 2], g), static_cast<float>(eps), gamma, rows.channels,
                                     scale);
  return {row_of(args.inputs[first + 1], g), scale, beta};
}

// A kernel that calls run(rows, args) with scratch for so many vectors and, behind them, `part_bytes` for each thread.
template <typename Run>
PreparedKernel kernel_of(const KernelRequest& request, const Rows& rows, int64_t num_vectors, int64_t part_bytes,
                         Run run) {
  return {.name = "cpu." + request.op,
          .run = [rows = std::make_shared<const Rows>(rows), run](const KernelArgs& args) { run(*rows, args); },
          .scratch_bytes = num_vectors * rows.vector_bytes() + part_bytes * request.num_threads};
}

std::optional<PreparedKernel> prepare_normalise(const KernelRequest& request) {
  const bool has_residual = request.inputs.size() > 5;
  const bool has_norm = request.inputs.size() > 6;
  auto images = views_of(request.inputs, {0});
  images.push_back(request.outputs[0]);
  auto statistics = views_of(request.inputs, {1, 2});
  auto vectors = views_of(request.inputs, {3, 4});
  if (has_residual) images.push_back(request.inputs[5]);
  if (has_norm) {
    statistics.insert(statistics.end(), request.inputs.begin() + 6, request.inputs.begin() + 8);
    vectors.insert(vectors.end(), request.inputs.begin() + 8, request.inputs.begin() + 10);
  }
  const auto rows = rows_of(request, images, statistics, vectors);
  if (!rows) return std::nullopt;
  const bool relu = request.op == "fused_batch_norm" && request.attributes.get_bool("relu");
  const auto run = [=](const Rows& r, const KernelArgs& args) {
    for (size_t g = 0; g < r.groups.groups.size(); ++g) {
      const auto& group = r.groups.groups[g];
      const ChannelAffine affine = affine_of(r, args, 0, g, args.attributes.get_double("eps"), 0);
      ChannelAffine other{};
      if (has_norm) other = affine_of(r, args, 5, g, args.attributes.get_double("residual_eps"), kAffineVectors);
      const NormaliseRows work{.x = args.inputs[0].data,
                               .affine = affine,
                               .residual = has_residual ? args.inputs[5].data : nullptr,
                               .residual_affine = has_norm ? &other : nullptr,
                               .relu = relu,
                               .y = args.outputs[0].data};
      args.parallel_for(r.count(group), r.grain(), [&](int64_t begin, int64_t end) {
        r.functions->normalise(work, r.first(group) + begin, r.first(group) + end, r.channels);
      });
    }
  };
  PreparedKernel kernel = kernel_of(request, *rows, 2 * kAffineVectors, 0, run);
  kernel.in_place = {{0, 0}};
  if (has_residual) kernel.in_place.emplace_back(5, 0);
  return kernel;
}

// The moments of one thread's rows, in scratch: a count, then two vectors of f64, then three of f32 to work with.
struct PartMoments {
  int64_t* count;
  Moments moments;
  float* partial;

  static int64_t bytes(const Rows& rows) { return kCacheLine + 7 * rows.vector_bytes(); }
  PartMoments(const Rows& rows, const KernelArgs& args, int part) {
    std::byte* data = args.scratch.data() + part * bytes(rows);
    count = reinterpret_cast<int64_t*>(data);
    auto* means = reinterpret_cast<double*>(data + kCacheLine);
    moments = {means, means + rows.vector_floats()};
    partial = reinterpret_cast<float*>(means + 2 * rows.vector_floats());
  }
  void clear(int64_t channels) {
    std::fill_n(moments.mean, channels, 0.0);
    std::fill_n(moments.squares, channels, 0.0);
    moments.count = 0;
  }
};

void run_statistics(const Rows& rows, const KernelArgs& args) {
  for (size_t g = 0; g < rows.groups.groups.size(); ++g) {
    const auto& group = rows.groups.groups[g];
    args.parallel_for.with_parts(rows.count(group), rows.grain(), [&](int64_t begin, int64_t end, int part) {
      PartMoments own(rows, args, part);
      own.clear(rows.channels);
      rows.functions->add_moments(args.inputs[0].data, rows.first(group) + begin, rows.first(group) + end,
                                  rows.channels, own.partial, own.moments);
      *own.count = own.moments.count;
    });
    PartMoments total(rows, args, 0);
    if (rows.count(group) == 0) {
      total.clear(rows.channels);
    } else {
      total.moments.count = *total.count;
      // In the order of the parts, so that equal numbers of threads give equal bits.
      for (int part = 1; part < args.parallel_for.num_parts(rows.count(group), rows.grain()); ++part) {
        PartMoments more(rows, args, part);
        more.moments.count = *more.count;
        combine_moments(more.moments, rows.channels, total.moments);
      }
    }
    float* mean = row_of(args.outputs[0], g);
    float* variance = row_of(args.outputs[1], g);
    for (int64_t c = 0; c < rows.channels; ++c) {
      variance[c] = static_cast<float>(total.moments.squares[c] / group.count);
      // Of no rows there is no mean.
      mean[c] = group.count == 0 ? variance[c] : static_cast<float>(total.moments.mean[c]);
    }
  }
}

std::optional<PreparedKernel> prepare_statistics(const KernelRequest& request) {
  const auto rows = rows_of(request, request.inputs, request.outputs, {});
  if (!rows) return std::nullopt;
  return kernel_of(request, *rows, 0, PartMoments::bytes(*rows), run_statistics);
}

// Per thread two vectors of f64, then two of f32.
int64_t gradient_part_bytes(const Rows& rows) { return 6 * rows.vector_bytes(); }

// Makes the sums of a group and writes them into two outputs; the parts lie behind `num_vectors` vectors of scratch.
void sum_gradients(const Rows& rows, const KernelArgs& args, size_t g, const GradientRows& images,
                   const TensorView& variance, int64_t num_vectors, size_t first_output) {
  const auto& group = rows.groups.groups[g];
  const auto sums_of = [&](int part) {
    return reinterpret_cast<double*>(args.scratch.data() + num_vectors * rows.vector_bytes() +
                                     part * gradient_part_bytes(rows));
  };
  double* total = sums_of(0);
  std::fill_n(total, 2 * rows.channels, 0.0);
  args.parallel_for.with_parts(rows.count(group), rows.grain(), [&](int64_t begin, int64_t end, int part) {
    double* sums = sums_of(part);
    std::fill_n(sums, 2 * rows.channels, 0.0);
    auto* partial = reinterpret_cast<float*>(sums + 2 * rows.vector_floats());
    rows.functions->add_gradients(images, rows.first(group) + begin, rows.first(group) + end, rows.channels, partial,
                                  sums);
  });
  for (int part = 1; part < args.parallel_for.num_parts(rows.count(group), rows.grain()); ++part) {
    const double* more = sums_of(part);
    for (int64_t i = 0; i < 2 * rows.channels; ++i) total[i] += more[i];
  }
  float* sum = row_of(args.outputs[first_output], g);
  float* products = row_of(args.outputs[first_output + 1], g);
  auto* inverse = reinterpret_cast<float*>(total + 2 * rows.vector_floats());
  rows.functions->inverse_deviations(row_of(variance, g), static_cast<float>(args.attributes.get_double("eps")),
                                     /*gamma=*/nullptr, rows.channels, inverse);
  for (int64_t c = 0; c < rows.channels; ++c) {
    sum[c] = static_cast<float>(total[c]);
    products[c] = static_cast<float>(total[rows.channels + c] * inverse[c]);
  }
}

std::optional<PreparedKernel> prepare_grad_reduce(const KernelRequest& request, bool relu) {
  auto statistics = views_of(request.inputs, {2, 3});
  statistics.insert(statistics.end(), request.outputs.begin(), request.outputs.end());
  const auto vectors = relu ? views_of(request.inputs, {4, 5}) : std::vector<TensorView>();
  const auto rows = rows_of(request, views_of(request.inputs, {0, 1}), statistics, vectors);
  if (!rows) return std::nullopt;
  const auto run = [relu](const Rows& r, const KernelArgs& args) {
    for (size_t g = 0; g < r.groups.groups.size(); ++g) {
      GradientRows images{.dy = args.inputs[0].data,
                          .x = args.inputs[1].data,
                          .affine = {.mean = row_of(args.inputs[2], g), .scale = nullptr, .shift = nullptr}};
      if (relu) images.affine = affine_of(r, args, 1, g, args.attributes.get_double("eps"), 0);
      sum_gradients(r, args, g, images, args.inputs[3], kAffineVectors, 0);
    }
  };
  return kernel_of(request, *rows, kAffineVectors, gradient_part_bytes(*rows), run);
}

std::optional<PreparedKernel> prepare_masked_grad_reduce(const KernelRequest& request) {
  auto images = views_of(request.inputs, {0, 1, 4});
  const bool has_more = request.inputs.size() > 5;
  if (has_more) images.push_back(request.inputs[5]);
  images.push_back(request.outputs[0]);
  auto statistics = views_of(request.inputs, {2, 3});
  statistics.insert(statistics.end(), request.outputs.begin() + 1, request.outputs.end());
  const auto rows = rows_of(request, images, statistics, {});
  if (!rows) return std::nullopt;
  const auto run = [has_more](const Rows& r, const KernelArgs& args) {
    for (size_t g = 0; g < r.groups.groups.size(); ++g) {
      const GradientRows work{.dy = args.inputs[4].data,
                              .x = args.inputs[1].data,
                              .affine = {.mean = row_of(args.inputs[2], g), .scale = nullptr, .shift = nullptr},
                              .more_dy = has_more ? args.inputs[5].data : nullptr,
                              .y = args.inputs[0].data,
                              .masked = args.outputs[0].data};
      sum_gradients(r, args, g, work, args.inputs[3], 0, 1);
    }
  };
  PreparedKernel kernel = kernel_of(request, *rows, 0, gradient_part_bytes(*rows), run);
  kernel.in_place = {{4, 0}, {0, 0}, {1, 0}};
  if (has_more) kernel.in_place.emplace_back(5, 0);
  return kernel;
}

std::optional<PreparedKernel> prepare_grad_input(const KernelRequest& request, bool relu) {
  auto images = views_of(request.inputs, {0, 1});
  images.push_back(request.outputs[0]);
  const size_t sums = relu ? 6 : 5;  // with relu there is beta before them
  const auto vectors = relu ? views_of(request.inputs, {4, 5}) : views_of(request.inputs, {4});
  const auto rows = rows_of(request, images, views_of(request.inputs, {2, 3, sums, sums + 1}), vectors);
  if (!rows) return std::nullopt;
  const auto run = [relu, sums](const Rows& r, const KernelArgs& args) {
    const double eps = args.attributes.get_double("eps");
    for (size_t g = 0; g < r.groups.groups.size(); ++g) {
      const auto& group = r.groups.groups[g];
      const ChannelAffine affine = affine_of(r, args, 1, g, eps, 0, relu);
      float* shift = r.vector(args, kAffineVectors);
      float* slope = r.vector(args, kAffineVectors + 1);
      const float* sum_dy = row_of(args.inputs[sums], g);
      const float* sum_dy_xhat = row_of(args.inputs[sums + 1], g);
      const auto share = static_cast<float>(1 / group.count);
      r.functions->inverse_deviations(row_of(args.inputs[3], g), static_cast<float>(eps), sum_dy_xhat, r.channels,
                                      slope);
      for (int64_t c = 0; c < r.channels; ++c) {
        shift[c] = sum_dy[c] * share;
        slope[c] *= share;
      }
      const GradientInputRows work{.dy = args.inputs[0].data,
                                   .x = args.inputs[1].data,
                                   .affine = affine,
                                   .shift = shift,
                                   .slope = slope,
                                   .dx = args.outputs[0].data};
      args.parallel_for(r.count(group), r.grain(), [&](int64_t begin, int64_t end) {
        r.functions->gradient_input(work, r.first(group) + begin, r.first(group) + end, r.channels);
      });
    }
  };
  PreparedKernel kernel = kernel_of(request, *rows, kAffineVectors + 2, 0, run);
  kernel.in_place = {{0, 0}, {1, 0}};
  return kernel;
}

std::vector<std::pair<std::string, KernelFactory>> factories() {
  return {
      {"batch_norm_statistics", prepare_statistics},
      {"batch_norm", prepare_normalise},
      {"fused_batch_norm", prepare_normalise},
      {"batch_norm_grad_reduce", [](const KernelRequest& r) { return prepare_grad_reduce(r, /*relu=*/false); }},
      {"batch_norm_relu_grad_reduce", [](const KernelRequest& r) { return prepare_grad_reduce(r, /*relu=*/true); }},
      {"masked_batch_norm_grad_reduce", prepare_masked_grad_reduce},
      {"batch_norm_grad_input", [](const KernelRequest& r) { return prepare_grad_input(r, /*relu=*/false); }},
      {"batch_norm_relu_grad_input", [](const KernelRequest& r) { return prepare_grad_input(r, /*relu=*/true); }},
  };
}

}  // namespace

void add_batch_norm(KernelRegistry& registry) {
  for (const auto& [op, factory] : factories()) registry.add(op, factory);
}

void add_copied_batch_norm(KernelRegistry& registry) {
  for (const auto& [op, factory] : factories()) {
    registry.add(op, [factory = factory](const KernelRequest& request) { return prepare_copied(request, factory); });
  }
}

}  // namespace tessera::kernels::cpu
