// What oneDNN alone needs for one ResNet-50 training step: every convolution (forward, by data, by weights) and every
// batch norm with its relu (forward, backward), each in the memory format that is fastest for it, with no conversion
// between them. Additions of shortcuts, pooling, the last layer, the loss and the update are not counted. A training
// step that uses the same kernels cannot be faster than this; how near it comes is what the benchmark shows.
#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "benchmarks/protocol.h"

namespace tessera::benchmarks {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Convolution {
  int64_t channels_in, channels_out, size_in, size_out, kernel, stride;
  auto key() const { return std::tie(channels_in, channels_out, size_in, kernel, stride); }
  bool operator<(const Convolution& other) const { return key() < other.key(); }
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The 53 convolutions in the order of the forward pass; each is followed by a batch norm.
std::vector<Convolution> resnet50_convolutions(int64_t image_size) {
  std::vector<Convolution> layers;
  const auto add = [&](int64_t in, int64_t out, int64_t size, int64_t kernel, int64_t stride) {
    layers.push_back({in, out, size, divide_up(size, stride), kernel, stride});
    return divide_up(size, stride);
  };
  int64_t size = divide_up(add(3, 64, image_size, 7, 2), 2);  // then the maximum of each 2x2
  int64_t channels = 64;
  for (const auto& [blocks, inner, first_stride] : {std::tuple{3, 64, 1}, {4, 128, 2}, {6, 256, 2}, {3, 512, 2}}) {
    for (int block = 0; block < blocks; ++block) {
      const int64_t stride = block == 0 ? first_stride : 1;
      if (block == 0) add(channels, 4 * inner, size, 1, stride);
      size = add(channels, inner, size, 1, stride);
      add(inner, inner, size, 3, 1);
      add(inner, 4 * inner, size, 1, 1);
      channels = 4 * inner;
    }
  }
  return layers;
}

// Memory that is written once, so that no kernel meets denormal numbers or untouched pages. A bf16 number is the upper
// half of a float.
std::shared_ptr<std::byte> filled(size_t bytes, memory::data_type dtype) {
  const size_t rounded = (bytes + 63) / 64 * 64;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
  if (data == nullptr) throw std::bad_alloc();
  const size_t size = memory::data_type_size(dtype);
#pragma omp parallel for
  for (int64_t i = 0; i < static_cast<int64_t>(rounded / size); ++i) {
    const float value = static_cast<float>((i * 2654435761U) % 1024) / 1024.0F - 0.5F;
    std::memcpy(data + static_cast<size_t>(i) * size, reinterpret_cast<const std::byte*>(&value) + sizeof(value) - size,
                size);
  }
  return {data, std::free};
}

// A primitive with its memory.
struct Call {
  dnnl::primitive primitive;
  std::string implementation;
  std::unordered_map<int, memory> arguments;
  std::vector<std::shared_ptr<std::byte>> owned;
};

class Step {
 public:
  Step(int64_t batch, int64_t image_size, memory::data_type dtype)
      : batch_(batch), dtype_(dtype), layers_(resnet50_convolutions(image_size)) {
    size_t largest = 0;
    for (const auto& c : layers_) {
      largest = std::max({largest, bytes_of(c.channels_in, c.size_in), bytes_of(c.channels_out, c.size_out)});
    }
    // Gradients of activations live for one layer only: two buffers take turns.
    upper_ = filled(largest * 2, dtype_);
    lower_ = filled(largest * 2, dtype_);
    for (const auto& c : layers_) {
      const auto input = activations_.empty() ? filled(bytes_of(16, c.size_in), dtype_) : activations_.back();
      // A projection reads the same input as the convolution after it, but an input of the right size is what counts
      // here.
      activations_.push_back(filled(std::max(bytes_of(c.channels_out, c.size_out), next_input_bytes()), dtype_));
      const auto output = filled(bytes_of(c.channels_out, c.size_out), dtype_);
      forward_.push_back(best(c, "forward", [&](Tag tag) { return convolution_forward(c, tag, input, output); }));
      forward_.push_back(best(c, "norm", [&](Tag tag) { return norm_forward(c, tag, output, activations_.back()); }));
      backward_.push_back(best(c, "by weights", [&](Tag tag) { return convolution_weights(c, tag, input); }));
      if (&c != &layers_.front()) {
        backward_.push_back(best(c, "by data", [&](Tag tag) { return convolution_data(c, tag); }));
      }
      backward_.push_back(best(c, "norm backward", [&](Tag tag) { return norm_backward(c, tag, output); }));
    }
  }

  // Seconds for one step.
  double run() {
    const double start = seconds_now();
    for (auto& call : forward_) call.primitive.execute(stream_, call.arguments);
    for (auto call = backward_.rbegin(); call != backward_.rend(); ++call) {
      call->primitive.execute(stream_, call->arguments);
    }
    stream_.wait();
    return seconds_now() - start;
  }

  // How many kernels are fastest channels-last.
  std::string about() const {
    int channels_last = 0;
    for (const auto& [key, choice] : choices_) channels_last += choice == Tag::nhwc ? 1 : 0;
    return fmt::format("oneDNN {}.{}, {}, {} of {} distinct kernels channels-last", dnnl_version()->major,
                       dnnl_version()->minor, dtype_ == memory::data_type::f32 ? "float32" : "bfloat16", channels_last,
                       choices_.size());
  }

 private:
  size_t bytes_of(int64_t channels, int64_t size) const {
    return static_cast<size_t>(batch_ * std::max<int64_t>(channels, 16) * size * size) * memory::data_type_size(dtype_);
  }
  // The input of the layer that comes next, which may be larger than this one's output (behind a projection).
  size_t next_input_bytes() const {
    const size_t next = activations_.size() + 1;
    return next < layers_.size() ? bytes_of(layers_[next].channels_in, layers_[next].size_in) : 0;
  }

  memory::desc image(int64_t channels, int64_t size, Tag tag) const {
    return {{batch_, channels, size, size}, dtype_, tag};
  }
  memory view(const memory::desc& desc, const std::shared_ptr<std::byte>& data) const {
    return {desc, engine_, data.get()};
  }
  memory own(Call& call, const memory::desc& desc) const {
    call.owned.push_back(filled(desc.get_size(), desc.get_data_type()));
    return {desc, engine_, call.owned.back().get()};
  }

  struct Geometry {
    memory::desc source, weights, target;
    memory::dims strides, before, after;
  };
  Geometry geometry(const Convolution& c, Tag tag) const {
    const int64_t total = std::max<int64_t>((c.size_out - 1) * c.stride + c.kernel - c.size_in, 0);
    // The blocked kernels of the first layer take its 3 channels as planes.
    const Tag planes = tag == Tag::nhwc ? tag : Tag::nchw;
    return {.source = image(c.channels_in, c.size_in, c.channels_in == 3 ? planes : tag),
            .weights = {{c.channels_out, c.channels_in, c.kernel, c.kernel}, dtype_, Tag::any},
            .target = image(c.channels_out, c.size_out, tag),
            .strides = {c.stride, c.stride},
            .before = {total / 2, total / 2},
            .after = {total - total / 2, total - total / 2}};
  }
  auto forward_descriptor(const Convolution& c, Tag tag) const {
    const auto g = geometry(c, tag);
    return dnnl::convolution_forward::primitive_desc(engine_, dnnl::prop_kind::forward_training,
                                                     dnnl::algorithm::convolution_direct, g.source, g.weights, g.target,
                                                     g.strides, g.before, g.after);
  }

  Call convolution_forward(const Convolution& c, Tag tag, const std::shared_ptr<std::byte>& input,
                           const std::shared_ptr<std::byte>& output) const {
    const auto descriptor = forward_descriptor(c, tag);
    Call call{dnnl::convolution_forward(descriptor), descriptor.impl_info_str(), {}, {input, output}};
    call.arguments = {{DNNL_ARG_SRC, view(descriptor.src_desc(), input)},
                      {DNNL_ARG_WEIGHTS, own(call, descriptor.weights_desc())},
                      {DNNL_ARG_DST, view(descriptor.dst_desc(), output)}};
    return call;
  }
  Call convolution_data(const Convolution& c, Tag tag) const {
    const auto g = geometry(c, tag);
    const dnnl::convolution_backward_data::primitive_desc descriptor(engine_, dnnl::algorithm::convolution_direct,
                                                                     g.source, g.weights, g.target, g.strides, g.before,
                                                                     g.after, forward_descriptor(c, tag));
    Call call{dnnl::convolution_backward_data(descriptor), descriptor.impl_info_str(), {}, {}};
    call.arguments = {{DNNL_ARG_DIFF_SRC, view(descriptor.diff_src_desc(), lower_)},
                      {DNNL_ARG_WEIGHTS, own(call, descriptor.weights_desc())},
                      {DNNL_ARG_DIFF_DST, view(descriptor.diff_dst_desc(), upper_)}};
    return call;
  }
  Call convolution_weights(const Convolution& c, Tag tag, const std::shared_ptr<std::byte>& input) const {
    const auto g = geometry(c, tag);
    const dnnl::convolution_backward_weights::primitive_desc descriptor(engine_, dnnl::algorithm::convolution_direct,
                                                                        g.source, g.weights, g.target, g.strides,
                                                                        g.before, g.after, forward_descriptor(c, tag));
    Call call{dnnl::convolution_backward_weights(descriptor), descriptor.impl_info_str(), {}, {input}};
    call.arguments = {{DNNL_ARG_SRC, view(descriptor.src_desc(), input)},
                      {DNNL_ARG_DIFF_WEIGHTS, own(call, descriptor.diff_weights_desc())},
                      {DNNL_ARG_DIFF_DST, view(descriptor.diff_dst_desc(), upper_)}};
    return call;
  }

  inline static const auto kNormFlags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift |
                                        dnnl::normalization_flags::fuse_norm_relu;
  auto norm_descriptor(const Convolution& c, Tag tag) const {
    const auto desc = image(c.channels_out, c.size_out, tag);
    return dnnl::batch_normalization_forward::primitive_desc(engine_, dnnl::prop_kind::forward_training, desc, desc,
                                                             1e-5F, kNormFlags);
  }
  Call norm_forward(const Convolution& c, Tag tag, const std::shared_ptr<std::byte>& input,
                    const std::shared_ptr<std::byte>& output) const {
    const auto descriptor = norm_descriptor(c, tag);
    Call call{dnnl::batch_normalization_forward(descriptor), descriptor.impl_info_str(), {}, {input, output}};
    call.arguments = {{DNNL_ARG_SRC, view(descriptor.src_desc(), input)},
                      {DNNL_ARG_DST, view(descriptor.dst_desc(), output)},
                      {DNNL_ARG_MEAN, own(call, descriptor.mean_desc())},
                      {DNNL_ARG_VARIANCE, own(call, descriptor.variance_desc())},
                      {DNNL_ARG_SCALE, own(call, descriptor.mean_desc())},
                      {DNNL_ARG_SHIFT, own(call, descriptor.mean_desc())},
                      {DNNL_ARG_WORKSPACE, own(call, descriptor.workspace_desc())}};
    return call;
  }
  Call norm_backward(const Convolution& c, Tag tag, const std::shared_ptr<std::byte>& input) const {
    const auto desc = image(c.channels_out, c.size_out, tag);
    const dnnl::batch_normalization_backward::primitive_desc descriptor(
        engine_, dnnl::prop_kind::backward, desc, desc, desc, 1e-5F, kNormFlags, norm_descriptor(c, tag));
    Call call{dnnl::batch_normalization_backward(descriptor), descriptor.impl_info_str(), {}, {input}};
    const auto variance = own(call, descriptor.variance_desc());
    auto* values = static_cast<float*>(variance.get_data_handle());
    std::fill(values, values + c.channels_out, 1.0F);
    call.arguments = {{DNNL_ARG_SRC, view(descriptor.src_desc(), input)},
                      {DNNL_ARG_MEAN, own(call, descriptor.mean_desc())},
                      {DNNL_ARG_VARIANCE, variance},
                      {DNNL_ARG_SCALE, own(call, descriptor.mean_desc())},
                      {DNNL_ARG_WORKSPACE, own(call, descriptor.workspace_desc())},
                      {DNNL_ARG_DIFF_DST, view(descriptor.diff_dst_desc(), lower_)},
                      {DNNL_ARG_DIFF_SRC, view(descriptor.diff_src_desc(), upper_)},
                      {DNNL_ARG_DIFF_SCALE, own(call, descriptor.mean_desc())},
                      {DNNL_ARG_DIFF_SHIFT, own(call, descriptor.mean_desc())}};
    return call;
  }

  // The faster of channels-last and blocked; measured once for each distinct layer.
  template <typename Make>
  Call best(const Convolution& c, const std::string& what, Make make) {
    const auto key = std::pair(what, c);
    if (const auto known = choices_.find(key); known != choices_.end()) return make(known->second);
    Tag choice = Tag::nhwc;
    double best_seconds = 1e30;
    for (const Tag tag : {Tag::nhwc, blocked_}) {
      Call call = make(tag);
      // Plain loops, where oneDNN has no kernel of its own for a format, can take a minute.
      if (call.implementation.starts_with("ref")) continue;
      for (int i = 0; i < 3; ++i) {
        const double start = seconds_now();
        call.primitive.execute(stream_, call.arguments);
        stream_.wait();
        const double seconds = seconds_now() - start;
        if (i > 0 && seconds < best_seconds) {
          best_seconds = seconds;
          choice = tag;
        }
      }
    }
    choices_[key] = choice;
    return make(choice);
  }

  int64_t batch_;
  memory::data_type dtype_;  // of images and weights; statistics are f32
  std::vector<Convolution> layers_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  mutable dnnl::stream stream_{engine_};
  // The format that oneDNN itself prefers on this machine.
  Tag blocked_ = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core ? Tag::nChw16c : Tag::nChw8c;
  std::shared_ptr<std::byte> upper_;  // gradient of a convolution's output, and of the batch norm's input
  std::shared_ptr<std::byte> lower_;  // gradient of a convolution's input, and of the batch norm's output below
  std::vector<std::shared_ptr<std::byte>> activations_;
  std::vector<Call> forward_;
  std::vector<Call> backward_;  // in the order of the forward pass; run from the end
  std::map<std::pair<std::string, Convolution>, Tag> choices_;
};

// The step in `dtype`, or in float32 where oneDNN has no kernel of that type for this CPU: what a step in it could
// reach at most is then what float32 reaches.
std::unique_ptr<Step> make_step(int64_t batch_size, int64_t image_size, memory::data_type dtype) {
  try {
    return std::make_unique<Step>(batch_size, image_size, dtype);
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented || dtype == memory::data_type::f32) throw;
    return std::make_unique<Step>(batch_size, image_size, memory::data_type::f32);
  }
}

int run(int argc, char** argv) {
  CLI::App app("The kernels of one ResNet-50 training step, by oneDNN alone; see benchmarks/README.md");
  int64_t image_size = 224;
  int64_t batch_size = 32;
  int threads = 2;
  int warmup_steps = 1;
  std::string precision = "float32";
  app.add_option("--image_size", image_size)->check(CLI::Range(32, 1024));
  app.add_option("--batch_size", batch_size)->check(CLI::Range(1, 4096));
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024));
  app.add_option("--warmup_steps", warmup_steps)->check(CLI::Range(0, 1000));
  app.add_option("--precision", precision)->check(CLI::IsMember({"float32", "bfloat16"}));
  CLI11_PARSE(app, argc, argv);
  omp_set_num_threads(threads);

  const auto dtype = precision == "float32" ? memory::data_type::f32 : memory::data_type::bf16;
  const std::unique_ptr<Step> step = make_step(batch_size, image_size, dtype);
  for (int i = 0; i < warmup_steps; ++i) step->run();
  serve_rounds("images/s", step->about(),
               [&] { return static_cast<double>(batch_size) / seconds_of_step_in_round([&] { return step->run(); }); });
  return 0;
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) { return tessera::benchmarks::run_benchmark(argc, argv, tessera::benchmarks::run); }
