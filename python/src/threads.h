// Python's threads in C++. A call gives up the GIL while it computes, so that several may be here at a time; one model
// has one of them in it at a time. When the process ends, threads of Python's that still compute (daemon threads) are
// stopped: Python ends a thread that asks for the GIL then, which C++ does not survive.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

namespace tessera::python {

namespace nb = nanobind;

// Without the GIL in its scope, and counted as one that end_threads() waits for. Throws SystemExit, which ends a thread
// without a word, where the process ends and another thread ends it.
class WithoutGil {
 public:
  WithoutGil() = default;
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  struct Counted {
    Counted();
    ~Counted();
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
  };
  Counted counted_;  // until the GIL is back
  nb::gil_scoped_release release_;
};

// The same for what a destructor may need: it keeps the GIL where WithoutGil throws.
class WithoutGilBeforeTheEnd {
 public:
  WithoutGilBeforeTheEnd();
  ~WithoutGilBeforeTheEnd();
  WithoutGilBeforeTheEnd(const WithoutGilBeforeTheEnd&) = delete;
  WithoutGilBeforeTheEnd& operator=(const WithoutGilBeforeTheEnd&) = delete;

 private:
  std::optional<nb::gil_scoped_release> release_;
};

// Between two batches: Ctrl-C is heard by Python's own code only; here it is asked for. Throws KeyboardInterrupt, or
// what the script's handler of a signal raises; SystemExit where the process ends and another thread ends it. Takes the
// GIL.
void raise_signals();

// Of the thread that ends the process, before Python's objects go: from now on no other thread comes in, and those that
// are here are waited for, a training until its next batch. Returns false where one is still here after the timeout.
bool end_threads(int64_t timeout_ms);

// Whose turn it is in one model. A thread that is in it may come in again: callbacks do.
class Turns {
 public:
  Turns() = default;
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Waits until no other thread is in. Needs the GIL, which it gives up while it waits; throws what raise_signals()
  // throws, and Error where the other thread waits for a model that this one is in.
  void enter();
  void leave();
  // Without the GIL: lets those in that wait. Throws what raise_signals() throws; also then this thread is in.
  void give();
  bool is_awaited() const;

 private:
  bool try_take(std::thread::id me);
  bool leads_to(std::thread::id me) const;
  void wait(std::unique_lock<std::mutex>& lock, std::thread::id me, int depth, bool hears_signals);

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
