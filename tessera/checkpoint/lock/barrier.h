// Barrier: how the ranks that write checkpoints together agree, without this folder knowing how they talk. train/
// implements it on a communicator, tests on threads.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
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
  [[noreturn]] virtual void throw_failure_of(int rank, const std::string& message) const;
};

// The lowest rank that sees the same directory as the calling one: the rank that writes what they all name. Found by
// looking for the files that the ranks put there for a moment, not by comparing paths: on two hosts one path may be two
// directories, and two paths may be one. Makes the directory where it is missing. Every rank calls it. Jobs that look
// in one directory at one time do not see each other. Throws as run_together does when a rank cannot write to its
// directory.
int find_writer(FileSystem& files, Barrier& barrier, const std::string& directory);

// Runs a part of the work on this rank, as long as a disk may take, and returns what each rank's returned, by rank.
// When it throws on any rank, nobody goes on: throws this rank's own error where it has one, else IoError naming the
// first rank that failed, what it could not do ("cannot save") and its reason.
std::vector<std::string> run_together(Barrier& barrier, const char* what_fails, FunctionRef<std::string()> part);
// Does the same with a part that uses the barrier itself.
std::vector<std::string> share_outcome(Barrier& barrier, const char* what_fails, FunctionRef<std::string()> part);

}  // namespace tessera::checkpoint
