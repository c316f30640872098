#include "tessera/kernels/cuda/device/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/kernels/cuda/device/cuda_memory.h"
#include "tessera/kernels/cuda/device/cuda_queue.h"
#include "tessera/kernels/cuda/device/driver.h"
#include "tessera/kernels/cuda/device/streams.h"

namespace tessera::cuda {
namespace {

int attribute(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  require(driver().device_attribute(&value, attribute, device), "looking at a device");
  return value;
}

CudaDeviceInfo info_of(CUdevice device) {
  CudaDeviceInfo info;
  std::array<char, 256> name{};
  require(driver().device_name(name.data(), static_cast<int>(name.size()), device), "looking at a device");
  info.name = name.data();
  info.architecture = fmt::format("sm_{}{}", attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                                  attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  size_t bytes = 0;
  require(driver().device_memory(&bytes, device), "looking at a device");
  info.memory_bytes = static_cast<int64_t>(bytes);
  info.num_multiprocessors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  const int mode = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
  info.is_exclusive = mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
  if (attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 8) {
    info.unusable = fmt::format("it is {}, and devices from sm_80 on can be used", info.architecture);
  } else if (mode == CU_COMPUTEMODE_PROHIBITED) {
    info.unusable = "its compute mode lets no process use it; `nvidia-smi -c DEFAULT` lets all";
  }
  return info;
}

int num_devices() {
  int count = 0;
  require(driver().device_count(&count), "counting devices");
  return count;
}

}  // namespace

// A text's machine code, loaded when one of its kernels is launched first.
class CudaDevice::Module {
 public:
  Module(const CudaDevice& device, std::shared_future<std::string> code) : device_(device), code_(std::move(code)) {}
  ~Module() {
    if (module_ != nullptr) driver().unload_module(module_);
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  CUfunction find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (module_ == nullptr) device_.require(driver().load_module(&module_, code_.get().data()), "loading a kernel");
    CUfunction function = nullptr;
    device_.require(driver().find_function(&function, module_, name.c_str()), "finding a kernel");
    return function;
  }

 private:
  const CudaDevice& device_;
  std::shared_future<std::string> code_;
  std::mutex mutex_;
  CUmodule module_ = nullptr;
};

std::vector<CudaDeviceInfo> cuda_devices() {
  std::vector<CudaDeviceInfo> devices;
  const int count = num_devices();
  if (count == 0) throw IoError("cuda: the driver shows this process no device; CUDA_VISIBLE_DEVICES may hide them");
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    require(driver().device_get(&device, i), "looking at a device");
    devices.push_back(info_of(device));
  }
  return devices;
}

CudaDevice::CudaDevice(int index, std::string kernel_cache)
    : index_(index), compilers_(KernelCache(std::move(kernel_cache))) {
  const int count = num_devices();
  if (index < 0 || index >= count) {
    throw IoError(
        "cuda: there is no device cuda:{}; the driver shows this process {}, which are numbered from 0, and "
        "CUDA_VISIBLE_DEVICES may hide others",
        index, count);
  }
  require(driver().device_get(&device_, index), "looking at it");
  info_ = info_of(device_);
  if (!info_.unusable.empty()) throw IoError("{}: {} cannot be used: {}", name(), info_.name, info_.unusable);
  const CUresult result = driver().retain_context(&context_, device_);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY && info_.is_exclusive) {
    throw IoError(
        "{}: {} is taken: one process at a time may have it (compute mode EXCLUSIVE_PROCESS), and another one does; "
        "`nvidia-smi` names it: end it, name another device, or let several use it (`nvidia-smi -c DEFAULT`)",
        name(), info_.name);
  }
  require(result, fmt::format("opening {}", info_.name));
}

CudaDevice::~CudaDevice() {
  driver().set_context(context_);
  modules_.clear();
  driver().release_context(device_);
}

std::string CudaDevice::name() const { return fmt::format("cuda:{}", index_); }

std::string CudaDevice::unique_name() const {
  CUuuid uuid{};
  require(driver().device_uuid(&uuid, device_), "asking for its number");
  std::string name = "GPU-";
  for (const char byte : uuid.bytes) name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return name;
}

void CudaDevice::require(CUresult result, std::string_view what) const { cuda::require(result, what, name()); }

void CudaDevice::use() const { require(try_use(), "working on it"); }

CUresult CudaDevice::try_use() const {
  static thread_local CUcontext current = nullptr;
  if (current == context_) return CUDA_SUCCESS;
  const CUresult result = driver().set_context(context_);
  if (result == CUDA_SUCCESS) current = context_;
  return result;
}

std::optional<int64_t> CudaDevice::free_bytes() const {
  use();
  size_t free = 0;
  size_t total = 0;
  require(driver().memory_info(&free, &total), "looking at its memory");
  return static_cast<int64_t>(free);
}

std::unique_ptr<Memory> CudaDevice::reserve(int64_t capacity_bytes) {
  use();
  return std::make_unique<CudaMemory>(*this, index_, capacity_bytes);
}

std::shared_ptr<std::byte> CudaDevice::allocate_on_host(int64_t bytes) {
  use();
  void* memory = nullptr;
  require(driver().allocate_host(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 64)), CU_MEMHOSTALLOC_PORTABLE),
          fmt::format("taking {} of the host's memory for copies", format_bytes(bytes)));
  std::memset(memory, 0, static_cast<size_t>(std::max<int64_t>(bytes, 64)));
  return {static_cast<std::byte*>(memory), [this](std::byte* address) {
            try_use();
            driver().free_host(address);
          }};
}

std::unique_ptr<Queue> CudaDevice::make_queue() {
  use();
  return std::make_unique<CudaQueue>(*this);
}

std::unique_ptr<Event> CudaDevice::make_event() {
  use();
  return std::make_unique<CudaEvent>(*this, /*is_timed=*/false);
}

std::unique_ptr<Event> CudaDevice::make_timed_event() {
  use();
  return std::make_unique<CudaEvent>(*this, /*is_timed=*/true);
}

// A kernel of a module, found when it is launched first.
class CudaDevice::LoadedFunction final : public Gpu::Function {
 public:
  LoadedFunction(std::shared_ptr<Module> module, std::string name)
      : module_(std::move(module)), name_(std::move(name)) {}
  CUfunction get() const {
    std::call_once(is_found_, [this] { function_ = module_->find(name_); });
    return function_;
  }

 private:
  std::shared_ptr<Module> module_;
  std::string name_;
  mutable std::once_flag is_found_;
  mutable CUfunction function_ = nullptr;
};

std::vector<std::shared_ptr<const Gpu::Function>> CudaDevice::compile(const std::string& text,
                                                                      std::span<const std::string> names) {
  const std::lock_guard lock(mutex_);
  auto& module = modules_[text];
  if (module == nullptr) module = std::make_shared<Module>(*this, compilers_.compile(text, info_.architecture));
  std::vector<std::shared_ptr<const Function>> functions;
  for (const auto& name : names) functions.push_back(std::make_shared<LoadedFunction>(module, name));
  return functions;
}

void CudaDevice::launch(Queue& queue, const Function& function, int64_t blocks, int threads,
                        std::span<const void* const> arguments) {
  auto& cuda = dynamic_cast<CudaQueue&>(queue);
  std::array<const void*, 1024> values;
  std::array<void*, 1024> addresses;
  check(arguments.size() < values.size(), "a kernel has at most 1023 operands");
  size_t n = 0;
  for (const void* argument : arguments) values[n++] = argument;
  values[n++] = cuda.guard();
  for (size_t i = 0; i < n; ++i) addresses[i] = &values[i];
  require(driver().launch(dynamic_cast<const LoadedFunction&>(function).get(), static_cast<unsigned>(blocks), 1, 1,
                          static_cast<unsigned>(threads), 1, 1, 0, cuda.stream(), addresses.data(), nullptr),
          "launching a kernel");
}

CUstream stream_of(Queue& queue) { return dynamic_cast<CudaQueue&>(queue).stream(); }

}  // namespace tessera::cuda
