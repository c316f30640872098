#include "tessera/testing/devices/fake_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/processes/memory_file.h"
#include "tessera/base/random.h"
#include "tessera/base/strings.h"
#include "tessera/tensor/alignment.h"
#include "tessera/tensor/strided_copy.h"

namespace tessera {
namespace {

// The two mappings of the memory that a device has handed out.
struct Mappings {
  struct Piece {
    int64_t bytes;
    std::byte* inside;
  };
  mutable std::mutex mutex;
  std::map<const std::byte*, Piece> pieces;  // by the address outside

  // Where kernels find what has this address outside.
  std::byte* inside(const void* address) const {
    const auto* outside = static_cast<const std::byte*>(address);
    const std::lock_guard lock(mutex);
    const auto after = pieces.upper_bound(outside);
    if (after != pieces.begin()) {
      const auto& [begin, piece] = *std::prev(after);
      if (outside <= begin + piece.bytes) return piece.inside + (outside - begin);
    }
    throw InternalError("an address that is not the fake device's is used on it");
  }
  TensorView inside(TensorView view) const {
    if (view.num_elements() > 0) view.data = inside(view.data);
    return view;
  }
};

class FakeMemory final : public Memory {
 public:
  FakeMemory(std::shared_ptr<Mappings> mappings, std::shared_ptr<std::atomic<int64_t>> free_bytes,
             int64_t capacity_bytes)
      : mappings_(std::move(mappings)), free_bytes_(std::move(free_bytes)), capacity_bytes_(capacity_bytes) {
    file_ = make_memory_file("tessera-fake-device", capacity_bytes);
    if (file_ < 0) {
      throw IoError("fake device: no memory of {}: {}", format_bytes(capacity_bytes), std::strerror(errno));
    }
    const auto size = static_cast<size_t>(capacity_bytes);
    void* outside = ::mmap(nullptr, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    void* inside = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    if (outside == MAP_FAILED || inside == MAP_FAILED) {
      throw IoError("fake device: {} cannot be mapped: {}", format_bytes(capacity_bytes), std::strerror(errno));
    }
    outside_ = static_cast<std::byte*>(outside);
    inside_ = static_cast<std::byte*>(inside);
    const std::lock_guard lock(mappings_->mutex);
    mappings_->pieces[outside_] = {capacity_bytes, inside_};
  }
  ~FakeMemory() override {
    *free_bytes_ += size_bytes_;
    {
      const std::lock_guard lock(mappings_->mutex);
      mappings_->pieces.erase(outside_);
    }
    ::munmap(outside_, static_cast<size_t>(capacity_bytes_));
    ::munmap(inside_, static_cast<size_t>(capacity_bytes_));
    ::close(file_);
  }
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;

  std::byte* data() const override { return outside_; }
  int64_t capacity_bytes() const override { return capacity_bytes_; }
  void resize(int64_t size_bytes) override {
    if (size_bytes > capacity_bytes_) {
      throw InvalidArgument("fake device: {} are wanted of {}", format_bytes(size_bytes),
                            format_bytes(capacity_bytes_));
    }
    const int64_t more = size_bytes - size_bytes_;
    if (const int64_t free = free_bytes_->fetch_sub(more); free < more) {
      *free_bytes_ += more;
      throw NoRoom("fake: out of memory: the arena needs {}, of which it has {}, and {} are free",
                   format_bytes(size_bytes), format_bytes(size_bytes_), format_bytes(free));
    }
    if (size_bytes > size_bytes_) {
      std::memset(inside_ + size_bytes_, 0xFF, static_cast<size_t>(size_bytes - size_bytes_));
    } else {
      const int64_t page = ::sysconf(_SC_PAGESIZE);
      const int64_t first = (size_bytes + page - 1) / page * page;
      if (first < size_bytes_) ::madvise(inside_ + first, static_cast<size_t>(size_bytes_ - first), MADV_REMOVE);
    }
    size_bytes_ = size_bytes;
  }

 private:
  std::shared_ptr<Mappings> mappings_;
  std::shared_ptr<std::atomic<int64_t>> free_bytes_;
  int64_t capacity_bytes_;
  int64_t size_bytes_ = 0;
  int file_ = -1;
  std::byte* outside_ = nullptr;
  std::byte* inside_ = nullptr;
};

class FakeQueue;

// So late comes what other devices wait for where nobody waits for it here.
constexpr std::chrono::milliseconds kLateForOthers{1};

class FakeEvent final : public Event {
 public:
  explicit FakeEvent(bool is_timed) : came_ns_(is_timed ? std::make_shared<std::atomic<int64_t>>(0) : nullptr) {}
  void synchronize() override;
  bool has_come() override;
  int64_t nanoseconds_since(const Event& earlier) const override {
    const auto& other = dynamic_cast<const FakeEvent&>(earlier);
    check(came_ns_ != nullptr && other.came_ns_ != nullptr, "events that are compared are timed");
    return came_ns_->load() - other.came_ns_->load();
  }
  // When the device came to its place; null: it is not timed.
  const std::shared_ptr<std::atomic<int64_t>>& came_ns() const { return came_ns_; }
  // Where it is now.
  std::pair<FakeQueue*, int64_t> place() const {
    const std::lock_guard lock(mutex_);
    return {queue_, after_};
  }
  void put(FakeQueue* queue, int64_t after) {
    const std::lock_guard lock(mutex_);
    queue_ = queue;
    after_ = after;
  }

 private:
  std::shared_ptr<std::atomic<int64_t>> came_ns_;
  mutable std::mutex mutex_;
  FakeQueue* queue_ = nullptr;
  int64_t after_ = 0;  // so many pieces of work
};

struct Counts {
  std::atomic<int64_t> kernels = 0;
  std::atomic<int64_t> copies = 0;
  std::atomic<int64_t> replays = 0;
  std::atomic<int64_t> unfinished = 0;
};

struct FakeWork {
  std::function<void()> run;
  bool is_for_others = false;
};

struct FakeRecording final : Recording {
  struct Piece {
    std::vector<FakeWork> work = {};
    std::vector<int> after = {};
  };
  std::vector<Piece> pieces;
  int64_t num_kernels = 0;
  int64_t num_copies = 0;
};

class FakeQueue final : public Queue {
 public:
  FakeQueue(std::shared_ptr<const Mappings> mappings, std::shared_ptr<Counts> counts, RandomStream random)
      : mappings_(std::move(mappings)), counts_(std::move(counts)), random_(random), thread_([this] { run(); }) {}
  ~FakeQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    may_go_on_.notify_one();
    thread_.join();
  }
  FakeQueue(const FakeQueue&) = delete;
  FakeQueue& operator=(const FakeQueue&) = delete;

  void launch(const PreparedKernel& kernel, const KernelArgs& args, const bool* guard) override {
    check(args.queue == this, "a kernel is launched in another queue than its arguments name");
    if (recording_ != nullptr) {
      ++recording_->num_kernels;
    } else {
      ++counts_->kernels;
    }
    std::vector<TensorView> inputs;
    std::vector<TensorView> outputs;
    for (const TensorView& view : args.inputs) inputs.push_back(mappings_->inside(view));
    for (const TensorView& view : args.outputs) outputs.push_back(mappings_->inside(view));
    auto scratch = args.scratch;
    if (!scratch.empty()) scratch = {mappings_->inside(scratch.data()), scratch.size()};
    const bool* holds = guard == nullptr ? nullptr : reinterpret_cast<const bool*>(mappings_->inside(guard));
    add([this, &kernel, inputs = std::move(inputs), outputs = std::move(outputs), scratch, holds,
         &attributes = args.attributes, &parallel_for = args.parallel_for] {
      if (holds == nullptr || *holds) kernel.run({inputs, outputs, attributes, scratch, parallel_for, this});
    });
  }
  void copy(void* to, const void* from, int64_t bytes, CopyWay way) override {
    if (bytes == 0) return;
    if (recording_ != nullptr) {
      ++recording_->num_copies;
    } else {
      ++counts_->copies;
    }
    const void* source = way == CopyWay::kToDevice ? from : mappings_->inside(from);
    void* target = way == CopyWay::kToHost ? to : mappings_->inside(to);
    // A number comes as a whole, for a host that looks at it meanwhile.
    if (way == CopyWay::kToHost && bytes == sizeof(int64_t) && reinterpret_cast<uintptr_t>(to) % sizeof(int64_t) == 0) {
      return add([=] {
        int64_t number = 0;
        std::memcpy(&number, source, sizeof(number));
        std::atomic_ref<int64_t>(*static_cast<int64_t*>(target)).store(number, std::memory_order_release);
      });
    }
    add([=] { std::memcpy(target, source, static_cast<size_t>(bytes)); });
  }
  // Work that other devices wait for: sooner or later it runs, whether somebody here waits for it or not.
  void add_for_others(std::function<void()> work) {
    if (recording_ != nullptr) return recording_->pieces.back().work.push_back({std::move(work), true});
    add_now({std::move(work), true});
  }
  const std::shared_ptr<const Mappings>& mappings() const { return mappings_; }
  void fill(void* to, std::byte value, int64_t bytes) override {
    if (bytes == 0) return;
    void* target = mappings_->inside(to);
    add([=] { std::memset(target, std::to_integer<int>(value), static_cast<size_t>(bytes)); });
  }
  void record(Event& event) override {
    auto& placed = dynamic_cast<FakeEvent&>(event);
    check(recording_ == nullptr || placed.came_ns() != nullptr, "an event in a recording is timed");
    if (placed.came_ns() != nullptr) {
      add([came_ns = placed.came_ns()] { came_ns->store(Clock::system().monotonic_ns()); });
    }
    if (recording_ != nullptr) return;
    const std::lock_guard lock(mutex_);
    placed.put(this, num_added_);
  }
  void wait(Event& event) override {
    const auto [queue, after] = dynamic_cast<FakeEvent&>(event).place();
    if (queue == nullptr || queue == this) return;
    add([queue = queue, after = after] { queue->wait_for(after); });
  }
  void synchronize() override {
    std::unique_lock lock(mutex_);
    wait_for(num_added_, lock);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  std::unique_ptr<Recording> record(std::span<const RecordedWork> work) override {
    auto recording = std::make_unique<FakeRecording>();
    for (const RecordedWork& piece : work) {
      recording->pieces.push_back({.after = piece.after});
      recording_ = recording.get();
      try {
        piece.give();
      } catch (...) {
        recording_ = nullptr;
        throw;
      }
      recording_ = nullptr;
    }
    return recording;
  }
  // In any order that the recording allows.
  void replay(const Recording& recording) override {
    const auto& recorded = dynamic_cast<const FakeRecording&>(recording);
    std::vector<size_t> waits_for(recorded.pieces.size());
    std::vector<std::vector<size_t>> followers(recorded.pieces.size());
    std::vector<size_t> ready;
    for (size_t i = 0; i < recorded.pieces.size(); ++i) {
      waits_for[i] = recorded.pieces[i].after.size();
      for (const int before : recorded.pieces[i].after) followers[static_cast<size_t>(before)].push_back(i);
      if (waits_for[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      const auto taken = static_cast<size_t>(random_below(random_, order_++, static_cast<int64_t>(ready.size())));
      const size_t i = std::exchange(ready[taken], ready.back());
      ready.pop_back();
      for (const auto& work : recorded.pieces[i].work) add_now(work);
      for (const size_t next : followers[i]) {
        if (--waits_for[next] == 0) ready.push_back(next);
      }
    }
    counts_->kernels += recorded.num_kernels;
    counts_->copies += recorded.num_copies;
    ++counts_->replays;
  }
  // Whether so many pieces of work are done; they will be, now that somebody asks.
  bool is_done(int64_t number) {
    const std::lock_guard lock(mutex_);
    num_asked_ = std::max(num_asked_, number);
    may_go_on_.notify_one();
    return num_done_ >= number;
  }
  // Returns when so many pieces of work are done.
  void wait_for(int64_t number) {
    std::unique_lock lock(mutex_);
    wait_for(number, lock);
  }

 private:
  void wait_for(int64_t number, std::unique_lock<std::mutex>& lock) {
    if (num_done_ >= number) return;
    const auto mine = wanted_.insert(number);
    may_go_on_.notify_one();
    is_done_.wait(lock, [&] { return num_done_ >= number; });
    wanted_.erase(mine);
  }
  void add(std::function<void()> work) {
    if (recording_ != nullptr) return recording_->pieces.back().work.push_back({std::move(work)});
    add_now({std::move(work)});
  }
  void add_now(FakeWork work) {
    const std::lock_guard lock(mutex_);
    if (work.is_for_others) ++num_for_others_;
    work_.push_back(std::move(work));
    ++num_added_;
    ++counts_->unfinished;
    if (may_run() || num_for_others_ > 0) may_go_on_.notify_one();
  }
  // Three in four pieces do not run before somebody waits for them, or for what comes behind.
  bool may_run() const {
    if (work_.empty()) return false;
    if (stops_ || num_asked_ > num_done_ || (!wanted_.empty() && *wanted_.rbegin() > num_done_)) return true;
    return random_below(random_, static_cast<uint64_t>(num_done_), 4) == 0;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      const auto may_go_on = [this] { return may_run() || (stops_ && work_.empty()); };
      may_go_on_.wait(lock, [&] { return may_go_on() || num_for_others_ > 0; });
      if (!may_go_on()) may_go_on_.wait_for(lock, kLateForOthers, may_go_on);
      if (work_.empty()) return;
      const auto work = std::move(work_.front());
      work_.pop_front();
      if (work.is_for_others) --num_for_others_;
      const bool failed = error_ != nullptr;
      lock.unlock();
      std::exception_ptr error;
      try {
        if (!failed) work.run();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) error_ = error;
      ++num_done_;
      --counts_->unfinished;
      if (wanted_.contains(num_done_)) is_done_.notify_all();
    }
  }

  std::shared_ptr<const Mappings> mappings_;
  std::shared_ptr<Counts> counts_;
  FakeRecording* recording_ = nullptr;  // under way
  uint64_t order_ = uint64_t{1} << 32;  // draws of replayed orders
  RandomStream random_;
  std::mutex mutex_;
  std::condition_variable may_go_on_;
  std::condition_variable is_done_;
  std::deque<FakeWork> work_;
  int64_t num_for_others_ = 0;  // pieces of work_ that other devices wait for
  int64_t num_asked_ = 0;       // somebody has asked whether so many are done
  int64_t num_added_ = 0;
  int64_t num_done_ = 0;
  std::multiset<int64_t> wanted_;  // so many pieces somebody waits for
  bool stops_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

bool FakeEvent::has_come() {
  const auto [queue, after] = place();
  return queue == nullptr || queue->is_done(after);
}

void FakeEvent::synchronize() {
  const auto [queue, after] = place();
  if (queue != nullptr) queue->wait_for(after);
}

// "fake.onednn.matmul", which is kept from being taken for a kernel of the host.
PreparedKernel renamed(PreparedKernel kernel) {
  kernel.name = "fake." + kernel.name;
  kernel.run = [run = std::move(kernel.run)](const KernelArgs& args) {
    check(args.queue != nullptr, "a kernel of the fake device is run without its queue");
    run(args);
  };
  return kernel;
}

std::optional<PreparedKernel> prepare_copy(const KernelRequest& request) {
  const TensorView& from = request.inputs[0];
  const StridedCopy copy(from.shape, from.strides, request.outputs[0].strides, size_bytes(from.dtype));
  return PreparedKernel{.name = "copy",
                        .run = [copy](const KernelArgs& args) { copy.run(args.inputs[0].data, args.outputs[0].data); }};
}

KernelRegistry make_registry(const std::vector<const KernelRegistry*>& of_cpu) {
  KernelRegistry registry;
  for (const KernelRegistry* kernels : of_cpu) {
    for (const auto& op : kernels->ops()) {
      registry.add(op, [kernels](const KernelRequest& request) -> std::optional<PreparedKernel> {
        auto kernel = kernels->find(request);
        if (!kernel) return std::nullopt;
        return renamed(std::move(*kernel));
      });
    }
  }
  registry.add("copy", prepare_copy);
  return registry;
}

}  // namespace

namespace {

// What of the host's memory a device has given.
struct HostMemory {
  std::mutex mutex;
  int64_t allocated = 0;
  int64_t present = 0;
  int64_t most = 0;

  void take(int64_t bytes) {
    const std::lock_guard lock(mutex);
    allocated += bytes;
    present += bytes;
    most = std::max(most, present);
  }
  void give_back(int64_t bytes) {
    const std::lock_guard lock(mutex);
    present -= bytes;
  }
};

}  // namespace

struct FakeDevice::State {
  std::shared_ptr<Mappings> mappings = std::make_shared<Mappings>();
  std::shared_ptr<Counts> counts = std::make_shared<Counts>();
  std::shared_ptr<HostMemory> on_host = std::make_shared<HostMemory>();
  std::atomic<int64_t> free_bytes = -1;                                                    // below 0: it does not tell
  std::shared_ptr<std::atomic<int64_t>> room = std::make_shared<std::atomic<int64_t>>(0);  // bytes for its memory
  uint64_t seed = 0;
  std::atomic<uint64_t> num_queues = 0;
};

FakeDevice::FakeDevice(uint64_t seed, int64_t memory_bytes) : state_(std::make_shared<State>()) {
  state_->seed = seed;
  *state_->room = memory_bytes;
}
FakeDevice::~FakeDevice() = default;

std::unique_ptr<Memory> FakeDevice::reserve(int64_t capacity_bytes) {
  return std::make_unique<FakeMemory>(state_->mappings, state_->room, capacity_bytes);
}

std::shared_ptr<std::byte> FakeDevice::allocate_on_host(int64_t bytes) {
  const auto size = static_cast<size_t>(aligned(bytes + 1));
  state_->on_host->take(bytes);
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(std::aligned_alloc(kBufferAlignment, size)),
                                    [on_host = state_->on_host, bytes](std::byte* address) {
                                      std::free(address);
                                      on_host->give_back(bytes);
                                    });
  std::memset(memory.get(), 0xFF, size);
  return memory;
}

std::unique_ptr<Queue> FakeDevice::make_queue() {
  return std::make_unique<FakeQueue>(state_->mappings, state_->counts,
                                     RandomStream{.seed = state_->seed, .stream = state_->num_queues++});
}

std::unique_ptr<Event> FakeDevice::make_event() { return std::make_unique<FakeEvent>(/*is_timed=*/false); }
std::unique_ptr<Event> FakeDevice::make_timed_event() { return std::make_unique<FakeEvent>(/*is_timed=*/true); }

void FakeDevice::give_for_others(Queue& queue, std::function<void()> work) {
  dynamic_cast<FakeQueue&>(queue).add_for_others(std::move(work));
}
std::byte* FakeDevice::inside(Queue& queue, const void* address) {
  return dynamic_cast<FakeQueue&>(queue).mappings()->inside(address);
}

std::optional<int64_t> FakeDevice::free_bytes() const {
  const int64_t bytes = state_->free_bytes;
  return bytes < 0 ? std::nullopt : std::optional(bytes);
}
void FakeDevice::set_free_bytes(std::optional<int64_t> bytes) { state_->free_bytes = bytes.value_or(-1); }

int64_t FakeDevice::allocated_on_host() const {
  const std::lock_guard lock(state_->on_host->mutex);
  return state_->on_host->allocated;
}
int64_t FakeDevice::most_on_host() const {
  const std::lock_guard lock(state_->on_host->mutex);
  return state_->on_host->most;
}

int64_t FakeDevice::num_kernels() const { return state_->counts->kernels; }
int64_t FakeDevice::num_copies() const { return state_->counts->copies; }
int64_t FakeDevice::num_replays() const { return state_->counts->replays; }
int64_t FakeDevice::num_unfinished() const { return state_->counts->unfinished; }

kernels::Backend fake_backend(FakeDevice& device, bool plain_loops, DeviceCommunicators* communicators) {
  static const KernelRegistry kPlain = make_registry({&kernels::reference_kernels()});
  static const KernelRegistry kFast = make_registry({&kernels::cpu_kernels(), &kernels::reference_kernels()});
  return {.name = "fake",
          .registries = {plain_loops ? &kPlain : &kFast},
          .device = &device,
          .communicators = communicators};
}

KernelRegistry some_kernels(const kernels::Backend& backend, const std::function<bool(const KernelRequest&)>& has) {
  KernelRegistry registry;
  for (const KernelRegistry* kernels : backend.registries) {
    for (const auto& op : kernels->ops()) {
      registry.add(op, [kernels, has](const KernelRequest& request) -> std::optional<PreparedKernel> {
        if (request.op != "copy" && !has(request)) return std::nullopt;
        return kernels->find(request);
      });
    }
  }
  return registry;
}

}  // namespace tessera
