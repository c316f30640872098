#include "tessera/train/monitors/monitors.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/format/ckpt_path.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/session/session.h"
#include "tessera/train/model.h"
#include "tessera/train/options/train_options.h"
#include "tessera/train/saving/hold_directory.h"
#include "tessera/train/saving/rank_barrier.h"

namespace tessera::train {
namespace {

// Which number is to be beaten, and since when it is.
std::string stopping_words(const EpochMonitor& monitor, int64_t best_epoch) {
  const std::string since = plural(monitor.waited(), "epoch");
  if (!monitor.has_best()) return fmt::format("{} has not been a finite number for {}", monitor.name(), since);
  // Of a best epoch that another process of the job has trained only the number is known.
  const std::string of_epoch = best_epoch > 0 ? fmt::format(", that of epoch {},", best_epoch) : "";
  return fmt::format("{} has not been better than {}{} for {}", monitor.name(),
                     shortest(static_cast<float>(monitor.best())), of_epoch, since);
}

}  // namespace

EarlyStopping::EarlyStopping(MonitorOptions options, int64_t patience, bool restore_best)
    : monitor_("EarlyStopping", std::move(options)), patience_(patience), restore_best_(restore_best) {
  if (patience < 1) throw InvalidArgument("EarlyStopping: patience must be at least 1, got {}", patience);
}

void EarlyStopping::begin(RunContext& run) {
  monitor_.begin(run);
  stopped_epoch_ = best_epoch_ = kept_epoch_ = 0;
  kept_.clear();
  if (!restore_best_) return;
  const session::Session& session = std::as_const(run.model).session();
  for (const auto& name : run.model.parameter_names()) {
    if (!session.values().is_spilled(name)) continue;
    throw InvalidArgument(
        "EarlyStopping: restore_best keeps a copy in memory, but \"{}\" lies in a file; use BestCheckpoint, and load "
        "what "
        "it has saved",
        name);
  }
}

void EarlyStopping::epoch_begin(RunContext&) { monitor_.epoch_begin(); }
void EarlyStopping::step_end(RunContext& run) { monitor_.step_end(run); }

void EarlyStopping::epoch_end(RunContext& run) {
  if (monitor_.look(run)) {
    best_epoch_ = run.epoch;
    if (restore_best_) keep(run);
  }
  if (monitor_.waited() < patience_) return;
  stopped_epoch_ = run.epoch;
  run.request_stop();
  if (run.model.context().rank() != 0 || run.epoch >= run.num_epochs) return;
  log_warning("EarlyStopping: the training ends after epoch {} of {}: {}", run.epoch, run.num_epochs,
              stopping_words(monitor_, best_epoch_));
}

void EarlyStopping::keep(RunContext& run) {
  session::Session& session = run.model.session();
  for (const auto& name : run.model.parameter_names()) {
    const auto copy = kept_.find(name);
    if (copy != kept_.end() && copy->second.type() == session.values().type(name)) {
      session.values().place(name).read_to(copy->second.view());
    } else {
      kept_.insert_or_assign(name, session.values().read(name));
    }
  }
  kept_epoch_ = run.epoch;
}

void EarlyStopping::end(RunContext& run) {
  if (restore_best_ && !run.has_failed) restore(run);
  kept_.clear();
}

void EarlyStopping::restore(RunContext& run) {
  // Ranks that have come to the job since then have nothing.
  int64_t epochs[] = {kept_epoch_, -kept_epoch_};
  if (run.model.is_shared()) {
    run.model.context().world().all_reduce(epochs, 2, DType::kI64, comm::ReduceOp::kMin, "EarlyStopping");
  }
  if (epochs[0] == 0 || epochs[0] != -epochs[1]) {
    if (run.model.context().rank() != 0) return;
    log_warning(
        "EarlyStopping: the parameters stay as the last epoch has left them: {}; BestCheckpoint keeps the best in a "
        "file",
        -epochs[1] == 0 ? "no epoch of this process was the best" : "not every rank was there in the best epoch");
    return;
  }
  session::Session& session = run.model.session();
  for (const auto& [name, piece] : kept_) {
    check(piece.type() == session.values().type(name), "a piece that was kept has the type of the value");
    session.values().write(name, piece.view());
  }
}

BestCheckpoint::BestCheckpoint(std::string path, MonitorOptions options, const BestCheckpointOptions& best)
    : path_(checkpoint::with_ckpt_suffix(path)),
      options_(best),
      monitor_("BestCheckpoint", options),
      list_(best.save_top_k, monitor_.falls(), options.min_delta) {
  if (best.save_top_k < 1) {
    throw InvalidArgument("BestCheckpoint: save_top_k must be at least 1, got {}; ModelCheckpoint saves every epoch",
                          best.save_top_k);
  }
  if (!keeps_several()) return;
  directory_ = parent_path(path_);
  if (directory_.empty()) directory_ = ".";
  given_prefix_ = base_name(path_);
  given_prefix_.resize(given_prefix_.size() - checkpoint::kCheckpointSuffix.size());
  checkpoint::checkpoint_name(given_prefix_, 1, 1);  // refuses a prefix that cannot be one
}

namespace {

std::string entry_name(const EpochMonitor& monitor) { return "best_" + monitor.name(); }

// What a rank has found in its directory, as text for the other ranks: the end of a prefix that nobody has used, and a
// line for each checkpoint.
struct FoundBest {
  std::string suffix;
  std::vector<checkpoint::ScoredCheckpoint> checkpoints;
};

std::string to_text(const FoundBest& found) {
  std::string text = "found " + found.suffix;
  for (const auto& [name, step, score] : found.checkpoints) {
    text += fmt::format("\n{}\t{}\t{}", step, shortest(score), name);
  }
  return text;
}

FoundBest parse_found(std::string_view text) {
  constexpr std::string_view kWhat = "best checkpoints of another rank";
  FoundBest found;
  for (const auto line : split(text, '\n')) {
    const auto fields = split(line, '\t');
    if (fields.size() == 1) found.suffix = std::string(line.substr(std::string_view("found ").size()));
    if (fields.size() != 3) continue;
    found.checkpoints.push_back({std::string(fields[2]), parse_int(fields[0], kWhat), parse_double(fields[1], kWhat)});
  }
  return found;
}

bool holds(const FoundBest& found, const checkpoint::ScoredCheckpoint& wanted) {
  return std::ranges::any_of(found.checkpoints, [&](const auto& checkpoint) {
    return checkpoint.name == wanted.name && checkpoint.step == wanted.step;
  });
}

}  // namespace

void BestCheckpoint::begin(RunContext& run) {
  monitor_.begin(run);
  if (keeps_several()) {
    find_saved(run);
  } else if (run.step > 0) {
    take_saved(run);
  }
}

void BestCheckpoint::take_saved(RunContext& run) {
  auto& context = run.model.context();
  const std::string training = run.model.training_id();
  double said[] = {0, 0};  // whether there is a value, and the value
  if (context.rank() == 0 || !run.model.is_shared()) {
    try {
      if (context.file_system().exists(path_)) {
        const auto saved = checkpoint::GlobalCheckpoint::open(context.file_system(), path_);
        const bool is_own = saved.info() && saved.info()->training_id == training;
        if (is_own && saved.find(entry_name(monitor_)) != nullptr) {
          said[0] = 1;
          said[1] = saved.read_whole(entry_name(monitor_)).item();
        }
      }
    } catch (const Error& error) {
      log_warning("BestCheckpoint: what was the best so far is not known, the next epoch counts as such: {}",
                  error.what());
    }
  }
  if (run.model.is_shared()) context.world().broadcast(said, 2, DType::kF64, 0, "BestCheckpoint");
  if (said[0] == 1) monitor_.take_best(said[1]);
}

void BestCheckpoint::find_saved(RunContext& run) {
  auto& context = run.model.context();
  FileSystem& files = context.file_system();
  const bool is_shared = run.model.is_shared();
  lock_.reset();  // of a training that failed
  lock_ = hold_directory(context, {.path = directory_, .is_shared = is_shared, .recovers = run.number > 0});
  retention_ = std::make_shared<checkpoint::BestRetention>(files, directory_, given_prefix_, run.model.training_id(),
                                                           entry_name(monitor_));
  const auto look = [&]() -> std::string {
    if (lock_ == nullptr) return "";  // another rank looks into this directory
    FoundBest found;
    found.checkpoints = retention_->find();
    found.suffix = checkpoint::unused_prefix(files, directory_, given_prefix_).substr(given_prefix_.size());
    return to_text(found);
  };
  std::vector<std::string> of_ranks;
  if (is_shared) {
    RankBarrier barrier(context.world());
    of_ranks = checkpoint::run_together(barrier, "cannot look for the best checkpoints", look);
  } else {
    of_ranks = {look()};
  }
  // Ranks with directories of their own: what only some of them have is no whole checkpoint.
  std::vector<FoundBest> all;
  std::string suffix;
  for (const auto& text : of_ranks) {
    if (text.empty()) continue;
    all.push_back(parse_found(text));
    const auto& other = all.back().suffix;
    if (std::pair(other.size(), other) > std::pair(suffix.size(), suffix)) suffix = other;
  }
  prefix_ = given_prefix_ + suffix;
  list_.clear();
  for (const auto& checkpoint : all.front().checkpoints) {
    const bool is_whole = std::ranges::all_of(all, [&](const FoundBest& found) { return holds(found, checkpoint); });
    if (is_whole) list_.add(checkpoint);
  }
}

void BestCheckpoint::epoch_begin(RunContext&) { monitor_.epoch_begin(); }
void BestCheckpoint::step_end(RunContext& run) { monitor_.step_end(run); }

void BestCheckpoint::epoch_end(RunContext& run) {
  const bool is_best = monitor_.look(run);
  if (!keeps_several()) {
    if (is_best) save(run, path_, monitor_.best());
    return;
  }
  const double score = monitor_.value();
  if (!list_.takes(score, run.step)) return;
  const std::string name = checkpoint::checkpoint_name(prefix_, run.epoch, run.step_in_epoch);
  list_.add({name, run.step, score});
  save(run, join_path(directory_, name), score);
}

void BestCheckpoint::save(RunContext& run, const std::string& path, double score) {
  SaveCheckpointOptions options;
  options.integrated = options_.integrated_save;
  options.append_info.emplace_back(entry_name(monitor_), Tensor::scalar(score));
  if (keeps_several()) {
    // The first rank of each directory looks after what is kept there, once all have committed.
    options.before_write = [lock = lock_] {
      if (lock) lock->keep();
    };
    options.after_commit = [retention = retention_, best = list_.checkpoints()] { retention->tidy(best); };
  }
  run.model.save_checkpoint(path, options);
}

void BestCheckpoint::end(RunContext& run) {
  let_go_of_directory(run.model.context(),
                      {.path = directory_, .is_shared = run.model.is_shared(), .recovers = run.number > 0}, lock_);
  if (run.has_failed || !options_.restore_best) return;
  const bool is_known = keeps_several() ? !list_.checkpoints().empty() : monitor_.has_best();
  if (is_known) {
    run.model.load_parameters(path());
  } else if (run.model.context().rank() == 0) {
    log_warning("BestCheckpoint: the parameters stay as the last epoch has left them: nothing was the best");
  }
}

SavedNames BestCheckpoint::saved_names() const {
  if (!keeps_several()) return {};
  return {.directory = directory_, .prefix = given_prefix_, .are_best = true};
}

double BestCheckpoint::best() const {
  const auto& kept = list_.checkpoints();
  return kept.empty() ? monitor_.best() : kept.front().score;
}

std::string BestCheckpoint::path() const {
  if (!keeps_several()) return path_;
  const auto& kept = list_.checkpoints();
  return kept.empty() ? "" : join_path(directory_, kept.front().name);
}

std::vector<std::string> BestCheckpoint::paths() const {
  if (!keeps_several()) return monitor_.has_best() ? std::vector{path_} : std::vector<std::string>();
  std::vector<std::string> paths;
  for (const auto& checkpoint : list_.checkpoints()) paths.push_back(join_path(directory_, checkpoint.name));
  return paths;
}

std::vector<double> BestCheckpoint::scores() const {
  if (!keeps_several()) return monitor_.has_best() ? std::vector{monitor_.best()} : std::vector<double>();
  std::vector<double> scores;
  for (const auto& checkpoint : list_.checkpoints()) scores.push_back(checkpoint.score);
  return scores;
}

ReduceLROnPlateau::ReduceLROnPlateau(MonitorOptions options, const ReduceOnPlateauOptions& reduction, PrintLine print)
    : monitor_("ReduceLROnPlateau", std::move(options)), reduction_(reduction), print_(std::move(print)) {
  constexpr const char* kWho = "ReduceLROnPlateau";
  if (!(reduction.factor > 0 && reduction.factor < 1)) {
    throw InvalidArgument("{}: factor must be between 0 and 1, got {}", kWho, reduction.factor);
  }
  if (reduction.patience < 1)
    throw InvalidArgument("{}: patience must be at least 1, got {}", kWho, reduction.patience);
  if (reduction.cooldown < 0) {
    throw InvalidArgument("{}: cooldown must not be negative, got {}", kWho, reduction.cooldown);
  }
  if (!(reduction.min_rate >= 0) || !std::isfinite(reduction.min_rate)) {
    throw InvalidArgument("{}: min_rate must be finite and not negative, got {}", kWho, reduction.min_rate);
  }
}

namespace {

// The optimizer's states that are learning rates, by their last name. What an optimizer keeps of a parameter of such a
// name is none.
std::vector<std::string> rates_of(const Model& model) {
  const auto parameters = model.parameter_names();
  std::vector<std::string> rates;
  for (const auto& name : model.names()) {
    const std::string last = name.substr(name.rfind('.') + 1);
    if (last != "learning_rate" && !last.starts_with("learning_rate_group_")) continue;
    const bool is_of_parameter = std::ranges::any_of(
        parameters, [&](const auto& parameter) { return name == parameter || name.ends_with("." + parameter); });
    if (!is_of_parameter) rates.push_back(name);
  }
  return rates;
}

}  // namespace

void ReduceLROnPlateau::begin(RunContext& run) {
  monitor_.begin(run);
  last_cooled_ = 0;
  rates_ = rates_of(run.model);
  const session::Session& session = std::as_const(run.model).session();
  const bool is_made = rates_.empty();
  const bool is_table =
      std::ranges::any_of(rates_, [&](const auto& name) { return session.global_type(name).shape.ndim() != 0; });
  if (!is_made && !is_table) return require_reducible(run);
  throw InvalidArgument(
      "ReduceLROnPlateau: the optimizer's learning rate is {}, which the script gives anew when a training goes on; "
      "give "
      "the optimizer and its groups one number each",
      is_made ? "made of the step by operators" : "a table with one for each step");
}

// A rate that has been reduced to min_rate before is as it should be.
void ReduceLROnPlateau::require_reducible(RunContext& run) const {
  double highest = 0;
  for (const auto& name : rates_) highest = std::max(highest, run.model.value(name).item());
  if (static_cast<float>(reduction_.min_rate) <= static_cast<float>(highest)) return;
  throw InvalidArgument("ReduceLROnPlateau: min_rate = {} is above the learning rate, {}, which is never reduced then",
                        reduction_.min_rate, shortest(static_cast<float>(highest)));
}

void ReduceLROnPlateau::epoch_begin(RunContext&) { monitor_.epoch_begin(); }
void ReduceLROnPlateau::step_end(RunContext& run) { monitor_.step_end(run); }

void ReduceLROnPlateau::epoch_end(RunContext& run) {
  monitor_.look(run);
  if (run.epoch <= last_cooled_) monitor_.count_anew();
  int64_t is_due = monitor_.waited() >= reduction_.patience ? 1 : 0;
  if (run.model.is_shared()) {  // ranks that have come to the job later know of no cooldown
    run.model.context().world().broadcast(&is_due, 1, DType::kI64, 0, "ReduceLROnPlateau");
  }
  if (is_due == 0) return;
  monitor_.count_anew();
  last_cooled_ = run.epoch + reduction_.cooldown;
  for (const auto& name : rates_) {
    const Tensor rate = run.model.value(name);  // on all ranks: it may lie on some of them
    const double reduced = std::max(rate.item() * reduction_.factor, reduction_.min_rate);
    if (static_cast<float>(reduced) >= static_cast<float>(rate.item())) continue;
    run.model.set_value(name, Tensor::full(rate.type(), reduced));
    if (run.model.context().rank() == 0) {
      print_(fmt::format("epoch {}: {} has not been better for {} epochs, {} is {} from here on", run.epoch,
                         monitor_.name(), reduction_.patience, name, shortest(static_cast<float>(reduced))));
    }
  }
}

}  // namespace tessera::train
