// Python's threads in C++. A call gives up the GIL while it computes, so that several may be here at a time; one model
// has one of them in it at a time.
//
// When the process ends, Python ends each thread that asks for the GIL, wherever it is, by unwinding its stack without
// the GIL, and C++ that holds Python's objects does not survive that. So there is a door: every thread is counted from
// its first call of C++ on until that call returns, and every thread of C++'s while it has the GIL. end_threads()
// closes the door and waits for those within.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "python/src/numbers.h"
#include "tessera/tessera.h"

namespace tessera::python {

namespace nb = nanobind;

// This thread, counted within the door. A visit within another one of the thread's is always welcome.
class Visit {
 public:
  Visit();
  ~Visit();
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  // False where another thread ends the process and has closed the door; then this thread is not counted.
  bool is_welcome() const { return is_welcome_; }

 private:
  bool is_welcome_;
};

// What a thread of C++'s throws where it wants the GIL and the door is closed; in a thread of Python's it becomes
// SystemExit, which ends a thread without a word.
class ProcessEnds : public Error {
 public:
  ProcessEnds() : Error("the process ends, so a thread of C++'s cannot call Python any more") {}
};

// With the GIL in its scope, for threads of C++'s, too. Throws ProcessEnds in such a thread when the door is closed.
class WithGil {
 public:
  WithGil();
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  Visit visit_;  // until the GIL is given back
  std::optional<nb::gil_scoped_acquire> acquire_;
};

// Lets go of a Python object, or of a tensor whose memory may be Python's, from any thread; when the door is closed it
// stays.
void let_go(nb::object* object) noexcept;
void let_go(Tensor* tensor) noexcept;

// Without the GIL in its scope. Throws SystemExit where the process ends and another thread ends it.
class WithoutGil {
 public:
  WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  std::optional<nb::gil_scoped_release> release_;
};

// The same for what a destructor may need: it keeps the GIL where WithoutGil throws.
class WithoutGilBeforeTheEnd {
 public:
  WithoutGilBeforeTheEnd();
  WithoutGilBeforeTheEnd(const WithoutGilBeforeTheEnd&) = delete;
  WithoutGilBeforeTheEnd& operator=(const WithoutGilBeforeTheEnd&) = delete;

 private:
  Visit visit_;  // Python's own code destroys objects, too; until the GIL is back
  std::optional<nb::gil_scoped_release> release_;
};

// Between two batches: Ctrl-C is heard by Python's own code only; here it is asked for. Throws KeyboardInterrupt, or
// what the script's handler of a signal raises; SystemExit where the process ends and another thread ends it. Takes the
// GIL.
void raise_signals();

// Of the thread that ends the process, before Python's objects go: closes the door. From now on no other thread comes
// in, and those that are here are waited for, a training until its next batch. Returns false where one is still here
// after the timeout.
bool end_threads(int64_t timeout_ms);

// Says in which process an object was made. In a child of fork() an object of its parent's is let be, not destroyed:
// its threads are the parent's, they may hold its locks, and what it is connected to is not the child's.
class Home {
 public:
  bool is_here() const { return process_ == getpid(); }

 private:
  pid_t process_ = getpid();
};

// Whose turn it is in one model. A thread that is in it may come in again: callbacks do.
class Turns {
 public:
  Turns() = default;
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Waits until no other thread is in. Needs the GIL, which it gives up while it waits; throws what raise_signals()
  // throws, and Error where the other thread waits for a model that this one is in, or is one of the process that this
  // one was made of by fork().
  void enter();
  void leave();
  // Without the GIL: lets those in that wait. Throws what raise_signals() throws; also then this thread is in.
  void give();
  bool is_awaited() const;

 private:
  bool try_take(std::thread::id me);
  bool leads_to(std::thread::id me) const;
  void wait(std::unique_lock<std::mutex>& lock, std::thread::id me, int depth, bool hears_signals);

  Home home_;
  // Guarded by one mutex of all models.
  std::thread::id owner_;
  int depth_ = 0;
  std::deque<std::thread::id> queue_;
};

class Turn {
 public:
  explicit Turn(Turns& turns) : turns_(turns) { turns_.enter(); }
  ~Turn() { turns_.leave(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Turns& turns_;
};

}  // namespace tessera::python
