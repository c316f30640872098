// NCCL: what GPUs tell each other. The library is opened when it is first asked for, and its functions are declared
// here, so that a build needs none of its headers. Nothing in this file knows a GPU: a stream is an address that the
// library is given.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/reduce_op.h"

namespace tessera::cuda {

// As nccl.h of version 2 has them.
struct NcclId {
  std::array<char, 128> bytes;
};
enum class NcclResult : int { kSuccess = 0, kRemoteError = 6, kInProgress = 7 };
enum class NcclType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};
enum class NcclReduction : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };
// The settings of version 2.18, which later versions take, too. What is undefined is the library's own choice.
struct NcclConfig {
  static constexpr int kUndefined = INT32_MIN;
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xCAFEBEEF;
  unsigned version = 21800;
  int blocking = kUndefined;
  int cluster_size = kUndefined;
  int least_blocks = kUndefined;
  int most_blocks = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};
struct NcclComm;    // a communicator
struct NcclStream;  // a stream of CUDA

// X(member, function of libnccl.so.2, its parameters)
#define TESSERA_NCCL(X)                                                                                               \
  X(version, ncclGetVersion, (int*))                                                                                  \
  X(make_id, ncclGetUniqueId, (NcclId*))                                                                              \
  X(init, ncclCommInitRankConfig, (NcclComm**, int, NcclId, int, NcclConfig*))                                        \
  X(finalize, ncclCommFinalize, (NcclComm*))                                                                          \
  X(destroy, ncclCommDestroy, (NcclComm*))                                                                            \
  X(abort, ncclCommAbort, (NcclComm*))                                                                                \
  X(state, ncclCommGetAsyncError, (NcclComm*, NcclResult*))                                                           \
  X(all_reduce, ncclAllReduce, (const void*, void*, size_t, NcclType, NcclReduction, NcclComm*, NcclStream*))         \
  X(all_gather, ncclAllGather, (const void*, void*, size_t, NcclType, NcclComm*, NcclStream*))                        \
  X(reduce_scatter, ncclReduceScatter, (const void*, void*, size_t, NcclType, NcclReduction, NcclComm*, NcclStream*)) \
  X(broadcast, ncclBroadcast, (const void*, void*, size_t, NcclType, int, NcclComm*, NcclStream*))                    \
  X(reduce, ncclReduce, (const void*, void*, size_t, NcclType, NcclReduction, int, NcclComm*, NcclStream*))           \
  X(send, ncclSend, (const void*, size_t, NcclType, int, NcclComm*, NcclStream*))                                     \
  X(receive, ncclRecv, (void*, size_t, NcclType, int, NcclComm*, NcclStream*))                                        \
  X(begin_group, ncclGroupStart, ())                                                                                  \
  X(end_group, ncclGroupEnd, ())

struct NcclFunctions {
#define TESSERA_MEMBER(member, function, parameters) NcclResult(*member) parameters = nullptr;
  TESSERA_NCCL(TESSERA_MEMBER)
#undef TESSERA_MEMBER
  const char* (*error_text)(NcclResult) = nullptr;       // ncclGetErrorString
  const char* (*last_error)(const NcclComm*) = nullptr;  // ncclGetLastError
  std::string version_text;                              // "2.28.9"
};

// Opens the first of these libraries that is found (SharedLibrary). Throws IoError where there is none, where one of
// its functions is missing, or where it is older than 2.18.
NcclFunctions open_nccl(std::initializer_list<const char*> names);
// The functions of libnccl.so.2, opened at the first call.
const NcclFunctions& nccl();

// The bytes of an id, for other ranks. Throws IoError.
std::string new_nccl_id(const NcclFunctions& functions);

// NcclGroup: one rank's end of a group. Calls do not block: who has to wait for other ranks in one calls `waiting` now
// and then, which may throw. A call returns when its work is in the stream.
class NcclGroup {
 public:
  // Returns when all ranks have come. The functions outlive it, and so does what `waiting` needs.
  NcclGroup(const NcclFunctions& functions, const std::string& id, int rank, int size, std::function<void()> waiting);
  // Recordings that have its calls must go before.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // As of DeviceCommunicator. Throws InvalidArgument for a reduction of a type for which there is none.
  void all_reduce(NcclStream* stream, void* data, int64_t count, DType dtype, ReduceOp op);
  void all_gather(NcclStream* stream, const void* in, void* out, std::span<const int64_t> counts, DType dtype);
  void reduce_scatter(NcclStream* stream, const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                      ReduceOp op);
  void broadcast(NcclStream* stream, void* data, int64_t count, DType dtype, int root);
  void all_to_all(NcclStream* stream, const void* in, std::span<const int64_t> in_counts, void* out,
                  std::span<const int64_t> out_counts, DType dtype);
  void send(NcclStream* stream, const void* data, int64_t count, DType dtype, int to);
  void receive(NcclStream* stream, void* data, int64_t count, DType dtype, int from);
  void check();
  // The library may take long to free what recordings still name: a thread does it, which is joined at the end.
  void abort();

 private:
  // Has a call made, and returns when the library has it.
  void call(const char* what, const std::function<NcclResult()>& made);
  // The same for several that the library takes as one.
  void call_together(const char* what, const std::function<void()>& calls);
  void settle(NcclResult result, const char* what);
  // What is one call of several: whether the library has it is known when they end.
  void require_taken(NcclResult result, const char* what) const;
  void require_alive() const;
  [[noreturn]] void throw_failure(NcclResult result, std::string_view what) const;

  const NcclFunctions& functions_;
  int rank_;
  int size_;
  std::function<void()> waiting_;
  NcclComm* comm_ = nullptr;
  std::atomic<bool> is_aborted_ = false;
  std::thread aborts_;
};

}  // namespace tessera::cuda
