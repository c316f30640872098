#include "tessera/session/speed/device_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/function_ref.h"
#include "tessera/base/random.h"
#include "tessera/base/strings.h"
#include "tessera/executor/kernel_selection.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/tensor/alignment.h"

namespace tessera::session {
namespace {

constexpr std::array kMeasuredFloats = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

// A kernel and all that a launch of it reads, which must stay where it is until the work is done.
struct ReadyKernel {
  PreparedKernel kernel;
  std::vector<TensorView> inputs;
  std::vector<TensorView> outputs;
  Attributes attributes;
  std::span<std::byte> scratch;
};

// Values from 1 to 2, by the bits of their fraction: finite in every dtype, and no two neighbours alike.
template <typename Bits>
void write_measured_values(std::byte* to, int64_t count, Bits one, int fraction_bits) {
  const RandomStream stream{.seed = 1, .stream = hash_name("values of a measurement")};
  for (int64_t i = 0; i < count; ++i) {
    const auto drawn = static_cast<Bits>(random_below(stream, static_cast<uint64_t>(i), int64_t{1} << fraction_bits));
    const Bits value = static_cast<Bits>(one | drawn);
    std::memcpy(to + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
  }
}

void write_measured_values(std::byte* to, int64_t bytes, DType dtype) {
  const auto count = bytes / static_cast<int64_t>(size_bytes(dtype));
  switch (dtype) {
    case DType::kF64: return write_measured_values<uint64_t>(to, count, 0x3FF0'0000'0000'0000, 52);
    case DType::kF32: return write_measured_values<uint32_t>(to, count, 0x3F80'0000, 23);
    case DType::kBF16: return write_measured_values<uint16_t>(to, count, 0x3F80, 7);
    case DType::kF16: return write_measured_values<uint16_t>(to, count, 0x3C00, 10);
    default: throw InternalError("only floats are measured");
  }
}

// Work of a device that is timed by its own clock. Where its queue records, what is timed is replayed.
class DeviceTimer {
 public:
  DeviceTimer(Device& device, const DeviceSpeedOptions& options)
      : options_(options),
        serial_(1),
        memory_(device.reserve(2 * options.most_bytes + kRoom)),
        host_bytes_(std::min(kHostBytes, options.most_bytes)),
        host_(device.allocate_on_host(host_bytes_)),
        queue_(device.make_queue()),
        begin_(device.make_timed_event()),
        end_(device.make_timed_event()) {
    if (begin_ == nullptr || end_ == nullptr) {
      throw IoError("{}: the device has no events that tell the time: nothing can be measured on it", device.name());
    }
  }
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;
  ~DeviceTimer() {
    try {
      queue_->synchronize();
    } catch (const std::exception&) {  // what has failed has been thrown where it was waited for
    }
  }

  // Gives back all memory: kernels that were made before may not be run any more.
  void forget() { used_bytes_ = 0; }

  // So many bytes of the device, of values of that dtype.
  std::byte* values(int64_t bytes, DType dtype) {
    std::byte* const begin = take(bytes);
    const int64_t written = std::min({bytes, host_bytes_, kWrittenBytes});
    write_measured_values(host_.get(), written, dtype);
    queue_->copy(begin, host_.get(), written, CopyWay::kToDevice);
    for (int64_t done = written; done > 0 && done < bytes; done *= 2) {
      queue_->copy(begin + done, begin, std::min(done, bytes - done), CopyWay::kWithin);
    }
    queue_->synchronize();  // the host's memory is written again
    return begin;
  }
  std::byte* take(int64_t bytes) {
    const int64_t begin = used_bytes_;
    used_bytes_ += aligned(std::max<int64_t>(bytes, 1));
    if (used_bytes_ > size_bytes_) {
      memory_->resize(used_bytes_);
      size_bytes_ = used_bytes_;
    }
    return memory_->data() + begin;
  }

  std::byte* host() { return host_.get(); }
  int64_t host_bytes() const { return host_bytes_; }
  Queue& queue() { return *queue_; }

  void launch(const ReadyKernel& ready) {
    queue_->launch(ready.kernel, {ready.inputs, ready.outputs, ready.attributes, ready.scratch, serial_, queue_.get()},
                   nullptr);
  }

  // The fastest run of these pieces, each after the one before. `is_recorded`: replayed, where the queue can.
  double fastest_seconds(const std::vector<std::function<void()>>& pieces, bool is_recorded = true) {
    // What kernels need is made in their first run, which is not recorded.
    for (const auto& give : pieces) give();
    queue_->synchronize();
    std::vector<RecordedWork> work;
    for (size_t i = 0; i < pieces.size(); ++i) {
      work.push_back({pieces[i], i == 0 ? std::vector<int>{} : std::vector<int>{static_cast<int>(i) - 1}});
    }
    const auto recording = is_recorded ? queue_->record(std::span<const RecordedWork>(work)) : nullptr;
    int64_t best_ns = std::numeric_limits<int64_t>::max();
    for (int run = 0; run <= options_.num_runs; ++run) {
      queue_->record(*begin_);
      if (recording != nullptr) {
        queue_->replay(*recording);
      } else {
        for (const auto& give : pieces) give();
      }
      queue_->record(*end_);
      queue_->synchronize();
      if (run > 0) best_ns = std::min(best_ns, end_->nanoseconds_since(*begin_));
    }
    // What the clock cannot see still takes time.
    return 1e-9 * static_cast<double>(std::max<int64_t>(best_ns, 1));
  }
  double fastest_seconds(const ReadyKernel& ready, int times = 1) {
    return fastest_seconds(std::vector<std::function<void()>>(static_cast<size_t>(times), [&] { launch(ready); }));
  }

 private:
  static constexpr int64_t kRoom = int64_t{1} << 30;  // for scratch memory
  static constexpr int64_t kHostBytes = int64_t{64} << 20;
  static constexpr int64_t kWrittenBytes = int64_t{4} << 20;  // by the host; the rest repeats them

  const DeviceSpeedOptions& options_;
  ParallelFor serial_;
  std::unique_ptr<Memory> memory_;
  int64_t used_bytes_ = 0;
  int64_t size_bytes_ = 0;
  int64_t host_bytes_;
  std::shared_ptr<std::byte> host_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Event> begin_;
  std::unique_ptr<Event> end_;
};

// The kernels of one backend, ready for one timer.
class Kernels {
 public:
  Kernels(const kernels::Backend& backend, DeviceTimer& timer)
      : backend_(backend), timer_(timer), selection_(backend.registries, 1) {}

  // The only operator of the graph, on values of its own.
  ReadyKernel of(const ir::Graph& graph) {
    check(graph.num_nodes() == 1, "one operator is measured");
    const ir::Node& node = graph.node(0);
    KernelRequest request{.op = node.op, .attributes = node.attributes};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      request.inputs.push_back(view_of(node.op, graph.type(node.inputs[i]), {false, i}));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      request.outputs.push_back(view_of(node.op, graph.type(node.outputs[i]), {true, i}));
    }
    return ready(std::move(request));
  }

  // The request's views have no memory yet.
  ReadyKernel ready(KernelRequest request) {
    ReadyKernel made{.kernel = selection_.prepare(request, ""),
                     .inputs = std::move(request.inputs),
                     .outputs = std::move(request.outputs),
                     .attributes = std::move(request.attributes),
                     .scratch = {}};
    for (auto& view : made.inputs) view.data = timer_.values(view.size_bytes(), view.dtype);
    for (auto& view : made.outputs) view.data = timer_.take(view.size_bytes());
    if (made.kernel.scratch_bytes > 0) {
      made.scratch = {timer_.take(made.kernel.scratch_bytes), static_cast<size_t>(made.kernel.scratch_bytes)};
    }
    return made;
  }

 private:
  // As plans lay out what the backend's convolutions read and make: weights row by row.
  TensorView view_of(const std::string& op, const Type& type, const ops::OperandOrResult& place) const {
    const auto& convolution = ops::OpRegistry::instance().get(op).convolution;
    const bool is_image = convolution && !(convolution->weight == place);
    return {nullptr, type.dtype, type.shape,
            is_image && backend_.likes_channels_last ? channels_last_strides(type.shape) : dense_strides(type.shape)};
  }

  const kernels::Backend& backend_;
  DeviceTimer& timer_;
  executor::KernelSelection selection_;
};

struct DoneIn {
  double amount = 0;
  double seconds = 0;
};

ir::Value device_input(ir::Graph& graph, const char* name, const Type& type) {
  return graph.add_input(ir::InputKind::kInput, name, type);
}

ir::Graph measured_product(DType dtype, int64_t size) {
  ir::Graph graph("product");
  const Type matrix{dtype, {size, size}};
  const auto a = device_input(graph, "a", matrix);
  graph.add_output("c", ops::matmul(a, device_input(graph, "b", matrix)));
  return graph;
}

// A convolution or one of its gradients: "conv2d", "conv2d_grad_input" or "conv2d_grad_weight".
struct MeasuredConvolution {
  std::string op;
  DType dtype;
  int64_t num_images;
  int64_t in_channels;
  int64_t out_channels;
  int64_t size = 14;  // of the results, as in the middle of a residual network
  int64_t window = 3;
  int64_t stride = 1;
};
ir::Graph graph_of(const MeasuredConvolution& of) {
  ir::Graph graph("convolution");
  const int64_t read_size = of.size * of.stride;
  const int64_t padding = of.window / 2;
  const Type images{of.dtype, {of.num_images, of.in_channels, read_size, read_size}};
  const Type results{of.dtype, {of.num_images, of.out_channels, of.size, of.size}};
  const Type weight{of.dtype, {of.out_channels, of.in_channels, of.window, of.window}};
  const bool is_forward = of.op == "conv2d";
  const bool gives_weight = of.op == "conv2d_grad_weight";
  Attributes attributes = {{"strides", Ints{of.stride, of.stride}},
                           {"padding", Ints{padding, padding, padding, padding}},
                           {"dilation", Ints{1, 1}},
                           {"groups", int64_t{1}}};
  if (gives_weight) attributes.set("kernel_size", Ints{of.window, of.window});
  if (!is_forward && !gives_weight) attributes.set("input_size", Ints{read_size, read_size});
  const auto first = device_input(graph, "first", is_forward ? images : results);
  const auto second = device_input(graph, "second", gives_weight ? images : weight);
  graph.add_output("result", ops::apply1(of.op, {first, second}, attributes));
  return graph;
}

// Operations of the only operator of a graph.
double flops_of(const ir::Graph& graph) {
  const ir::Node& node = graph.node(0);
  std::vector<Type> inputs;
  std::vector<Type> outputs;
  for (const ir::ValueId v : node.inputs) inputs.push_back(graph.type(v));
  for (const ir::ValueId v : node.outputs) outputs.push_back(graph.type(v));
  return ops::cost_of(ops::OpRegistry::instance().get(node.op), node.attributes, inputs, outputs).flops;
}

ir::Graph measured_sum(int64_t num_elements) {
  ir::Graph graph("sum");
  const Type vector{DType::kF32, {num_elements}};
  const auto a = device_input(graph, "a", vector);
  graph.add_output("c", a + device_input(graph, "b", vector));
  return graph;
}

class DeviceMeasurement {
 public:
  DeviceMeasurement(const kernels::Backend& backend, const DeviceSpeedOptions& options)
      : options_(options), timer_(*backend.device, options), kernels_(backend, timer_) {
    if (options.tf32 != nullptr) rounding_.emplace(*options.tf32, timer_);
    profile_.name = backend.name;
  }

  compiler::MachineProfile run() {
    measure_overhead();
    for (const DType dtype : kMeasuredFloats) {
      profile_.flops_per_second[dtype] = products(kernels_, dtype);
      tell_flops(fmt::format("matmul {}", to_string(dtype)), profile_.flops_per_second[dtype]);
      profile_.convolution_flops_per_second[dtype] = convolutions(kernels_, dtype);
      tell_flops(fmt::format("convolution {}", to_string(dtype)), profile_.convolution_flops_per_second[dtype]);
      profile_.vector_flops_per_second[dtype] = functions(dtype);
      tell_flops(fmt::format("other operators {}", to_string(dtype)), profile_.vector_flops_per_second[dtype]);
    }
    if (rounding_) {
      profile_.tf32_flops_per_second = products(*rounding_, DType::kF32);
      tell_flops("matmul tf32", profile_.tf32_flops_per_second);
      profile_.tf32_convolution_flops_per_second = convolutions(*rounding_, DType::kF32);
      tell_flops("convolution tf32", profile_.tf32_convolution_flops_per_second);
    }
    measure_convolution_shares();
    measure_memory();
    measure_copies();
    measure_host_link();
    return std::move(profile_);
  }

 private:
  void tell(const std::string& what, double figure, const char* unit) const {
    if (options_.tell) options_.tell(fmt::format("{:<29}{:10.2f} {}", what, figure, unit));
  }
  void tell_flops(const std::string& what, double flops) const { tell(what, flops / 1e9, "GFLOP/s"); }

  // What one kernel takes of `times` that took so long together, without its overhead, which is not known so well that
  // it could be taken off whole of a very small one.
  double net_seconds(double seconds, int times) const {
    const double each = seconds / times;
    return std::max(each - profile_.kernel_overhead_seconds, each / 2);
  }

  // The highest speed of work of size `least`, `factor` times that, and so on, until it takes long enough; `bytes_of`
  // and `measure` take a size.
  double highest_speed(int64_t least, int64_t factor, FunctionRef<int64_t(int64_t)> bytes_of,
                       FunctionRef<DoneIn(int64_t)> measure) {
    double speed = 0;
    for (int64_t size = least; size == least || bytes_of(size) <= options_.most_bytes; size *= factor) {
      timer_.forget();
      const DoneIn done = measure(size);
      speed = std::max(speed, done.amount / done.seconds);
      if (done.seconds >= options_.enough_seconds) break;
    }
    return speed;
  }

  double products(Kernels& kernels, DType dtype) {
    const auto bytes = static_cast<int64_t>(size_bytes(dtype));
    return highest_speed(
        256, 2, [&](int64_t size) { return 3 * size * size * bytes; },
        [&](int64_t size) -> DoneIn {
          const auto n = static_cast<double>(size);
          return {2 * n * n * n, timer_.fastest_seconds(kernels.of(measured_product(dtype, size)))};
        });
  }

  // Forward and both gradients, as often as each other.
  double convolutions(Kernels& kernels, DType dtype) {
    const auto bytes = static_cast<int64_t>(size_bytes(dtype));
    return highest_speed(
        4, 4, [&](int64_t images) { return 6 * images * options_.num_channels * 14 * 14 * bytes; },
        [&](int64_t images) -> DoneIn {
          std::vector<ReadyKernel> ways;
          double flops = 0;
          for (const char* op : {"conv2d", "conv2d_grad_input", "conv2d_grad_weight"}) {
            const auto graph = graph_of({.op = op,
                                         .dtype = dtype,
                                         .num_images = images,
                                         .in_channels = options_.num_channels,
                                         .out_channels = options_.num_channels});
            flops += flops_of(graph);
            ways.push_back(kernels.of(graph));
          }
          std::vector<std::function<void()>> pieces;
          for (const ReadyKernel& way : ways) pieces.emplace_back([this, way = &way] { timer_.launch(*way); });
          return {flops, timer_.fastest_seconds(pieces)};
        });
  }

  // Of bf16, in which most networks are trained on devices.
  void measure_convolution_shares() {
    constexpr int kTimes = 5;
    constexpr int64_t kSize = 8;
    compiler::ConvolutionShares shares{options_.in_channels, options_.out_channels, options_.pixels, {}};
    if (shares.in_channels.empty() || shares.out_channels.empty() || shares.pixels.empty()) return;
    const double all = profile_.convolution_flops_per_second.at(DType::kBF16);
    for (const auto& kind : compiler::convolution_kinds()) {
      auto& row = shares.by_kind[kind.kind()];
      for (const int64_t in_channels : shares.in_channels) {
        for (const int64_t out_channels : shares.out_channels) {
          for (const int64_t pixels : shares.pixels) {
            timer_.forget();
            const auto graph = graph_of({.op = kind.op,
                                         .dtype = DType::kBF16,
                                         .num_images = pixels / (kSize * kSize),
                                         .in_channels = in_channels,
                                         .out_channels = out_channels,
                                         .size = kSize,
                                         .window = kind.is_pointwise ? 1 : 3,
                                         .stride = kind.is_strided ? 2 : 1});
            const double seconds = net_seconds(timer_.fastest_seconds(kernels_.of(graph), kTimes), kTimes);
            row.push_back(flops_of(graph) / seconds / all);
          }
        }
      }
      const auto [least, most] = std::minmax_element(row.begin(), row.end());
      if (options_.tell) {
        options_.tell(fmt::format("{:<29}{:10.2f} to {:.2f} of the speed", kind.kind(), *least, *most));
      }
    }
    profile_.convolution_shares = std::move(shares);
  }

  // A transcendental function of values in a cache.
  double functions(DType dtype) {
    constexpr int kTimes = 20;
    timer_.forget();
    const Type values{dtype, {std::min<int64_t>(int64_t{1} << 22, options_.most_bytes / 64)}};
    ir::Graph graph("function");
    graph.add_output("y", ops::tanh(device_input(graph, "x", values)));
    return flops_of(graph) / net_seconds(timer_.fastest_seconds(kernels_.of(graph), kTimes), kTimes);
  }

  // Of kernels that have next to nothing to do, in one recording.
  void measure_overhead() {
    timer_.forget();
    ir::Graph graph("nothing");
    graph.add_output("y", ops::neg(device_input(graph, "x", {DType::kF32, {8}})));
    profile_.kernel_overhead_seconds =
        timer_.fastest_seconds(kernels_.of(graph), options_.num_kernels) / options_.num_kernels;
    tell("a kernel's overhead", 1e6 * profile_.kernel_overhead_seconds, "us");
  }

  void measure_memory() {
    constexpr int64_t kElementBytes = 3 * sizeof(float);  // two operands and the result
    profile_.memory_bytes_per_second = highest_speed(
        std::min<int64_t>(int64_t{64} << 20, options_.most_bytes), 2, [](int64_t bytes) { return bytes; },
        [&](int64_t bytes) -> DoneIn {
          const int64_t elements = bytes / kElementBytes;
          return {static_cast<double>(kElementBytes * elements),
                  net_seconds(timer_.fastest_seconds(kernels_.of(measured_sum(elements))), 1)};
        });
    tell("memory", profile_.memory_bytes_per_second / 1e9, "GB/s");
    constexpr int kTimes = 20;
    double least = profile_.memory_bytes_per_second;
    for (const int64_t bytes : {int64_t{32} << 20, int64_t{8} << 20, int64_t{2} << 20}) {
      if (bytes > options_.most_bytes) continue;
      timer_.forget();
      const int64_t elements = bytes / kElementBytes;
      const double seconds = net_seconds(timer_.fastest_seconds(kernels_.of(measured_sum(elements)), kTimes), kTimes);
      // What is larger is not faster, but by noise.
      least = std::max(least, static_cast<double>(kElementBytes * elements) / seconds);
      profile_.cached_bytes_per_second[bytes] = least;
      tell(fmt::format("up to {}", format_bytes(bytes)), least / 1e9, "GB/s");
    }
  }

  // Pieces that lie together on one side, and apart on the other; single elements change the order of channels and
  // pixels.
  void measure_copies() {
    constexpr int64_t kApart = 64;
    constexpr int64_t kPixels = 16;
    constexpr int kTimes = 10;
    constexpr int64_t kLeastElements = int64_t{1} << 17;
    constexpr int64_t kMostElements = int64_t{1} << 22;
    const int64_t elements = options_.most_bytes < int64_t{64} << 20 ? kLeastElements : kMostElements;
    double least = 0;
    for (const int64_t bytes : {4, 16, 64, 256, 1024}) {
      timer_.forget();
      const int64_t piece = bytes / static_cast<int64_t>(sizeof(float));
      const int64_t apart = piece == 1 ? kPixels : kApart;
      const int64_t groups = std::max<int64_t>(elements / piece / apart / kApart, 1);
      const int64_t rows = elements / piece / apart / groups;
      const Shape shape{groups, rows, apart, piece};
      const TensorView from{nullptr, DType::kF32, shape, dense_strides(shape)};
      const TensorView to{nullptr, DType::kF32, shape, Strides{rows * apart * piece, piece, rows * piece, 1}};
      const auto ready = kernels_.ready({.op = "copy", .inputs = {from}, .outputs = {to}});
      const double seconds = net_seconds(timer_.fastest_seconds(ready, kTimes), kTimes);
      // Longer pieces are not slower, but by noise.
      least = std::max(least, 2.0 * static_cast<double>(from.size_bytes()) / seconds);
      profile_.copied_bytes_per_second[bytes] = least;
      tell(fmt::format("copies of {} at a time", format_bytes(bytes)), least / 1e9, "GB/s");
    }
  }

  // The slower of the two ways.
  void measure_host_link() {
    timer_.forget();
    const int64_t bytes = timer_.host_bytes();
    std::byte* const there = timer_.values(bytes, DType::kF32);
    const auto seconds = [&](int64_t copied) {
      const auto way_seconds = [&](CopyWay way) {
        const bool goes = way == CopyWay::kToDevice;
        return timer_.fastest_seconds({[&, goes, way] {
                                        timer_.queue().copy(goes ? there : timer_.host(), goes ? timer_.host() : there,
                                                            copied, way);
                                      }},
                                      /*is_recorded=*/false);
      };
      return std::max(way_seconds(CopyWay::kToDevice), way_seconds(CopyWay::kToHost));
    };
    const double latency = seconds(sizeof(float));
    const double all = seconds(bytes);
    profile_.host_link = {static_cast<double>(bytes) / std::max(all - latency, all / 2), latency};
    tell("link to the host", profile_.host_link.bytes_per_second / 1e9, "GB/s");
    tell("its latency", 1e6 * latency, "us");
  }

  const DeviceSpeedOptions& options_;
  DeviceTimer timer_;
  Kernels kernels_;
  std::optional<Kernels> rounding_;
  compiler::MachineProfile profile_;
};

}  // namespace

compiler::MachineProfile measure_device(const kernels::Backend& backend, const DeviceSpeedOptions& options) {
  if (backend.device == nullptr) {
    throw InvalidArgument("backend {} computes in the host's memory: it has no device to be measured", backend.name);
  }
  return DeviceMeasurement(backend, options).run();
}

}  // namespace tessera::session
