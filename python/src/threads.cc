#include "python/src/threads.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

namespace tessera::python {
namespace {

// How often a waiting thread asks whether the script is interrupted.
constexpr auto kPatience = std::chrono::milliseconds(100);

struct Shared {
  std::mutex mutex;  // taken by those who have the GIL, too: who holds it never asks for the GIL
  std::condition_variable changed;
  std::map<std::thread::id, const Turns*> awaited;
  int num_within = 0;
  std::optional<std::thread::id> ending;  // the thread that ends the process
};

thread_local int visits_of_thread = 0;

Shared& shared();

// In a child that fork() has just made none of the parent's other threads is here, and one of them may have the mutex.
void begin_anew_in_child() {
  auto* state = new (&shared()) Shared();
  state->num_within = visits_of_thread > 0 ? 1 : 0;
}

// Never destroyed: threads may outlive what is static.
Shared& shared() {
  static auto& state = *new Shared();
  static const int registered = pthread_atfork(nullptr, nullptr, begin_anew_in_child);
  static_cast<void>(registered);
  return state;
}

// With the GIL, without the mutex.
[[noreturn]] void end_this_thread() {
  PyErr_SetNone(PyExc_SystemExit);
  throw nb::python_error();
}

bool must_end(const Shared& state) { return state.ending && *state.ending != std::this_thread::get_id(); }

bool must_end() {
  const std::lock_guard lock(shared().mutex);
  return must_end(shared());
}

template <typename T>
void delete_with_gil(T* object) noexcept {
  const Visit visit;
  if (!visit.is_welcome() || Py_IsInitialized() == 0) return;
  const nb::gil_scoped_acquire gil;
  delete object;
}

}  // namespace

Visit::Visit() : is_welcome_(true) {
  if (visits_of_thread == 0) {
    const std::lock_guard lock(shared().mutex);
    is_welcome_ = !must_end(shared());
    if (is_welcome_) ++shared().num_within;
  }
  if (is_welcome_) ++visits_of_thread;
}

Visit::~Visit() {
  if (!is_welcome_ || --visits_of_thread > 0) return;
  const std::lock_guard lock(shared().mutex);
  --shared().num_within;
  if (shared().ending) shared().changed.notify_all();
}

WithGil::WithGil() {
  if (!visit_.is_welcome()) throw ProcessEnds();
  acquire_.emplace();
}

void let_go(nb::object* object) noexcept { delete_with_gil(object); }
void let_go(Tensor* tensor) noexcept { delete_with_gil(tensor); }

WithoutGil::WithoutGil() {
  if (must_end()) end_this_thread();
  release_.emplace();
}

WithoutGilBeforeTheEnd::WithoutGilBeforeTheEnd() {
  if (visit_.is_welcome() && !must_end()) release_.emplace();
}

void raise_signals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  if (must_end()) end_this_thread();
}

bool end_threads(int64_t timeout_ms) {
  const nb::gil_scoped_release release;
  std::unique_lock lock(shared().mutex);
  shared().ending = std::this_thread::get_id();
  const int own = visits_of_thread > 0 ? 1 : 0;
  return shared().changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                   [&] { return shared().num_within == own; });
}

bool Turns::try_take(std::thread::id me) {
  if (owner_ == me) {
    ++depth_;
    return true;
  }
  if (owner_ != std::thread::id() || !queue_.empty()) return false;
  owner_ = me;
  depth_ = 1;
  return true;
}

// Whether whoever is in waits, through however many others, for a model that this thread is in.
bool Turns::leads_to(std::thread::id me) const {
  const Turns* turns = this;
  while (turns->owner_ != std::thread::id()) {
    if (turns->owner_ == me) return true;
    const auto next = shared().awaited.find(turns->owner_);
    if (next == shared().awaited.end()) return false;
    turns = next->second;
  }
  return false;
}

// Without the GIL, with the lock, which is held again at the end. Where it throws, this thread is neither in nor waits.
void Turns::wait(std::unique_lock<std::mutex>& lock, std::thread::id me, int depth, bool hears_signals) {
  Shared& state = shared();
  queue_.push_back(me);
  state.awaited[me] = this;
  const auto stop_waiting = [&] {
    std::erase(queue_, me);
    state.awaited.erase(me);
    state.changed.notify_all();
  };
  const auto is_free = [&] { return owner_ == std::thread::id() && queue_.front() == me; };
  while (!state.changed.wait_for(lock, kPatience, is_free)) {
    if (!hears_signals) continue;
    lock.unlock();
    try {
      raise_signals();
    } catch (...) {
      lock.lock();
      stop_waiting();
      throw;
    }
    lock.lock();
  }
  stop_waiting();
  owner_ = me;
  depth_ = depth;
}

void Turns::enter() {
  const auto me = std::this_thread::get_id();
  {
    const std::lock_guard lock(shared().mutex);
    if (try_take(me)) return;
    if (!home_.is_here() && owner_ != std::thread::id()) {
      throw Error(
          "this process was made by fork() while another thread of its parent was in the model: make a model of its "
          "own "
          "here, or start processes before the training begins");
    }
  }
  const WithoutGil computing;
  std::unique_lock lock(shared().mutex);
  // Under the lock under which others learn what this thread waits for: two may come here at once.
  if (leads_to(me)) {
    throw Error(
        "a thread waits for a model that another thread is in, which waits for a model that this one is in: use both "
        "models in one thread");
  }
  wait(lock, me, 1, /*hears_signals=*/true);
}

void Turns::leave() {
  const std::lock_guard lock(shared().mutex);
  if (--depth_ > 0) return;
  owner_ = {};
  shared().changed.notify_all();
}

bool Turns::is_awaited() const {
  const std::lock_guard lock(shared().mutex);
  return !queue_.empty();
}

void Turns::give() {
  const auto me = std::this_thread::get_id();
  std::unique_lock lock(shared().mutex);
  if (queue_.empty()) return;
  owner_ = {};
  const int depth = std::exchange(depth_, 0);
  shared().changed.notify_all();
  try {
    wait(lock, me, depth, /*hears_signals=*/true);
  } catch (...) {
    wait(lock, me, depth, /*hears_signals=*/false);
    throw;
  }
}

}  // namespace tessera::python
