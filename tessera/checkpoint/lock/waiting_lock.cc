#include "tessera/checkpoint/lock/waiting_lock.h"

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/logging.h"

namespace tessera::checkpoint {

WaitingLock::WaitingLock(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {
  constexpr int64_t kLookEveryMs = 20;
  constexpr int64_t kLongMs = 30'000;
  files_.create_directories(parent_path(path_));
  for (int64_t waited_ms = 0; (lock_ = files_.try_lock(path_)) == nullptr; waited_ms += kLookEveryMs) {
    if (waited_ms == kLongMs) {
      log_warning("{}: another thread or process has held this lock for {} s; waiting until it is done", path_,
                  kLongMs / 1000);
    }
    Clock::system().sleep_ms(kLookEveryMs);
  }
}

WaitingLock::~WaitingLock() {
  try {
    if (is_held()) files_.remove(path_);
  } catch (const Error& error) {  // it holds nobody up
    log_warning("{}", error.what());
  }
}

}  // namespace tessera::checkpoint
