#include "tessera/kernels/cuda/libraries/nccl_communicators.h"

#include <utility>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/device/cuda_queue.h"
#include "tessera/kernels/cuda/libraries/nccl.h"

namespace tessera::cuda {
namespace {

// A group of NCCL in the streams of queues.
class NcclCommunicator final : public DeviceCommunicator {
 public:
  NcclCommunicator(const CudaDevice& device, const std::string& id, int rank, int size, std::function<void()> waiting)
      : device_(device), group_(nccl(), id, rank, size, std::move(waiting)) {}

  void all_reduce(Queue& queue, void* data, int64_t count, DType dtype, ReduceOp op) override {
    group_.all_reduce(stream_in(queue), data, count, dtype, op);
  }
  void all_gather(Queue& queue, const void* in, void* out, std::span<const int64_t> counts, DType dtype) override {
    group_.all_gather(stream_in(queue), in, out, counts, dtype);
  }
  void reduce_scatter(Queue& queue, const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                      ReduceOp op) override {
    group_.reduce_scatter(stream_in(queue), in, out, counts, dtype, op);
  }
  void broadcast(Queue& queue, void* data, int64_t count, DType dtype, int root) override {
    group_.broadcast(stream_in(queue), data, count, dtype, root);
  }
  void all_to_all(Queue& queue, const void* in, std::span<const int64_t> in_counts, void* out,
                  std::span<const int64_t> out_counts, DType dtype) override {
    group_.all_to_all(stream_in(queue), in, in_counts, out, out_counts, dtype);
  }
  void send(Queue& queue, const void* data, int64_t count, DType dtype, int to) override {
    group_.send(stream_in(queue), data, count, dtype, to);
  }
  void receive(Queue& queue, void* data, int64_t count, DType dtype, int from) override {
    group_.receive(stream_in(queue), data, count, dtype, from);
  }
  void check() override { group_.check(); }
  void abort() override { group_.abort(); }

 private:
  // Also of a branch of what is being recorded.
  NcclStream* stream_in(Queue& queue) const {
    device_.use();
    return reinterpret_cast<NcclStream*>(stream_of(queue));
  }

  const CudaDevice& device_;
  NcclGroup group_;
};

}  // namespace

std::string NcclCommunicators::name() { return "nccl " + nccl().version_text; }

std::string NcclCommunicators::make_id() {
  device_.use();
  return new_nccl_id(nccl());
}

std::unique_ptr<DeviceCommunicator> NcclCommunicators::join(const std::string& id, int rank, int size,
                                                            std::function<void()> waiting) {
  device_.use();
  return std::make_unique<NcclCommunicator>(device_, id, rank, size, std::move(waiting));
}

}  // namespace tessera::cuda
