#include "tessera/kernels/cuda/device/driver.h"

#include <array>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/device/shared_library.h"

namespace tessera::cuda {
namespace {

// The name under which the header calls a function: cuStreamBeginCapture is cuStreamBeginCapture_v2.
#define TESSERA_TEXT_OF(name) #name
#define TESSERA_SYMBOL(name) TESSERA_TEXT_OF(name)

// The name of an error, or its number where the driver has no name for it.
std::string name_of(const Driver& driver, CUresult result) {
  const char* name = nullptr;
  driver.error_name(result, &name);
  return name != nullptr ? name : fmt::format("error {}", static_cast<int>(result));
}

// Whether nothing that this process gives to the device will be done any more.
bool is_lost(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED: return true;
    default: return false;
  }
}

// What can be done about an error, behind its name; empty where that says enough.
std::string way_out(CUresult result) {
  if (is_lost(result)) {
    return ": the device is lost to this process, with all that lay there: start it again and go on from the newest "
           "checkpoint; the system's log has the driver's reason (Xid)";
  }
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return ": a smaller batch, recompute or more ranks that share the values take less";
    case CUDA_ERROR_NO_DEVICE:
      return ": it shows this process none; `nvidia-smi -L` lists those of the machine, and CUDA_VISIBLE_DEVICES or a "
             "container may hide them";
    case CUDA_ERROR_STUB_LIBRARY:
      return ": this libcuda.so.1 is the one for linking that comes with the toolkit; take its folder out of "
             "TESSERA_CUDA_LIBRARIES and LD_LIBRARY_PATH";
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
      return ": a process that was made by fork() cannot use what its parent has opened; start a program of its own";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return ": libcuda.so.1 and the system's kernel have drivers of different versions; restart the machine";
    case CUDA_ERROR_SYSTEM_NOT_READY: return ": the machine's fabric manager does not run yet";
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return ": another process has it for itself, or nobody may use it; `nvidia-smi` names the process and the mode "
             "(`nvidia-smi -c DEFAULT` lets several use it)";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return ": a kernel that is kept for another GPU; empty the folder of TESSERA_CUDA_CACHE";
    default: return "";
  }
}

Driver load_driver() {
  static const SharedLibrary library({"libcuda.so.1", "libcuda.so"});
  if (!library) {
    throw IoError("cuda: no driver of NVIDIA is installed here ({}): install one of CUDA 13.0 or compute on the CPU",
                  library.error());
  }
  Driver driver;
#define TESSERA_LOAD(member, function) \
  driver.member = reinterpret_cast<decltype(driver.member)>(library.find(TESSERA_SYMBOL(function)));
  // An old driver is told by its version, not by the first function that it lacks.
  TESSERA_LOAD(error_name, cuGetErrorName)
  TESSERA_LOAD(driver_version, cuDriverGetVersion)
  const auto require_loaded = [&](CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    throw IoError("cuda: {} ({}){}", what, name_of(driver, result), way_out(result));
  };
  int version = 0;
  require_loaded(driver.driver_version(&version), "the driver does not tell its version");
  if (version < 13000) {
    throw IoError("cuda: the driver is of CUDA {}.{}; 13.0 or later is needed: install driver 580 or a later one",
                  version / 1000, version % 1000 / 10);
  }
  TESSERA_CUDA_DRIVER(TESSERA_LOAD)
#undef TESSERA_LOAD
  require_loaded(driver.init(0), "the driver finds no device it can use");
  return driver;
}

KernelCompiler load_kernel_compiler() {
  static const SharedLibrary library({"libnvrtc.so.13", "libnvrtc.so"});
  if (!library) {
    throw IoError(
        "cuda: the compiler of kernels is not found ({}): install CUDA 13's NVRTC, or name its folder in "
        "TESSERA_CUDA_LIBRARIES",
        library.error());
  }
  KernelCompiler compiler;
#define TESSERA_LOAD(member, function) \
  compiler.member = reinterpret_cast<decltype(compiler.member)>(library.find(TESSERA_SYMBOL(function)));
  TESSERA_NVRTC(TESSERA_LOAD)
#undef TESSERA_LOAD
  int major = 0;
  int minor = 0;
  compiler.version(&major, &minor);
  if (major < 13) {
    throw IoError("cuda: the compiler of kernels, {}, is of CUDA {}.{}; 13.0 or later is needed", library.name(), major,
                  minor);
  }
  return compiler;
}

}  // namespace

const Driver& driver() {
  static const Driver driver = load_driver();
  return driver;
}

void require(CUresult result, std::string_view what, std::string_view device) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver().error_text(result, &text);
  throw IoError("{}: {} failed: {} ({}){}", device, what, text != nullptr ? text : "the driver does not say why",
                name_of(driver(), result), way_out(result));
}

const KernelCompiler& kernel_compiler() {
  static const KernelCompiler compiler = load_kernel_compiler();
  return compiler;
}

std::string compile_to_cubin(const std::string& text, const std::string& architecture) {
  const KernelCompiler& nvrtc = kernel_compiler();
  const auto require_nvrtc = [&](nvrtcResult result, const char* what) {
    if (result != NVRTC_SUCCESS) {
      throw InternalError(fmt::format("cuda: {} failed: {}", what, nvrtc.error_text(result)));
    }
  };
  nvrtcProgram program = nullptr;
  require_nvrtc(nvrtc.create(&program, text.c_str(), "kernel.cu", 0, nullptr, nullptr), "making a kernel");
  const std::string target = "--gpu-architecture=" + architecture;
  const std::array<const char*, 4> options{target.c_str(), "--std=c++20", "--device-as-default-execution-space",
                                           "--extra-device-vectorization"};
  const nvrtcResult result = nvrtc.compile(program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  if (result != NVRTC_SUCCESS) {
    require_nvrtc(nvrtc.log_size(program, &size), "reading what the compiler says");
    std::string log(size, '\0');
    require_nvrtc(nvrtc.log(program, log.data()), "reading what the compiler says");
    nvrtc.destroy(&program);
    throw InternalError(fmt::format("cuda: a kernel does not compile:\n{}\nof this text:\n{}", log.c_str(), text));
  }
  require_nvrtc(nvrtc.cubin_size(program, &size), "reading a kernel");
  std::string cubin(size, '\0');
  require_nvrtc(nvrtc.cubin(program, cubin.data()), "reading a kernel");
  nvrtc.destroy(&program);
  return cubin;
}

}  // namespace tessera::cuda
