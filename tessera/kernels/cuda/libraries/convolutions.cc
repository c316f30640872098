// Convolutions and their gradients by cuDNN. Its fast engines want weights as images are: channels-last. Ours are
// row-major; where that differs, a copy in scratch memory stands between.
#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/kernels/cuda/core/device_program.h"
#include "tessera/kernels/cuda/core/writer.h"
#include "tessera/kernels/cuda/device/cuda_queue.h"
#include "tessera/kernels/cuda/libraries/cudnn.h"
#include "tessera/kernels/cuda/libraries/timing.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kMostWorkspace = int64_t{256} << 20;
constexpr size_t kMostMeasured = 8;

int64_t rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

std::optional<cudnnDataType_t> library_dtype(DType dtype) {
  switch (dtype) {
    case DType::kF32: return CUDNN_DATA_FLOAT;
    case DType::kBF16: return CUDNN_DATA_BFLOAT16;
    case DType::kF16: return CUDNN_DATA_HALF;
    default: return std::nullopt;
  }
}

enum class Way { kForward, kGradInput, kGradWeight };

// Which operand is what: the images that the convolution reads, those that it makes, the weight; or their cotangents.
struct Roles {
  Way way;
  TensorView x, y, weight;
};

Roles roles_of(const KernelRequest& request) {
  if (request.op == "conv2d") return {Way::kForward, request.inputs[0], request.outputs[0], request.inputs[1]};
  if (request.op == "conv2d_grad_input") {
    return {Way::kGradInput, request.outputs[0], request.inputs[0], request.inputs[1]};
  }
  return {Way::kGradWeight, request.inputs[1], request.inputs[0], request.outputs[0]};
}

CudnnDescriptor tensor(int64_t id, const TensorView& view) {
  CudnnDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const cudnnDataType_t dtype = *library_dtype(view.dtype);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &dtype);
  made.set_ints(CUDNN_ATTR_TENSOR_DIMENSIONS, {view.shape.begin(), view.shape.end()});
  std::vector<int64_t> strides(view.strides.begin(), view.strides.end());
  made.set_ints(CUDNN_ATTR_TENSOR_STRIDES, strides);
  made.set_ints(CUDNN_ATTR_TENSOR_UNIQUE_ID, {id});
  made.set_ints(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {16});
  made.finalize("describing a tensor");
  return made;
}

CudnnDescriptor geometry(const Attributes& attributes) {
  CudnnDescriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnDataType_t computed = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const Ints& padding = attributes.get_ints("padding");
  const Ints& strides = attributes.get_ints("strides");
  const Ints& dilation = attributes.get_ints("dilation");
  made.set_ints(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
  made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computed);
  made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  made.set_ints(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {padding[0], padding[2]});
  made.set_ints(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {padding[1], padding[3]});
  made.set_ints(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {strides[0], strides[1]});
  made.set_ints(CUDNN_ATTR_CONVOLUTION_DILATIONS, {dilation[0], dilation[1]});
  made.finalize("describing a convolution");
  return made;
}

constexpr int64_t kX = 'x';
constexpr int64_t kY = 'y';
constexpr int64_t kWeight = 'w';

CudnnDescriptor graph_of(cudnnHandle_t handle, const Roles& roles, const Attributes& attributes) {
  const CudnnDescriptor x = tensor(kX, roles.x);
  const CudnnDescriptor y = tensor(kY, roles.y);
  const CudnnDescriptor weight = tensor(kWeight, roles.weight);
  const CudnnDescriptor shape = geometry(attributes);
  const float one = 1;
  const float zero = 0;
  struct Names {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t x, y, weight, shape, alpha, beta;
  };
  static constexpr Names kNames[] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
  const Names& names = kNames[static_cast<size_t>(roles.way)];
  CudnnDescriptor operation(names.operation);
  operation.set_descriptor(names.x, x);
  operation.set_descriptor(names.y, y);
  operation.set_descriptor(names.weight, weight);
  operation.set_descriptor(names.shape, shape);
  operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1, &one);
  operation.set(names.beta, CUDNN_TYPE_FLOAT, 1, &zero);
  operation.finalize("describing an operation");
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set_descriptor(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.finalize("describing a graph");
  return graph;
}

// A way to compute a graph that is ready to run.
struct Engine {
  CudnnDescriptor plan;
  int64_t workspace = 0;
};

// What is known of an engine: it gives the same bits in every run, and no TF32 where that is not allowed.
bool is_wanted(const CudnnDescriptor& config, bool may_use_tensor_cores) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  int64_t count = 0;
  if (cudnn().get_attribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                            &raw) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  if (cudnn().get_attribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes.data()) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  notes.resize(static_cast<size_t>(count));
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    const bool is_tf32 = note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC || (is_tf32 && !may_use_tensor_cores);
  });
}

std::vector<Engine> engines_of(cudnnHandle_t handle, const CudnnDescriptor& graph, bool may_use_tensor_cores,
                               size_t most) {
  std::vector<Engine> engines;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (mode == CUDNN_HEUR_MODE_FALLBACK && !engines.empty()) break;
    CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set_descriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!heuristic.try_finalize()) continue;
    constexpr int64_t kMost = 24;
    std::vector<CudnnDescriptor> configs;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (int64_t i = 0; i < kMost; ++i) {
      configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      raw.push_back(configs.back().get());
    }
    int64_t count = 0;
    if (cudnn().get_attribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, kMost,
                              &count, raw.data()) != CUDNN_STATUS_SUCCESS) {
      continue;
    }
    for (int64_t i = 0; i < std::min(count, kMost) && engines.size() < most; ++i) {
      const CudnnDescriptor& config = configs[static_cast<size_t>(i)];
      if (!is_wanted(config, may_use_tensor_cores)) continue;
      Engine engine{CudnnDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
      engine.plan.set_descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      engine.plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
      if (!engine.plan.try_finalize()) continue;
      int64_t one = 0;
      require_cudnn(cudnn().get_attribute(engine.plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                          1, &one, &engine.workspace),
                    "asking for a workspace's size");
      if (engine.workspace <= kMostWorkspace) engines.push_back(std::move(engine));
    }
  }
  return engines;
}

void execute(cudnnHandle_t handle, const Engine& engine, void* x, void* y, void* weight, void* workspace,
             CUstream stream) {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  void* addresses[] = {x, y, weight};
  pack.set_ints(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {kX, kY, kWeight});
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, addresses);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize("passing operands");
  require_cudnn(cudnn().set_stream(handle, stream), "choosing a stream");
  require_cudnn(cudnn().execute(handle, engine.plan.get(), pack.get()), "a convolution");
}

// The kernel that copies a tensor into another order of memory or another dtype.
std::optional<PreparedKernel> reordering(const KernelRegistry& generated, const TensorView& from,
                                         const TensorView& to) {
  return generated.find({.op = "copy", .inputs = {from}, .outputs = {to}});
}

// Copies images or weights [n,c,h,w] to a channels-last place with as many channels or more: the others are 0.
std::optional<PreparedKernel> padding(CudaDevice& device, const TensorView& from, const TensorView& to) {
  const Shape places{to.shape[0], to.shape[2], to.shape[3]};
  const int64_t channels = from.shape[1];
  const int64_t padded = to.shape[1];
  const auto over_places = [](const TensorView& view) {
    return Strides{view.strides[0], view.strides[2], view.strides[3]};
  };
  int64_t pack = 16 / static_cast<int64_t>(size_bytes(to.dtype));
  while (padded % pack != 0) pack /= 2;
  // A thread for each pack: the place is the slower index.
  Shape packs = places;
  packs.push_back(padded / pack);
  Strides from_strides = over_places(from);
  Strides to_strides = over_places(to);
  from_strides.push_back(pack * from.strides[1]);
  to_strides.push_back(pack);
  Strides first_strides{0, 0, 0, pack};
  const std::vector<NamedStrides> views{{"p", from_strides}, {"q", to_strides}, {"c", first_strides}};
  const char* type = to_string(to.dtype);
  const std::string index = index_type(packs, views);
  const std::string body =
      loop_text(index, "i", packs.num_elements()) + offsets_text(packs, views, "i") +
      fmt::format(
          "Pack<{0}, {1}> all;\n#pragma unroll\nfor (int v = 0; v < {1}; ++v) all[v] = c + v < {2} ? "
          "in0[p + v * {3}] : {0}(0.0f);\n*reinterpret_cast<Pack<{0}, {1}>*>(out0 + q) = all;\n}}\n",
          type, pack, channels, from.strides[1]);
  DeviceProgram program{.name = "cuda.pad_channels"};
  program.phases.push_back({.body = body, .blocks = blocks_for(device, packs.num_elements())});
  return cuda::prepare(device, program, {.op = "pad_channels", .inputs = {from}, .outputs = {to}});
}

bool lies_equally(const TensorView& a, const TensorView& b) {
  if (!(a.type() == b.type())) return false;
  for (int d = 0; d < a.shape.ndim(); ++d) {
    if (a.shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

// The operands as the library's fast engines want them: channels-last, the channels of images that a network is given
// filled up to what a tensor core takes at once. nullopt: it does not take them.
std::optional<Roles> as_library_wants(const Roles& ours, int64_t groups) {
  Roles theirs = ours;
  const bool y_is_last = ours.y.strides == channels_last_strides(ours.y.shape);
  const bool x_is_last = ours.x.strides == channels_last_strides(ours.x.shape);
  if (!y_is_last) {
    return ours.x.is_dense() && ours.y.is_dense() && ours.weight.is_dense() ? std::optional(ours) : std::nullopt;
  }
  const int64_t at_once = 16 / static_cast<int64_t>(size_bytes(ours.x.dtype));
  if (groups == 1 && ours.way != Way::kGradInput && ours.x.shape[1] < at_once) {
    theirs.x.shape[1] = theirs.weight.shape[1] = at_once;
    theirs.x.strides = channels_last_strides(theirs.x.shape);
  } else if (!x_is_last) {
    return std::nullopt;
  }
  theirs.weight.strides = channels_last_strides(theirs.weight.shape);
  return theirs;
}

class Convolutions {
 public:
  Convolutions(CudaDevice& device, const KernelRegistry& generated, const LibraryWays& ways)
      : device_(device), generated_(generated), ways_(ways) {
    handle();  // or it throws now
  }

  std::optional<PreparedKernel> prepare(const KernelRequest& request) {
    const Roles ours = roles_of(request);
    for (const TensorView* view : {&ours.x, &ours.y, &ours.weight}) {
      if (!library_dtype(view->dtype) || view->num_elements() == 0) return std::nullopt;
    }
    if (ours.x.dtype != ours.y.dtype) return std::nullopt;
    if (ours.way != Way::kGradWeight && ours.weight.dtype != ours.x.dtype) return std::nullopt;
    auto theirs = as_library_wants(ours, request.attributes.get_int("groups"));
    if (!theirs) return std::nullopt;
    const std::lock_guard lock(mutex_);
    // A gradient in f32 of images in a half type: the library adds in f32, but is several times faster where it rounds
    // the sums to that type in the end.
    if (ours.way == Way::kGradWeight) theirs->weight.dtype = ours.x.dtype;
    const auto engine = choose(request, *theirs);
    if (engine == nullptr) return std::nullopt;

    Call call{.way = ours.way, .engine = engine};
    int64_t scratch = rounded(engine->workspace);
    const auto place = [&](Changed& changed, const TensorView& view, std::optional<PreparedKernel> kernel) {
      changed = {view, scratch, std::move(kernel)};
      scratch += rounded(view.size_bytes());
    };
    if (!lies_equally(ours.x, theirs->x)) place(call.x, theirs->x, padding(device_, ours.x, theirs->x));
    if (!lies_equally(ours.weight, theirs->weight)) {
      if (ours.way == Way::kGradWeight) {
        // The part that is ours of what the library makes.
        TensorView part = ours.weight;
        part.dtype = theirs->weight.dtype;
        part.strides = theirs->weight.strides;
        place(call.weight, theirs->weight, reordering(generated_, part, ours.weight));
        call.part = part;
      } else {
        place(call.weight, theirs->weight, padding(device_, ours.weight, theirs->weight));
      }
      if (!call.weight.kernel) return std::nullopt;
    }
    return PreparedKernel{.name = "cudnn." + request.op,
                          .run = [this, call = std::move(call)](const KernelArgs& args) { run(call, args); },
                          .scratch_bytes = scratch};
  }

 private:
  // An operand that the library is given in another form, which lies in scratch memory; without a kernel: it is not.
  struct Changed {
    TensorView view = {};
    int64_t at = 0;
    std::optional<PreparedKernel> kernel = {};

    TensorView in(const KernelArgs& args) const {
      TensorView placed = view;
      placed.data = args.scratch.data() + at;
      return placed;
    }
  };
  struct Call {
    Way way;
    std::shared_ptr<const Engine> engine;
    Changed x = {}, weight = {};
    TensorView part = {};  // of a weight's gradient
  };

  static void copy(const PreparedKernel& kernel, const TensorView& from, const TensorView& to, const KernelArgs& args) {
    const std::array<TensorView, 1> inputs{from};
    const std::array<TensorView, 1> outputs{to};
    static const Attributes kNone;
    kernel.run({inputs, outputs, kNone, {}, args.parallel_for, args.queue});
  }

  void run(const Call& call, const KernelArgs& args) {
    const bool is_gradient_of_weight = call.way == Way::kGradWeight;
    TensorView x = is_gradient_of_weight ? args.inputs[1] : args.inputs[0];
    TensorView y = is_gradient_of_weight ? args.inputs[0] : args.outputs[0];
    TensorView weight = is_gradient_of_weight ? args.outputs[0] : args.inputs[1];
    if (call.way == Way::kGradInput) std::swap(x, y);
    if (call.x.kernel) {
      const TensorView changed = call.x.in(args);
      copy(*call.x.kernel, x, changed, args);
      x = changed;
    }
    if (call.weight.kernel && !is_gradient_of_weight) {
      const TensorView changed = call.weight.in(args);
      copy(*call.weight.kernel, weight, changed, args);
      weight = changed;
    }
    if (call.weight.kernel && is_gradient_of_weight) weight = call.weight.in(args);
    execute(handle(), *call.engine, x.data, y.data, weight.data, args.scratch.data(), stream_of(*args.queue));
    if (call.weight.kernel && is_gradient_of_weight) {
      TensorView part = call.part;
      part.data = weight.data;
      copy(*call.weight.kernel, part, args.outputs[0], args);
    }
  }

  // The library's, one for each thread: what one records must not meet what another does.
  cudnnHandle_t handle() {
    static thread_local CudnnHandles handles;
    device_.use();
    return handles.of(this);
  }

  // The engine that is taken for a problem, measured the first time; null: there is none.
  std::shared_ptr<const Engine> choose(const KernelRequest& request, const Roles& roles) {
    std::string key = request.op + request.attributes.to_string();
    for (const TensorView* view : {&roles.x, &roles.y, &roles.weight}) {
      key += " " + view->type().to_string();
      for (const int64_t stride : view->strides) key += fmt::format(",{}", stride);
    }
    if (const auto known = engines_.find(key); known != engines_.end()) return known->second;
    device_.use();
    auto& taken = engines_[key];
    const bool is_f32 = roles.x.dtype == DType::kF32;
    std::vector<Engine> engines;
    try {
      engines = engines_of(handle(), graph_of(handle(), roles, request.attributes), !is_f32 || ways_.allows_tf32,
                           ways_.measures ? kMostMeasured : 1);
    } catch (const IoError&) {
      return nullptr;  // the library has no words for it
    }
    if (engines.empty()) return nullptr;
    size_t best = 0;
    if (engines.size() > 1) {
      int64_t workspace = 0;
      for (const Engine& engine : engines) workspace = std::max(workspace, engine.workspace);
      const DeviceBuffer x(device_, roles.x.size_bytes());
      const DeviceBuffer y(device_, roles.y.size_bytes());
      const DeviceBuffer weight(device_, roles.weight.size_bytes());
      const DeviceBuffer scratch(device_, workspace);
      const auto found = fastest(device_, engines.size(), [&](size_t way, Queue& queue) {
        execute(handle(), engines[way], x.data(), y.data(), weight.data(), scratch.data(), stream_of(queue));
      });
      if (!found) return nullptr;
      best = *found;
    }
    taken = std::make_shared<const Engine>(std::move(engines[best]));
    return taken;
  }

  CudaDevice& device_;
  const KernelRegistry& generated_;
  const LibraryWays ways_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Engine>> engines_;
};

}  // namespace

void add_library_convolutions(KernelRegistry& registry, CudaDevice& device, const KernelRegistry& generated,
                              const LibraryWays& ways) {
  const auto convolutions = std::make_shared<Convolutions>(device, generated, ways);
  for (const char* op : {"conv2d", "conv2d_grad_input", "conv2d_grad_weight"}) {
    registry.add(op, [convolutions](const KernelRequest& request) { return convolutions->prepare(request); });
  }
}

}  // namespace tessera::cuda
