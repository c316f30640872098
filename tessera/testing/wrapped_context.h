// WrappedContext: a context that is another one but for what a test wants to be its own, such as the time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/cluster/ranks/context.h"

namespace tessera {

// Passes all calls on. `inner` must outlive it.
class WrappedContext : public cluster::Context {
 public:
  explicit WrappedContext(cluster::Context& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int local_rank() const override { return inner_.local_rank(); }
  int local_size() const override { return inner_.local_size(); }
  std::string transport() const override { return inner_.transport(); }
  int num_compute_threads() const override { return 1; }
  comm::Communicator* create_group(const std::string& name, const std::vector<int>& ranks) override {
    return inner_.create_group(name, ranks);
  }
  void destroy_group(const std::string& name) override { inner_.destroy_group(name); }
  comm::Communicator& group(const std::string& name) override { return inner_.group(name); }
  bool has_group(const std::string& name) const override { return inner_.has_group(name); }
  std::string new_group_name(const std::string& wanted) override { return inner_.new_group_name(wanted); }
  const comm::GroupSpeed& speed() override { return inner_.speed(); }
  std::shared_ptr<void> reserve_shared_memory(size_t bytes) override { return inner_.reserve_shared_memory(bytes); }
  timeline::TimelineRecorder* recorder() override { return inner_.recorder(); }
  using Context::abort;
  void abort(int origin, const std::string& message) override { inner_.abort(origin, message); }

 private:
  cluster::Context& inner_;
};

// A rank whose time is `clock`'s, which must outlive it.
class ContextWithClock : public WrappedContext {
 public:
  ContextWithClock(cluster::Context& inner, Clock& clock) : WrappedContext(inner), clock_(clock) {}
  Clock& clock() override { return clock_; }

 private:
  Clock& clock_;
};

}  // namespace tessera
