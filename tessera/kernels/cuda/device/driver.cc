#include "tessera/kernels/cuda/device/driver.h"

#include <array>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/device/shared_library.h"

namespace tessera::cuda {
namespace {

// The name under which the header calls a function: cuStreamBeginCapture is cuStreamBeginCapture_v2.
#define TESSERA_TEXT_OF(name) #name
#define TESSERA_SYMBOL(name) TESSERA_TEXT_OF(name)

Driver load_driver() {
  static const SharedLibrary library({"libcuda.so.1", "libcuda.so"});
  if (!library) {
    throw IoError("cuda: no driver of NVIDIA is installed here ({}): compute on the CPU", library.error());
  }
  Driver driver;
#define TESSERA_LOAD(member, function) \
  driver.member = reinterpret_cast<decltype(driver.member)>(library.find(TESSERA_SYMBOL(function)));
  TESSERA_CUDA_DRIVER(TESSERA_LOAD)
#undef TESSERA_LOAD
  if (const CUresult result = driver.init(0); result != CUDA_SUCCESS) {
    const char* name = "?";
    driver.error_name(result, &name);
    throw IoError("cuda: the driver finds no device it can use ({})", name);
  }
  int version = 0;
  driver.driver_version(&version);
  if (version < 13000) {
    throw IoError("cuda: the driver is of CUDA {}.{}; 13.0 or later is needed", version / 1000, version % 1000 / 10);
  }
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
  return compiler;
}

}  // namespace

const Driver& driver() {
  static const Driver driver = load_driver();
  return driver;
}

void require(CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  const char* text = "?";
  driver().error_name(result, &name);
  driver().error_text(result, &text);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    throw IoError("cuda: the device has no more memory for {} ({}): a smaller batch, recompute or more ranks take less",
                  what, name);
  }
  throw IoError("cuda: {} failed: {} ({})", what, text, name);
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
