// KernelCompilers: threads that compile kernels beside whoever writes them, as many at a time as there are cores. A
// step has hundreds of kernels, and each takes a good part of a tenth of a second.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tessera/kernels/cuda/device/kernel_cache.h"

namespace tessera::cuda {

class KernelCompilers {
 public:
  // Threads begin with the first kernel; at most 32.
  explicit KernelCompilers(KernelCache cache);
  // What has not begun is given up.
  ~KernelCompilers();
  KernelCompilers(const KernelCompilers&) = delete;
  KernelCompilers& operator=(const KernelCompilers&) = delete;

  // The machine code of a text, which is compiled once; it throws what KernelCache::get does. Any thread.
  std::shared_future<std::string> compile(const std::string& text, const std::string& architecture);

 private:
  void work();

  KernelCache cache_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::map<std::string, std::shared_future<std::string>> known_;  // by architecture and text
  std::deque<std::packaged_task<std::string()>> waiting_;
  std::vector<std::thread> threads_;
  bool ends_ = false;
};

}  // namespace tessera::cuda
