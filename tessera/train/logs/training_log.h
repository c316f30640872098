// TrainingLog: what the callbacks have in common that write down how a training goes. Rank 0 writes, the others do
// nothing. Numbers are those of all ranks: loss and metrics are global already; rows are, but in hybrid parallel.
//
// What a record says is read where it is by then, so a step costs no computation. A file that cannot be opened ends the
// training; one that cannot be written any more ends the log, with a warning: what is trained is worth more.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "tessera/base/function_ref.h"
#include "tessera/train/callback.h"
#include "tessera/train/core/learning_rate_reader.h"
#include "tessera/train/logs/training_record.h"

namespace tessera::train {

struct LogOptions {
  // A record after each step whose number is a multiple; where the data set sinks, after the loop with one in it. 0: no
  // steps, only epochs and evaluations.
  int64_t every_steps = 1;
  // The rate that a step since the beginning of training was made with, from 1: for a schedule that the optimizer
  // computes by operators. Rates that are a number or a table are known without it.
  std::function<double(int64_t step)> learning_rate = {};
};

class TrainingLog : public Callback {
 public:
  void begin(RunContext& run) override;
  void epoch_begin(RunContext& run) override;
  void step_end(RunContext& run) override;
  void epoch_end(RunContext& run) override;
  void end(RunContext& run) override;
  // Writes numbers of the program's own, as an evaluation at the present step. Does nothing on other ranks than rank 0.
  // Throws InvalidArgument unless a training is going on that has the callback.
  void add_metrics(const std::map<std::string, double>& metrics);

 protected:
  // `who`: the class, for messages. Throws InvalidArgument for a negative every_steps.
  TrainingLog(std::string who, LogOptions options);

  // How a training begins: as a new one; going on after run.step, where records of later steps are void; or going on in
  // a later process of a job that recovers, whose earlier process may be stopped and hold what it wrote to.
  enum class Beginning : uint8_t { kNew, kGoesOn, kGoesOnInItsJob };
  // On rank 0, at begin(): opens what is written to, and changes nothing that is there: the training may be refused
  // yet. Returns the seconds that it has trained by what is there.
  virtual double open(RunContext& run, Beginning beginning) = 0;
  // Before the first record, once all callbacks have begun.
  virtual void start(RunContext& /*run*/) {}
  virtual void write(const TrainingRecord& record) = 0;
  // The present moment, without loss, rates and metrics.
  TrainingRecord record_now(const RunContext& run, const char* kind);
  // After the last record.
  virtual void close(RunContext& run) = 0;
  // At the end, however it ends: lets go of what open() has opened.
  virtual void let_go() = 0;
  // On every rank, after the records of a step.
  virtual void after_step(RunContext& /*run*/, int64_t /*previous_step*/) {}
  // Calls f, which writes, where this rank still can. Where that fails the log ends with a warning.
  void attempt(FunctionRef<void()> f);
  // Whether this rank writes, and still can.
  bool is_open() const { return is_open_; }
  // Throws InvalidArgument where no training is going on.
  void require_begun() const;
  int64_t step() const { return step_; }
  const std::string& who() const { return who_; }

 private:
  void begin_writing(RunContext& run);
  // Calls start() where this rank writes and has not yet.
  void start_once(RunContext& run);
  // What was evaluated since this was asked last.
  void write_evaluations(const RunContext& run);
  std::optional<double> learning_rate(const RunContext& run) const;

  std::string who_;
  LogOptions options_;
  RunContext* run_ = nullptr;  // while a training goes on
  std::optional<LearningRateReader> rates_;
  bool is_open_ = false;
  bool has_started_ = false;
  double seconds_before_ = 0;  // of earlier processes
  int64_t began_ns_ = 0;
  int64_t epoch_ = 0;
  int64_t step_ = 0;  // the latest one
  int64_t num_evaluations_ = 0;
  // Of the epoch, and since the last record.
  int64_t epoch_began_ns_ = 0;
  int64_t last_step_ns_ = 0;
  int64_t marked_ns_ = 0;
  int64_t marked_rows_ = 0;
  double loss_sum_ = 0;
  int64_t num_losses_ = 0;
  int64_t resident_bytes_ = 0;
  int64_t looked_ns_ = 0;
};

}  // namespace tessera::train
