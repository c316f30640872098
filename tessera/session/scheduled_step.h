// ScheduledStep: an executable that is one schedule, run by one executor. All are, but for those of pipelines. Internal
// to the session.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/executor/executor.h"
#include "tessera/session/executable.h"
#include "tessera/session/records/run_values.h"

namespace tessera::session {

class ScheduledStep final : public Executable {
 public:
  // `value_watch` outlives it: what its runs record.
  ScheduledStep(compiler::Compiled compiled, std::unique_ptr<executor::Executor> executor, cluster::Context& context,
                CoreWatch* core_watch, ValueWatch& value_watch)
      : Executable(std::move(compiled), context, core_watch),
        executor_(std::move(executor)),
        value_watch_(value_watch) {}

  executor::Executor& executor() override { return *executor_; }
  const TensorView& input(const std::string& name) const override { return executor_->input(name); }
  const TensorView& output(const std::string& name) const override { return executor_->output(name); }
  std::vector<mesh::Range> input_slice(const std::string& name) const override;
  std::vector<mesh::Range> output_slice(const std::string& name) const override;
  void set_notes_bad_indices(bool on) override { executor_->set_notes_bad_indices(on); }
  std::string noted_bad_index(const std::string& input_noun) const override;
  void run(const std::string& input_noun = "input") override { run(Until::kDone, input_noun); }
  void run_until_decided(const std::string& input_noun = "input") override { run(Until::kDecided, input_noun); }
  bool may_run_ahead() const override { return executor_->may_run_ahead(); }
  void start(const std::string& input_noun = "input") override;
  void finish(const std::string& input_noun = "input") override;
  void forget() override { executor_->forget(); }
  void set_before_update(const std::function<void(const TensorView&)>& call) override {
    executor_->set_before_update(call);
  }
  std::vector<TensorView> updated() const override { return executor_->updated(); }
  void set_profiling(bool on) override { executor_->set_profiling(on); }
  bool may_skip() const override { return compiled().logical.find_output(ir::kUpdateGuard) != nullptr; }
  std::string find_non_finite() override { return executor_->find_non_finite(); }
  std::string describe_non_finite_data(const std::string& input_noun) const override;

 private:
  enum class Until { kDone, kDecided };
  void run(Until until, const std::string& input_noun);
  // Calls what runs the executor, whose errors it puts in words of the network's.
  void call(FunctionRef<void()> run, const std::string& input_noun);
  std::string describe_bad_index(const std::string& input_noun) const;
  void stop_for_bad_indices(const std::string& input_noun);
  bool skipped_for_its_loss() const;
  // With an observer where the session's values are watched.
  void run_steps(Until until);

  std::unique_ptr<executor::Executor> executor_;
  ValueWatch& value_watch_;
};

}  // namespace tessera::session
