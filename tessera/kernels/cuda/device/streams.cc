#include "tessera/kernels/cuda/device/streams.h"

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/device/driver.h"

namespace tessera::cuda {
namespace {

CUdeviceptr address_of(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

}  // namespace

CudaEvent::CudaEvent(const CudaDevice& device) : device_(device) {
  require(driver().create_event(&event_, CU_EVENT_DISABLE_TIMING), "making an event");
}
CudaEvent::~CudaEvent() {
  device_.use();
  driver().destroy_event(event_);
}
void CudaEvent::synchronize() {
  device_.use();
  require(driver().synchronize_event(event_), "waiting for a device");
}

CudaRecording::CudaRecording(const CudaDevice& device, CUgraph graph) : device_(device), graph_(graph) {
  require(driver().instantiate_graph(&executable_, graph_, 0), "making a graph of a step");
}
CudaRecording::~CudaRecording() {
  device_.use();
  driver().destroy_graph_exec(executable_);
  driver().destroy_graph(graph_);
}

CudaQueue::CudaQueue(const CudaDevice& device) : device_(device) {
  require(driver().create_stream(&stream_, CU_STREAM_NON_BLOCKING), "making a stream");
}
CudaQueue::~CudaQueue() {
  device_.use();
  driver().synchronize_stream(stream_);
  driver().destroy_stream(stream_);
}

void CudaQueue::launch(const PreparedKernel& kernel, const KernelArgs& args, const bool* guard) {
  check(args.queue == this, "a kernel is launched in another queue than its arguments name");
  device_.use();
  guard_ = guard;
  kernel.run(args);
  guard_ = nullptr;
}

void CudaQueue::copy(void* to, const void* from, int64_t bytes, CopyWay way) {
  if (bytes == 0) return;
  device_.use();
  const auto size = static_cast<size_t>(bytes);
  switch (way) {
    case CopyWay::kToDevice:
      return require(driver().copy_to_device(address_of(to), from, size, stream_), "copying to a device");
    case CopyWay::kToHost:
      return require(driver().copy_to_host(to, address_of(from), size, stream_), "copying from a device");
    case CopyWay::kWithin:
      return require(driver().copy_within(address_of(to), address_of(from), size, stream_), "copying on a device");
  }
}

void CudaQueue::fill(void* to, std::byte value, int64_t bytes) {
  if (bytes == 0) return;
  device_.use();
  require(driver().fill(address_of(to), std::to_integer<unsigned char>(value), static_cast<size_t>(bytes), stream_),
          "filling memory");
}

void CudaQueue::record(Event& event) {
  device_.use();
  require(driver().record_event(dynamic_cast<CudaEvent&>(event).event(), stream_), "recording an event");
}

void CudaQueue::wait(Event& event) {
  device_.use();
  require(driver().wait_event(stream_, dynamic_cast<CudaEvent&>(event).event(), 0), "waiting for an event");
}

void CudaQueue::synchronize() {
  device_.use();
  require(driver().synchronize_stream(stream_), "a step");
}

bool CudaQueue::begin_recording() {
  device_.use();
  require(driver().begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "recording a step");
  return true;
}

std::unique_ptr<Recording> CudaQueue::end_recording() {
  CUgraph graph = nullptr;
  require(driver().end_capture(stream_, &graph), "recording a step");
  return std::make_unique<CudaRecording>(device_, graph);
}

void CudaQueue::replay(const Recording& recording) {
  device_.use();
  require(driver().launch_graph(dynamic_cast<const CudaRecording&>(recording).executable(), stream_),
          "a recorded step");
}

}  // namespace tessera::cuda
