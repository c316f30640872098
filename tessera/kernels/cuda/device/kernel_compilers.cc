#include "tessera/kernels/cuda/device/kernel_compilers.h"

#include <algorithm>

namespace tessera::cuda {

KernelCompilers::KernelCompilers(KernelCache cache) : cache_(std::move(cache)) {}

KernelCompilers::~KernelCompilers() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    waiting_.clear();
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_future<std::string> KernelCompilers::compile(const std::string& text, const std::string& architecture) {
  const std::lock_guard lock(mutex_);
  auto& known = known_[architecture + "\n" + text];
  if (known.valid()) return known;
  std::packaged_task<std::string()> task([this, text, architecture] { return cache_.get(text, architecture); });
  known = task.get_future().share();
  waiting_.push_back(std::move(task));
  const size_t most = std::clamp(std::thread::hardware_concurrency(), 1U, 32U);
  if (threads_.size() < most) threads_.emplace_back([this] { work(); });
  has_work_.notify_one();
  return known;
}

void KernelCompilers::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
    if (ends_) return;
    auto task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace tessera::cuda
