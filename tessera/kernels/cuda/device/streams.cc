#include "tessera/kernels/cuda/device/streams.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/device/cuda_settings.h"
#include "tessera/kernels/cuda/device/driver.h"

namespace tessera::cuda {
namespace {

size_t most_branches() { return static_cast<size_t>(cuda_settings().branches); }

// On which branch each piece is done: behind one that it follows where that is the last of its branch, else where it
// waits for nothing else. Behind those `count` comes one for pieces that wait for other devices.
std::vector<size_t> branches_of(std::span<const RecordedWork> work, size_t count) {
  std::vector<size_t> branches(work.size());
  std::vector<int> last(count, -1);  // piece of each branch
  for (size_t i = 0; i < work.size(); ++i) {
    if (work[i].waits_for_others) {
      branches[i] = count;
      continue;
    }
    const auto& after = work[i].after;
    size_t taken = 0;
    int best = -2;
    for (size_t b = 0; b < count; ++b) {
      const bool follows = last[b] >= 0 && std::find(after.begin(), after.end(), last[b]) != after.end();
      if (follows && last[b] > best) {
        best = last[b];
        taken = b;
      }
    }
    if (best == -2) taken = static_cast<size_t>(std::min_element(last.begin(), last.end()) - last.begin());
    branches[i] = taken;
    last[taken] = static_cast<int>(i);
  }
  return branches;
}

// The pieces that pieces of other branches wait for.
std::vector<bool> awaited_elsewhere(std::span<const RecordedWork> work, const std::vector<size_t>& branches) {
  std::vector<bool> awaited(work.size());
  for (size_t i = 0; i < work.size(); ++i) {
    for (const int before : work[i].after) {
      const auto j = static_cast<size_t>(before);
      if (branches[j] != branches[i]) awaited[j] = true;
    }
  }
  return awaited;
}

CUdeviceptr address_of(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

}  // namespace

CudaEvent::CudaEvent(const CudaDevice& device, bool is_timed) : device_(device), is_timed_(is_timed) {
  device_.require(driver().create_event(&event_, is_timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING),
                  "making an event");
}
CudaEvent::~CudaEvent() {
  device_.try_use();
  driver().destroy_event(event_);
}
void CudaEvent::synchronize() {
  device_.use();
  device_.require(driver().synchronize_event(event_), "waiting for its work");
}

bool CudaEvent::has_come() {
  device_.use();
  const CUresult result = driver().query_event(event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  device_.require(result, "waiting for its work");
  return true;
}

int64_t CudaEvent::nanoseconds_since(const Event& earlier) const {
  const auto& other = dynamic_cast<const CudaEvent&>(earlier);
  if (!is_timed_ || !other.is_timed_) return 0;
  device_.use();
  float milliseconds = 0;  // to half a microsecond
  device_.require(driver().event_time(&milliseconds, other.event_, event_), "timing its work");
  return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
}

CudaRecording::CudaRecording(const CudaDevice& device, CUgraph graph) : device_(device), graph_(graph) {
  const CUresult result = driver().instantiate_graph(&executable_, graph_, 0);
  if (result != CUDA_SUCCESS) driver().destroy_graph(graph_);
  device_.require(result, "making a graph of a step");
}
CudaRecording::~CudaRecording() {
  device_.try_use();
  driver().destroy_graph_exec(executable_);
  driver().destroy_graph(graph_);
}

CudaQueue::CudaQueue(const CudaDevice& device) : device_(device) {
  device_.require(driver().create_stream(&stream_, CU_STREAM_NON_BLOCKING), "making a stream");
}
CudaQueue::~CudaQueue() {
  device_.try_use();
  driver().synchronize_stream(stream_);
  for (const CUstream branch : branches_) driver().destroy_stream(branch);
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
      return device_.require(driver().copy_to_device(address_of(to), from, size, stream()), "a copy to it");
    case CopyWay::kToHost:
      return device_.require(driver().copy_to_host(to, address_of(from), size, stream()), "a copy from it");
    case CopyWay::kWithin:
      return device_.require(driver().copy_within(address_of(to), address_of(from), size, stream()), "a copy on it");
  }
}

void CudaQueue::fill(void* to, std::byte value, int64_t bytes) {
  if (bytes == 0) return;
  device_.use();
  device_.require(
      driver().fill(address_of(to), std::to_integer<unsigned char>(value), static_cast<size_t>(bytes), stream()),
      "filling memory");
}

void CudaQueue::record(Event& event) {
  const auto& placed = dynamic_cast<CudaEvent&>(event);
  device_.use();
  if (branch_ == nullptr) {
    return device_.require(driver().record_event(placed.event(), stream_), "recording an event");
  }
  check(placed.is_timed(), "an event in a recording is timed");
  // Else it would say what comes behind what in the graph, and be no part of it.
  device_.require(driver().record_event_as(placed.event(), branch_, CU_EVENT_RECORD_EXTERNAL), "recording an event");
}

void CudaQueue::wait(Event& event) {
  device_.use();
  device_.require(driver().wait_event(stream_, dynamic_cast<CudaEvent&>(event).event(), 0), "waiting for an event");
}

void CudaQueue::synchronize() {
  device_.use();
  device_.require(driver().synchronize_stream(stream_), "a step");
}

// Events of a recording, one for each piece that pieces of other branches wait for.
class RecordedEvents {
 public:
  RecordedEvents(const CudaDevice& device, size_t count) : device_(device), events_(count) {}
  ~RecordedEvents() {
    for (const CUevent event : events_) {
      if (event != nullptr) driver().destroy_event(event);
    }
  }
  RecordedEvents(const RecordedEvents&) = delete;
  RecordedEvents& operator=(const RecordedEvents&) = delete;

  void record(size_t number, CUstream stream) {
    device_.require(driver().create_event(&events_[number], CU_EVENT_DISABLE_TIMING), "making an event");
    device_.require(driver().record_event(events_[number], stream), "recording a step");
  }
  void wait(size_t number, CUstream stream) const {
    device_.require(driver().wait_event(stream, events_[number], 0), "recording a step");
  }

 private:
  const CudaDevice& device_;
  std::vector<CUevent> events_;
};

std::unique_ptr<Recording> CudaQueue::record(std::span<const RecordedWork> work) {
  device_.use();
  const auto branches = branches_of(work, most_branches());
  const size_t num_branches = most_branches() + 1;
  const auto is_awaited = awaited_elsewhere(work, branches);
  while (branches_.size() + 1 < num_branches) {
    device_.require(driver().create_stream(&branches_.emplace_back(), CU_STREAM_NON_BLOCKING), "making a stream");
  }
  const auto stream_of_branch = [&](size_t branch) { return branch == 0 ? stream_ : branches_[branch - 1]; };
  device_.require(driver().begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "recording a step");
  CUgraph graph = nullptr;
  try {
    RecordedEvents events(device_, work.size() + 1 + num_branches);
    const size_t begin = work.size();
    events.record(begin, stream_);
    std::vector<bool> is_begun(num_branches);
    is_begun[0] = true;
    for (size_t i = 0; i < work.size(); ++i) {
      branch_ = stream_of_branch(branches[i]);
      if (!is_begun[branches[i]]) events.wait(begin, branch_);
      is_begun[branches[i]] = true;
      for (const int before : work[i].after) {
        const auto j = static_cast<size_t>(before);
        if (branches[j] != branches[i]) events.wait(j, branch_);
      }
      work[i].give();
      if (is_awaited[i]) events.record(i, branch_);
    }
    branch_ = nullptr;
    for (size_t b = 1; b < num_branches; ++b) {
      if (!is_begun[b]) continue;
      events.record(begin + b, stream_of_branch(b));
      events.wait(begin + b, stream_);
    }
    device_.require(driver().end_capture(stream_, &graph), "recording a step");
  } catch (...) {
    branch_ = nullptr;
    if (graph == nullptr) driver().end_capture(stream_, &graph);
    if (graph != nullptr) driver().destroy_graph(graph);
    throw;
  }
  return std::make_unique<CudaRecording>(device_, graph);
}

void CudaQueue::replay(const Recording& recording) {
  device_.use();
  device_.require(driver().launch_graph(dynamic_cast<const CudaRecording&>(recording).executable(), stream_),
                  "a recorded step");
}

}  // namespace tessera::cuda
