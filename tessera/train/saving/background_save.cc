#include "tessera/train/saving/background_save.h"

#include <unistd.h>

#include <utility>

#include "tessera/base/logging.h"
#include "tessera/base/thread.h"

namespace tessera::train {
BackgroundSave::~BackgroundSave() {
  try {
    finish();
  } catch (const std::exception& error) {
    log_error("a checkpoint was not saved: {}", error.what());
  }
}

void BackgroundSave::start(std::function<void()> save) {
  finish();
  process_ = getpid();
  thread_ = start_thread("saving in the background", [this, save = std::move(save)] {
    run_when_cores_are_idle();  // training goes first
    try {
      save();
    } catch (...) {
      error_ = std::current_exception();
    }
  });
}

bool BackgroundSave::leave_to_parent() {
  if (!thread_.joinable() || process_ == getpid()) return false;
  thread_.detach();
  return true;
}

void BackgroundSave::finish() {
  leave_to_parent();
  if (thread_.joinable()) {
    stop_waiting_for_idle_cores();
    thread_.join();
  }
  if (const auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

}  // namespace tessera::train
