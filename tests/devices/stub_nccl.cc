// A libnccl.so.2 without GPUs, for tests: ranks are threads of one process, their memory is the host's, a stream is a
// thread. It has the functions of NCCL that Tessera calls, under their names and numbers, and a few of its own, stub_*.
// Calls do not block, as those of a communicator that was made so.
//
// STUB_NCCL=RANK:WHAT:FUNCTION, where rank RANK of every group calls that function:
//   fail    the call is refused
//   delay   it takes 200 ms, from the first question after it on, until the library has it
//   break   it is taken; soon the communicator has an error, and its work does not end, unless it is aborted
//   hang    its work in the stream does not end, unless the communicator is aborted
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/tensor/half.h"

#ifndef STUB_NCCL_VERSION
#define STUB_NCCL_VERSION 22003
#endif

enum Result : int { kSuccess = 0, kInternalError = 3, kInvalidArgument = 4, kRemoteError = 6, kInProgress = 7 };
enum Reduction : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

struct Id {
  std::array<char, 128> bytes;
};
struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

namespace {

using tessera::BFloat16;
using tessera::Float16;

// What the ranks of a group do together. Each call has a place of its own, by its number.
class Meeting {
 public:
  struct Place {
    std::vector<const void*> inputs;
    int num_come = 0;
    int num_done = 0;
    int num_left = 0;
  };

  explicit Meeting(int size) : size_(size) {}

  int size() const { return size_; }
  void join() {
    const std::lock_guard lock(mutex_);
    ++num_joined_;
  }
  bool is_complete() {
    const std::lock_guard lock(mutex_);
    return num_joined_ >= size_;
  }
  void wake() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  // Calls work(inputs) when all ranks have come with theirs, then write() when all have worked. Gives up where
  // `aborted` becomes true.
  void meet(uint64_t number, int rank, const void* input, const std::atomic<bool>& aborted,
            const std::function<void(const std::vector<const void*>&)>& work, const std::function<void()>& write) {
    std::unique_lock lock(mutex_);
    Place& place = places_[number];
    place.inputs.resize(static_cast<size_t>(size_));
    place.inputs[static_cast<size_t>(rank)] = input;
    if (!pass(lock, place.num_come, aborted)) return;
    const std::vector<const void*> inputs = place.inputs;
    lock.unlock();
    work(inputs);
    lock.lock();
    if (!pass(lock, place.num_done, aborted)) return;
    lock.unlock();
    write();
    lock.lock();
    if (++place.num_left == size_) places_.erase(number);
  }
  void post(int from, int to, std::vector<char> letter) {
    const std::lock_guard lock(mutex_);
    letters_[{from, to}].push_back(std::move(letter));
    changed_.notify_all();
  }
  void take(int from, int to, void* data, size_t bytes, const std::atomic<bool>& aborted) {
    std::unique_lock lock(mutex_);
    auto& box = letters_[{from, to}];
    changed_.wait(lock, [&] { return aborted || !box.empty(); });
    if (aborted) return;
    if (box.front().size() != bytes) std::abort();  // a test that is wrong
    std::memcpy(data, box.front().data(), bytes);
    box.pop_front();
  }
  void wait_for_abort(const std::atomic<bool>& aborted) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return aborted.load(); });
  }

 private:
  bool pass(std::unique_lock<std::mutex>& lock, int& count, const std::atomic<bool>& aborted) {
    ++count;
    changed_.notify_all();
    changed_.wait(lock, [&] { return aborted || count >= size_; });
    return !aborted;
  }

  int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_joined_ = 0;
  std::map<uint64_t, Place> places_;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> letters_;
};

std::shared_ptr<Meeting> meeting_of(const Id& id, int size) {
  static std::mutex mutex;
  static auto& meetings = *new std::map<std::string, std::shared_ptr<Meeting>>();
  const std::lock_guard lock(mutex);
  auto& meeting = meetings[std::string(id.bytes.begin(), id.bytes.end())];
  if (meeting == nullptr) meeting = std::make_shared<Meeting>(size);
  return meeting;
}

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// A thread that does what it is given, in order.
struct Stream {
  Stream() : thread([this] { run(); }) {}
  ~Stream() {
    {
      const std::lock_guard lock(mutex);
      stops = true;
    }
    changed.notify_all();
    thread.join();
  }
  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex);
    pending.push_back(std::move(work));
    changed.notify_all();
  }
  bool is_idle() {
    const std::lock_guard lock(mutex);
    return pending.empty() && !is_running;
  }
  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stops || !pending.empty(); });
      if (pending.empty()) return;
      const auto work = std::move(pending.front());
      pending.pop_front();
      is_running = true;
      lock.unlock();
      work();
      lock.lock();
      is_running = false;
    }
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> pending;
  bool is_running = false;
  bool stops = false;
  std::thread thread;
};

// A communicator.
struct Comm {
  std::shared_ptr<Meeting> meeting;
  int rank = 0;
  uint64_t num_calls = 0;
  std::atomic<bool> aborted = false;
  std::atomic<int> error = kSuccess;
  std::atomic<bool> is_delayed = false;  // from the next question on
  std::atomic<int64_t> busy_until_ms = 0;
  std::atomic<int> num_working = 0;  // pieces of work in streams
};

namespace {

std::atomic<const char*> last_error = "";

// What STUB_NCCL says of this call: "" where nothing.
std::string mode_of(const Comm& comm, const char* function) {
  const char* said = std::getenv("STUB_NCCL");
  if (said == nullptr) return "";
  const std::string text = said;
  const size_t first = text.find(':');
  const size_t second = text.find(':', first + 1);
  const bool is_meant = std::stoi(text.substr(0, first)) == comm.rank && text.substr(second + 1) == function;
  return is_meant ? text.substr(first + 1, second - first - 1) : "";
}

// The calls of a thread between ncclGroupStart and ncclGroupEnd: messages are sent first.
struct Together {
  int depth = 0;
  std::vector<std::function<void()>> sends;
  std::vector<std::function<void()>> others;
  Comm* comm = nullptr;
};
thread_local Together together;

Result take(Comm* comm, const char* function, Stream* stream, bool is_send, std::function<void()> work) {
  if (comm->error != kSuccess) return static_cast<Result>(comm->error.load());
  const std::string mode = mode_of(*comm, function);
  if (mode == "fail") {
    last_error = "it was told to fail";
    return kInternalError;
  }
  if (mode == "delay") comm->is_delayed = true;
  const bool breaks = mode == "break";
  const bool hangs = breaks || mode == "hang";
  ++comm->num_working;
  std::function<void()> all = [comm, breaks, hangs, work = std::move(work)] {
    if (breaks) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      last_error = "it was told to break";
      comm->error = kRemoteError;
    }
    if (hangs) comm->meeting->wait_for_abort(comm->aborted);
    if (!comm->aborted) work();
    --comm->num_working;
  };
  if (together.depth > 0) {
    together.comm = comm;
    auto& list = is_send ? together.sends : together.others;
    list.push_back([stream, all = std::move(all)] { stream->add(all); });
    return kSuccess;
  }
  stream->add(std::move(all));
  return kInProgress;
}

size_t bytes_of_type(int type) {
  static constexpr std::array<size_t, 10> kBytes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kBytes[static_cast<size_t>(type)];
}

template <typename T>
T reduced(T a, T b, int op) {
  switch (op) {
    case kSum: return static_cast<T>(a + b);
    case kProd: return static_cast<T>(a * b);
    case kMax: return a < b ? b : a;
    default: return b < a ? b : a;
  }
}

template <typename T, typename Wide>
void reduce_as(const std::vector<const void*>& inputs, size_t offset, size_t count, int op, std::vector<char>& out) {
  for (size_t i = 0; i < count; ++i) {
    Wide sum = static_cast<Wide>(static_cast<const T*>(inputs[0])[offset + i]);
    for (size_t r = 1; r < inputs.size(); ++r) {
      sum = reduced<Wide>(sum, static_cast<Wide>(static_cast<const T*>(inputs[r])[offset + i]), op);
    }
    const T result = static_cast<T>(sum);
    std::memcpy(out.data() + i * sizeof(T), &result, sizeof(T));
  }
}

// The reduction of elements [offset, offset + count) of all inputs.
std::vector<char> reduce(const std::vector<const void*>& inputs, size_t offset, size_t count, int type, int op) {
  std::vector<char> out(count * bytes_of_type(type));
  switch (type) {
    case 0: reduce_as<int8_t, int8_t>(inputs, offset, count, op, out); break;
    case 1: reduce_as<uint8_t, uint8_t>(inputs, offset, count, op, out); break;
    case 2: reduce_as<int32_t, int32_t>(inputs, offset, count, op, out); break;
    case 3: reduce_as<uint32_t, uint32_t>(inputs, offset, count, op, out); break;
    case 4: reduce_as<int64_t, int64_t>(inputs, offset, count, op, out); break;
    case 5: reduce_as<uint64_t, uint64_t>(inputs, offset, count, op, out); break;
    case 6: reduce_as<Float16, float>(inputs, offset, count, op, out); break;
    case 7: reduce_as<float, float>(inputs, offset, count, op, out); break;
    case 8: reduce_as<double, double>(inputs, offset, count, op, out); break;
    case 9: reduce_as<BFloat16, float>(inputs, offset, count, op, out); break;
    default: std::abort();
  }
  return out;
}

// A call that all ranks make together: make(inputs) is what this one puts to `to`, which may be null.
Result meet(Comm* comm, const char* function, Stream* stream, const void* input, void* to,
            std::function<std::vector<char>(const std::vector<const void*>&)> make) {
  const uint64_t number = comm->num_calls++;
  return take(comm, function, stream, /*is_send=*/false, [=, make = std::move(make)] {
    std::vector<char> result;
    comm->meeting->meet(
        number, comm->rank, input, comm->aborted, [&](const auto& inputs) { result = make(inputs); },
        [&] {
          if (to != nullptr && !result.empty()) std::memcpy(to, result.data(), result.size());
        });
  });
}

}  // namespace

extern "C" {

Result ncclGetVersion(int* version) {
  *version = STUB_NCCL_VERSION;
  return kSuccess;
}
const char* ncclGetErrorString(Result result) { return result == kRemoteError ? "remote error" : "internal error"; }
const char* ncclGetLastError(const Comm*) { return last_error; }

Result ncclGetUniqueId(Id* id) {
  static std::atomic<int> count = 0;
  id->bytes.fill(0);
  const std::string text = "group " + std::to_string(++count);
  std::memcpy(id->bytes.data(), text.data(), text.size());
  return kSuccess;
}

Result ncclCommInitRankConfig(Comm** comm, int size, Id id, int rank, Config* config) {
  const bool is_known = config->magic == 0xCAFEBEEF && config->size >= sizeof(Config) && config->version >= 21400;
  if (!is_known || config->blocking != 0) return kInvalidArgument;
  *comm = new Comm{.meeting = meeting_of(id, size), .rank = rank};
  if (mode_of(**comm, "ncclCommInitRankConfig") == "fail") {
    last_error = "it was told to fail";
    (*comm)->error = kInternalError;
    return kInternalError;
  }
  (*comm)->meeting->join();
  return kInProgress;
}
Result ncclCommGetAsyncError(Comm* comm, Result* state) {
  *state = static_cast<Result>(comm->error.load());
  if (comm->is_delayed.exchange(false)) comm->busy_until_ms = now_ms() + 200;
  const bool is_busy = now_ms() < comm->busy_until_ms || !comm->meeting->is_complete();
  if (*state == kSuccess && is_busy) *state = kInProgress;
  return kSuccess;
}
Result ncclCommFinalize(Comm*) { return kSuccess; }
Result ncclCommDestroy(Comm* comm) {
  delete comm;
  return kSuccess;
}
#ifndef STUB_NCCL_WITHOUT_ABORT
Result ncclCommAbort(Comm* comm) {
  comm->aborted = true;
  comm->meeting->wake();
  while (comm->num_working > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  delete comm;
  return kSuccess;
}
#endif

Result ncclGroupStart() {
  ++together.depth;
  return kSuccess;
}
Result ncclGroupEnd() {
  if (--together.depth > 0) return kSuccess;
  const Together calls = std::exchange(together, {});
  for (const auto& give : calls.sends) give();
  for (const auto& give : calls.others) give();
  return calls.comm == nullptr ? kSuccess : kInProgress;
}

Result ncclAllReduce(const void* in, void* out, size_t count, int type, int op, Comm* comm, Stream* stream) {
  return meet(comm, "ncclAllReduce", stream, in, out,
              [=](const auto& inputs) { return reduce(inputs, 0, count, type, op); });
}
Result ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, Comm* comm, Stream* stream) {
  return meet(comm, "ncclReduceScatter", stream, in, out, [=](const auto& inputs) {
    return reduce(inputs, static_cast<size_t>(comm->rank) * count, count, type, op);
  });
}
Result ncclReduce(const void* in, void* out, size_t count, int type, int op, int root, Comm* comm, Stream* stream) {
  return meet(comm, "ncclReduce", stream, in, comm->rank == root ? out : nullptr,
              [=](const auto& inputs) { return reduce(inputs, 0, count, type, op); });
}
Result ncclAllGather(const void* in, void* out, size_t count, int type, Comm* comm, Stream* stream) {
  return meet(comm, "ncclAllGather", stream, in, out, [=](const auto& inputs) {
    std::vector<char> all;
    for (const void* input : inputs) {
      const auto* bytes = static_cast<const char*>(input);
      all.insert(all.end(), bytes, bytes + count * bytes_of_type(type));
    }
    return all;
  });
}
Result ncclBroadcast(const void* in, void* out, size_t count, int type, int root, Comm* comm, Stream* stream) {
  return meet(comm, "ncclBroadcast", stream, in, out, [=](const auto& inputs) {
    const auto* bytes = static_cast<const char*>(inputs[static_cast<size_t>(root)]);
    return std::vector<char>(bytes, bytes + count * bytes_of_type(type));
  });
}
Result ncclSend(const void* data, size_t count, int type, int peer, Comm* comm, Stream* stream) {
  return take(comm, "ncclSend", stream, /*is_send=*/true, [=] {
    const auto* bytes = static_cast<const char*>(data);
    comm->meeting->post(comm->rank, peer, {bytes, bytes + count * bytes_of_type(type)});
  });
}
Result ncclRecv(void* data, size_t count, int type, int peer, Comm* comm, Stream* stream) {
  return take(comm, "ncclRecv", stream, /*is_send=*/false,
              [=] { comm->meeting->take(peer, comm->rank, data, count * bytes_of_type(type), comm->aborted); });
}

Stream* stub_make_stream() { return new Stream(); }
void stub_destroy_stream(Stream* stream) { delete stream; }
int stub_is_idle(Stream* stream) { return stream->is_idle() ? 1 : 0; }

}  // extern "C"
