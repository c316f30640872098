// libcuda.so.1, libnvrtc.so.13, libcublasLt.so.13 and libcudnn.so.9 without a GPU: memory is the host's, copies and
// fills are done at once, kernels do nothing. It fails as the variable TESSERA_STUB_DRIVER says, whose settings
// `name=number` stand behind each other, separated by commas:
//   version=12080   the driver is of CUDA 12.8; without it 13.0
//   init=100        cuInit returns that error, as CUDA_ERROR_NO_DEVICE
//   devices=2       so many are there; without it one
//   capability=75   they are sm_75; without it sm_90
//   mode=3          their compute mode, as CU_COMPUTEMODE_EXCLUSIVE_PROCESS
//   open=46         opening a device returns that error, as CUDA_ERROR_DEVICE_UNAVAILABLE
//   memory=64       MiB that a device has; without it 1024
//   others=32       MiB of it that other processes have
//   ipc=801         its memory is not shown to other processes, with that error, as CUDA_ERROR_NOT_SUPPORTED
//   nvrtc=12        the compiler of kernels is of that version; without it 13
//   host=2          memory of the host for copies is refused with that error
//   module=209      loading a kernel returns that error
//   blas=1          cuBLASLt computes products of float32 and says how on standard error; 2: none with an epilogue
//   lost=719        the first kernel that runs is the device's end: whoever waits for it, and every call after that, is
//                   told that error
#include <cuda.h>
#include <fcntl.h>
#include <nvrtc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr size_t kGranularity = size_t{2} << 20;

// What the variable says of `name`; `otherwise` where it says nothing.
int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv("TESSERA_STUB_DRIVER");
  const std::string all = text == nullptr ? "" : "," + std::string(text);
  const std::string wanted = "," + std::string(name) + "=";
  const size_t at = all.find(wanted);
  return at == std::string::npos ? otherwise : std::atoll(all.c_str() + at + wanted.size());
}

CUresult fault(const char* name) { return static_cast<CUresult>(setting(name, 0)); }

std::atomic<bool> has_run_a_kernel = false;

// What every call says that reaches the device.
CUresult on_device() { return has_run_a_kernel ? fault("lost") : CUDA_SUCCESS; }

std::atomic<int64_t> used_bytes = 0;

size_t total_bytes() { return static_cast<size_t>(setting("memory", 1024)) << 20; }
// Of which this process may have so many.
size_t own_bytes() { return total_bytes() - (static_cast<size_t>(setting("others", 0)) << 20); }

bool take(size_t bytes) {
  const auto wanted = static_cast<int64_t>(bytes);
  if (used_bytes.fetch_add(wanted) + wanted <= static_cast<int64_t>(own_bytes())) return true;
  used_bytes.fetch_sub(wanted);
  return false;
}

// Work that is recorded, and done when the graph is launched.
using Work = std::vector<std::function<void()>>;
thread_local Work* recorded = nullptr;  // by this thread, now

CUresult give(std::function<void()> work) {
  if (const CUresult result = on_device(); result != CUDA_SUCCESS) return result;
  if (recorded != nullptr) {
    recorded->push_back(std::move(work));
  } else {
    work();
  }
  return CUDA_SUCCESS;
}

// Objects of which only the address counts.
template <typename Handle>
CUresult make(Handle* handle) {
  if (const CUresult result = on_device(); result != CUDA_SUCCESS) return result;
  *handle = reinterpret_cast<Handle>(new char);
  return CUDA_SUCCESS;
}
template <typename Handle>
CUresult destroy(Handle handle) {
  delete reinterpret_cast<char*>(handle);
  return on_device();
}

// Memory that other processes can map: a file of this one, or of another.
struct SharedPiece {
  int file = -1;
  size_t bytes = 0;
};
std::mutex pieces_mutex;
std::map<CUdeviceptr, SharedPiece> pieces;  // allocated or opened

CUresult map_piece(CUdeviceptr* address, const SharedPiece& piece) {
  void* const memory = ::mmap(nullptr, piece.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, piece.file, 0);
  if (memory == MAP_FAILED) {
    ::close(piece.file);
    return CUDA_ERROR_MAP_FAILED;
  }
  *address = reinterpret_cast<CUdeviceptr>(memory);
  const std::lock_guard lock(pieces_mutex);
  pieces[*address] = piece;
  return on_device();
}
CUresult unmap_piece(CUdeviceptr address) {
  const std::lock_guard lock(pieces_mutex);
  const auto it = pieces.find(address);
  if (it == pieces.end()) return CUDA_ERROR_INVALID_VALUE;
  ::munmap(reinterpret_cast<void*>(address), it->second.bytes);
  ::close(it->second.file);
  pieces.erase(it);
  return on_device();
}

void* at(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

const char* name_of_error(CUresult error) {
  switch (error) {
    case CUDA_SUCCESS: return "CUDA_SUCCESS";
    case CUDA_ERROR_OUT_OF_MEMORY: return "CUDA_ERROR_OUT_OF_MEMORY";
    case CUDA_ERROR_DEVICE_UNAVAILABLE: return "CUDA_ERROR_DEVICE_UNAVAILABLE";
    case CUDA_ERROR_NO_DEVICE: return "CUDA_ERROR_NO_DEVICE";
    case CUDA_ERROR_INVALID_DEVICE: return "CUDA_ERROR_INVALID_DEVICE";
    case CUDA_ERROR_NO_BINARY_FOR_GPU: return "CUDA_ERROR_NO_BINARY_FOR_GPU";
    case CUDA_ERROR_LAUNCH_FAILED: return "CUDA_ERROR_LAUNCH_FAILED";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: return "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
    case CUDA_ERROR_NOT_SUPPORTED: return "CUDA_ERROR_NOT_SUPPORTED";
    default: return nullptr;  // as a driver does for an error that it does not know
  }
}

}  // namespace

// The names are the driver's.
// NOLINTBEGIN(readability-identifier-naming)

// --- the driver ------------------------------------------------------------------------------------------------------

CUresult cuInit(unsigned int) { return fault("init"); }
CUresult cuDriverGetVersion(int* version) {
  *version = static_cast<int>(setting("version", 13000));
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = name_of_error(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = name_of_error(error) == nullptr ? nullptr : "the stub was told so";
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = static_cast<int>(setting("devices", 1));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::snprintf(name, static_cast<size_t>(size), "Stub GPU");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid, device, sizeof(*uuid));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  const auto capability = static_cast<int>(setting("capability", 90));
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: *value = static_cast<int>(setting("mode", CU_COMPUTEMODE_DEFAULT)); break;
    default: *value = 0; break;
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  *bytes = total_bytes();
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const CUresult result = fault("open"); result != CUDA_SUCCESS) return result;
  *context = reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device) + 1);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return on_device(); }
CUresult cuCtxSetCurrent(CUcontext) { return on_device(); }

// --- memory ----------------------------------------------------------------------------------------------------------

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  if (!take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = ::memfd_create("stub-gpu", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  return map_piece(address, {file, std::max<size_t>(bytes, 1)});
}
CUresult cuMemFree(CUdeviceptr address) { return unmap_piece(address); }
// A handle is the process, its descriptor and the bytes.
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  if (const CUresult result = fault("ipc"); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(pieces_mutex);
  const auto it = pieces.find(address);
  if (it == pieces.end()) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(handle->reserved, sizeof(handle->reserved), "%d %d %zu", ::getpid(), it->second.file, it->second.bytes);
  return on_device();
}
CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned int) {
  int process = 0;
  SharedPiece piece;
  int file = 0;
  if (std::sscanf(handle.reserved, "%d %d %zu", &process, &file, &piece.bytes) != 3) return CUDA_ERROR_INVALID_HANDLE;
  if (process == ::getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // a process does not open its own
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  piece.file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (piece.file < 0) return CUDA_ERROR_INVALID_HANDLE;
  return map_piece(address, piece);
}
CUresult cuIpcCloseMemHandle(CUdeviceptr address) { return unmap_piece(address); }
CUresult cuMemGetInfo(size_t* free, size_t* total) {
  *total = total_bytes();
  *free = own_bytes() - static_cast<size_t>(used_bytes.load());
  return on_device();
}
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  void* const reserved = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(reserved);
  return on_device();
}
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  ::munmap(at(address), bytes);
  return on_device();
}
CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *bytes = kGranularity;
  return on_device();
}
// A handle is the number of its bytes.
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp*,
                     unsigned long long) {
  if (!take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = bytes;
  return on_device();
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  used_bytes.fetch_sub(static_cast<int64_t>(handle));
  return on_device();
}
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) { return on_device(); }
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  ::mprotect(at(address), bytes, PROT_NONE);
  return on_device();
}
CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc*, size_t) {
  return ::mprotect(at(address), bytes, PROT_READ | PROT_WRITE) == 0 ? on_device() : CUDA_ERROR_MAP_FAILED;
}
CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned int) {
  if (const CUresult result = fault("host"); result != CUDA_SUCCESS) return result;
  *memory = std::malloc(bytes);
  return on_device();
}
CUresult cuMemFreeHost(void* memory) {
  std::free(memory);
  return on_device();
}

// --- work ------------------------------------------------------------------------------------------------------------

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  return give([=] { std::memcpy(at(to), from, bytes); });
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  return give([=] { std::memcpy(to, at(from), bytes); });
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  return give([=] { std::memmove(at(to), at(from), bytes); });
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream) {
  return give([=] { std::memset(at(to), value, bytes); });
}
CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t bytes) {
  std::memset(at(to), value, bytes);
  return on_device();
}
CUresult cuLaunchKernel(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                        unsigned int, CUstream, void**, void**) {
  return give([] { has_run_a_kernel = true; });
}
CUresult cuStreamCreate(CUstream* stream, unsigned int) { return make(stream); }
CUresult cuStreamDestroy(CUstream stream) { return destroy(stream); }
CUresult cuStreamSynchronize(CUstream) { return on_device(); }
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned int) { return on_device(); }
CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode) {
  recorded = new Work();
  return on_device();
}
CUresult cuStreamEndCapture(CUstream, CUgraph* graph) {
  *graph = reinterpret_cast<CUgraph>(recorded);
  recorded = nullptr;
  return on_device();
}
CUresult cuEventCreate(CUevent* event, unsigned int) { return make(event); }
CUresult cuEventDestroy(CUevent event) { return destroy(event); }
CUresult cuEventRecord(CUevent, CUstream) { return on_device(); }
CUresult cuEventRecordWithFlags(CUevent, CUstream, unsigned int flags) {
  const bool is_of_graph = recorded != nullptr && flags == CU_EVENT_RECORD_EXTERNAL;
  return is_of_graph ? give([] {}) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuEventSynchronize(CUevent) { return on_device(); }
CUresult cuEventQuery(CUevent) { return on_device(); }
CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  *milliseconds = 1;
  return on_device();
}
CUresult cuModuleLoadData(CUmodule* module, const void*) {
  if (const CUresult result = fault("module"); result != CUDA_SUCCESS) return result;
  return make(module);
}
CUresult cuModuleUnload(CUmodule module) { return destroy(module); }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) { return make(function); }
CUresult cuGraphDestroy(CUgraph graph) {
  delete reinterpret_cast<Work*>(graph);
  return on_device();
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode*, size_t* count) {
  *count = reinterpret_cast<const Work*>(graph)->size();
  return on_device();
}
CUresult cuGraphUpload(CUgraphExec, CUstream) { return on_device(); }
// What an older driver lacks is left out of the library of that name.
#ifndef TESSERA_STUB_LACKS_GRAPHS
CUresult cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  *executable = reinterpret_cast<CUgraphExec>(new Work(*reinterpret_cast<const Work*>(graph)));
  return on_device();
}
#endif
CUresult cuGraphLaunch(CUgraphExec executable, CUstream) {
  for (const auto& work : *reinterpret_cast<const Work*>(executable)) {
    if (const CUresult result = give(work); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  delete reinterpret_cast<Work*>(executable);
  return on_device();
}

// --- the compiler of kernels, whose machine code is four bytes -------------------------------------------------------

nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = static_cast<int>(setting("nvrtc", 13));
  *minor = 0;
  return NVRTC_SUCCESS;
}
const char* nvrtcGetErrorString(nvrtcResult) { return "the stub was told so"; }
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char*, const char*, int, const char* const*,
                               const char* const*) {
  *program = reinterpret_cast<nvrtcProgram>(new char);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete reinterpret_cast<char*>(*program);
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) { return NVRTC_SUCCESS; }
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t* bytes) {
  *bytes = 0;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char*) { return NVRTC_SUCCESS; }
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t* bytes) {
  *bytes = 4;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char* code) {
  std::memcpy(code, "stub", 4);
  return NVRTC_SUCCESS;
}

// --- the library of matrix products, which has no way for any product unless `blas` is set ---------------------------

namespace {

// The library's numbers, whose header declares its functions with other types.
constexpr int kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8, kBiasDataType = 26;
constexpr int64_t kBias = 4;  // the bit of an epilogue

// A matrix and a product as they are described: attributes by their numbers.
struct StubMatrix {
  uint64_t rows, columns;
  int64_t leading;
};
struct StubProduct {
  std::map<int, int64_t> attributes;
  int64_t get(int attribute) const {
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? 0 : found->second;
  }
};
int blas_status() { return setting("blas", 0) == 0 ? 15 : 0; }
bool has_epilogue(const StubProduct& product) { return product.get(kEpilogue) != 0; }
// The element (row, column) of a matrix of f32 as the product reads it.
float element(const float* data, const StubMatrix& matrix, bool transposed, uint64_t row, uint64_t column) {
  if (transposed) std::swap(row, column);
  return data[static_cast<int64_t>(column) * matrix.leading + static_cast<int64_t>(row)];
}

}  // namespace

extern "C" {
int cublasLtCreate(void** handle) {
  *handle = new char;
  return 0;
}
int cublasLtMatmulDescCreate(StubProduct** made, int, int) {
  *made = new StubProduct;
  return 0;
}
int cublasLtMatmulDescDestroy(StubProduct* product) {
  delete product;
  return 0;
}
int cublasLtMatmulDescSetAttribute(StubProduct* product, int attribute, const void* value, size_t bytes) {
  std::memcpy(&(product->attributes[attribute] = 0), value, bytes);
  return 0;
}
int cublasLtMatrixLayoutCreate(StubMatrix** made, int, uint64_t rows, uint64_t columns, int64_t leading) {
  *made = new StubMatrix{rows, columns, leading};
  return 0;
}
int cublasLtMatrixLayoutDestroy(StubMatrix* matrix) {
  delete matrix;
  return 0;
}
int cublasLtMatrixLayoutSetAttribute() { return 0; }
int cublasLtMatmulPreferenceCreate(void** made) {
  *made = nullptr;
  return 0;
}
int cublasLtMatmulPreferenceDestroy() { return 0; }
int cublasLtMatmulPreferenceSetAttribute() { return 0; }
int cublasLtMatmulAlgoGetHeuristic(void*, StubProduct* product, void*, void*, void*, void*, void*, int, void*,
                                   int* count) {
  if (setting("blas", 0) == 2 && has_epilogue(*product)) return 15;
  const bool wants_bias = (product->get(kEpilogue) & kBias) != 0;
  if (wants_bias && product->get(kBiasPointer) == 0) return 15;
  *count = blas_status() == 0 ? 1 : 0;
  return blas_status();
}
// Of f32, without batches.
int cublasLtMatmul(void*, StubProduct* product, const float* alpha, const float* a, StubMatrix* of_a, const float* b,
                   StubMatrix* of_b, const float* beta, const float* c, StubMatrix* of_c, float* d, StubMatrix* of_d) {
  const bool a_turned = product->get(kTransA) != 0;
  const bool b_turned = product->get(kTransB) != 0;
  const auto epilogue = product->get(kEpilogue);
  const auto* bias = reinterpret_cast<const float*>(product->get(kBiasPointer));
  std::fprintf(stderr, "product: epilogue %d, beta %g, bias of type %d\n", static_cast<int>(epilogue), *beta,
               static_cast<int>(product->get(kBiasDataType)));
  const uint64_t depth = a_turned ? of_a->rows : of_a->columns;
  for (uint64_t column = 0; column < of_d->columns; ++column) {
    for (uint64_t row = 0; row < of_d->rows; ++row) {
      float sum = 0;
      for (uint64_t k = 0; k < depth; ++k) {
        sum += element(a, *of_a, a_turned, row, k) * element(b, *of_b, b_turned, k, column);
      }
      sum *= *alpha;
      if (*beta != 0) sum += *beta * element(c, *of_c, false, row, column);
      if ((epilogue & kBias) != 0) sum += bias[row];
      d[static_cast<int64_t>(column) * of_d->leading + static_cast<int64_t>(row)] = sum;
    }
  }
  return 0;
}

// --- the library of convolutions, as well ----------------------------------------------------------------------------

int cudnnCreate(void** handle) {
  *handle = new char;
  return 0;
}
int cudnnDestroy(void* handle) {
  delete static_cast<char*>(handle);
  return 0;
}
int cudnnSetStream(void*, void*) { return 0; }
const char* cudnnGetErrorString(int) { return "the stub has no convolutions"; }
void cudnnGetLastErrorString(char* words, size_t size) {
  if (size > 0) *words = 0;
}
size_t cudnnGetVersion() { return 91900; }
int cudnnBackendCreateDescriptor() { return 3000; }
int cudnnBackendDestroyDescriptor() { return 3000; }
int cudnnBackendSetAttribute() { return 3000; }
int cudnnBackendGetAttribute() { return 3000; }
int cudnnBackendFinalize() { return 3000; }
int cudnnBackendExecute() { return 3000; }
}
// NOLINTEND(readability-identifier-naming)
