// conv2d with 3x3 kernels and no strides, and its two gradients, by Winograd's convolution F(2x2, 3x3): tiles of the
// images and the weight are transformed (winograd_tiles.h), 16 matrix products, one for each plane, take the place of
// 36, and their results are transformed back.
//
//   forward          M [p, tiles, co]  = seen(x) [p, tiles, ci]  x  U [p, ci, co]       y  = result(M)
//   grad of input    M [p, tiles, ci]  = seen(dy) [p, tiles, co] x  turned U [p, co, ci] dx = result(M)
//   grad of weight   dU [p, co, ci]    = Z^T [p, co, tiles]  x  seen(x) [p, tiles, ci]  dw = weight_gradient(dU)
//                    where Z = result_gradient(dy)
//
// Sums have other roundings than a convolution by its definition, of the same size: the transforms add at most four
// numbers and halve. float32 only; half types would round what is transformed once more. These are candidates
// (kernel.h): they win where arithmetic is what takes the time, which measuring finds out.
#include <algorithm>
#include <cstring>

#include "tessera/kernels/cpu/images/convolution_operands.h"
#include "tessera/kernels/cpu/images/winograd_tiles.h"
#include "tessera/kernels/cpu/matmul/onednn.h"
#include "tessera/kernels/cpu/registry/families.h"

namespace tessera::kernels::cpu {
namespace {

using dnnl::memory;

struct Variant {
  const char* suffix;
  // Each thread has tiles and products of its own, instead of all threads sharing one product after the other.
  bool split;
  // The planes of about so many bytes are made at a time: per thread what stays in its second-level cache.
  int64_t block_bytes;
};
constexpr Variant kVariants[] = {{"", true, 768 << 10}, {"/shared", false, 8 << 20}};

// Planes are so many elements further apart than they are long: at distances of a power of two all 16 would meet in
// the same few places of the cache.
constexpr int64_t kPlanePadding = 16;
// Rows of a product below this leave its kernel idle.
constexpr int64_t kLeastTiles = 32;

memory::desc planes_of(int64_t rows, int64_t columns, int64_t stride, bool transposed) {
  const memory::dims dims = {kWinogradPlanes, transposed ? columns : rows, transposed ? rows : columns};
  return {dims, memory::data_type::f32,
          transposed ? memory::dims{stride, 1, columns} : memory::dims{stride, columns, 1}};
}

struct Product {
  int64_t tiles;
  bool accumulate;
  Primitive run;
  size_t a, b, c;
};
// What one thread does, or all together.
struct Worker {
  int64_t first = 0, last = 0;  // tiles
  std::vector<Product> products;
  int64_t seen = 0, made = 0;  // places of planes in scratch: what tiles see, and what is made of it (or Z)
  int64_t sum = 0;             // place of its part of dU
};

class WinogradConvolution {
 public:
  // Null where the variant does not take the request.
  static std::shared_ptr<WinogradConvolution> make(Pass pass, const KernelRequest& request, const Variant& variant);

  void run(const KernelArgs& args);
  int64_t scratch_bytes() const { return scratch_.bytes(); }

 private:
  WinogradConvolution(Pass pass, int num_threads) : pass_(pass), roles_(roles_of(pass)), num_threads_(num_threads) {}

  bool plan(const Variant& variant);
  bool add_product(Worker& worker, int64_t tiles, bool accumulate);
  void transform_weight(const KernelArgs& args);
  void run_worker(Worker& worker, const KernelArgs& args, const ParallelFor& parallel_for);
  void finish_weight(const KernelArgs& args);
  bool is_grad_weight() const { return pass_ == Pass::kGradWeight; }
  float* scratch_at(const KernelArgs& args, int64_t offset) const {
    return reinterpret_cast<float*>(args.scratch.data() + offset);
  }
  int64_t stride_of(int64_t channels) const { return tiles_per_block_ * channels + kPlanePadding; }

  Pass pass_;
  Roles roles_;
  int num_threads_;
  WinogradTiles seen_, made_;  // of the images that tiles see, and of those that their results are in
  WinogradWeight weight_;
  int64_t num_tiles_ = 0, tiles_per_block_ = 0;
  memory::desc blocked_weight_;       // as the products take U
  int64_t planes_ = 0, blocked_ = 0;  // places of U in scratch, as it is made and as the products take it
  std::optional<Primitive> reorder_;
  size_t reorder_from_ = 0, reorder_to_ = 0;
  ScratchPlan scratch_;
  std::vector<Worker> workers_;
};

std::shared_ptr<WinogradConvolution> WinogradConvolution::make(Pass pass, const KernelRequest& request,
                                                               const Variant& variant) {
  for (const auto& views : {request.inputs, request.outputs}) {
    for (const TensorView& view : views) {
      if (view.dtype != DType::kF32 || view.num_elements() == 0 || view.shape.ndim() != 4) return nullptr;
    }
  }
  std::shared_ptr<WinogradConvolution> made(new WinogradConvolution(pass, request.num_threads));
  const TensorView& source = made->roles_.source.of(request);
  const TensorView& destination = made->roles_.destination.of(request);
  const TensorView& weight = made->roles_.weight.of(request);
  const Geometry geometry = geometry_of(request.attributes);
  const Ints ones = {1, 1};
  if (geometry.groups != 1 || geometry.strides != ones || geometry.dilation != ones || weight.shape[2] != 3 ||
      weight.shape[3] != 3 || weight.shape[0] % kWinogradChannels != 0 || weight.shape[1] % kWinogradChannels != 0 ||
      !weight.is_dense() || !is_channels_last(source.shape, source.strides) ||
      !is_channels_last(destination.shape, destination.strides)) {
    return nullptr;
  }
  const auto image_of = [](const TensorView& view) {
    return WinogradTiles{.channels = view.shape[1], .image = {view.shape[2], view.shape[3]}};
  };
  // The gradient of the input is a convolution of dy with the turned kernel.
  const bool turned = pass == Pass::kGradInput;
  made->seen_ = image_of(turned ? destination : source);
  made->made_ = image_of(turned ? source : destination);
  for (size_t d = 0; d < 2; ++d) {
    const int64_t padding = turned ? 2 - geometry.padding_before[d] : geometry.padding_before[d];
    made->seen_.origin[d] = -padding;
  }
  const auto& result = made->made_.image;
  for (WinogradTiles* tiles : {&made->seen_, &made->made_}) {
    tiles->per_line = (result[1] + 1) / 2;
    tiles->per_image = tiles->per_line * ((result[0] + 1) / 2);
  }
  made->num_tiles_ = source.shape[0] * made->made_.per_image;
  made->weight_ = {.co = weight.shape[0], .ci = weight.shape[1]};
  made->weight_.stride = made->weight_.co * made->weight_.ci + kPlanePadding;
  return made->plan(variant) ? made : nullptr;
}

bool WinogradConvolution::plan(const Variant& variant) {
  const int num_workers = variant.split ? num_threads_ : 1;
  const int64_t tile_bytes = kWinogradPlanes * (seen_.channels + made_.channels) * static_cast<int64_t>(sizeof(float));
  tiles_per_block_ =
      std::clamp((variant.block_bytes / tile_bytes) / 8 * 8, kLeastTiles, std::max(num_tiles_, kLeastTiles));
  const int64_t weight_bytes = kWinogradPlanes * weight_.stride * static_cast<int64_t>(sizeof(float));
  if (!is_grad_weight()) planes_ = scratch_.add(weight_bytes);

  const OpenMpThreads threads(variant.split ? 1 : num_threads_);
  for (int w = 0; w < num_workers; ++w) {
    Worker worker{.first = num_tiles_ * w / num_workers, .last = num_tiles_ * (w + 1) / num_workers};
    worker.seen = scratch_.add(kWinogradPlanes * stride_of(seen_.channels) * static_cast<int64_t>(sizeof(float)));
    worker.made = scratch_.add(kWinogradPlanes * stride_of(made_.channels) * static_cast<int64_t>(sizeof(float)));
    if (is_grad_weight()) worker.sum = scratch_.add(weight_bytes);
    for (int64_t at = worker.first; at < worker.last; at += tiles_per_block_) {
      const int64_t tiles = std::min(tiles_per_block_, worker.last - at);
      if (!add_product(worker, tiles, is_grad_weight() && at > worker.first)) return false;
    }
    workers_.push_back(std::move(worker));
  }
  if (is_grad_weight()) return true;

  const bool turned = pass_ == Pass::kGradInput;
  const memory::desc plain = planes_of(weight_.co, weight_.ci, weight_.stride, !turned);
  blocked_ = planes_;
  if (blocked_weight_ == plain) return true;
  const OpenMpThreads all_threads(num_threads_);
  const dnnl::reorder::primitive_desc reorder(onednn_engine(), plain, onednn_engine(), blocked_weight_,
                                              onednn_attributes(), /*allow_empty=*/true);
  if (!reorder) return false;
  blocked_ = scratch_.add(static_cast<int64_t>(blocked_weight_.get_size()));
  reorder_.emplace(reorder, scratch_);
  reorder_from_ = reorder_->add(DNNL_ARG_FROM, plain);
  reorder_to_ = reorder_->add(DNNL_ARG_TO, blocked_weight_);
  return true;
}

bool WinogradConvolution::add_product(Worker& worker, int64_t tiles, bool accumulate) {
  for (const Product& known : worker.products) {
    if (known.tiles == tiles && known.accumulate == accumulate) return true;
  }
  dnnl::primitive_attr attributes = onednn_attributes();
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const memory::desc seen = planes_of(tiles, seen_.channels, stride_of(seen_.channels), false);
  const memory::desc made = planes_of(tiles, made_.channels, stride_of(made_.channels), is_grad_weight());
  memory::desc a = seen;
  memory::desc b = blocked_weight_;
  memory::desc c = made;
  if (is_grad_weight()) {
    a = made;
    b = seen;
    c = planes_of(weight_.co, weight_.ci, weight_.stride, false);
  } else if (b.is_zero()) {
    b = memory::desc({kWinogradPlanes, seen_.channels, made_.channels}, memory::data_type::f32,
                     memory::format_tag::any);
  }
  const dnnl::matmul::primitive_desc desc(onednn_engine(), a, b, c, attributes, /*allow_empty=*/true);
  if (!desc || is_reference(desc)) return false;
  // All products take U as the first one, which has most tiles, likes it.
  if (!is_grad_weight()) blocked_weight_ = desc.weights_desc();
  Product product{.tiles = tiles, .accumulate = accumulate, .run = Primitive(desc, scratch_)};
  product.a = product.run.add(DNNL_ARG_SRC, a);
  product.b = product.run.add(DNNL_ARG_WEIGHTS, desc.weights_desc());
  product.c = product.run.add(DNNL_ARG_DST, c);
  worker.products.push_back(std::move(product));
  return true;
}

void WinogradConvolution::run(const KernelArgs& args) {
  const OpenMpThreads threads(num_threads_);
  if (!is_grad_weight()) transform_weight(args);
  if (workers_.size() == 1) {
    run_worker(workers_[0], args, args.parallel_for);
  } else {
    const ParallelFor alone(1);
    args.parallel_for(static_cast<int64_t>(workers_.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t w = begin; w < end; ++w) run_worker(workers_[static_cast<size_t>(w)], args, alone);
    });
  }
  if (is_grad_weight()) finish_weight(args);
}

void WinogradConvolution::transform_weight(const KernelArgs& args) {
  const auto* kernels = static_cast<const float*>(roles_.weight.of(args).data);
  float* const planes = scratch_at(args, planes_);
  args.parallel_for(weight_.co, 1, [&](int64_t begin, int64_t end) {
    winograd_weight(weight_, kernels, pass_ == Pass::kGradInput, begin, end, planes);
  });
  if (!reorder_) return;
  reorder_->bind(reorder_from_, planes);
  reorder_->bind(reorder_to_, scratch_at(args, blocked_));
  reorder_->run(args.scratch);
}

void WinogradConvolution::run_worker(Worker& worker, const KernelArgs& args, const ParallelFor& parallel_for) {
  const bool turned = pass_ == Pass::kGradInput;
  auto* const source = static_cast<float*>(roles_.source.of(args).data);
  auto* const destination = static_cast<float*>(roles_.destination.of(args).data);
  const float* const seen_images = turned ? destination : source;
  float* const made_images = turned ? source : destination;
  float* const seen = scratch_at(args, worker.seen);
  float* const made = scratch_at(args, worker.made);
  float* const sum = scratch_at(args, worker.sum);
  if (is_grad_weight() && worker.first == worker.last) {
    std::memset(sum, 0, static_cast<size_t>(kWinogradPlanes * weight_.stride) * sizeof(float));
  }
  for (int64_t at = worker.first; at < worker.last; at += tiles_per_block_) {
    const int64_t tiles = std::min(tiles_per_block_, worker.last - at);
    const auto run_of = [&](float* planes, int64_t channels, int64_t begin, int64_t end) {
      return WinogradRun{at + begin, at + end, planes + begin * channels, stride_of(channels)};
    };
    parallel_for(tiles, 1, [&](int64_t begin, int64_t end) {
      winograd_seen(seen_, seen_images, run_of(seen, seen_.channels, begin, end));
      if (is_grad_weight()) {
        winograd_result_gradient(made_, made_images, run_of(made, made_.channels, begin, end));
      }
    });
    const bool accumulate = is_grad_weight() && at > worker.first;
    Product& product = *std::find_if(worker.products.begin(), worker.products.end(),
                                     [&](const Product& p) { return p.tiles == tiles && p.accumulate == accumulate; });
    product.run.bind(product.a, is_grad_weight() ? made : seen);
    product.run.bind(product.b, is_grad_weight() ? seen : scratch_at(args, blocked_));
    product.run.bind(product.c, is_grad_weight() ? sum : made);
    product.run.run(args.scratch);
    if (is_grad_weight()) continue;
    parallel_for(tiles, 1, [&](int64_t begin, int64_t end) {
      winograd_result(made_, run_of(made, made_.channels, begin, end), made_images);
    });
  }
}

// The workers' parts of dU added up in their order, and transformed back.
void WinogradConvolution::finish_weight(const KernelArgs& args) {
  auto* const kernels = static_cast<float*>(roles_.weight.of(args).data);
  float* const sum = scratch_at(args, workers_[0].sum);
  args.parallel_for(weight_.co, 1, [&](int64_t begin, int64_t end) {
    for (size_t w = 1; w < workers_.size(); ++w) {
      const float* const part = scratch_at(args, workers_[w].sum);
      for (int64_t p = 0; p < kWinogradPlanes; ++p) {
        const int64_t plane = p * weight_.stride;
        for (int64_t i = plane + begin * weight_.ci; i < plane + end * weight_.ci; ++i) sum[i] += part[i];
      }
    }
    winograd_weight_gradient(weight_, sum, begin, end, kernels);
  });
}

}  // namespace

void add_winograd_convolution(KernelRegistry& registry) {
  add_variants<WinogradConvolution>("winograd", kVariants, registry);
}

}  // namespace tessera::kernels::cpu
