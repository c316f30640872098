#include "tessera/train/model.h"

#include "tessera/base/error.h"
#include "tessera/base/logging.h"

namespace tessera::train {
namespace {

// The mean of a loss of any shape.
double mean_of(const TensorView& view) {
  if (view.num_elements() == 1 && view.dtype == DType::kF32) return static_cast<double>(*view.as<float>());
  const auto values = Tensor::copy_of(view).to_doubles();
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

}  // namespace

void Model::train(int64_t num_epochs, const data::Dataset& dataset, const Callbacks& callbacks,
                  const TrainOptions& options) {
  if (num_epochs < 1) throw InvalidArgument("train: the number of epochs must be at least 1, got {}", num_epochs);
  if (dataset.is_endless()) throw InvalidArgument("train: the data set repeats without end; give repeat() a count");
  const int64_t steps_per_epoch = dataset.get_dataset_size();
  const int64_t full_rows = global_rows_of(dataset, dataset.get_batch_size());
  const auto full_inputs = input_specs(dataset, full_rows);
  train_ = &train_executable_for(full_inputs);
  check_replicas();

  // A loaded checkpoint says how many steps of which epoch are done; else epochs count from 1 again while the data goes
  // on: what is random in it does not repeat.
  int64_t epochs_done = epoch_;
  if (step_in_epoch_ > 0 && step_in_epoch_ < steps_per_epoch) --epochs_done;
  if (epochs_done >= num_epochs) {
    log_warning("train: {} epochs are done already, {} were asked for", epochs_done, num_epochs);
    return;
  }
  auto batches = batches_of(dataset, position_, num_epochs - epochs_done, options, *train_);
  RunContext run{*this};
  run.num_epochs = num_epochs;
  run.steps_per_epoch = steps_per_epoch;
  run.step = step_;
  const int64_t loop = !options.dataset_sink_mode ? 1 : options.sink_size > 0 ? options.sink_size : steps_per_epoch;

  const auto full_views = batch_views(*train_, full_inputs);
  for (const auto& callback : callbacks) callback->begin(run);
  for (int64_t epoch = epochs_done; epoch < num_epochs && !run.stop_requested; ++epoch) {
    run.epoch = epoch + 1;
    for (const auto& callback : callbacks) callback->epoch_begin(run);
    int64_t in_loop = 0;
    for (int64_t s = position_.batch; s < steps_per_epoch && !run.stop_requested; ++s) {
      run.step_in_epoch = s + 1;
      if (in_loop++ == 0) {
        for (const auto& callback : callbacks) callback->step_begin(run);
      }
      const int64_t rows = global_rows_of(dataset, batches.next_global_rows());
      session::Executable* executable = train_;
      if (rows == full_rows) {
        batches.next_into(full_views);
        distribute(*executable, full_inputs);
      } else {
        const auto inputs = input_specs(dataset, rows);
        executable = &train_executable_for(inputs);
        batches.next_into(batch_views(*executable, inputs));
        distribute(*executable, inputs);
      }
      try {
        executable->run();
      } catch (const executor::NonFiniteLoss& error) {
        throw Error(fmt::format(
            "epoch: {} step: {}. Invalid loss, terminating training. {}; the parameters are those before the step",
            run.epoch, run.step_in_epoch, error.what()));
      }
      ++step_;
      position_ = batches.position();
      epoch_ = run.epoch;
      step_in_epoch_ = run.step_in_epoch;
      run.step = step_;
      if (in_loop == loop || run.step_in_epoch == steps_per_epoch) {
        run.loss = loss_of(*executable);
        in_loop = 0;
        for (const auto& callback : callbacks) callback->step_end(run);
      }
    }
    for (const auto& callback : callbacks) callback->epoch_end(run);
  }
  for (const auto& callback : callbacks) callback->end(run);
  epoch_ = 0;
  step_in_epoch_ = 0;
}

double Model::loss_of(session::Executable& executable) const {
  const TensorView& view = executable.output("loss");
  if (!is_parallel() || view.shape.ndim() == 0) return mean_of(view);
  // A vector loss is split over the ranks: the mean over all its elements.
  double sums[2] = {view.num_elements() == 0 ? 0.0 : mean_of(view) * static_cast<double>(view.num_elements()),
                    static_cast<double>(view.num_elements())};
  context_.world().all_reduce(sums, 2, DType::kF64, comm::ReduceOp::kSum, "loss");
  return sums[0] / sums[1];
}

double Model::train_step(const std::vector<TensorView>& local_batch, int64_t global_rows) {
  std::vector<session::InputSpec> inputs;
  for (size_t i = 0; i < local_batch.size(); ++i) {
    Type type = local_batch[i].type();
    if (type.shape.ndim() == 0) throw InvalidArgument("train_step: input {} is a scalar, it has no rows", i);
    type.shape[0] = global_rows;
    inputs.push_back({fmt::format("input{}", i), type});
  }
  session::Executable& executable = train_executable_for(inputs);
  check_replicas();
  train_ = &executable;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorView& to = executable.input(inputs[i].name);
    if (is_semi_auto()) {
      copy_elements(mesh::piece_of(local_batch[i], executable.input_slice(inputs[i].name)), to);
      continue;
    }
    if (!(to.shape == local_batch[i].shape)) {
      throw InvalidArgument("train_step: rank {} must give {} rows of {}, it gave {}", context_.rank(), to.shape[0],
                            global_rows, local_batch[i].shape[0]);
    }
    copy_elements(local_batch[i], to);
  }
  executable.run();
  ++step_;
  return loss_of(executable);
}

}  // namespace tessera::train
