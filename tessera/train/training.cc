#include "tessera/train/training.h"

#include <exception>
#include <map>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/nn/optimizers/base_optimizer.h"
#include "tessera/nn/optimizers/gradient_accumulation.h"
#include "tessera/train/options/precision.h"

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
  const TrainingPlace saved = place_;
  place_.count_in(data, core_.options.gradient_accumulation_steps, accumulated);
  if (place_.position.epoch == saved.position.epoch || core_.context.rank() != 0) return;
  log_warning(
      "train: the checkpoint was saved after {} batches of {} rows (of all ranks) of an epoch, and an epoch of this "
      "data set has {} of {}: it goes on with the next epoch",
      saved.position.batch, saved.rows_per_batch > 0 ? saved.rows_per_batch : data.rows_per_batch, data.num_batches,
      data.rows_per_batch);
}

void Training::say_short_rates(int64_t last_step) {
  if (rates_said_ || core_.context.rank() != 0) return;
  for (const nn::Parameter& state : core_.values->states()) {
    if (!nn::is_rate_table(state) || state.type.shape[0] >= last_step) continue;
    rates_said_ = true;
    log_warning(
        "train: {} has the rates of {} steps, the training goes on to step {}: the last rate holds from step {} on",
        state.full_name(), state.type.shape[0], last_step, state.type.shape[0]);
  }
}

void Training::run_batch(session::Executable& executable, const RunContext& run) {
  try {
    run_step(executable);
  } catch (const executor::NonFiniteLoss& error) {
    throw Error(fmt::format(
        "epoch: {} step: {}. Invalid loss, terminating training. {}; the parameters are those before the step",
        run.epoch, run.step_in_epoch, error.what()));
  } catch (const executor::InvalidIndex& error) {
    throw executor::InvalidIndex(fmt::format("epoch {}, batch {}: {}; the parameters are those before the step",
                                             run.epoch, place_.position.batch + 1, error.what()));
  }
}

void Training::run_step(session::Executable& executable) {
  core_.values->set_changed();
  executable.run("column");
  was_skipped_ = false;
  if (!executable.may_skip()) return;
  was_skipped_ = !*executable.output(ir::kUpdateGuard).as<bool>();
  if (!was_skipped_ || executor::all_finite(executable.output("loss"))) return;
  // No scale changes the loss, but a dynamic one that has fallen as far as it can has seen nothing else for long.
  const bool can_fall = loss_scale_of(core_.options)->is_dynamic() && core_.session().value(nn::kLossScale).item() > 1;
  if (can_fall) return;
  throw executor::NonFiniteLoss(
      fmt::format("loss is not finite, with a loss scale that cannot fall; first non-finite "
                  "result: {}",
                  executable.find_non_finite()));
}

bool Training::count_batch() {
  if (core_.options.accumulates()) {
    const auto counter = core_.session().values().in_place(nn::kAccumulatedSteps);
    if (counter) snapshot_.finish(*counter);  // what is not in place is copied when a snapshot begins
    const int64_t done = (core_.values->accumulated_batches() + 1) % core_.options.gradient_accumulation_steps;
    core_.values->set_accumulated_batches(done);
    if (done != 0) return false;
  }
  ++place_.step;
  return true;
}

void Training::run(Model& model, int64_t num_epochs, const data::Dataset& dataset, const Callbacks& callbacks,
                   const TrainOptions& options) {
  if (num_epochs < 1) throw InvalidArgument("train: the number of epochs must be at least 1, got {}", num_epochs);
  const int64_t batches_per_step = core_.options.gradient_accumulation_steps;
  const Mode& mode = *core_.mode;
  mode.compare_data(dataset);
  const int64_t steps = steps_per_epoch(dataset);
  mode.compare_steps(steps);
  const int64_t full_rows = mode.global_rows(dataset, dataset.get_batch_size());
  find_place_in(dataset, full_rows);
  const auto full_inputs = input_specs(dataset, full_rows);
  // By part of the step: what is compiled for full batches, and where they go.
  std::map<session::StepPart, std::pair<session::Executable*, BatchPlace>> full;
  int64_t num_doubts = 0;
  const auto compile_full = [&] {
    num_doubts = steps_.num_doubts();
    for (const auto part : parts()) {
      session::Executable& compiled = steps_.training(full_inputs, part);
      full[part] = {&compiled, whole_batches_.place(compiled, full_inputs, mode.gives_own_rows(dataset))};
      latest_ = {full_inputs, part};
    }
  };
  compile_full();
  core_.values->compare_new();

  // A loaded checkpoint says how many steps of which epoch are done; else epochs count from 1 again while the data goes
  // on: what is random in it does not repeat.
  const int64_t epochs_done = place_.epochs_done();
  if (epochs_done >= num_epochs) {
    log_warning("train: {} epochs are done already, {} were asked for", epochs_done, num_epochs);
    saver_.finish();
    return;
  }
  say_short_rates(place_.step + (num_epochs - epochs_done) * steps - place_.position.batch / batches_per_step);
  auto batches = batches_of(dataset, mode, place_.position, num_epochs - epochs_done, options, *executable());
  RunContext run{model};
  run.num_epochs = num_epochs;
  run.steps_per_epoch = steps;
  run.step = place_.step;
  const int64_t loop = !options.dataset_sink_mode ? 1 : options.sink_size > 0 ? options.sink_size : steps;

  // Returns what the batch is for.
  const auto read_batch = [&]() -> session::Executable& {
    if (num_doubts != steps_.num_doubts()) compile_full();  // a callback has changed the network
    const int64_t rows = mode.global_rows(dataset, batches.next_global_rows());
    if (rows == full_rows) {
      const auto& [compiled, place] = full.at(next_part());
      batches.next_into(place.written);
      place.distribute();
      return *compiled;
    }
    const auto inputs = input_specs(dataset, rows);
    session::Executable& compiled = steps_.training(inputs, next_part());
    const auto place = whole_batches_.place(compiled, inputs, mode.gives_own_rows(dataset));
    batches.next_into(place.written);
    place.distribute();
    return compiled;
  };

  for (const auto& callback : callbacks) callback->begin(run);
  for (int64_t epoch = epochs_done; epoch < num_epochs && !run.stop_requested; ++epoch) {
    run.epoch = epoch + 1;
    run.rows_of_epoch = 0;
    for (const auto& callback : callbacks) callback->epoch_begin(run);
    int64_t in_loop = 0;
    for (int64_t s = place_.position.batch / batches_per_step; s < steps && !run.stop_requested; ++s) {
      run.step_in_epoch = s + 1;
      if (in_loop++ == 0) {
        for (const auto& callback : callbacks) callback->step_begin(run);
      }
      const bool is_reported = in_loop == loop || run.step_in_epoch == steps;
      double loss_sum = 0;
      int64_t num_losses = 0;
      do {
        if (options.before_batch) options.before_batch();
        run.rows_of_epoch += mode.global_rows(dataset, batches.next_global_rows());
        session::Executable& executable = read_batch();
        run_batch(executable, run);
        if (is_reported) {
          loss_sum += loss_of(executable);
          ++num_losses;
        }
        place_.position = batches.position();
      } while (!count_batch());
      place_.advance(run.epoch, run.step_in_epoch);
      run.step = place_.step;
      if (is_reported) {
        run.loss = loss_sum / static_cast<double>(num_losses);
        in_loop = 0;
        for (const auto& callback : callbacks) callback->step_end(run);
      }
    }
    for (const auto& callback : callbacks) callback->epoch_end(run);
  }
  end(run, callbacks);
}

// Whatever fails: the epochs are done, and each callback lets go of what it holds.
void Training::end(RunContext& run, const Callbacks& callbacks) {
  std::exception_ptr first;
  const auto attempt = [&](const auto& call) {
    try {
      call();
    } catch (const std::exception& error) {
      if (first) log_error("train: what ends it has failed before; then this did: {}", error.what());
      if (!first) first = std::current_exception();
    }
  };
  for (const auto& callback : callbacks) attempt([&] { callback->end(run); });
  attempt([&] { saver_.finish(); });
  place_.end();
  if (first) std::rethrow_exception(first);
}

double Training::run_step_on(const std::vector<TensorView>& local_batch, int64_t global_rows) {
  InputSpecs inputs;
  for (size_t i = 0; i < local_batch.size(); ++i) {
    Type type = local_batch[i].type();
    if (type.shape.ndim() == 0) throw InvalidArgument("train_step: input {} is a scalar, it has no rows", i);
    type.shape[0] = global_rows;
    inputs.push_back({fmt::format("input{}", i), type});
  }
  const auto part = next_part();
  session::Executable& executable = steps_.training(inputs, part);
  core_.values->compare_replicas();
  latest_ = {inputs, part};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorView& to = executable.input(inputs[i].name);
    if (core_.mode->takes_whole_batches()) {
      copy_elements(mesh::piece_of(local_batch[i], executable.input_slice(inputs[i].name)), to);
      continue;
    }
    if (!(to.shape == local_batch[i].shape)) {
      throw InvalidArgument("train_step: rank {} must give {} rows of {}, it gave {}", core_.context.rank(),
                            to.shape[0], global_rows, local_batch[i].shape[0]);
    }
    copy_elements(local_batch[i], to);
  }
  run_step(executable);
  loss_sum_ += loss_of(executable);
  const int64_t done = core_.options.accumulates() ? core_.values->accumulated_batches() + 1 : 1;
  const double mean = loss_sum_ / static_cast<double>(done);
  if (count_batch()) loss_sum_ = 0;
  return mean;
}

void Training::build(const data::Dataset& dataset) {
  const auto inputs = input_specs(dataset, core_.mode->global_rows(dataset, dataset.get_batch_size()));
  for (const auto part : parts()) steps_.training(inputs, part);
}

void Training::resume(const checkpoint::CheckpointInfo& info) {
  loss_sum_ = 0;
  place_ = TrainingPlace::of(info);
}

}  // namespace tessera::train
