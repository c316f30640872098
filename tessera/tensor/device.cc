#include "tessera/tensor/device.h"

#include <cstring>

namespace tessera {
namespace {

class HostQueue final : public Queue {
 public:
  void launch(const PreparedKernel& kernel, const KernelArgs& args, const bool* guard) override {
    if (guard == nullptr || *guard) kernel.run(args);
  }
  void copy(void* to, const void* from, int64_t bytes, CopyWay) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void fill(void* to, std::byte value, int64_t bytes) override {
    std::memset(to, std::to_integer<int>(value), static_cast<size_t>(bytes));
  }
  void record(Event&) override {}
  void wait(Event&) override {}
  void synchronize() override {}
};

}  // namespace

Queue& host_queue() {
  static HostQueue queue;
  return queue;
}

}  // namespace tessera
