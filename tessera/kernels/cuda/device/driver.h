// The driver of NVIDIA's GPUs and the compiler of kernels, opened when they are first asked for: a program that Tessera
// is linked into needs neither.
#pragma once

#include <cuda.h>
#include <nvrtc.h>

#include <string>
#include <string_view>

namespace tessera::cuda {

// X(member, function of libcuda.so.1)
#define TESSERA_CUDA_DRIVER(X)                             \
  X(init, cuInit)                                          \
  X(driver_version, cuDriverGetVersion)                    \
  X(error_name, cuGetErrorName)                            \
  X(error_text, cuGetErrorString)                          \
  X(device_count, cuDeviceGetCount)                        \
  X(device_get, cuDeviceGet)                               \
  X(device_name, cuDeviceGetName)                          \
  X(device_uuid, cuDeviceGetUuid)                          \
  X(device_attribute, cuDeviceGetAttribute)                \
  X(device_memory, cuDeviceTotalMem)                       \
  X(retain_context, cuDevicePrimaryCtxRetain)              \
  X(release_context, cuDevicePrimaryCtxRelease)            \
  X(set_context, cuCtxSetCurrent)                          \
  X(allocate, cuMemAlloc)                                  \
  X(free, cuMemFree)                                       \
  X(fill_now, cuMemsetD8)                                  \
  X(memory_info, cuMemGetInfo)                             \
  X(memory_handle, cuIpcGetMemHandle)                      \
  X(open_memory, cuIpcOpenMemHandle)                       \
  X(close_memory, cuIpcCloseMemHandle)                     \
  X(reserve_address, cuMemAddressReserve)                  \
  X(free_address, cuMemAddressFree)                        \
  X(allocation_granularity, cuMemGetAllocationGranularity) \
  X(create_memory, cuMemCreate)                            \
  X(release_memory, cuMemRelease)                          \
  X(map_memory, cuMemMap)                                  \
  X(unmap_memory, cuMemUnmap)                              \
  X(set_access, cuMemSetAccess)                            \
  X(allocate_host, cuMemHostAlloc)                         \
  X(free_host, cuMemFreeHost)                              \
  X(copy_to_device, cuMemcpyHtoDAsync)                     \
  X(copy_to_host, cuMemcpyDtoHAsync)                       \
  X(copy_within, cuMemcpyDtoDAsync)                        \
  X(fill, cuMemsetD8Async)                                 \
  X(create_stream, cuStreamCreate)                         \
  X(destroy_stream, cuStreamDestroy)                       \
  X(synchronize_stream, cuStreamSynchronize)               \
  X(wait_event, cuStreamWaitEvent)                         \
  X(begin_capture, cuStreamBeginCapture)                   \
  X(end_capture, cuStreamEndCapture)                       \
  X(create_event, cuEventCreate)                           \
  X(destroy_event, cuEventDestroy)                         \
  X(record_event, cuEventRecord)                           \
  X(record_event_as, cuEventRecordWithFlags)               \
  X(synchronize_event, cuEventSynchronize)                 \
  X(query_event, cuEventQuery)                             \
  X(event_time, cuEventElapsedTime)                        \
  X(load_module, cuModuleLoadData)                         \
  X(unload_module, cuModuleUnload)                         \
  X(find_function, cuModuleGetFunction)                    \
  X(launch, cuLaunchKernel)                                \
  X(instantiate_graph, cuGraphInstantiate)                 \
  X(upload_graph, cuGraphUpload)                           \
  X(launch_graph, cuGraphLaunch)                           \
  X(destroy_graph, cuGraphDestroy)                         \
  X(destroy_graph_exec, cuGraphExecDestroy)                \
  X(graph_nodes, cuGraphGetNodes)

struct Driver {
#define TESSERA_MEMBER(member, function) decltype(&::function) member = nullptr;
  TESSERA_CUDA_DRIVER(TESSERA_MEMBER)
#undef TESSERA_MEMBER
};

// Throws IoError, which says what is wrong, where there is no driver, one older than CUDA 13.0, one that lacks a
// function, or one that shows this process no device.
const Driver& driver();

// Throws IoError with the device, what was done, the driver's words for the error and what can be done about it, unless
// the result is a success.
void require(CUresult result, std::string_view what, std::string_view device = "cuda");

// X(member, function of libnvrtc.so.13)
#define TESSERA_NVRTC(X)              \
  X(version, nvrtcVersion)            \
  X(error_text, nvrtcGetErrorString)  \
  X(create, nvrtcCreateProgram)       \
  X(destroy, nvrtcDestroyProgram)     \
  X(compile, nvrtcCompileProgram)     \
  X(log_size, nvrtcGetProgramLogSize) \
  X(log, nvrtcGetProgramLog)          \
  X(cubin_size, nvrtcGetCUBINSize)    \
  X(cubin, nvrtcGetCUBIN)

struct KernelCompiler {
#define TESSERA_MEMBER(member, function) decltype(&::function) member = nullptr;
  TESSERA_NVRTC(TESSERA_MEMBER)
#undef TESSERA_MEMBER
};

// Throws IoError where libnvrtc.so.13 is not found.
const KernelCompiler& kernel_compiler();

// The machine code of a text for "sm_90" and the like. Throws InternalError with what the compiler says.
std::string compile_to_cubin(const std::string& text, const std::string& architecture);

}  // namespace tessera::cuda
