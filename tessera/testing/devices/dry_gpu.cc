#include "tessera/testing/devices/dry_gpu.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/compiled_kernel.h"
#include "tessera/kernels/cuda/core/gpu.h"
#include "tessera/kernels/cuda/cuda_kernels.h"

namespace tessera {
namespace {

class DryMemory final : public Memory {
 public:
  explicit DryMemory(int64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {
    void* reserved = ::mmap(nullptr, static_cast<size_t>(capacity_bytes), PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) throw IoError(std::string("dry device: no addresses"));
    data_ = static_cast<std::byte*>(reserved);
  }
  ~DryMemory() override { ::munmap(data_, static_cast<size_t>(capacity_bytes_)); }
  DryMemory(const DryMemory&) = delete;
  DryMemory& operator=(const DryMemory&) = delete;
  std::byte* data() const override { return data_; }
  int64_t capacity_bytes() const override { return capacity_bytes_; }
  void resize(int64_t) override {}

 private:
  std::byte* data_ = nullptr;
  int64_t capacity_bytes_;
};

class DryEvent final : public Event {
 public:
  void synchronize() override {}
};

class DryQueue final : public Queue {
 public:
  void launch(const PreparedKernel& kernel, const KernelArgs& args, const bool*) override { kernel.run(args); }
  void copy(void* to, const void*, int64_t bytes, CopyWay way) override {
    if (way == CopyWay::kToHost) std::memset(to, 0, static_cast<size_t>(bytes));
  }
  void fill(void*, std::byte, int64_t) override {}
  void record(Event&) override {}
  void wait(Event&) override {}
  void synchronize() override {}
};

struct DryFunction final : cuda::Gpu::Function {
  explicit DryFunction(std::shared_future<std::string> compiled) : code(std::move(compiled)) {}
  std::shared_future<std::string> code;
};

class DryGpu final : public Device, public cuda::Gpu {
 public:
  std::string name() const override { return "dry"; }
  std::unique_ptr<Memory> reserve(int64_t capacity_bytes) override {
    return std::make_unique<DryMemory>(capacity_bytes);
  }
  std::shared_ptr<std::byte> allocate_on_host(int64_t bytes) override {
    return {static_cast<std::byte*>(std::calloc(static_cast<size_t>(bytes) + 64, 1)), std::free};
  }
  std::unique_ptr<Queue> make_queue() override { return std::make_unique<DryQueue>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<DryEvent>(); }

  std::vector<std::shared_ptr<const Function>> compile(const std::string& text,
                                                       std::span<const std::string> names) override {
    const auto function = std::make_shared<DryFunction>(cuda::compile_beside(text, "sm_90"));
    return std::vector<std::shared_ptr<const Function>>(names.size(), function);
  }
  void launch(Queue&, const Function& function, int64_t, int, std::span<const void* const>) override {
    dynamic_cast<const DryFunction&>(function).code.get();
  }
  int num_multiprocessors() const override { return 132; }
};

}  // namespace

const kernels::Backend& dry_backend() {
  static DryGpu gpu;
  static const KernelRegistry registry = cuda::generated_kernels(gpu);
  static const kernels::Backend backend{
      .name = "dry", .registries = {&registry}, .device = &gpu, .fusions = cuda::kFusions};
  return backend;
}

}  // namespace tessera
