#include "tessera/train/callbacks.h"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/read/choose.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/train/core/job_lines.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"
#include "tessera/train/saving/hold_directory.h"
#include "tessera/train/saving/rank_barrier.h"

namespace tessera::train {

void print_line(const std::string& line) {
  // One write per line: threads and processes that share the stream do not cut each other's lines.
  const std::string text = line + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

LossMonitor::LossMonitor(int64_t per_print_times, PrintLine print)
    : per_print_times_(per_print_times), print_(std::move(print)) {
  if (per_print_times < 0) {
    throw InvalidArgument("LossMonitor: per_print_times must not be negative, got {}", per_print_times);
  }
}

void LossMonitor::begin(RunContext& run) {
  // Where another process of the job has begun this training, lines come when that one's would have.
  if (run.number > 0 && per_print_times_ > 0 && run.step > run.first_step) {
    last_print_ = run.step - (run.step - run.first_step) % per_print_times_;
  }
}

void LossMonitor::step_end(RunContext& run) {
  if (run.step <= last_print_) last_print_ = 0;  // another training
  if (per_print_times_ == 0 || run.step - last_print_ < per_print_times_) return;
  last_print_ = run.step;
  print_(fmt::format("epoch: {} step: {}, loss is {}", run.epoch, run.step_in_epoch,
                     shortest(static_cast<float>(run.loss))));
}

TimeMonitor::TimeMonitor(int64_t data_size, PrintLine print) : data_size_(data_size), print_(std::move(print)) {
  if (data_size < 0) throw InvalidArgument("TimeMonitor: data_size must not be negative, got {}", data_size);
}

void TimeMonitor::epoch_begin(RunContext& run) { began_ns_ = run.model.context().clock().monotonic_ns(); }

void TimeMonitor::epoch_end(RunContext& run) {
  const double ms = static_cast<double>(run.model.context().clock().monotonic_ns() - began_ns_) / 1e6;
  const int64_t steps = data_size_ > 0 ? data_size_ : run.steps_per_epoch;
  print_(fmt::format("epoch time: {:5.3f} ms, per step time: {:5.3f} ms", ms, ms / static_cast<double>(steps)));
}

EpochSummary::EpochSummary(EpochSummaryOptions options, PrintLine print)
    : options_(std::move(options)), print_(std::move(print)) {}

void EpochSummary::begin(RunContext& run) {
  const auto& metrics = run.model.options().metrics;
  const auto has_name = [](const auto& metric) { return !metric->name().empty(); };
  if (!options_.valid || std::ranges::any_of(metrics, has_name)) return;
  throw InvalidArgument(
      "EpochSummary: the model has no metrics that `valid` could be measured by: name them where it is made, as "
      "metrics=[\"accuracy\"], or leave valid out");
}

void EpochSummary::epoch_begin(RunContext& run) {
  began_ns_ = run.model.context().clock().monotonic_ns();
  first_step_ = 0;
  loss_sum_ = 0;
  num_losses_ = 0;
}

void EpochSummary::step_begin(RunContext& run) {
  if (first_step_ == 0) first_step_ = run.step_in_epoch;
}

void EpochSummary::step_end(RunContext& run) {
  loss_sum_ += run.loss;
  ++num_losses_;
}

void EpochSummary::epoch_end(RunContext& run) {
  const double seconds = static_cast<double>(run.model.context().clock().monotonic_ns() - began_ns_) / 1e9;
  const std::string begin = first_step_ > 1 ? fmt::format(" from step {}", first_step_) : "";
  std::string text = fmt::format("epoch {}/{}{}:", run.epoch, run.num_epochs, begin);
  if (num_losses_ > 0) text += fmt::format(" loss {:.4f},", loss_sum_ / static_cast<double>(num_losses_));
  // Every rank evaluates.
  if (options_.valid) {
    for (const auto& [name, value] : run.model.eval(*options_.valid, {.num_workers = options_.num_workers})) {
      if (!name.empty()) text += fmt::format(" {}{} {:.4f},", name == "loss" ? "evaluated " : "", name, value);
    }
  }
  const double rate = static_cast<double>(run.rows_of_epoch) / std::max(seconds, 1e-9);
  if (run.model.context().rank() == 0) {
    print_(text + fmt::format(" {:.1f} {}/s, {:.1f} s", rate, options_.row_name, seconds));
  }
}

namespace {

// Whether each of several ranks saves a training of its own.
bool trains_alone(const RunContext& run) { return !run.model.is_shared() && run.model.context().size() > 1; }

// Whether every rank finds this step saved as a whole, by the ranks that there were before some were lost: then the
// checkpoint has the states of the data sets of all of them.
bool have_saved(const RunContext& run, const std::string& path) {
  auto& context = run.model.context();
  bool is_whole = false;
  try {
    is_whole = context.file_system().exists(path) &&
               checkpoint::verify(context.file_system(), path).state == checkpoint::Verified::kYes;
  } catch (const Error& error) {
    log_info("{}: {}; it is saved again", path, error.what());
  }
  const auto of_ranks = RankBarrier(context.world()).exchange(is_whole ? "whole" : "");
  return std::ranges::none_of(of_ranks, [](const std::string& of_rank) { return of_rank.empty(); });
}

std::string record_key(const RunContext& run, const std::string& prefix, const std::string& directory) {
  return fmt::format("{}\t{}\t{}\t", run.number, prefix, directory);
}

}  // namespace

ModelCheckpoint::ModelCheckpoint(std::string prefix, std::string directory, const checkpoint::CheckpointConfig& config)
    : given_prefix_(std::move(prefix)),
      prefix_(given_prefix_),
      directory_(std::move(directory)),
      config_(checkpoint::validated(config)),
      disabled_fields_(checkpoint::disabled_fields(config)) {
  checkpoint::checkpoint_name(prefix_, 1, 1);  // refuses a prefix that cannot be one
  if (directory_.empty()) directory_ = ".";
}

void ModelCheckpoint::begin(RunContext& run) {
  auto& context = run.model.context();
  FileSystem& files = context.file_system();
  if (context.rank() == 0 || !run.model.is_shared()) {
    for (const auto& line : std::exchange(disabled_fields_, {})) log_warning("ModelCheckpoint: {}", line);
  }
  lock_directory(run);
  prefix_ = recorded_prefix(run);
  if (prefix_.empty()) {
    prefix_ = choose_prefix(run);
    record_prefix(run);
  }
  // How the step is spread stands beside what it has made: one file for the ranks of a directory.
  if (const auto* plan = run.model.plan(); plan != nullptr && lock_ != nullptr && !run.is_last_save) {
    files.write_atomically(join_path(directory_, prefix_ + "-plan.json"), compiler::to_json(*plan), 0666);
  }
  // Another process of the job may have begun this training: then saves are due when that one's would have been.
  const int64_t since = run.step - run.first_step;
  const int64_t interval = config_.save_checkpoint_steps.value_or(0);
  const int64_t beyond = interval > 0 && run.number > 0 ? since % interval : 0;
  constexpr int64_t kNone = -1;  // whether the step was saved, this process does not know
  trigger_.emplace(config_, context.clock(), run.is_last_save ? kNone : run.step - beyond);
  const checkpoint::RetainedTraining training{
      .base_prefix = given_prefix_, .job_name = run.model.options().job_name, .training_id = run.model.training_id()};
  retention_ = std::make_shared<checkpoint::Retention>(files, directory_, prefix_, config_, training);
  if (lock_ != nullptr) retention_->finish_removals();
  if (config_.async_save) run.model.reserve_snapshot(join_path(directory_, prefix_), save_options({}));
}

std::string ModelCheckpoint::choose_prefix(RunContext& run) {
  auto& context = run.model.context();
  auto number = checkpoint::unused_prefix(context.file_system(), directory_, given_prefix_)
                    .substr(given_prefix_.size());  // "", "_1"
  if (run.model.is_shared()) {
    // All have looked before anyone writes. Where directories differ, all take the highest number.
    for (const auto& other : RankBarrier(context.world()).exchange(number)) {
      if (std::pair(other.size(), other) > std::pair(number.size(), number)) number = other;
    }
  }
  return given_prefix_ + number;
}

// Under which prefix another process of this job has saved this training; "" where none has. Rank 0 knows.
std::string ModelCheckpoint::recorded_prefix(RunContext& run) const {
  auto& context = run.model.context();
  if (run.number == 0 || trains_alone(run) || context.recovery()->generation() == 1) return "";
  std::string found;
  if (context.rank() == 0) {
    const std::string record = context.recovery()->find_state(kSavedTrainings).value_or("");
    found = find_line(record, record_key(run, given_prefix_, directory_)).value_or("");
  }
  return RankBarrier(context.world()).exchange(found)[0];
}

void ModelCheckpoint::record_prefix(RunContext& run) const {
  auto& context = run.model.context();
  if (run.number == 0 || trains_alone(run) || context.rank() != 0) return;
  const std::string record = context.recovery()->find_state(kSavedTrainings).value_or("");
  context.recovery()->set_state(kSavedTrainings,
                                with_line(record, record_key(run, given_prefix_, directory_), prefix_));
}

bool ModelCheckpoint::load_latest(RunContext& run) {
  const std::string prefix = recorded_prefix(run);
  if (prefix.empty()) return false;
  auto& context = run.model.context();
  std::vector<std::string> own;
  if (context.file_system().exists(directory_)) {
    for (const auto& entry : checkpoint::checkpoints_newest_first(context.file_system(), directory_, prefix)) {
      const std::string name = entry.path.substr(entry.path.rfind('/') + 1);
      const auto parsed = checkpoint::parse_checkpoint_name(name);
      if (parsed && parsed->prefix == prefix && entry.has_manifest) own.push_back(name);
    }
  }
  const auto of_ranks = RankBarrier(context.world()).exchange(fmt::format("{}", fmt::join(own, "\n")));
  const auto holds = [](const std::string& names, const std::string& name) {
    return ("\n" + names + "\n").find("\n" + name + "\n") != std::string::npos;
  };
  std::vector<std::string> faults;
  for (const auto name : split(of_ranks[0], '\n')) {
    const bool all = std::ranges::all_of(of_ranks, [&](const auto& names) { return holds(names, std::string(name)); });
    if (name.empty() || !all) continue;
    try {
      run.model.load_checkpoint(join_path(directory_, std::string(name)),
                                {.decryption = {config_.enc_key, config_.enc_mode}});
      if (context.rank() == 0) {
        const auto path = join_path(directory_, std::string(name));
        for (const auto& fault : faults) log_warning("{}; {} is taken instead", fault, path);
        log_info("the training goes on from {}", path);
      }
      return true;
    } catch (const Error& error) {  // on all ranks, unless one is lost
      if (context.recovery()->has_failed()) throw;
      faults.emplace_back(error.what());
    }
  }
  std::string list;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    std::string names = of_ranks[rank];
    std::ranges::replace(names, '\n', ' ');
    if (!names.empty()) list += fmt::format("; rank {} has {}", rank, names);
  }
  if (list.empty()) return false;
  throw InvalidArgument("{}: no checkpoint of the training \"{}\" is held by all ranks and can be used{}{}", directory_,
                        prefix, list, faults.empty() ? "" : "; " + faults.front());
}

void ModelCheckpoint::step_end(RunContext& run) {
  bool due = trigger_->is_due(run.step);
  auto& context = run.model.context();
  if (config_.save_checkpoint_steps == 0 && run.model.is_shared()) {
    // Clocks differ: rank 0 decides.
    int64_t decision = due ? 1 : 0;
    context.world().broadcast(&decision, 1, DType::kI64, 0, "ModelCheckpoint");
    due = decision == 1;
  }
  if (due) save(run);
}

std::string ModelCheckpoint::save_before_end(RunContext& run) {
  if (run.is_last_save) {
    const auto path = join_path(directory_, checkpoint::checkpoint_name(prefix_, run.epoch, run.step_in_epoch));
    if (have_saved(run, path)) {
      trigger_->saved(run.step);
      latest_ = path;
    }
  }
  if (trigger_->is_due_at_end(run.step)) save(run);
  run.model.finish_saves();
  return latest_;
}

namespace {

HeldDirectory held_directory(const RunContext& run, const std::string& path) {
  return {.path = path, .is_shared = run.model.is_shared(), .recovers = run.number > 0};
}

}  // namespace

void ModelCheckpoint::end(RunContext& run) {
  const struct LetGo {  // whatever fails
    RunContext& run;
    const std::string& directory;
    std::shared_ptr<checkpoint::DirectoryLock>& lock;
    ~LetGo() { let_go_of_directory(run.model.context(), held_directory(run, directory), lock); }
  } let_go{run, directory_, lock_};
  if (!run.has_failed && trigger_->is_due_at_end(run.step)) save(run);
  run.model.finish_saves();
}

void ModelCheckpoint::lock_directory(RunContext& run) {
  lock_.reset();  // of a training that failed: two of one process would share it
  lock_ = hold_directory(run.model.context(), held_directory(run, directory_));
}

SaveCheckpointOptions ModelCheckpoint::save_options(const checkpoint::CheckpointInfo& info) const {
  // The first rank of each directory looks after what is kept there, once all have committed.
  return {.append_info = checkpoint::appended_entries(config_, info),
          .integrated = config_.integrated_save,
          .async = config_.async_save,
          .encryption = {config_.enc_key, config_.enc_mode},
          .before_write =
              [lock = lock_] {
                if (lock) lock->keep();
              },
          .after_commit = [retention = retention_] { retention->tidy(); }};
}

void ModelCheckpoint::save(RunContext& run) {
  const auto name = checkpoint::checkpoint_name(prefix_, run.epoch, run.step_in_epoch);
  const checkpoint::CheckpointInfo info{.epoch = run.epoch, .step_in_epoch = run.step_in_epoch, .step = run.step};
  latest_ = run.model.save_checkpoint(join_path(directory_, name), save_options(info));
  trigger_->saved(run.step);
}

}  // namespace tessera::train
