// conv2d and its two gradients as matrix products over the patches of channels-last images (patches.h); on a 1x1
// kernel without strides the images themselves are the patches, and nothing is copied.
//
//   forward          result [pixels, co]    = patches [pixels, taps ci]  x  weight [taps ci, co]
//   grad of weight   [co, taps ci]          = dy^T [co, pixels]  x  patches [pixels, taps ci]
//   grad of input    dx [pixels, ci]        = patches of dy [pixels, taps co]  x  turned weight [taps co, ci]
//                    and, for a single tap with strides, rows of dy x weight, put where the tap saw them
//
// oneDNN's own convolutions are the better ones on large images. On small ones, and for the gradient of the weight,
// where the contraction is over all pixels of the batch, they leave most of the machine idle. The variants below are
// candidates (kernel.h); measuring chooses.
#include <algorithm>
#include <cstring>

#include "tessera/kernels/cpu/images/convolution_operands.h"
#include "tessera/kernels/cpu/images/patches.h"
#include "tessera/kernels/cpu/matmul/matrix_product.h"
#include "tessera/kernels/cpu/registry/families.h"

namespace tessera::kernels::cpu {
namespace {

struct Variant {
  const char* suffix;
  // Each thread has a share of the batch and products of its own (the parts of a weight's gradient are added in the
  // order of the threads), instead of all threads sharing one product after the other.
  bool split;
  // Patches are made in blocks of about so many bytes: per thread what stays in its second-level cache.
  int64_t block_bytes;
  const char* implementation;  // of oneDNN's matmul
};
// Those that are most often the fastest come first.
constexpr Variant kVariants[] = {
    {"", false, 16 << 20, ""},
    {"/split", true, 512 << 10, ""},
    {"/gemm", false, 16 << 20, "gemm"},
    {"/split_gemm", true, 512 << 10, "gemm"},
};

struct Sizes {
  int64_t ci = 0, co = 0, kernel = 0;  // kernel: elements of one channel's kernel
};

// The lines (patches.h) of one product, and which of the worker's products it is.
struct Block {
  int64_t begin = 0, end = 0;
  size_t product = 0;
};
struct Product {
  int64_t lines;
  bool accumulate;
  MatrixProduct run;
};
// What one thread does, or all together.
struct Worker {
  std::vector<Block> blocks;
  std::vector<Product> products;
  int64_t rows = 0;  // place of the block's patches, or of its results before they are put in place, in scratch
  int64_t sum = 0;   // place of its part of the weight's gradient
};

class MatmulConvolution {
 public:
  // Null where the variant does not take the request.
  static std::shared_ptr<MatmulConvolution> make(Pass pass, const KernelRequest& request, const Variant& variant);

  void run(const KernelArgs& args);
  int64_t scratch_bytes() const { return scratch_.bytes(); }

 private:
  MatmulConvolution(Pass pass, const KernelRequest& request, const Sizes& sizes, const Patches& patches)
      : pass_(pass), roles_(roles_of(pass)), num_threads_(request.num_threads), sizes_(sizes), patches_(patches) {}

  bool plan(const KernelRequest& request, const Variant& variant);
  std::optional<MatrixProduct> product(int64_t lines, bool accumulate, const std::string& implementation);
  void run_worker(Worker& worker, const KernelArgs& args, const ParallelFor& parallel_for);
  template <typename Element>
  void pack_weight(const TensorView& weight, const KernelArgs& args);
  template <typename T>
  void unpack_weight(const TensorView& weight, const KernelArgs& args);
  std::byte* scratch_at(const KernelArgs& args, int64_t offset) const { return args.scratch.data() + offset; }

  Pass pass_;
  Roles roles_;
  int num_threads_;
  Sizes sizes_;
  Patches patches_;
  bool gathers_ = false;   // patches are copied
  bool scatters_ = false;  // a single tap's gradient of the input is put in place
  // The weight's elements do not lie as the products take them (or make them).
  bool packs_ = false;
  DType image_dtype_ = DType::kF32, sum_dtype_ = DType::kF32;
  int64_t line_pixels_ = 0, num_lines_ = 0;
  int64_t packed_weight_ = 0;  // its place in scratch
  ScratchPlan scratch_;
  std::vector<Worker> workers_;
};

std::shared_ptr<MatmulConvolution> MatmulConvolution::make(Pass pass, const KernelRequest& request,
                                                           const Variant& variant) {
  for (const auto& views : {request.inputs, request.outputs}) {
    for (const TensorView& view : views) {
      if (!onednn_dtype(view.dtype) || view.num_elements() == 0 || view.shape.ndim() != 4) return nullptr;
    }
  }
  const Roles roles = roles_of(pass);
  const TensorView& source = roles.source.of(request);
  const TensorView& destination = roles.destination.of(request);
  const TensorView& weight = roles.weight.of(request);
  const bool wide_weight = pass == Pass::kGradWeight && weight.dtype == DType::kF32;
  if (source.dtype != destination.dtype || (weight.dtype != source.dtype && !wide_weight)) return nullptr;
  if (!is_channels_last(source.shape, source.strides) || !is_channels_last(destination.shape, destination.strides) ||
      !weight.is_dense()) {
    return nullptr;
  }
  const Geometry geometry = geometry_of(request.attributes);
  if (geometry.groups != 1) return nullptr;

  const Sizes sizes{.ci = weight.shape[1], .co = weight.shape[0], .kernel = weight.shape[2] * weight.shape[3]};
  PatchGeometry seen{.channels = sizes.ci};
  for (int dim = 0; dim < 2; ++dim) {
    const auto d = static_cast<size_t>(dim);
    seen.image[d] = source.shape[2 + dim];
    seen.result[d] = destination.shape[2 + dim];
    seen.kernel[d] = weight.shape[2 + dim];
    seen.stride[d] = geometry.strides[d];
    seen.dilation[d] = geometry.dilation[d];
    seen.padding[d] = geometry.padding_before[d];
  }
  const auto element_bytes = static_cast<int64_t>(size_bytes(source.dtype));
  bool scatters = false;
  if (pass == Pass::kGradInput) {
    if (seen.stride == PatchGeometry::PerDim{1, 1}) {
      // A convolution of dy with the kernel turned by 180 degrees.
      seen.channels = sizes.co;
      std::swap(seen.image, seen.result);
      for (size_t d = 0; d < 2; ++d) seen.padding[d] = seen.dilation[d] * (seen.kernel[d] - 1) - seen.padding[d];
    } else {
      scatters = true;
    }
  }
  const Patches patches(seen, element_bytes);
  if (patches.taps().empty() || (scatters && patches.taps().size() > 1)) return nullptr;

  std::shared_ptr<MatmulConvolution> made(new MatmulConvolution(pass, request, sizes, patches));
  made->image_dtype_ = source.dtype;
  made->scatters_ = scatters;
  made->gathers_ = !scatters && !patches.are_the_images();
  made->line_pixels_ = seen.result[1];
  made->num_lines_ = source.shape[0] * seen.result[0];
  return made->plan(request, variant) ? made : nullptr;
}

bool MatmulConvolution::plan(const KernelRequest& request, const Variant& variant) {
  const bool grad_weight = pass_ == Pass::kGradWeight;
  const auto element_bytes = static_cast<int64_t>(size_bytes(image_dtype_));
  const int num_workers = variant.split ? num_threads_ : 1;
  const int64_t weight_elements = sizes_.ci * sizes_.co * static_cast<int64_t>(patches_.taps().size());
  // Where there are no patches to copy, one product does a worker's whole share.
  const int64_t row_bytes = scatters_ ? sizes_.ci * element_bytes : patches_.row_elements() * element_bytes;
  const bool in_blocks = gathers_ || scatters_;
  const int64_t lines_per_block =
      in_blocks ? std::max<int64_t>(variant.block_bytes / (line_pixels_ * row_bytes), 1) : num_lines_;
  // Differs from the others in the size of blocks only.
  if (!in_blocks && variant.split && num_threads_ == 1) return false;

  const DType weight_dtype = roles_.weight.of(request).dtype;
  const bool one_product = num_workers == 1 && lines_per_block >= num_lines_;
  packs_ = sizes_.kernel > 1;
  sum_dtype_ = weight_dtype;
  if (grad_weight) {
    packs_ = packs_ || num_workers > 1 || (!one_product && weight_dtype != DType::kF32);
    if (packs_) sum_dtype_ = DType::kF32;
  } else if (packs_) {
    packed_weight_ = scratch_.add(weight_elements * element_bytes);
  }

  const OpenMpThreads threads(variant.split ? 1 : num_threads_);
  for (int w = 0; w < num_workers; ++w) {
    Worker worker;
    const int64_t begin = num_lines_ * w / num_workers;
    const int64_t end = num_lines_ * (w + 1) / num_workers;
    for (int64_t at = begin; at < end; at += lines_per_block) {
      const int64_t lines = std::min(lines_per_block, end - at);
      const bool accumulate = grad_weight && at > begin;
      const auto known = std::find_if(worker.products.begin(), worker.products.end(),
                                      [&](const Product& p) { return p.lines == lines && p.accumulate == accumulate; });
      worker.blocks.push_back({at, at + lines, static_cast<size_t>(known - worker.products.begin())});
      if (known != worker.products.end()) continue;
      auto made = product(lines, accumulate, variant.implementation);
      if (!made) return false;
      worker.products.push_back({lines, accumulate, std::move(*made)});
    }
    if (in_blocks) worker.rows = scratch_.add(std::min(lines_per_block, num_lines_) * line_pixels_ * row_bytes);
    if (grad_weight && packs_) worker.sum = scratch_.add(weight_elements * static_cast<int64_t>(sizeof(float)));
    workers_.push_back(std::move(worker));
  }
  return true;
}

std::optional<MatrixProduct> MatmulConvolution::product(int64_t lines, bool accumulate,
                                                        const std::string& implementation) {
  const int64_t pixels = lines * line_pixels_;
  const int64_t ci = sizes_.ci;
  const int64_t co = sizes_.co;
  const int64_t patch = patches_.row_elements();
  const auto rows_of = [](DType dtype, int64_t rows, int64_t columns) {
    return Matrix{dtype, rows, columns, columns, 1};
  };
  const auto transposed = [](Matrix matrix) {
    std::swap(matrix.rows, matrix.columns);
    std::swap(matrix.row_stride, matrix.column_stride);
    return matrix;
  };
  switch (pass_) {
    case Pass::kForward:
      return MatrixProduct::make(rows_of(image_dtype_, pixels, patch), transposed(rows_of(image_dtype_, co, patch)),
                                 rows_of(image_dtype_, pixels, co), false, implementation, scratch_);
    case Pass::kGradInput: {
      const int64_t contracted = scatters_ ? co : patch;
      return MatrixProduct::make(rows_of(image_dtype_, pixels, contracted), rows_of(image_dtype_, contracted, ci),
                                 rows_of(image_dtype_, pixels, ci), false, implementation, scratch_);
    }
    default:
      return MatrixProduct::make(transposed(rows_of(image_dtype_, pixels, co)), rows_of(image_dtype_, pixels, patch),
                                 rows_of(sum_dtype_, co, patch), accumulate, implementation, scratch_);
  }
}

void MatmulConvolution::run(const KernelArgs& args) {
  const OpenMpThreads threads(num_threads_);
  const TensorView& weight = roles_.weight.of(args);
  if (packs_ && pass_ != Pass::kGradWeight) {
    if (size_bytes(weight.dtype) == 2) {
      pack_weight<uint16_t>(weight, args);
    } else {
      pack_weight<uint32_t>(weight, args);
    }
  }
  if (scatters_) {
    const TensorView& image = roles_.source.of(args);
    args.parallel_for(image.size_bytes(), 1 << 16, [&](int64_t begin, int64_t end) {
      std::memset(static_cast<std::byte*>(image.data) + begin, 0, static_cast<size_t>(end - begin));
    });
  }
  if (workers_.size() == 1) {
    run_worker(workers_[0], args, args.parallel_for);
  } else {
    const ParallelFor alone(1);
    args.parallel_for(static_cast<int64_t>(workers_.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t w = begin; w < end; ++w) run_worker(workers_[static_cast<size_t>(w)], args, alone);
    });
  }
  if (packs_ && pass_ == Pass::kGradWeight) {
    dispatch_floating(weight.dtype, "conv2d_grad_weight",
                      [&](auto zero) { unpack_weight<decltype(zero)>(weight, args); });
  }
}

void MatmulConvolution::run_worker(Worker& worker, const KernelArgs& args, const ParallelFor& parallel_for) {
  const bool grad_weight = pass_ == Pass::kGradWeight;
  const bool grad_input = pass_ == Pass::kGradInput;
  const auto element_bytes = static_cast<int64_t>(size_bytes(image_dtype_));
  auto* const source = static_cast<std::byte*>(roles_.source.of(args).data);
  auto* const destination = static_cast<std::byte*>(roles_.destination.of(args).data);
  void* const weight =
      packs_ ? scratch_at(args, grad_weight ? worker.sum : packed_weight_) : roles_.weight.of(args).data;
  std::byte* const rows = scratch_at(args, worker.rows);
  if (grad_weight && worker.blocks.empty()) {
    const auto elements = sizes_.co * patches_.row_elements();
    std::memset(weight, 0, static_cast<size_t>(elements) * sizeof(float));
  }
  // What is contracted with the weight: the source's patches, or, for the gradient of the input, those of dy.
  std::byte* const images = grad_input ? destination : source;
  const int64_t image_line_bytes = line_pixels_ * (grad_input ? sizes_.co : sizes_.ci) * element_bytes;
  for (const Block& block : worker.blocks) {
    std::byte* patches = images + block.begin * image_line_bytes;
    if (gathers_) {
      const int64_t row_bytes = line_pixels_ * patches_.row_elements() * element_bytes;
      parallel_for(block.end - block.begin, 1, [&](int64_t begin, int64_t end) {
        patches_.gather(images, block.begin + begin, block.begin + end, rows + begin * row_bytes);
      });
      patches = rows;
    }
    MatrixProduct& product = worker.products[block.product].run;
    const int64_t result_line_bytes = line_pixels_ * (grad_input ? sizes_.ci : sizes_.co) * element_bytes;
    if (grad_weight) {
      product.run(destination + block.begin * result_line_bytes, patches, weight, args.scratch);
    } else if (scatters_) {
      product.run(patches, weight, rows, args.scratch);
      parallel_for(block.end - block.begin, 1, [&](int64_t begin, int64_t end) {
        patches_.scatter(rows + begin * result_line_bytes, block.begin + begin, block.begin + end, source);
      });
    } else {
      product.run(patches, weight, (grad_input ? source : destination) + block.begin * result_line_bytes, args.scratch);
    }
  }
}

// Row-major [co, ci, kernel] to [co, taps, ci] for the forward pass, to [taps, co, ci] for the gradient of the input.
template <typename Element>
void MatmulConvolution::pack_weight(const TensorView& weight, const KernelArgs& args) {
  const auto* from = static_cast<const Element*>(weight.data);
  auto* to = reinterpret_cast<Element*>(scratch_at(args, packed_weight_));
  const auto num_taps = static_cast<int64_t>(patches_.taps().size());
  const bool turned = pass_ == Pass::kGradInput && !scatters_;
  args.parallel_for(sizes_.co, 1, [&](int64_t begin, int64_t end) {
    for (int64_t co = begin; co < end; ++co) {
      for (int64_t t = 0; t < num_taps; ++t) {
        const int64_t tap = patches_.taps()[static_cast<size_t>(t)];
        const Element* taps = from + co * sizes_.ci * sizes_.kernel + (turned ? sizes_.kernel - 1 - tap : tap);
        Element* row = to + (pass_ == Pass::kForward ? co * num_taps + t : t * sizes_.co + co) * sizes_.ci;
        for (int64_t ci = 0; ci < sizes_.ci; ++ci) row[ci] = taps[ci * sizes_.kernel];
      }
    }
  });
}

// The workers' parts [co, taps, ci] added up, to row-major [co, ci, kernel]; taps that see nothing have gradient 0.
template <typename T>
void MatmulConvolution::unpack_weight(const TensorView& weight, const KernelArgs& args) {
  auto* const to = static_cast<T*>(weight.data);
  const auto num_taps = static_cast<int64_t>(patches_.taps().size());
  args.parallel_for(sizes_.co, 1, [&](int64_t begin, int64_t end) {
    for (int64_t co = begin; co < end; ++co) {
      T* const kernels = to + co * sizes_.ci * sizes_.kernel;
      if (num_taps < sizes_.kernel) std::fill(kernels, kernels + sizes_.ci * sizes_.kernel, T{});
      for (int64_t t = 0; t < num_taps; ++t) {
        T* const taps = kernels + patches_.taps()[static_cast<size_t>(t)];
        const int64_t at = (co * num_taps + t) * sizes_.ci;
        const auto part = [&](const Worker& worker) {
          return reinterpret_cast<float*>(scratch_at(args, worker.sum)) + at;
        };
        float* const sum = part(workers_[0]);
        for (size_t w = 1; w < workers_.size(); ++w) {
          const float* const other = part(workers_[w]);
          for (int64_t ci = 0; ci < sizes_.ci; ++ci) sum[ci] += other[ci];
        }
        for (int64_t ci = 0; ci < sizes_.ci; ++ci) taps[ci * sizes_.kernel] = static_cast<T>(sum[ci]);
      }
    }
  });
}

}  // namespace

void add_matmul_convolution(KernelRegistry& registry) {
  add_variants<MatmulConvolution>("matmul", kVariants, registry);
}

}  // namespace tessera::kernels::cpu
