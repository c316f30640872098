// ValueRecording: a training that records the values of its steps (session/records), and compares them with those of an
// earlier one while it goes on. What a step computes is not changed by it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/checkpoint/lock/directory_lock.h"
#include "tessera/session/records/compare_values.h"
#include "tessera/train/core/model_core.h"
#include "tessera/train/options/recorded_steps.h"
#include "tessera/train/options/value_record_options.h"

namespace tessera::train {

class ValueRecording {
 public:
  // As the model's options say, else the environment.
  explicit ValueRecording(ModelCore& core);
  ValueRecording(const ValueRecording&) = delete;
  ValueRecording& operator=(const ValueRecording&) = delete;

  // Begins to record so with the next step. Throws InvalidArgument for steps that are none, for a comparison in a job
  // whose ranks do not make their steps together, and where there are no records to compare with.
  void begin(const ValueRecordOptions& options);

  // Whether any step may be recorded.
  bool is_on() const { return options_.is_on(); }
  // Around each run of what will be that step: one, or one for each micro-batch. The first one takes the folder's lock:
  // throws InvalidArgument where another training, or another model of this process, records into it.
  void begin_run(int64_t step);
  void end_run();
  // When the step is done. Collective where it is compared and the ranks train together: throws ValuesDiffer on all.
  void end_step(int64_t step);
  // When it has failed: what it has made so far is written, and nothing compared.
  void fail_step(int64_t step) noexcept;

 private:
  bool is_recorded(int64_t step) const { return options_.is_on() && steps_.contains(step); }
  void add_values(session::ValueMoment moment);
  void write(int64_t step);
  void compare(int64_t step);
  session::RecordHeader header(int64_t step) const;
  void lock_directory();

  ModelCore& core_;
  ValueRecordOptions options_;
  RecordedSteps steps_{""};
  bool is_cleared_ = false;  // of later steps, of an earlier training
  std::unique_ptr<checkpoint::DirectoryLock> lock_;
  std::vector<int64_t> reference_steps_;  // of the run that is compared with
  int64_t step_ = 0;                      // that is being recorded; 0: none
  bool has_differed_ = false;             // which was said
};

}  // namespace tessera::train
