// Barrier: how the ranks that write checkpoints together agree, without this folder knowing how they talk. train/
// implements it on a communicator, tests on threads.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/function_ref.h"

namespace tessera::checkpoint {

class Barrier {
 public:
  virtual ~Barrier() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Every rank calls it, equally often. Returns, once all have called, what each gave, by rank. No rank works on a disk
  // between two exchanges but in run_long: the others would hear nothing of it.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
  // Every rank calls it. Runs `work`, which may take as long as a disk takes and does not use this barrier, and throws
  // what it throws. Where waiting ranks give up after a time, they are told meanwhile that this one is alive.
  virtual void run_long(FunctionRef<void()> work) { work(); }
  // Throws an IoError of that message, which says what has failed on that rank, another than this one.
  [[noreturn]] virtual void throw_failure_of(int /*rank*/, const std::string& message) const { throw IoError(message); }
};

}  // namespace tessera::checkpoint
