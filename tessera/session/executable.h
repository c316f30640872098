// Executable: a compiled graph of a session, ready to run. It is what whoever trains sees of a step, whether that is
// one schedule (session/scheduled_step.h) or a pipeline's part of one (session/pipelined_step.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/base/core_watch.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/compiler/compile.h"
#include "tessera/mesh/mesh.h"
#include "tessera/tensor/tensor.h"

namespace tessera::executor {
class Executor;
}

namespace tessera::session {

class Executable {
 public:
  // `core_watch` may be null.
  Executable(compiler::Compiled compiled, cluster::Context& context, CoreWatch* core_watch)
      : compiled_(std::move(compiled)), context_(context), core_watch_(core_watch) {}
  virtual ~Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  const compiler::Compiled& compiled() const { return compiled_; }
  // Throws InvalidArgument for a step of a pipeline, which has an executor for each phase and slot.
  virtual executor::Executor& executor();
  // This rank's memory of a data input and of a result: the host's, whatever the device.
  virtual const TensorView& input(const std::string& name) const = 0;
  virtual const TensorView& output(const std::string& name) const = 0;
  // Which piece of the global data input this rank reads, and of the global result it has: one range per dim.
  virtual std::vector<mesh::Range> input_slice(const std::string& name) const = 0;
  virtual std::vector<mesh::Range> output_slice(const std::string& name) const = 0;
  // Where the rows of a data input go that this rank is given, where each rank is given rows of its own: equally many
  // to each place, in order. Throws InvalidArgument where the rows cannot be dealt so.
  virtual std::vector<TensorView> places_of_own_rows(const std::string& name) const { return {input(name)}; }
  // Whether a run passes over an index that is out of range, and noted_bad_index() tells it: so it comes to every
  // collective that other ranks wait in, and who runs it has all of them throw. Off until this is called, but in a
  // pipeline, whose ranks tell each other by themselves, and where ranks share the loss of a training step.
  virtual void set_notes_bad_indices(bool /*on*/) {}
  // What run() would have thrown of the first such index of the latest run on this rank; "" where it met none.
  virtual std::string noted_bad_index(const std::string& /*input_noun*/) const { return {}; }
  // One step. Throws executor::NonFiniteLoss with what is known of its origin; nothing has been updated then. Throws
  // executor::InvalidIndex naming input, row, value and range for an index, a label or a row number that is out of
  // range; on all ranks where they share the loss of a training step, and then nothing has been updated. `input_noun`:
  // what that message calls a data input.
  virtual void run(const std::string& input_noun = "input") = 0;
  // Does the same, and may return as soon as the results "loss" and ir::kUpdateGuard are there: a device may still be
  // doing the rest then, before all that it is given later, and no other result may be read. Data inputs may be written
  // for the next step.
  virtual void run_until_decided(const std::string& input_noun = "input") { run(input_noun); }
  // The halves of run_until_decided(), between which a device may be given further steps, of this executable and of
  // others of its session, where may_run_ahead(). start() returns while the device is busy; from then on input() is
  // other memory, for the next step. finish() waits for the loss of the step that was started first, and throws what
  // run() throws: where that is not finite, neither its step nor a later one has changed anything, and every executable
  // with steps that were started is to forget() them. Indices out of range are start()'s to throw; earlier steps are to
  // be finished all the same.
  virtual bool may_run_ahead() const { return false; }
  virtual void start(const std::string& input_noun = "input") { run(input_noun); }
  virtual void finish(const std::string& /*input_noun*/ = "input") {}
  virtual void forget() {}
  // These do what the executor's do.
  virtual void set_before_update(const std::function<void(const TensorView&)>& call) = 0;
  virtual std::vector<TensorView> updated() const = 0;
  virtual void set_profiling(bool on) = 0;
  // Whether a step may be skipped; then it has a result ir::kUpdateGuard, bool[], false where it was.
  virtual bool may_skip() const = 0;
  // Where a value that is not finite came from, for an error; of the latest run.
  virtual std::string find_non_finite() = 0;
  // "; " and where the first number lies that is not finite, for each data input of this rank that has one: `; column
  // "label": row 3 holds nan at [3, 0]`. "" where none has, and where it is not known.
  virtual std::string describe_non_finite_data(const std::string& /*input_noun*/) const { return {}; }

 protected:
  cluster::Context& context() const { return context_; }
  void look_at_cores() {
    if (core_watch_ != nullptr) core_watch_->look();
  }

 private:
  compiler::Compiled compiled_;
  cluster::Context& context_;
  CoreWatch* core_watch_;
};

}  // namespace tessera::session
