#include "tests/devices/device_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "tessera/tensor/alignment.h"

namespace tessera::devices {
namespace {

using kernels::StridedTensor;
using kernels::StrideOrder;

// One operand in the device's memory, at a place of its own, with a gap behind it.
struct Placed {
  StridedTensor host;
  int64_t offset = 0;
  int64_t bytes = 0;
};

int64_t memory_bytes(const TensorView& view) {
  int64_t elements = 1;
  for (int d = 0; d < view.shape.ndim(); ++d) elements += std::max<int64_t>(view.shape[d], 0) * view.strides[d];
  return elements * static_cast<int64_t>(size_bytes(view.dtype));
}

// Whether the bytes that no element covers are 0xFF.
bool gaps_are_left(const TensorView& view, const std::vector<std::byte>& memory) {
  std::vector<bool> covered(memory.size());
  const auto size = static_cast<int64_t>(size_bytes(view.dtype));
  kernels::for_each_offset(view, [&](int64_t offset) {
    for (int64_t b = 0; b < size; ++b) covered[static_cast<size_t>(offset * size + b)] = true;
  });
  for (size_t b = 0; b < memory.size(); ++b) {
    if (!covered[b] && memory[b] != std::byte{0xFF}) return false;
  }
  return true;
}

void expect_near(const generated::OpCall& call, size_t output, const Tensor& actual, const Tensor& expected,
                 double tolerance) {
  const auto a = actual.to_doubles();
  const auto e = expected.to_doubles();
  double scale = 1;
  for (const double x : e) {
    if (std::isfinite(x)) scale = std::max(scale, std::abs(x));
  }
  for (size_t k = 0; k < e.size(); ++k) {
    const bool same = std::isnan(e[k])   ? std::isnan(a[k])
                      : std::isinf(e[k]) ? a[k] == e[k]
                                         : std::abs(a[k] - e[k]) <= tolerance * scale;
    if (!same) {
      ADD_FAILURE() << call.name() << " result " << output << ", element " << k << " of " << e.size() << ": " << a[k]
                    << " instead of " << e[k];
      return;
    }
  }
}

}  // namespace

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 1e-12;
    case DType::kF32: return 2e-5;
    case DType::kF16: return 4e-3;
    case DType::kBF16: return 3e-2;
    default: return 0;
  }
}

KernelRequest request_of(const generated::OpCall& call, StrideOrder order) {
  KernelRequest request{.op = call.def->name, .num_threads = 1};
  request.attributes = ops::complete_attributes(*call.def, call.example.attributes);
  std::vector<Type> types;
  for (const auto& input : call.example.inputs) {
    types.push_back(input.type);
    request.inputs.emplace_back(nullptr, input.type.dtype, input.type.shape,
                                kernels::strides_for(input.type.shape, order));
  }
  for (const Type& type : call.def->infer(request.attributes, types)) {
    request.outputs.emplace_back(nullptr, type.dtype, type.shape, kernels::strides_for(type.shape, order));
  }
  return request;
}

void compare(const DeviceKernels& on, const generated::OpCall& call, StrideOrder order) {
  const KernelRequest request = request_of(call, order);
  const Attributes& attributes = request.attributes;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < call.example.inputs.size(); ++i) {
    inputs.push_back(generated::make_input(call, i, call.example.inputs[i].type.dtype));
  }
  std::vector<Type> results;
  for (const auto& output : request.outputs) results.push_back(output.type());
  const auto expected = kernels::run_kernel(call.def->name, inputs, attributes, results, {.layout = order});

  std::vector<Placed> in;
  std::vector<Placed> out;
  int64_t total = 0;
  const auto place = [&](std::vector<Placed>& list, StridedTensor tensor) {
    Placed placed{std::move(tensor)};
    placed.bytes = memory_bytes(placed.host.view());
    placed.offset = total;
    total += aligned(placed.bytes + kBufferAlignment);
    list.push_back(std::move(placed));
  };
  for (const Tensor& input : inputs) place(in, StridedTensor(input, order));
  for (const Type& type : results) place(out, StridedTensor(type, order));
  const auto kernel = on.kernels.find(request);
  if (!kernel) {
    // Of servers alone, which do without it on a device.
    const std::set<std::string> of_servers = {"add_up_rows", "list_rows", "spread_rows"};
    EXPECT_TRUE(of_servers.contains(call.def->name))
        << call.def->name << ": no kernel of the device takes " << call.name();
    return;
  }
  const int64_t scratch_offset = total;
  total += aligned(kernel->scratch_bytes) + kBufferAlignment;

  // First each operand by itself, then with each pair that may share memory.
  std::vector<std::vector<std::pair<int, int>>> runs{{}};
  for (const auto& pair : kernel->in_place) runs.push_back({pair});
  for (const auto& shared : runs) {
    const auto memory = on.device.reserve(total);
    memory->resize(total);
    const auto queue = on.device.make_queue();
    queue->fill(memory->data(), std::byte{0xFF}, total);
    KernelRequest placed = request;
    for (size_t i = 0; i < in.size(); ++i) {
      queue->copy(memory->data() + in[i].offset, in[i].host.view().data, in[i].bytes, CopyWay::kToDevice);
      placed.inputs[i].data = memory->data() + in[i].offset;
    }
    std::vector<int64_t> places;
    for (size_t o = 0; o < out.size(); ++o) places.push_back(out[o].offset);
    for (const auto& [i, o] : shared) places[static_cast<size_t>(o)] = in[static_cast<size_t>(i)].offset;
    for (size_t o = 0; o < out.size(); ++o) placed.outputs[o].data = memory->data() + places[o];
    const ParallelFor parallel_for(1);
    queue->launch(*kernel,
                  {placed.inputs,
                   placed.outputs,
                   attributes,
                   {memory->data() + scratch_offset, static_cast<size_t>(kernel->scratch_bytes)},
                   parallel_for,
                   queue.get()},
                  nullptr);
    for (size_t o = 0; o < out.size(); ++o) {
      std::vector<std::byte> bytes(static_cast<size_t>(out[o].bytes) + 64);
      queue->copy(bytes.data(), memory->data() + places[o], static_cast<int64_t>(bytes.size()), CopyWay::kToHost);
      queue->synchronize();
      TensorView view = out[o].host.view();
      view.data = bytes.data();
      EXPECT_TRUE(gaps_are_left(view, bytes)) << call.name() << " writes outside of result " << o;
      expect_near(call, o, Tensor::copy_of(view), expected[o], tolerance_of(view.dtype));
    }
  }
}

}  // namespace tessera::devices
