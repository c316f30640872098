// ContextWithDisk: a job of one rank whose files are where a test wants them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/cluster/ranks/context.h"

namespace tessera {

// `disk` must outlive it.
class ContextWithDisk : public cluster::Context {
 public:
  explicit ContextWithDisk(FileSystem& disk) : disk_(disk) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  std::string transport() const override { return inner_->transport(); }
  int num_compute_threads() const override { return 1; }
  comm::Communicator* create_group(const std::string& name, const std::vector<int>& ranks) override {
    return inner_->create_group(name, ranks);
  }
  void destroy_group(const std::string& name) override { inner_->destroy_group(name); }
  comm::Communicator& group(const std::string& name) override { return inner_->group(name); }
  bool has_group(const std::string& name) const override { return inner_->has_group(name); }
  std::string new_group_name(const std::string& wanted) override { return inner_->new_group_name(wanted); }
  const comm::GroupSpeed& speed() override { return inner_->speed(); }
  std::shared_ptr<void> reserve_shared_memory(size_t bytes) override { return inner_->reserve_shared_memory(bytes); }
  using Context::abort;
  void abort(int origin, const std::string& message) override { inner_->abort(origin, message); }
  FileSystem& file_system() override { return disk_; }

 private:
  FileSystem& disk_;
  std::unique_ptr<cluster::Context> inner_ = cluster::single_context(1);
};

}  // namespace tessera
