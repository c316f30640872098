// ContextWithDisk: a job of one rank whose files are where a test wants them.
#pragma once

#include <memory>

#include "tessera/testing/wrapped_context.h"

namespace tessera {

// What must be there before the context that wraps it.
struct OneRank {
  std::unique_ptr<cluster::Context> one_rank = cluster::single_context(1);
};

// `disk` must outlive it.
class ContextWithDisk : private OneRank, public WrappedContext {
 public:
  explicit ContextWithDisk(FileSystem& disk) : WrappedContext(*one_rank), disk_(disk) {}
  FileSystem& file_system() override { return disk_; }

 private:
  FileSystem& disk_;
};

}  // namespace tessera
