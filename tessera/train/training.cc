#include "tessera/train/training.h"

#include <strings.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/printable.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/read/candidates.h"
#include "tessera/checkpoint/read/choose.h"
#include "tessera/cluster/ranks/rank_words.h"
#include "tessera/comm/job_state.h"
#include "tessera/mesh/mesh.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/optimizers/base_optimizer.h"
#include "tessera/session/agree/agree_on_step.h"
#include "tessera/session/agree/gather_texts.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/core/same_training.h"
#include "tessera/train/model.h"
#include "tessera/train/options/precision.h"
#include "tessera/train/saving/data_states.h"
#include "tessera/train/saving/end_agreement.h"
#include "tessera/train/saving/rank_barrier.h"

namespace tessera::train {

session::StepPart Training::next_part() {
  if (!core_.options.accumulates()) return session::StepPart::kWhole;
  const bool is_last = core_.values->accumulated_batches() + 1 == core_.options.gradient_accumulation_steps;
  return is_last ? session::StepPart::kUpdate : session::StepPart::kAccumulate;
}

std::vector<session::StepPart> Training::parts() const {
  if (!core_.options.accumulates()) return {session::StepPart::kWhole};
  return {session::StepPart::kAccumulate, session::StepPart::kUpdate};
}

int64_t Training::steps_per_epoch(const data::Dataset& dataset) const {
  if (dataset.is_endless()) throw InvalidArgument("train: the data set repeats without end; give repeat() a count");
  const int64_t batches = dataset.get_dataset_size();
  const int64_t per_step = core_.options.gradient_accumulation_steps;
  if (batches < per_step && batches > 0) {
    throw InvalidArgument(
        "train: an epoch has {}, fewer than the {} of a step (gradient_accumulation_steps): accumulate over at most "
        "{}, make smaller batches, or repeat the data set so that {} divides its batches",
        plural(batches, "batch"), per_step, batches, per_step);
  }
  if (batches % per_step != 0) {
    throw InvalidArgument(
        "train: {} batches an epoch are no whole number of steps of {} batches; take({}) makes them one", batches,
        per_step, batches / per_step * per_step);
  }
  return batches / per_step;
}

void Training::find_place_in(const data::Dataset& dataset, int64_t full_rows) {
  const int64_t accumulated = core_.options.accumulates() ? core_.values->accumulated_batches() : 0;
  const EpochOfData data{.num_batches = dataset.get_dataset_size(),
                         .rows_per_batch = full_rows,
                         .is_repeated = dataset.get_repeat_count() != 1};
  const TrainingProgress saved = progress_;
  progress_.count_in(data, core_.options.gradient_accumulation_steps, accumulated);
  if (progress_.position.epoch == saved.position.epoch || core_.context.rank() != 0) return;
  log_warning(
      "train: the checkpoint was saved after {} batches of {} rows (of all ranks) of an epoch, and an epoch of this "
      "data set has {} of {}: it goes on with the next epoch",
      saved.position.batch, saved.rows_per_batch > 0 ? saved.rows_per_batch : data.rows_per_batch, data.num_batches,
      data.rows_per_batch);
}

namespace {

// Whether a table of rates ends in one that holds, as those of schedules do that have an end (nn/tuning).
bool ends_level(const std::vector<double>& rates) {
  return rates.size() >= 2 && rates[rates.size() - 1] == rates[rates.size() - 2];
}

// With how many rates it begins until all others are 0.
int64_t num_until_zeros(const std::vector<double>& rates) {
  size_t size = rates.size();
  while (size > 0 && rates[size - 1] == 0) --size;
  return static_cast<int64_t>(size);
}

}  // namespace

void Training::say_short_rates(int64_t last_step) {
  if (rates_said_ || core_.context.rank() != 0) return;
  const int64_t updates_per_step = core_.mode->updates_per_step();
  const int64_t last_update = last_step * updates_per_step;
  for (const nn::Parameter& state : core_.values->states()) {
    if (!nn::is_rate_table(state)) continue;
    const auto rates = state.data ? state.data->to_doubles() : std::vector<double>();
    const bool ends_in_zero = !rates.empty() && rates.back() == 0;
    if (ends_level(rates) && !ends_in_zero) continue;
    // The zeros in which a schedule ends hold behind it; of a table whose last rate alone is 0 that is its last step's.
    const int64_t num_rates = ends_level(rates) ? num_until_zeros(rates) : state.type.shape[0];
    if (num_rates >= last_update) continue;
    rates_said_ = true;
    const std::string_view noun = updates_per_step == 1 ? "step" : "update";
    if (ends_in_zero) {
      log_warning(
          "train: {} is 0 from {} {} on, the training goes on to {} {}: it learns nothing there; give rates above 0 "
          "for {} {}s",
          state.full_name(), noun, num_until_zeros(rates) + 1, noun, last_update, last_update, noun);
      continue;
    }
    log_warning("train: {} has the rates of {} {}s, the training goes on to {} {}: the last rate holds from {} {} on",
                state.full_name(), state.type.shape[0], noun, noun, last_update, noun, state.type.shape[0]);
  }
}

void Training::call_for_step(const RunContext& run, FunctionRef<void()> call) {
  try {
    call();
  } catch (const executor::NonFiniteLoss& error) {
    throw executor::NonFiniteLoss(fmt::format(
        "epoch: {} step: {}. Invalid loss, terminating training. {}; the parameters are those before the step",
        run.epoch, run.step_in_epoch, error.what()));
  } catch (const executor::InvalidIndex& error) {
    throw executor::InvalidIndex(fmt::format("epoch {}, batch {}: {}; the parameters are those before the step",
                                             run.epoch, progress_.position.batch + 1, error.what()));
  }
}

void Training::run_step(session::Executable& executable) {
  core_.values->set_changed();
  const int64_t step = progress_.step + 1;
  recording_.begin_run(step);
  try {
    if (core_.options.steps_in_flight > 1) {
      executable.run_until_decided("column");
    } else {
      executable.run("column");
    }
  } catch (...) {
    recording_.fail_step(step);
    throw;
  }
  recording_.end_run();
  was_skipped_ = false;
  if (!executable.may_skip()) return;
  was_skipped_ = !*executable.output(ir::kUpdateGuard).as<bool>();
  if (!was_skipped_ || executor::all_finite(executable.output("loss"))) return;
  // No scale changes the loss, but a dynamic one that has fallen as far as it can has seen nothing else for long.
  const bool can_fall = loss_scale_of(core_.options)->is_dynamic() && core_.session().value(nn::kLossScale).item() > 1;
  if (can_fall) return;
  throw executor::NonFiniteLoss(
      fmt::format("loss is not finite, with a loss scale that cannot fall; first non-finite "
                  "result: {}{}",
                  executable.find_non_finite(), executable.describe_non_finite_data("column")));
}

// What is recorded of a step, of its values or on a timeline, is so while it is waited for; where ranks train together
// they are at the same step whenever they tell each other something.
bool Training::may_run_ahead(const session::Executable& executable) const {
  const auto* timeline = core_.context.recorder();
  return core_.options.steps_in_flight > 1 && executable.may_run_ahead() && !core_.options.accumulates() &&
         !core_.mode->is_shared() && !recording_.is_on() && (timeline == nullptr || !timeline->is_on());
}

void Training::note_step(int64_t step) {
  if (auto* progress = core_.context.progress()) progress->set_step(step);
}

bool Training::count_batch() {
  if (core_.options.accumulates()) {
    snapshot_.finish(core_.session().values().place(nn::kAccumulatedSteps).mark());
    const int64_t done = (core_.values->accumulated_batches() + 1) % core_.options.gradient_accumulation_steps;
    core_.values->set_accumulated_batches(done);
    if (done != 0) return false;
  }
  ++progress_.step;
  core_.context.report_step(progress_.step);
  recording_.end_step(progress_.step);
  return true;
}

namespace {

// Whether the job may go on with another number of ranks.
bool is_elastic(cluster::Context& context) { return context.recovery() != nullptr && context.recovery()->is_elastic(); }

// Why the job ends with this generation; "" where it does not.
std::string last_reason_of(cluster::Context& context) {
  return context.recovery() != nullptr ? context.recovery()->last_reason() : "";
}

}  // namespace

// One call of train(): what it reads, what is compiled for that, and how far it has come.
class Training::TrainCall {
 public:
  TrainCall(Training& training, Model& model, const data::Dataset& dataset, const TrainOptions& options)
      : t_(training), mode_(*training.core_.mode), dataset_(dataset), options_(options), context_{model} {}

  // Compares the ranks' data, compiles and finds the place to begin at. False where all epochs are done.
  bool prepare(int64_t num_epochs, const Callbacks& callbacks);
  void run_epochs(const Callbacks& callbacks);

 private:
  // As TrainOptions::resume says. Returns what is to be said of it where no more than that counts; "" where nothing was
  // asked for.
  std::string resume(const Callbacks& callbacks);
  // Loads it as Model::load_checkpoint does. Of a path with nothing there the IoError says what "auto" does.
  checkpoint::CheckpointInfo load_named(const std::string& path, const LoadCheckpointOptions& loading);
  // What was kept of this training, or else what a callback has saved of it. Says with what the training begins, where
  // resume() has something to say.
  KeptTraining::Found find_kept(const Callbacks& callbacks, std::string resumed);
  void run_epoch(const Callbacks& callbacks);
  // Whether the data's source tells what it draws. Throws InvalidArgument on every rank where some do and others do
  // not, for the ranks tell each other their states when they save. Collective.
  bool tells_state() const;
  // Says once, where the job goes on after a loss, that the data's source does not tell what it draws.
  void warn_of_untold_state();
  // Gives the data's source the state that another process has left.
  void restore_data_state();
  // Calls a function of each callback; who looks on sees that.
  void call_each(const Callbacks& callbacks, void (Callback::*function)(RunContext&));
  // The micro-batches of a step. Where it is reported, the context has its loss.
  void run_micro_batches(bool is_reported);
  // What is compiled for the next batch, which is in its inputs.
  session::Executable& next_batch();
  session::Executable& read_batch();
  // Where every rank gives whole batches: throws InvalidArgument on every rank where one has read other rows than the
  // first. Of some batches, the same on all ranks. Collective there.
  void compare_rows(const BatchPlace& place);
  // Gives a step to a device that may still be busy with others.
  void give_step(session::Executable& executable);
  // Looks at the losses of such steps: of the one that was given first, or of all. They count from then on.
  void finish_given_step();
  void finish_given_steps();
  int64_t next_step() const { return t_.progress_.step + std::ssize(given_) + 1; }
  void compile_full();
  // Where the training stands, for who looks on.
  LiveStep live_step();
  // After a step. Where a rank was told to end, all save; who ends throws cluster::Terminated then. `may_keep`: no
  // callback of the step is still due.
  void end_if_told(const Callbacks& callbacks, bool may_keep);
  // All have saved, and where as `saved` says: stops where the job was asked for a number of ranks that it cannot have.
  // Goes on where nothing was saved.
  void stop(const std::string& saved);
  // Why the number of ranks of an elastic job stays; "" where it may change.
  std::string why_ranks_stay() const;
  // Tells an elastic job where it cannot go on with another number of ranks.
  void fix_ranks(const Callbacks& callbacks);
  // Tells the job whether those that a loss leaves would save what is trained, where it ends by that.
  void tell_last_save(const Callbacks& callbacks);
  // In the last generation of a job, for this reason: saves what was kept, and stops. Returns where what was kept is of
  // a later training.
  void save_last(const std::string& reason, const Callbacks& callbacks);
  struct LastSave {
    std::vector<std::string> paths;  // what each callback has saved that saves
    std::string failed;              // what the first one says that could not; "" where all could
  };
  // Adds to `done` what is saved as it is, also where it throws because a rank is lost.
  void save_kept(const Callbacks& callbacks, LastSave& done);
  std::string describe_newest(const Callbacks& callbacks) const;
  // While an exception is handled: throws that of a lost rank again, where the job ends by the loss unless the rank
  // comes back, with the checkpoint from which it can be started again.
  void name_newest_checkpoint(const Callbacks& callbacks) const;
  // In an elastic job, at the end of an epoch and after a step that was saved: where ranks wait to be taken in, all
  // throw cluster::Resizing.
  void take_in_newcomers(bool is_end_of_epoch);

  Training& t_;
  const Mode& mode_;
  const data::Dataset& dataset_;
  const TrainOptions& options_;
  RunContext context_;
  int64_t epochs_done_ = 0;
  int64_t epoch_ = 0;           // from 1; the context's is the callbacks', which may count from another one
  int64_t steps_per_loop_ = 1;  // of what sinks
  int64_t full_rows_ = 0;
  InputSpecs full_inputs_;
  // By part of the step: what is compiled for full batches, and where they go.
  std::map<session::StepPart, std::pair<session::Executable*, BatchPlace>> full_;
  int64_t num_doubts_ = 0;
  bool is_one_batch_ = false;  // of all ranks, which each of them reads as a whole
  int64_t num_read_ = 0;       // batches
  int64_t num_compared_ = 0;   // of those that were read, up to the latest whose rows were compared
  std::optional<data::BatchIterator> batches_;
  // A step whose loss nobody has looked at yet.
  struct GivenStep {
    session::Executable* executable = nullptr;
    data::Position position = {};  // behind its batch
    std::string data_state = {};   // likewise
    int64_t step_in_epoch = 0;
    int64_t rows_of_epoch = 0;  // its own among them
  };
  std::deque<GivenStep> given_;
  std::optional<EndAgreement> end_;  // where a callback can save, or the job goes on without who ends
  int64_t told_rows_ = 0;            // of rows_of_epoch those that live_step() has told
  int64_t num_saves_ = 0;            // when it was asked last who waits to be taken in
};

bool Training::TrainCall::prepare(int64_t num_epochs, const Callbacks& callbacks) {
  const std::string last_reason = last_reason_of(t_.core_.context);
  const bool reads = last_reason.empty();  // who only saves need not have the parts of those that are lost
  if (reads) {
    t_.compare_with_job(dataset_, num_epochs);
    mode_.compare_data(dataset_);
  }
  const int64_t steps = t_.steps_per_epoch(dataset_);
  if (reads) mode_.compare_steps(steps);
  context_.num_epochs = num_epochs;
  context_.steps_per_epoch = steps;
  full_rows_ = mode_.global_rows(dataset_, dataset_.get_batch_size());
  full_inputs_ = input_specs(dataset_, full_rows_);
  is_one_batch_ =
      mode_.is_shared() && mode_.steps_together() && mode_.takes_whole_batches() && !mode_.gives_own_rows(dataset_);
  compile_full();
  fix_ranks(callbacks);
  warn_of_untold_state();
  t_.progress_.tells_state = tells_state();
  if (!reads) {
    save_last(last_reason, callbacks);
    return false;
  }
  if (find_kept(callbacks, resume(callbacks)) == KeptTraining::Found::kDone) {
    restore_data_state();
    return false;
  }
  t_.find_place_in(dataset_, full_rows_);
  t_.core_.values->compare_new();

  // A loaded checkpoint says how many steps of which epoch are done; else epochs count from 1 again while the data goes
  // on: what is random in it does not repeat.
  const TrainingProgress& progress = t_.progress_;
  epochs_done_ = progress.epochs_done();
  if (epochs_done_ >= num_epochs) {
    log_warning("train: {} {} done already, {} {} asked for", plural(epochs_done_, "epoch"),
                epochs_done_ == 1 ? "is" : "are", num_epochs, num_epochs == 1 ? "was" : "were");
    return false;
  }
  restore_data_state();
  const int64_t num_left = num_epochs - epochs_done_;
  t_.say_short_rates(progress.step + num_left * steps -
                     progress.position.batch / t_.core_.options.gradient_accumulation_steps);
  batches_.emplace(batches_of(dataset_, mode_, progress.position, num_left, options_, *t_.executable(),
                              t_.core_.context.recorder()));
  context_.step = progress.step;
  if (options_.dataset_sink_mode) steps_per_loop_ = options_.sink_size > 0 ? options_.sink_size : steps;
  return true;
}

namespace {

// What the callback saves that saves the newest steps.
SavedNames names_of_newest(const Callbacks& callbacks) {
  std::vector<SavedNames> found;
  for (const auto& callback : callbacks) {
    const SavedNames names = callback->saved_names();
    if (!names.directory.empty() && !names.are_best) found.push_back(names);
  }
  if (found.empty()) {
    throw InvalidArgument(
        "train: resume is \"auto\", which goes on from what a ModelCheckpoint has saved, and there is none among the "
        "callbacks: add one, or name the checkpoint or its directory, as resume=\"saved\"");
  }
  if (found.size() > 1) {
    throw InvalidArgument(
        "train: resume is \"auto\", which goes on from what a ModelCheckpoint has saved, and there are {}, that of {} "
        "and that of {}: name the checkpoint or its directory, as resume=\"{}\"",
        found.size(), join_path(found[0].directory, found[0].prefix), join_path(found[1].directory, found[1].prefix),
        found[0].directory);
  }
  return found[0];
}

// Whether there is a checkpoint of such a name, whole or not: where ranks train together, on any of them.
bool has_checkpoint(const ModelCore& core, const SavedNames& names) {
  FileSystem& files = core.context.file_system();
  const auto look = [&]() -> std::string {
    if (!files.exists(names.directory)) return "";
    return checkpoint::Candidates(files, names.directory, names.prefix).empty() ? "" : "found";
  };
  if (!core.mode->is_shared()) return !look().empty();
  RankBarrier all(core.context.world());
  const auto found = checkpoint::run_together(all, "cannot look for checkpoints", look);
  return std::ranges::any_of(found, [](const auto& one) { return !one.empty(); });
}

}  // namespace

checkpoint::CheckpointInfo Training::TrainCall::load_named(const std::string& path,
                                                           const LoadCheckpointOptions& loading) {
  try {
    return context_.model.load_checkpoint(path, loading);
  } catch (const IoError& error) {
    // An error of another class says what else has happened, as that a rank was lost.
    const bool is_missing = typeid(error) == typeid(IoError) && !t_.core_.context.file_system().exists(path);
    if (!is_missing || path.find('/') != std::string::npos) throw;
    constexpr std::string_view automatic = "auto";
    const bool means_automatic = strncasecmp(path.c_str(), automatic.data(), automatic.size()) == 0;
    throw IoError("{}; {}", error.what(),
                  means_automatic ? "did you mean resume=\"auto\"?"
                                  : "resume=\"auto\" goes on from the newest that the ModelCheckpoint among "
                                    "the callbacks has saved");
  }
}

std::string Training::TrainCall::resume(const Callbacks& callbacks) {
  if (options_.resume.empty()) return "";
  std::string path = options_.resume;
  LoadCheckpointOptions loading;
  if (path == "auto") {
    const SavedNames names = names_of_newest(callbacks);
    path = names.directory;
    loading = {.decryption = names.encryption, .prefix = names.prefix};
    if (!has_checkpoint(t_.core_, names)) {
      return fmt::format("train: {} holds no checkpoint {}-*.ckpt: begins with the model as it is", path, names.prefix);
    }
  }
  const auto info = load_named(path, loading);
  const std::string loaded = context_.model.load_report().path;
  if (info == checkpoint::CheckpointInfo{}) {
    return fmt::format("train: begins at step 0 with the values of {}, which has no manifest", loaded);
  }
  return fmt::format("train: goes on from {}, after step {}", loaded, info.step);
}

KeptTraining::Found Training::TrainCall::find_kept(const Callbacks& callbacks, std::string resumed) {
  bool has_loaded = false;
  const auto load = [&] {
    context_.number = t_.kept_.number();
    for (const auto& callback : callbacks) has_loaded = has_loaded || callback->load_latest(context_);
    return has_loaded;
  };
  const auto found = t_.kept_.begin(load);
  context_.number = t_.kept_.number();
  context_.first_step = t_.kept_.first_step();
  const bool speaks = t_.core_.context.rank() == 0 || !mode_.is_shared();
  if (resumed.empty() || !speaks) return found;
  // After a loss other values count than those that the first process was to begin with.
  const int64_t step = t_.progress_.step;
  if (found == KeptTraining::Found::kMiddle) {
    resumed = fmt::format("train: goes on after step {} with the values that were kept in memory", step);
  } else if (found == KeptTraining::Found::kDone) {
    resumed = "train: this training was over before: the values are those that were kept in memory since";
  } else if (has_loaded) {
    resumed = fmt::format("train: goes on from {}, after step {}", context_.model.load_report().path, step);
  }
  options_.print ? options_.print(resumed) : print_line(resumed);
  return found;
}

bool Training::TrainCall::tells_state() const {
  const data::SourceState* source = dataset_.source_state();
  const bool is_told = source != nullptr && source->is_told();
  comm::Communicator& world = t_.core_.context.world();
  if (!mode_.is_shared() || world.size() == 1) return is_told;
  int64_t found[] = {is_told ? 1 : 0, is_told ? 0 : 1};
  world.all_reduce(found, 2, DType::kI64, comm::ReduceOp::kMax, "comparing the data of the ranks");
  if (found[0] + found[1] == 1) return is_told;
  std::vector<int> tell;
  std::vector<int> others;
  const auto words = session::gather_texts(world, is_told ? "tells" : "", "comparing the data of the ranks");
  for (int rank = 0; rank < world.size(); ++rank) {
    (words[static_cast<size_t>(rank)].empty() ? others : tell).push_back(rank);
  }
  throw InvalidArgument(
      "train: the data set's source tells the state of the random numbers that it draws on {}, and not on {}; a "
      "checkpoint has the states of all ranks: give the sources of all ranks state() and set_state(), or "
      "state_dict() and load_state_dict(), or those of none",
      cluster::name_ranks(tell, world.size()), cluster::name_ranks(others, world.size()));
}

void Training::TrainCall::warn_of_untold_state() {
  const data::SourceState* source = dataset_.source_state();
  auto* recovery = t_.core_.context.recovery();
  if (source == nullptr || source->is_told() || recovery == nullptr || recovery->generation() > 1) return;
  if (t_.core_.context.rank() != 0 || std::exchange(t_.state_said_, true)) return;
  log_warning(
      "train: the data set's source draws random numbers and does not tell their state: when the job goes on after a "
      "loss it draws them anew, and trains otherwise than a job that lost nothing; give the source state() and "
      "set_state(), or state_dict() and load_state_dict(), or have it draw by the number of the sample");
}

void Training::TrainCall::restore_data_state() {
  TrainingProgress& progress = t_.progress_;
  if (!std::exchange(progress.is_state_due, false)) return;
  if (progress.tells_state) dataset_.source_state()->set(progress.data_state);
}

void Training::TrainCall::call_each(const Callbacks& callbacks, void (Callback::*function)(RunContext&)) {
  const comm::RankProgress::Phase phase(t_.core_.context.progress(), "the callbacks");
  const timeline::ScopedSpan span(t_.core_.context.recorder(), timeline::SpanKind::kCallbacks);
  for (const auto& callback : callbacks) std::invoke(function, callback.operator->(), context_);
}

void Training::TrainCall::compile_full() {
  const comm::RankProgress::Phase phase(t_.core_.context.progress(), comm::RankProgress::kCompilation);
  const timeline::ScopedSpan span(t_.core_.context.recorder(), timeline::SpanKind::kCompilation);
  num_doubts_ = t_.steps_.num_doubts();
  for (const auto part : t_.parts()) {
    session::Executable& compiled = t_.steps_.training(full_inputs_, part);
    full_[part] = {&compiled, t_.whole_batches_.place(compiled, full_inputs_, mode_.gives_own_rows(dataset_))};
    t_.latest_ = {full_inputs_, part};
  }
}

namespace {

constexpr const char* kLastSave = "last save";  // the job's state with the words of who has saved
constexpr const char* kNoCheckpoints = "no ModelCheckpoint is among the callbacks: add one";

bool any_saves(const Callbacks& callbacks) {
  return std::ranges::any_of(callbacks, [](const auto& callback) { return callback->saves(); });
}

// The signal for which the exception stands that is being handled; "" where it stands for none.
std::string signal_of_current(const TrainOptions& options) {
  try {
    throw;
  } catch (const cluster::Terminated&) {
    return "SIGTERM";
  } catch (...) {
    return options.signal_of ? options.signal_of(std::current_exception()) : "";
  }
}

}  // namespace

void Training::TrainCall::run_epochs(const Callbacks& callbacks) {
  size_t num_begun = 0;
  const bool may_save = any_saves(callbacks) && mode_.steps_together();
  if (may_save || is_elastic(t_.core_.context)) end_.emplace(t_.core_.context, mode_.is_shared());
  num_saves_ = t_.saver_.num_saves();
  try {
    t_.live_.begin(live_step());
    tell_last_save(callbacks);
    for (; num_begun < callbacks.size(); ++num_begun) callbacks[num_begun]->begin(context_);
    for (int64_t epoch = epochs_done_; epoch < context_.num_epochs && !context_.stop_requested; ++epoch) {
      epoch_ = context_.epoch = epoch + 1;
      run_epoch(callbacks);
    }
    const bool is_last = epoch_ == context_.num_epochs && context_.step_in_epoch == context_.steps_per_epoch;
    if (context_.stop_requested && !is_last) t_.core_.mode->stop_training();
    t_.core_.session().wait();  // what fails in a device's last step is this training's
  } catch (...) {
    context_.signal = signal_of_current(options_);
    t_.fail(context_, callbacks, num_begun);
    name_newest_checkpoint(callbacks);
    throw;
  }
  t_.end(context_, callbacks);
}

void Training::TrainCall::run_epoch(const Callbacks& callbacks) {
  context_.rows_of_epoch = told_rows_ = 0;
  call_each(callbacks, &Callback::epoch_begin);
  int64_t in_loop = 0;
  const int64_t first = t_.progress_.position.batch / t_.core_.options.gradient_accumulation_steps;
  for (int64_t s = first; s < context_.steps_per_epoch && !context_.stop_requested; ++s) {
    context_.step_in_epoch = s + 1;
    t_.note_step(next_step());
    const timeline::StepSpan span(t_.core_.context.recorder(), next_step());
    if (in_loop++ == 0) call_each(callbacks, &Callback::step_begin);
    const bool is_reported = in_loop == steps_per_loop_ || context_.step_in_epoch == context_.steps_per_epoch;
    run_micro_batches(is_reported);
    if (!is_reported) {
      end_if_told(callbacks, /*may_keep=*/false);
      continue;
    }
    in_loop = 0;
    call_each(callbacks, &Callback::step_end);
    t_.live_.step_end(live_step(), t_.newest_checkpoint());
    // What follows on the last step of an epoch, and of the training, belongs to it: it is done again with the step.
    const bool is_done = context_.step_in_epoch < context_.steps_per_epoch && !context_.stop_requested;
    if (is_done && mode_.steps_together()) t_.kept_.keep();
    end_if_told(callbacks, is_done);
    if (is_done) take_in_newcomers(/*is_end_of_epoch=*/false);
  }
  call_each(callbacks, &Callback::epoch_end);
  if (epoch_ == context_.num_epochs || context_.stop_requested) return;
  if (mode_.steps_together()) t_.kept_.keep();
  take_in_newcomers(/*is_end_of_epoch=*/true);
}

LiveStep Training::TrainCall::live_step() {
  const int64_t rows = context_.rows_of_epoch - std::exchange(told_rows_, context_.rows_of_epoch);
  return {.epoch = std::max<int64_t>(context_.epoch, 1),
          .num_epochs = context_.num_epochs,
          .steps_per_epoch = context_.steps_per_epoch,
          .step = context_.step,
          .rows = rows,
          .loss = context_.loss};
}

std::string Training::TrainCall::why_ranks_stay() const {
  if (!is_elastic(t_.core_.context)) return "";
  const std::string why = mode_.why_fixed(dataset_);
  return why.empty() ? t_.core_.context.recovery()->fixed_by() : why;  // what a script has said of itself
}

void Training::TrainCall::fix_ranks(const Callbacks& callbacks) {
  const std::string why = why_ranks_stay();
  if (why.empty() || !last_reason_of(t_.core_.context).empty()) return;
  const bool save_together = mode_.steps_together() && (mode_.is_shared() || t_.core_.context.size() == 1);
  const char* unsaved_for = !any_saves(callbacks) ? kNoCheckpoints
                            : !save_together      ? "the ranks do not save one step together"
                                                  : "";
  t_.core_.context.recovery()->fix_ranks(why, unsaved_for);
}

void Training::TrainCall::tell_last_save(const Callbacks& callbacks) {
  cluster::Context& context = t_.core_.context;
  const bool are_several = context.size() > 1;
  if (context.recovery() == nullptr || context.rank() != 0 || !are_several) return;
  const bool save_together = mode_.steps_together() && mode_.is_shared();
  const std::string why_not_held = mode_.why_not_held_by_fewer();
  const std::string unsaved_for = !any_saves(callbacks)             ? kNoCheckpoints
                                  : !save_together                  ? "the ranks do not save one step together"
                                  : !t_.kept_.why_nothing().empty() ? t_.kept_.why_nothing()
                                  : !t_.kept_.keeps() ? "what servers keep lies in files, of which no copy is kept"
                                  : !why_not_held.empty()
                                      ? fmt::format("fewer ranks cannot hold its values: {}", why_not_held)
                                      : "";
  context.recovery()->tell_last_save(/*is_training=*/true, unsaved_for);
}

void Training::TrainCall::save_last(const std::string& reason, const Callbacks& callbacks) {
  cluster::Context& context = t_.core_.context;
  const auto found = t_.kept_.begin([] { return false; });
  if (found == KeptTraining::Found::kDone && t_.kept_.has_later()) return restore_data_state();
  context_.number = t_.kept_.number();
  context_.first_step = t_.kept_.first_step();
  LastSave done{.failed = t_.kept_.why_nothing()};
  if (found == KeptTraining::Found::kDone) done.failed = "the training was over";
  const std::string who = context.size() == 1 ? "the rank that is left has" : "the ranks that are left have";
  std::string saved;
  if (found != KeptTraining::Found::kMiddle && mode_.is_shared()) {
    try {
      context.world().barrier("end of training");  // the first that ends tells the job so, which ends the others
    } catch (const Error& error) {
      log_info("nothing is saved: {}", error.what());
    }
  }
  if (found == KeptTraining::Found::kMiddle) {
    try {
      save_kept(callbacks, done);
      if (mode_.is_shared()) context.world().barrier("end of training");
    } catch (const Error& error) {
      log_info("saving what was kept: {}", error.what());
    }
    if (done.paths.empty() && done.failed.empty()) done.failed = kNoCheckpoints;
  }
  if (!done.paths.empty()) {
    const std::string but =
        done.failed.empty() ? "" : fmt::format(", and not by every ModelCheckpoint: {}", done.failed);
    // Two have "auto" ask which of them counts.
    saved = fmt::format(
        "{} saved what was kept, after epoch {}, step {}, as {}{}; start the job again with resume=\"{}\" to go on "
        "from "
        "there",
        who, context_.epoch, context_.step_in_epoch, fmt::join(done.paths, ", "), but,
        done.paths.size() == 1 ? "auto" : done.paths.front());
    try {
      // The scheduler says so, whatever the script makes of the exception.
      if (context.rank() == 0) context.recovery()->set_state(kLastSave, saved);
    } catch (const Error& error) {
      log_info("what was saved is not told: {}", error.what());
    }
  }
  context.recovery()->leave_for_good();
  if (saved.empty()) {
    // Where nothing is kept for another model was trained since, it is no checkpoint of what is lost.
    const std::string newest = t_.kept_.keeps() ? describe_newest(callbacks) : "";
    saved = fmt::format("what {} kept is not saved: {}{}", who, done.failed, newest.empty() ? "" : "; " + newest);
  }
  const std::string words = fmt::format("{}; {}", reason, saved);
  context.write_report(context.rank(), words);  // whatever the script makes of the exception
  throw cluster::JobStopped(words);
}

void Training::TrainCall::save_kept(const Callbacks& callbacks, LastSave& done) {
  const TrainingProgress& progress = t_.progress_;
  context_.step = progress.step;
  context_.epoch = progress.epoch;
  context_.step_in_epoch = progress.step_in_epoch;
  context_.is_last_save = true;
  // What ends it is no failure of the callbacks': they only let go of what they hold.
  context_.has_failed = context_.was_told_to_end = true;
  for (const auto& callback : callbacks) {
    if (!callback->saves()) continue;
    try {
      callback->begin(context_);
      std::string path;
      try {
        path = callback->save_before_end(context_);
      } catch (...) {
        callback->end(context_);
        throw;
      }
      callback->end(context_);
      if (!path.empty()) done.paths.push_back(path);
    } catch (const Error& error) {  // on all ranks, unless one is lost
      if (done.failed.empty()) done.failed = error.what();
      if (t_.core_.context.recovery()->has_failed()) throw;
    }
  }
}

// By the files, for an earlier process has saved it.
std::string Training::TrainCall::describe_newest(const Callbacks& callbacks) const {
  FileSystem& files = t_.core_.context.file_system();
  for (const auto& callback : callbacks) {
    const SavedNames names = callback->saved_names();
    if (names.directory.empty() || names.are_best) continue;
    try {
      if (!files.exists(names.directory)) continue;
      for (const auto& entry : checkpoint::checkpoints_newest_first(files, names.directory, names.prefix)) {
        if (entry.has_manifest) return fmt::format("the newest checkpoint is {}", entry.path);
      }
    } catch (const Error& error) {
      return error.what();
    }
  }
  return "there is no checkpoint";
}

void Training::TrainCall::name_newest_checkpoint(const Callbacks& callbacks) const {
  if (why_ranks_stay().empty()) return;
  try {
    throw;
  } catch (const comm::PeerFailure& lost) {
    std::string newest = "there is no checkpoint, for no ModelCheckpoint is among the callbacks";
    // A process that has begun anew may have saved nothing itself.
    for (const auto& callback : callbacks) {
      const SavedNames names = callback->saved_names();
      if (!names.directory.empty()) newest = fmt::format("what was saved of the training is in {}", names.directory);
    }
    if (const LiveCheckpoint saved = t_.newest_checkpoint(); !saved.path.empty()) {
      newest = fmt::format("the newest checkpoint is {}, after step {}", saved.path, saved.step);
    }
    throw comm::PeerFailure(lost.rank(), fmt::format("{}; {}", lost.what(), newest));
  } catch (...) {  // the caller throws it on
  }
}

void Training::TrainCall::take_in_newcomers(bool is_end_of_epoch) {
  cluster::Context& context = t_.core_.context;
  const bool has_saved = t_.saver_.num_saves() != std::exchange(num_saves_, t_.saver_.num_saves());
  if (!is_elastic(context) || (!has_saved && !is_end_of_epoch)) return;
  int64_t waiting = context.recovery()->num_newcomers();
  const bool are_several = context.size() > 1 && mode_.is_shared();
  if (are_several) context.world().all_reduce(&waiting, 1, DType::kI64, comm::ReduceOp::kMax, "who joins the job");
  if (waiting == 0) return;
  t_.saver_.finish();
  t_.kept_.keep_now();
  // Who begins anew lets go of the others: all must have come so far. One that is gone already has, or is lost, for
  // which the others begin anew, too.
  try {
    if (are_several) context.world().barrier("taking ranks in");
  } catch (const comm::PeerFailure& gone) {
    log_info("taking ranks in: {}", gone.what());
  }
  throw cluster::Resizing(
      fmt::format("after step {} {} more rank{} taken in", context_.step, waiting, waiting == 1 ? " is" : "s are"));
}

void Training::TrainCall::end_if_told(const Callbacks& callbacks, bool may_keep) {
  const bool is_last = epoch_ == context_.num_epochs && context_.step_in_epoch == context_.steps_per_epoch;
  if (!end_ || is_last || context_.stop_requested || !end_->is_time_to_save()) return;
  finish_given_steps();
  std::string saved;
  for (const auto& callback : callbacks) {
    const auto path = callback->save_before_end(context_);
    if (!path.empty()) saved += (saved.empty() ? "" : ", ") + path;
  }
  const bool goes_on = is_elastic(t_.core_.context);
  if (goes_on && may_keep) t_.kept_.keep_now();
  if (end_->stops()) return stop(saved);
  const std::string where = saved.empty() ? "" : fmt::format(", which is saved as {}", saved);
  // Whose process ends tells the others so: all must have saved by then.
  if (mode_.is_shared()) t_.core_.context.world().barrier("end of training");
  const bool ends = end_->ends();
  const bool speaks = t_.core_.context.rank() == 0 || !mode_.is_shared();
  if (!ends) {
    const std::string why_stays = why_ranks_stay();
    const std::string how = !goes_on            ? "when it is back"
                            : why_stays.empty() ? "without it"
                                                : "when it is back or a spare takes its place, else the job ends and "
                                                  "is to be started again: " +
                                                      why_stays;
    const auto message = fmt::format("a rank ends by SIGTERM after epoch {}, step {}{}; the training goes on {}",
                                     context_.epoch, context_.step_in_epoch, where, how);
    // All know that it leaves, so nobody needs to miss it first.
    if (goes_on && why_stays.empty() && mode_.is_shared()) throw cluster::Resizing(message);
    if (speaks) log_warning("{}", message);
    return;
  }
  if (goes_on) t_.core_.context.recovery()->leave_for_good();
  const auto message = fmt::format("SIGTERM ends the training after epoch {}, step {}{}", context_.epoch,
                                   context_.step_in_epoch, saved.empty() ? "" : ": it is saved as " + saved);
  if (speaks) log_warning("{}", message);
  throw cluster::Terminated(message);
}

void Training::TrainCall::stop(const std::string& saved) {
  cluster::Context& context = t_.core_.context;
  const bool are_several = mode_.is_shared() && context.size() > 1;
  // The scheduler may not have told all of them yet.
  std::vector<std::string> reasons = {context.recovery()->stop_reason()};
  if (are_several) reasons = session::gather_texts(context.world(), reasons.front(), "why the training stops");
  reasons.emplace_back("asked for a number of ranks that the job cannot have");  // of a scheduler that is gone by now
  const std::string reason = *std::ranges::find_if(reasons, [](const auto& text) { return !text.empty(); });
  if (saved.empty()) {
    end_->go_on();
    context.recovery()->fix_ranks(why_ranks_stay(), kNoCheckpoints);  // else it is asked again
    if (context.rank() == 0) {
      log_warning("{}: the training goes on as it is, for no ModelCheckpoint is among the callbacks to save it",
                  reason);
    }
    return;
  }
  // The first that ends tells the job so, which ends the others.
  try {
    if (are_several) context.world().barrier("end of training");
  } catch (const comm::PeerFailure& gone) {
    log_info("stopping: {}", gone.what());
  }
  end_->ends();  // whoever was told to end, too, ends so
  context.recovery()->leave_for_good();
  throw cluster::JobStopped(fmt::format(
      "{}: it stops after epoch {}, step {}, saved as {}; start it again with that number of ranks, with strategies "
      "that fit it and resume=\"auto\", to go on from there",
      reason, context_.epoch, context_.step_in_epoch, saved));
}

void Training::TrainCall::run_micro_batches(bool is_reported) {
  double loss_sum = 0;
  int64_t num_losses = 0;
  do {
    session::Executable& executable = next_batch();
    if (!is_reported && t_.may_run_ahead(executable)) return give_step(executable);
    finish_given_steps();
    t_.call_for_step(context_, [&] { t_.run_step(executable); });
    if (is_reported) {
      loss_sum += t_.loss_of(executable);
      ++num_losses;
    }
    t_.progress_.position = batches_->position();
    t_.progress_.data_state = batches_->source_state();
  } while (!t_.count_batch());
  t_.progress_.advance(epoch_, context_.step_in_epoch);
  context_.step = t_.progress_.step;
  if (is_reported) context_.loss = loss_sum / static_cast<double>(num_losses);
}

void Training::TrainCall::give_step(session::Executable& executable) {
  t_.core_.values->set_changed();
  std::exception_ptr failed;
  try {
    executable.start("column");
  } catch (...) {
    failed = std::current_exception();
  }
  if (failed) {
    finish_given_steps();  // what fails in them has failed before
    t_.call_for_step(context_, [&] { std::rethrow_exception(failed); });
  }
  given_.push_back({.executable = &executable,
                    .position = batches_->position(),
                    .data_state = batches_->source_state(),
                    .step_in_epoch = context_.step_in_epoch,
                    .rows_of_epoch = context_.rows_of_epoch});
}

void Training::TrainCall::finish_given_step() {
  const GivenStep given = given_.front();
  given_.pop_front();
  const GivenStep present{.step_in_epoch = context_.step_in_epoch, .rows_of_epoch = context_.rows_of_epoch};
  context_.step_in_epoch = given.step_in_epoch;
  context_.rows_of_epoch = given.rows_of_epoch;
  try {
    t_.call_for_step(context_, [&] { given.executable->finish("column"); });
  } catch (...) {
    for (const GivenStep& later : given_) later.executable->forget();
    given_.clear();
    throw;
  }
  t_.was_skipped_ = false;
  t_.progress_.position = given.position;
  t_.progress_.data_state = given.data_state;
  t_.count_batch();
  t_.progress_.advance(epoch_, given.step_in_epoch);
  context_.step = t_.progress_.step;
  context_.step_in_epoch = present.step_in_epoch;
  context_.rows_of_epoch = present.rows_of_epoch;
}

void Training::TrainCall::finish_given_steps() {
  while (!given_.empty()) finish_given_step();
}

session::Executable& Training::TrainCall::next_batch() {
  while (!given_.empty() && std::ssize(given_) >= t_.core_.options.steps_in_flight) finish_given_step();
  try {
    if (options_.before_batch) options_.before_batch();
    context_.rows_of_epoch += mode_.global_rows(dataset_, batches_->next_global_rows());
    return read_batch();
  } catch (...) {
    finish_given_steps();
    throw;
  }
}

session::Executable& Training::TrainCall::read_batch() {
  if (num_doubts_ != t_.steps_.num_doubts()) compile_full();  // a callback has changed the network
  const int64_t rows = mode_.global_rows(dataset_, batches_->next_global_rows());
  const auto read_into = [&](session::Executable& compiled, const BatchPlace& place) -> session::Executable& {
    const comm::RankProgress::Phase phase(t_.core_.context.progress(), "the next batch");
    const timeline::ScopedSpan span(t_.core_.context.recorder(), timeline::SpanKind::kBatch);
    batches_->next_into(place.written);
    compare_rows(place);
    place.distribute();
    return compiled;
  };
  if (rows == full_rows_) {
    const auto& [compiled, place] = full_.at(t_.next_part());
    if (!compiled->may_run_ahead()) return read_into(*compiled, place);
    // What was started has its own memory.
    return read_into(*compiled, t_.whole_batches_.place(*compiled, full_inputs_, mode_.gives_own_rows(dataset_)));
  }
  const auto inputs = input_specs(dataset_, rows);
  session::Executable& compiled = t_.steps_.training(inputs, t_.next_part());
  return read_into(compiled, t_.whole_batches_.place(compiled, inputs, mode_.gives_own_rows(dataset_)));
}

namespace {

// Data that differs between ranks mostly does so from the first batches on. Later a checksum of one batch in so many,
// and an all_reduce of four words, are nothing beside the steps.
constexpr int64_t kBatchesBetween = 64;

}  // namespace

void Training::TrainCall::compare_rows(const BatchPlace& place) {
  if (!is_one_batch_) return;
  ++num_read_;
  if (!std::has_single_bit(static_cast<uint64_t>(num_read_)) && num_read_ % kBatchesBetween != 0) return;
  const int64_t since = num_read_ - std::exchange(num_compared_, num_read_);
  const auto where = [&] {
    return fmt::format("train: epoch {}, batch {}{}", context_.epoch, t_.progress_.position.batch + 1,
                       since > 1 ? fmt::format(", compared {} batches after the latest one", since) : "");
  };
  session::agree_on_batch(t_.core_.context.world(), where, "", place.written);
}

namespace {

bool is_one_prefix(const SavedNames& a, const SavedNames& b) {
  if (a.prefix.empty() || a.directory != b.directory) return false;
  return checkpoint::successor_of(a.prefix, b.prefix) || checkpoint::successor_of(b.prefix, a.prefix);
}

void check_saved_names(const Callbacks& callbacks) {
  std::vector<SavedNames> all;
  for (const auto& callback : callbacks) {
    const SavedNames names = callback->saved_names();
    for (const auto& other : all) {
      if (!is_one_prefix(names, other) || (!names.are_best && !other.are_best)) continue;
      throw InvalidArgument(
          "train: two callbacks save as \"{}\", of which one keeps the best: each would remove what the other has "
          "saved; "
          "give them different prefixes, as \"{}\" and \"{}\"",
          join_path(names.directory, names.prefix), join_path(names.directory, "CKP"),
          join_path(names.directory, "best"));
    }
    all.push_back(names);
  }
}

}  // namespace

void Training::run(Model& model, int64_t num_epochs, const data::Dataset& dataset, const Callbacks& callbacks,
                   const TrainOptions& options) {
  if (num_epochs < 1) throw InvalidArgument("train: the number of epochs must be at least 1, got {}", num_epochs);
  check_saved_names(callbacks);
  core_.meet("begin of a training");
  core_.mode->begin_training();
  leave_failed();
  TrainCall call(*this, model, dataset, options);
  if (call.prepare(num_epochs, callbacks)) return call.run_epochs(callbacks);
  if (!kept_.has_later()) tell_no_training();
  saver_.finish();
}

namespace {

// Calls that are all made, whatever fails.
class Attempts {
 public:
  explicit Attempts(std::exception_ptr first = nullptr) : first_(std::move(first)) {}
  template <typename Call>
  void make(const Call& call) {
    try {
      call();
    } catch (const std::exception& error) {
      if (first_) log_error("train: what ends it has failed before; then this did: {}", error.what());
      if (!first_) first_ = std::current_exception();
    }
  }
  void throw_first() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

constexpr std::string_view kStopped = "stopped";

// By the exception that is being handled: "failed", "stopped" by a signal, or "" where the training goes on in another
// process, as that of a rank that begins anew does.
std::string_view how_training_ended(const RunContext& run) {
  try {
    throw;
  } catch (const cluster::Resizing&) {
    return "";
  } catch (const cluster::JobStopped&) {
    return kStopped;
  } catch (...) {
    return run.signal.empty() ? "failed" : kStopped;
  }
}

}  // namespace

// Whatever fails: the epochs are done, and each callback lets go of what it holds.
void Training::end(RunContext& run, const Callbacks& callbacks) {
  Attempts attempts;
  for (const auto& callback : callbacks) attempts.make([&] { callback->end(run); });
  attempts.make([&] { saver_.finish(); });
  attempts.make([&] { kept_.finish(); });
  progress_.end();
  attempts.throw_first();
  live_.end(run.stop_requested ? "stopped" : "completed", newest_checkpoint());
  core_.mode->refresh_copies(core_.session());
  if (auto* progress = core_.context.progress()) progress->set_step(0);
  if (auto* recorder = core_.context.recorder()) recorder->write();
  kept_.keep(/*is_done=*/true);
  tell_no_training();
}

void Training::tell_no_training() {
  cluster::Context& context = core_.context;
  if (context.recovery() != nullptr && context.rank() == 0) context.recovery()->tell_last_save(false, "");
}

void Training::fail(RunContext& run, const Callbacks& callbacks, size_t num_begun) {
  has_failed_ = true;  // the progress stays until the next training, so that a save says it
  run.has_failed = true;
  core_.mode->note_failure(std::current_exception());
  const std::string_view how = how_training_ended(run);
  run.was_told_to_end = how == kStopped;
  Attempts attempts(std::current_exception());
  for (size_t i = 0; i < num_begun; ++i) attempts.make([&] { callbacks[i]->end(run); });
  attempts.make([&] { saver_.finish(); });
  attempts.make([&] { kept_.finish(); });
  if (!how.empty()) live_.end(how.data(), newest_checkpoint());
  if (auto* recorder = core_.context.recorder()) recorder->write();
}

void Training::leave_failed() {
  if (!std::exchange(has_failed_, false)) return;
  loss_sum_ = 0;
  progress_.end();
  snapshot_.finish();
  session::Session& session = core_.session();
  for (const auto& name : session.names()) {
    if (nn::is_accumulation_state(name)) session.set_value(name, Tensor::zeros(session.global_type(name)));
  }
}

namespace {

constexpr auto train_step = [] { return std::string("train_step"); };

}  // namespace

void Training::agree_on_rows(const InputSpecs& inputs, const std::vector<TensorView>& local_batch,
                             session::StepPart part, int64_t global_rows) const {
  const Mode& mode = *core_.mode;
  const bool are_alike = mode.is_shared() && mode.compiles_together() && mode.steps_together();
  if (!are_alike || is_compared_with_job(core_.context)) return;
  std::string columns;
  for (const auto& input : inputs) columns += fmt::format("{}{}", columns.empty() ? "" : ", ", input.type);
  auto given = fmt::format("global_rows {} ({})", global_rows, columns);
  if (mode.takes_whole_batches()) {
    return session::agree_on_batch(core_.context.world(), train_step, given, local_batch);
  }
  // Else it would be refused alone, while the others are in the step.
  const session::Executable* known = steps_.known_training(inputs, part);
  for (size_t i = 0; known != nullptr && i < inputs.size(); ++i) {
    const Shape& wanted = known->input(inputs[i].name).shape;
    if (wanted == local_batch[i].shape) continue;
    given += fmt::format(", of which it has {} in place of {}", plural(local_batch[i].shape[0], "row"), wanted[0]);
    break;
  }
  session::agree_on_step(core_.context.world(), train_step(), given);
}

void Training::agree_on_rows_of_job(const std::vector<TensorView>& local_batch) const {
  const Mode& mode = *core_.mode;
  if (!mode.takes_whole_batches() || !mode.steps_together() || !is_compared_with_job(core_.context)) return;
  session::agree_on_batch(core_.context.world(), train_step, "", local_batch);
}

namespace {

// For a rank that has not given `rows` of a global batch, but other ones.
[[noreturn]] void throw_other_rows(int rank, const mesh::Range& rows, int64_t global_rows, const TensorView& given) {
  throw InvalidArgument(
      "train_step: each rank gives its part of the global batch: rank {} must give {} of {} (global_rows={}), it gave "
      "{}; give rows {}:{} of the batch and global_rows={}, or, where what it gave is its part, as with num_shards and "
      "shard_id of the data set, global_rows= the rows of all ranks",
      rank, plural(rows.size, "row"), global_rows, global_rows, given.shape[0], rows.offset, rows.offset + rows.size,
      global_rows);
}

}  // namespace

double Training::run_step_on(const std::vector<TensorView>& local_batch, int64_t global_rows) {
  InputSpecs inputs;
  leave_failed();
  note_step(progress_.step + 1);
  const timeline::StepSpan span(core_.context.recorder(), progress_.step + 1);
  for (size_t i = 0; i < local_batch.size(); ++i) {
    Type type = local_batch[i].type();
    if (type.shape.ndim() > 0) type.shape[0] = global_rows;
    inputs.push_back({fmt::format("input{}", i), type});
  }
  const auto part = next_part();
  agree_on_rows(inputs, local_batch, part, global_rows);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (local_batch[i].shape.ndim() > 0) continue;
    throw InvalidArgument("train_step: input {} is a scalar, it has no rows", i);
  }
  session::Executable& executable = steps_.training(inputs, part);
  agree_on_rows_of_job(local_batch);
  core_.values->compare_replicas();
  latest_ = {inputs, part};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorView& to = executable.input(inputs[i].name);
    if (core_.mode->takes_whole_batches()) {
      copy_elements(mesh::piece_of(local_batch[i], executable.input_slice(inputs[i].name)), to);
      continue;
    }
    if (!(to.shape == local_batch[i].shape)) {
      throw_other_rows(core_.context.rank(), executable.input_slice(inputs[i].name)[0], global_rows, local_batch[i]);
    }
    copy_elements(local_batch[i], to);
  }
  run_step(executable);
  loss_sum_ += loss_of(executable);
  const int64_t done = core_.options.accumulates() ? core_.values->accumulated_batches() + 1 : 1;
  const double mean = loss_sum_ / static_cast<double>(done);
  if (count_batch()) {
    loss_sum_ = 0;
    live_.step_end({.step = progress_.step, .rows = global_rows * done, .loss = mean}, newest_checkpoint());
  }
  return mean;
}

void Training::compare_with_job(const data::Dataset& dataset, std::optional<int64_t> num_epochs) {
  const Mode& mode = *core_.mode;
  if (!mode.may_be_resized() || !is_compared_with_job(core_.context)) return;
  TrainingSettings settings;
  if (num_epochs) settings.emplace_back("epochs", std::to_string(*num_epochs));
  settings.emplace_back("batch_size", std::to_string(dataset.get_batch_size()));
  settings.emplace_back("batches of an epoch", std::to_string(dataset.get_dataset_size()));
  // Ranks that have batches of their own may have them in orders of their own.
  const bool is_common = mode.takes_whole_batches() ? !mode.gives_own_rows(dataset) : dataset.num_shards() == 1;
  if (is_common) settings.emplace_back("the data set", dataset.order_text());
  std::string columns;
  for (const auto& column : dataset.columns()) {
    columns += fmt::format("{}{} {}", columns.empty() ? "" : ", ", column.name, column.type);
  }
  settings.emplace_back("its columns", columns);
  require_same_as_job(core_.context, settings);
}

void Training::build(const data::Dataset& dataset) {
  compare_with_job(dataset);
  const auto inputs = input_specs(dataset, core_.mode->global_rows(dataset, dataset.get_batch_size()));
  for (const auto part : parts()) steps_.training(inputs, part);
}

void Training::resume(const checkpoint::CheckpointInfo& info) {
  loss_sum_ = 0;
  has_failed_ = false;
  const bool tells_state = progress_.tells_state;
  progress_ = TrainingProgress::of(info);
  progress_.tells_state = tells_state;
  if (info.random_state.empty()) return;
  const bool are_several = core_.mode->is_shared();
  const auto state = find_data_state(info.random_state, are_several ? core_.context.rank() : 0,
                                     are_several ? core_.context.size() : 1);
  progress_.data_state = state.value_or("");
  progress_.is_state_due = state.has_value();
  if (state || core_.context.rank() != 0) return;
  log_warning(
      "the checkpoint has the states of {} ranks' data sets, which differ, and here are {}: what these draw by "
      "themselves they draw anew",
      info.world_size, plural(core_.context.size(), "rank"));
}

}  // namespace tessera::train
