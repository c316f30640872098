#include "tessera/train/background_save.h"

#include <sys/resource.h>

#include <utility>

#include "tessera/base/logging.h"
#include "tessera/base/thread.h"

namespace tessera::train {
namespace {

// Training goes first. A thread of Linux has a nice value of its own, which the threads that it starts inherit.
void give_way() {
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace

BackgroundSave::~BackgroundSave() {
  try {
    finish();
  } catch (const std::exception& error) {
    log_error("a checkpoint was not saved: {}", error.what());
  }
}

void BackgroundSave::start(std::function<void()> save) {
  finish();
  thread_ = start_thread("saving in the background", [this, save = std::move(save)] {
    give_way();
    try {
      save();
    } catch (...) {
      error_ = std::current_exception();
    }
  });
}

void BackgroundSave::finish() {
  if (thread_.joinable()) thread_.join();
  if (const auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

}  // namespace tessera::train
