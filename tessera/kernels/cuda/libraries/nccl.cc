#include "tessera/kernels/cuda/libraries/nccl.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/thread.h"
#include "tessera/kernels/cuda/device/shared_library.h"

namespace tessera::cuda {
namespace {

constexpr int kOldest = 21800;
// How long a group waits at its end for what the library still has to do with other ranks.
constexpr int64_t kEndNs = 1'000'000'000;
// A call is mostly taken at once.
constexpr int kYieldsOfNccl = 2000;
// Between calls of `waiting`.
constexpr int64_t kLookOfNcclNs = 1'000'000;

std::string version_words(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

NcclReduction reduction_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return NcclReduction::kSum;
    case ReduceOp::kProd: return NcclReduction::kProd;
    case ReduceOp::kMax: return NcclReduction::kMax;
    case ReduceOp::kMin: return NcclReduction::kMin;
  }
  throw InternalError("a reduction that NCCL does not have");
}

// Of bools, which are 0 or 1, the maximum and minimum are those of bytes.
NcclType type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return NcclType::kFloat32;
    case DType::kF64: return NcclType::kFloat64;
    case DType::kBF16: return NcclType::kBfloat16;
    case DType::kF16: return NcclType::kFloat16;
    case DType::kI8: return NcclType::kInt8;
    case DType::kU8:
    case DType::kBool: return NcclType::kUint8;
    case DType::kI32: return NcclType::kInt32;
    case DType::kU32: return NcclType::kUint32;
    case DType::kI64: return NcclType::kInt64;
    case DType::kU64: return NcclType::kUint64;
    default: throw_unsupported_dtype(dtype, "a reduction of NCCL");
  }
}

size_t bytes_of(int64_t count, DType dtype) { return static_cast<size_t>(count) * size_bytes(dtype); }
int64_t sum_before(std::span<const int64_t> counts, size_t rank) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(rank), int64_t{0});
}
bool all_equal(std::span<const int64_t> counts) {
  return std::all_of(counts.begin(), counts.end(), [&](int64_t count) { return count == counts[0]; });
}
const std::byte* part_of(const void* data, int64_t offset, DType dtype) {
  return static_cast<const std::byte*>(data) + bytes_of(offset, dtype);
}
std::byte* part_of(void* data, int64_t offset, DType dtype) {
  return static_cast<std::byte*>(data) + bytes_of(offset, dtype);
}

// Between two questions, awake at first.
class Pauses {
 public:
  void next() {
    if (count_++ < kYieldsOfNccl) {
      std::this_thread::yield();
    } else {
      Clock::system().sleep_ms(1);
    }
  }

 private:
  int count_ = 0;
};

}  // namespace

NcclFunctions open_nccl(std::initializer_list<const char*> names) {
  const SharedLibrary library(names);
  if (!library) {
    throw IoError(
        "cuda: NCCL is not found ({}): install NCCL 2 for CUDA 13, or name its folder in TESSERA_CUDA_LIBRARIES",
        library.error());
  }
  NcclFunctions functions;
#define TESSERA_LOAD_NCCL(member, function, parameters) \
  functions.member = reinterpret_cast<decltype(functions.member)>(library.find(#function));
  TESSERA_NCCL(TESSERA_LOAD_NCCL)
#undef TESSERA_LOAD_NCCL
  functions.error_text = reinterpret_cast<decltype(functions.error_text)>(library.find("ncclGetErrorString"));
  functions.last_error = reinterpret_cast<decltype(functions.last_error)>(library.find("ncclGetLastError"));
  int version = 0;
  if (functions.version(&version) != NcclResult::kSuccess) throw IoError("nccl: it does not say its version");
  functions.version_text = version_words(version);
  if (version < kOldest) {
    throw IoError("nccl: it is of version {}; {} or later is needed", functions.version_text, version_words(kOldest));
  }
  return functions;
}

const NcclFunctions& nccl() {
  static const NcclFunctions functions = open_nccl({"libnccl.so.2", "libnccl.so"});
  return functions;
}

std::string new_nccl_id(const NcclFunctions& functions) {
  NcclId id{};
  if (const NcclResult result = functions.make_id(&id); result != NcclResult::kSuccess) {
    throw IoError("nccl: making a group's id failed: {} ({})", functions.error_text(result),
                  functions.last_error(nullptr));
  }
  return {id.bytes.begin(), id.bytes.end()};
}

NcclGroup::NcclGroup(const NcclFunctions& functions, const std::string& id, int rank, int size,
                     std::function<void()> waiting)
    : functions_(functions), rank_(rank), size_(size), waiting_(std::move(waiting)) {
  NcclId bytes{};
  check_equal(id.size(), bytes.bytes.size(), "bytes of a group's id");
  std::copy(id.begin(), id.end(), bytes.bytes.begin());
  NcclConfig config;
  config.blocking = 0;
  try {
    settle(functions_.init(&comm_, size, bytes, rank, &config), "connecting ranks");
  } catch (...) {
    if (comm_ != nullptr) functions_.abort(comm_);
    throw;
  }
}

NcclGroup::~NcclGroup() {
  if (aborts_.joinable()) {
    aborts_.join();
    return;
  }
  if (is_aborted_) return;
  NcclResult result = functions_.finalize(comm_);
  const int64_t begin_ns = Clock::system().monotonic_ns();
  for (Pauses pauses; result == NcclResult::kInProgress; pauses.next()) {
    if (Clock::system().monotonic_ns() - begin_ns > kEndNs) break;
    if (functions_.state(comm_, &result) != NcclResult::kSuccess) break;
  }
  // Another rank may have gone without its part of the end.
  result == NcclResult::kSuccess ? functions_.destroy(comm_) : functions_.abort(comm_);
}

void NcclGroup::all_reduce(NcclStream* stream, void* data, int64_t count, DType dtype, ReduceOp op) {
  const NcclType type = type_of(dtype);
  if (count == 0) return;
  call("all_reduce", [&] {
    return functions_.all_reduce(data, data, static_cast<size_t>(count), type, reduction_of(op), comm_, stream);
  });
}

void NcclGroup::all_gather(NcclStream* stream, const void* in, void* out, std::span<const int64_t> counts,
                           DType dtype) {
  if (all_equal(counts)) {
    if (counts[0] == 0) return;
    return call("all_gather", [&] {
      return functions_.all_gather(in, out, bytes_of(counts[0], dtype), NcclType::kUint8, comm_, stream);
    });
  }
  // Each rank in its turn tells the others its part.
  call_together("all_gather", [&] {
    for (size_t r = 0; r < counts.size(); ++r) {
      if (counts[r] == 0) continue;
      std::byte* const to = part_of(out, sum_before(counts, r), dtype);
      const void* const from = static_cast<int>(r) == rank_ ? in : to;
      require_taken(functions_.broadcast(from, to, bytes_of(counts[r], dtype), NcclType::kUint8, static_cast<int>(r),
                                         comm_, stream),
                    "all_gather");
    }
  });
}

void NcclGroup::reduce_scatter(NcclStream* stream, const void* in, void* out, std::span<const int64_t> counts,
                               DType dtype, ReduceOp op) {
  const NcclType type = type_of(dtype);
  if (all_equal(counts)) {
    if (counts[0] == 0) return;
    return call("reduce_scatter", [&] {
      return functions_.reduce_scatter(in, out, static_cast<size_t>(counts[0]), type, reduction_of(op), comm_, stream);
    });
  }
  call_together("reduce_scatter", [&] {
    for (size_t r = 0; r < counts.size(); ++r) {
      if (counts[r] == 0) continue;
      void* const to = static_cast<int>(r) == rank_ ? out : nullptr;
      require_taken(functions_.reduce(part_of(in, sum_before(counts, r), dtype), to, static_cast<size_t>(counts[r]),
                                      type, reduction_of(op), static_cast<int>(r), comm_, stream),
                    "reduce_scatter");
    }
  });
}

void NcclGroup::broadcast(NcclStream* stream, void* data, int64_t count, DType dtype, int root) {
  if (count == 0) return;
  call("broadcast",
       [&] { return functions_.broadcast(data, data, bytes_of(count, dtype), NcclType::kUint8, root, comm_, stream); });
}

void NcclGroup::all_to_all(NcclStream* stream, const void* in, std::span<const int64_t> in_counts, void* out,
                           std::span<const int64_t> out_counts, DType dtype) {
  call_together("all_to_all", [&] {
    for (size_t r = 0; r < in_counts.size(); ++r) {
      const int peer = static_cast<int>(r);
      if (in_counts[r] > 0) {
        require_taken(functions_.send(part_of(in, sum_before(in_counts, r), dtype), bytes_of(in_counts[r], dtype),
                                      NcclType::kUint8, peer, comm_, stream),
                      "all_to_all");
      }
      if (out_counts[r] > 0) {
        require_taken(functions_.receive(part_of(out, sum_before(out_counts, r), dtype), bytes_of(out_counts[r], dtype),
                                         NcclType::kUint8, peer, comm_, stream),
                      "all_to_all");
      }
    }
  });
}

void NcclGroup::send(NcclStream* stream, const void* data, int64_t count, DType dtype, int to) {
  if (count == 0) return;
  call("send", [&] { return functions_.send(data, bytes_of(count, dtype), NcclType::kUint8, to, comm_, stream); });
}

void NcclGroup::receive(NcclStream* stream, void* data, int64_t count, DType dtype, int from) {
  if (count == 0) return;
  call("receive",
       [&] { return functions_.receive(data, bytes_of(count, dtype), NcclType::kUint8, from, comm_, stream); });
}

void NcclGroup::check() {
  require_alive();
  NcclResult state = NcclResult::kSuccess;
  const NcclResult asked = functions_.state(comm_, &state);
  if (asked != NcclResult::kSuccess) throw_failure(asked, "looking at a group");
  if (state != NcclResult::kSuccess && state != NcclResult::kInProgress) throw_failure(state, "a group");
}

void NcclGroup::abort() {
  if (is_aborted_.exchange(true)) return;
  try {
    aborts_ = start_thread("the end of a group of NCCL", [this] { functions_.abort(comm_); });
  } catch (const IoError&) {
    functions_.abort(comm_);  // without a thread it takes as long as it takes
  }
}

void NcclGroup::call(const char* what, const std::function<NcclResult()>& made) {
  require_alive();
  settle(made(), what);
}

void NcclGroup::call_together(const char* what, const std::function<void()>& calls) {
  require_alive();
  settle(functions_.begin_group(), what);
  try {
    calls();
  } catch (...) {
    functions_.end_group();
    throw;
  }
  settle(functions_.end_group(), what);
}

void NcclGroup::settle(NcclResult result, const char* what) {
  int64_t looked_ns = Clock::system().monotonic_ns();
  for (Pauses pauses; result == NcclResult::kInProgress; pauses.next()) {
    const int64_t now_ns = Clock::system().monotonic_ns();
    if (now_ns - looked_ns >= kLookOfNcclNs) {
      looked_ns = now_ns;
      waiting_();
    }
    const NcclResult asked = functions_.state(comm_, &result);
    if (asked != NcclResult::kSuccess) result = asked;
  }
  require_taken(result, what);
}

void NcclGroup::require_taken(NcclResult result, const char* what) const {
  if (result != NcclResult::kSuccess && result != NcclResult::kInProgress) throw_failure(result, what);
}

void NcclGroup::require_alive() const {
  if (is_aborted_) throw IoError("nccl: rank {} of the group of {} has given it up", rank_, size_);
}

void NcclGroup::throw_failure(NcclResult result, std::string_view what) const {
  throw IoError("nccl: {} failed on rank {} of a group of {}: {} ({})", what, rank_, size_,
                functions_.error_text(result), functions_.last_error(comm_));
}

}  // namespace tessera::cuda
