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
  explicit Module(std::shared_future<std::string> code) : code_(std::move(code)) {}
  ~Module() {
    if (module_ != nullptr) driver().unload_module(module_);
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  CUfunction find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (module_ == nullptr) require(driver().load_module(&module_, code_.get().data()), "loading a kernel");
    CUfunction function = nullptr;
    require(driver().find_function(&function, module_, name.c_str()), "finding a kernel");
    return function;
  }

 private:
  std::shared_future<std::string> code_;
  std::mutex mutex_;
  CUmodule module_ = nullptr;
};

std::vector<CudaDeviceInfo> cuda_devices() {
  std::vector<CudaDeviceInfo> devices;
  for (int i = 0; i < num_devices(); ++i) {
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
    throw IoError("cuda: there is no device cuda:{}; {} devices are here", index, count);
  }
  require(driver().device_get(&device_, index), "looking at a device");
  info_ = info_of(device_);
  if (attribute(device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 8) {
    throw IoError("cuda: {} is {}; devices from sm_80 on can be used", info_.name, info_.architecture);
  }
  require(driver().retain_context(&context_, device_), "opening a device");
}

CudaDevice::~CudaDevice() {
  driver().set_context(context_);
  modules_.clear();
  driver().release_context(device_);
}

std::string CudaDevice::name() const { return fmt::format("cuda:{}", index_); }

std::string CudaDevice::unique_name() const {
  CUuuid uuid{};
  require(driver().device_uuid(&uuid, device_), "looking at a device");
  std::string name = "GPU-";
  for (const char byte : uuid.bytes) name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return name;
}

void CudaDevice::use() const {
  static thread_local CUcontext current = nullptr;
  if (current == context_) return;
  require(driver().set_context(context_), "using a device");
  current = context_;
}

int64_t CudaDevice::free_bytes() const {
  use();
  size_t free = 0;
  size_t total = 0;
  require(driver().memory_info(&free, &total), "looking at a device's memory");
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
          fmt::format("{} of the host for copies", format_bytes(bytes)));
  std::memset(memory, 0, static_cast<size_t>(std::max<int64_t>(bytes, 64)));
  return {static_cast<std::byte*>(memory), [this](std::byte* address) {
            use();
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
  if (module == nullptr) module = std::make_shared<Module>(compilers_.compile(text, info_.architecture));
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
