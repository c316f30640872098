#include "tessera/cluster/report/bounded_question.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tessera::cluster {

struct BoundedQuestion::Asked {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_answered = false;
  std::string text;
};

std::string BoundedQuestion::answer(int64_t limit_ms) {
  if (!ask_) return "";
  if (asked_ == nullptr) {
    asked_ = std::make_shared<Asked>();
    try {
      std::thread([asked = asked_, ask = ask_] {
        std::string text;
        try {
          text = ask();
        } catch (const std::exception&) {  // then nobody knows
        }
        const std::lock_guard lock(asked->mutex);
        asked->text = std::move(text);
        asked->is_answered = true;
        asked->changed.notify_all();
      }).detach();
    } catch (const std::system_error&) {  // no room for a thread
      asked_ = nullptr;
      return "";
    }
  }
  std::unique_lock lock(asked_->mutex);
  if (!asked_->changed.wait_for(lock, std::chrono::milliseconds(limit_ms), [&] { return asked_->is_answered; }))
    return "";
  std::string text = asked_->text;
  lock.unlock();
  asked_ = nullptr;
  return text;
}

}  // namespace tessera::cluster
