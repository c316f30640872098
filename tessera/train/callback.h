// Callback: what happens around training besides training: printing, timing, saving. Called on every rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/checkpoint/format/encryption.h"

namespace tessera::train {

class Model;

// Where training stands. Epochs and steps count from 1; a step is one global batch.
struct RunContext {
  Model& model;
  int64_t epoch = 0;
  int64_t num_epochs = 0;
  int64_t step_in_epoch = 0;
  int64_t steps_per_epoch = 0;
  int64_t step = 0;  // since the beginning of training, resumed steps included
  // The step before the first one of this call of train(), whichever process of the job has begun the call
  // (cluster/recovery); and the number of the call among those of its process, 0 where the job does not recover.
  int64_t first_step = 0;
  int64_t number = 0;
  double loss = 0;  // the loss of the last step; its mean where the loss is a vector
  // The rows of this epoch's batches so far: those of the global batches, but in hybrid parallel those of this rank.
  int64_t rows_of_epoch = 0;
  bool stop_requested = false;
  bool has_failed = false;       // an exception ends the training
  bool was_told_to_end = false;  // then: by a signal, or by its job, which is no failure
  std::string signal = {};       // which one: "SIGTERM", "SIGINT"
  // The training only begins to save what an earlier process of the job has left, and ends.
  bool is_last_save = false;
  void request_stop() { stop_requested = true; }
};

// What a callback calls the checkpoints that it saves: PREFIX-EPOCH_STEP.ckpt in the directory, of the prefix or one
// that follows it (PREFIX_1). "" for both: it saves none of such names.
struct SavedNames {
  std::string directory = {};
  std::string prefix = {};
  bool are_best = false;                   // those that are the best by a number; false: the newest
  checkpoint::Encryption encryption = {};  // with what they are read
};

class Callback {
 public:
  virtual ~Callback() = default;
  virtual void begin(RunContext&) {}
  virtual void epoch_begin(RunContext&) {}
  // Where the data set sinks, the two step calls stand around each loop of sink_size steps.
  virtual void step_begin(RunContext&) {}
  virtual void step_end(RunContext&) {}
  virtual void epoch_end(RunContext&) {}
  // Called for each callback whose begin() has returned, also where an exception ends the training. Then has_failed is
  // set, and the callback must do nothing that ranks do together: other ranks may be elsewhere, or gone.
  virtual void end(RunContext&) {}
  // Called before begin() in a training that an earlier process of the job had begun, where only files are left of
  // that: loads the newest checkpoint that the callback has saved of it, and returns whether there was one. Every rank
  // calls it.
  virtual bool load_latest(RunContext&) { return false; }
  // Whether the callback saves what is trained. Where one does, a process that is sent SIGTERM ends its step, calls
  // save_before_end() and ends.
  virtual bool saves() const { return false; }
  // Two callbacks of one training, of which one keeps the best, must not give names of one prefix: each would count and
  // remove what the other has saved.
  virtual SavedNames saved_names() const { return {}; }
  // Called after a step, in place of what else would follow, where the training is about to end for such a signal:
  // saves the step, unless it is saved, and returns its path. Every rank calls it.
  virtual std::string save_before_end(RunContext&) { return ""; }
};

// Any callback, by value or shared: model.train(10, dataset, {LossMonitor(), TimeMonitor()}).
class CallbackHandle {
 public:
  // NOLINTBEGIN(google-explicit-constructor): a callback is written where a handle is wanted
  template <typename T>
  requires std::is_base_of_v<Callback, T> CallbackHandle(T callback)
      : callback_(std::make_shared<T>(std::move(callback))) {}
  template <typename T>
  requires std::is_base_of_v<Callback, T> CallbackHandle(std::shared_ptr<T> callback)
      : callback_(std::move(callback)) {}
  // NOLINTEND(google-explicit-constructor)
  Callback* operator->() const { return callback_.get(); }

 private:
  std::shared_ptr<Callback> callback_;
};
using Callbacks = std::vector<CallbackHandle>;

}  // namespace tessera::train
