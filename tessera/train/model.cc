#include "tessera/train/model.h"

#include <algorithm>
#include <set>

#include "tessera/base/crc32c.h"
#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/random.h"
#include "tessera/checkpoint/match.h"
#include "tessera/train/rank_barrier.h"

namespace tessera::train {
namespace {

constexpr const char* kRandomStep = "random_step";

// The mean of a loss of any shape.
double mean_of(const TensorView& view) {
  if (view.num_elements() == 1 && view.dtype == DType::kF32) return static_cast<double>(*view.as<float>());
  const auto values = Tensor::copy_of(view).to_doubles();
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

std::string signature_of(const char* what, const std::vector<session::InputSpec>& inputs) {
  std::string text = what;
  for (const auto& input : inputs) text += fmt::format(" {}:{}", input.name, input.type);
  return text;
}

// Moving statistics of another number of parts: each part starts with the mean of all.
Tensor regroup(const Tensor& stored, const Type& wanted) {
  const bool had_groups = stored.ndim() == wanted.shape.ndim() && wanted.shape.ndim() == 2;
  const int64_t channels = stored.shape().back();
  const int64_t rows = stored.num_elements() / std::max<int64_t>(channels, 1);
  const auto values = stored.to_doubles();
  std::vector<double> mean(static_cast<size_t>(channels));
  for (size_t i = 0; i < values.size(); ++i) mean[i % mean.size()] += values[i] / static_cast<double>(rows);
  std::vector<double> result;
  const int64_t wanted_rows = had_groups || wanted.shape.ndim() == 2 ? wanted.shape[0] : 1;
  for (int64_t r = 0; r < wanted_rows; ++r) result.insert(result.end(), mean.begin(), mean.end());
  return Tensor::of(wanted.shape, std::span<const double>(result)).cast(wanted.dtype);
}

}  // namespace

ParallelMode parse_parallel_mode(const std::string& text) {
  if (text == "stand_alone") return ParallelMode::kStandAlone;
  if (text == "data_parallel") return ParallelMode::kDataParallel;
  if (text == "semi_auto_parallel") return ParallelMode::kSemiAuto;
  constexpr const char* kAvailable = "stand_alone, data_parallel, semi_auto_parallel";
  if (text == "hybrid_parallel" || text == "auto_parallel") {
    throw InvalidArgument("parallel mode {} is not available yet; available: {}", text, kAvailable);
  }
  throw InvalidArgument("unknown parallel mode \"{}\"; available: {}", text, kAvailable);
}

Model::Model(cluster::Context& context, nn::Cell& network, nn::Cell* loss, nn::Optimizer* optimizer,
             const ModelOptions& options)
    : context_(context), network_(network), loss_(loss), optimizer_(optimizer), options_(options) {
  if (is_parallel()) {
    auto seed = static_cast<int64_t>(options_.seed);
    context_.world().broadcast(&seed, 1, DType::kI64, 0, "agreeing on the seed");
    options_.seed = static_cast<uint64_t>(seed);
  }
  session_ = std::make_unique<session::Session>(context_, options_.session);
  prepare_values();
}

Model::~Model() = default;

bool Model::is_parallel() const { return options_.parallel_mode != ParallelMode::kStandAlone && context_.size() > 1; }

nn::Settings Model::settings(bool training) const {
  const bool local = is_parallel() && !is_semi_auto() && options_.batch_norm_statistics == BatchNormStatistics::kLocal;
  return {.training = training, .batch_norm_groups = local ? context_.size() : 0, .seed = options_.seed};
}

mesh::Mesh Model::mesh() const {
  if (is_parallel()) return mesh::Mesh({{"data", context_.size()}});
  return mesh::Mesh({{"data", 1}}, {context_.rank()});
}

void Model::prepare_values() {
  // What grows a dim when the batch is cut into groups is one row per rank.
  std::map<std::string, int> plain_ndim;
  network_.apply_settings({});
  for (const nn::Parameter* p : network_.parameters()) plain_ndim[p->full_name()] = p->type.shape.ndim();
  network_.apply_settings(settings(true));
  if (loss_ != nullptr) loss_->apply_settings(settings(true));

  std::vector<nn::Parameter> all;
  std::vector<nn::Parameter*> trainable;
  const auto add = [&](nn::Cell& cell) {
    for (nn::Parameter* parameter : cell.parameters()) {
      all.push_back(*parameter);
      if (parameter->requires_grad) trainable.push_back(parameter);
    }
  };
  add(network_);
  if (loss_ != nullptr) add(*loss_);
  if (optimizer_ != nullptr) states_ = optimizer_->states(trainable);
  const mesh::Mesh ranks = mesh();
  for (const auto& parameter : all) {
    const auto name = parameter.full_name();
    const auto plain = plain_ndim.find(name);
    mesh::Sharding sharding = mesh::Sharding::replicated(parameter.type.shape.ndim());
    if (plain != plain_ndim.end() && plain->second != parameter.type.shape.ndim()) sharding.dims[0] = {0};
    session_->declare(name, parameter.type, &sharding, &ranks);
  }
  for (const auto& state : states_) session_->declare(state.full_name(), state.type);
  session_->declare(kRandomStep, {DType::kI64, {}});

  session_->initialize(all, options_.seed);
  session_->initialize(states_, options_.seed);
  session_->set_value(kRandomStep, Tensor::zeros({DType::kI64, {}}));
  if (is_semi_auto()) agree_on_values();
  if (is_parallel() && options_.parameter_broadcast) {
    for (const auto& name : session_->names()) {
      const TensorView view = session_->view(name);
      if (view.type() == session_->global_type(name)) {
        context_.world().broadcast(view.data, view.num_elements(), view.dtype, 0, "parameter_broadcast");
      }
    }
  }
}

// Initial values that the user made may differ between ranks: all take rank 0's.
void Model::agree_on_values() {
  std::string differing;
  for (const auto& name : session_->names()) {
    const TensorView view = session_->view(name);
    const int64_t own = crc32c({static_cast<const std::byte*>(view.data), static_cast<size_t>(view.size_bytes())}, 0);
    int64_t sums[2] = {own, -own};
    context_.world().all_reduce(sums, 2, DType::kI64, comm::ReduceOp::kMax, "comparing initial values");
    if (sums[0] == -sums[1]) continue;
    if (differing.empty()) differing = name;
    context_.world().broadcast(view.data, view.num_elements(), view.dtype, 0, "taking rank 0's initial values");
  }
  if (differing.empty() || context_.rank() != 0) return;
  log_warning("the initial values of \"{}\" (and perhaps others) differ between ranks: all take rank 0's", differing);
}

// Where the first graph that is compiled wants parameters and states, they stay.
void Model::place_values(const ir::Graph& graph, const std::vector<session::InputSpec>& inputs) {
  if (values_placed_) return;
  values_placed_ = true;
  if (!is_semi_auto() && !(is_parallel() && options_.parallel_optimizer)) return;
  const auto plan = session_->plan(graph, mesh(), input_hints(inputs), plan_options());
  compiler::ShardingHints layouts;
  for (const auto& input : graph.inputs()) {
    const auto layout = plan.layout(input.value);
    if (input.kind == ir::InputKind::kInput || layout.sharding.is_replicated()) continue;
    layouts[input.name] = layout;
  }
  session_->place(layouts);
}

compiler::PlanOptions Model::plan_options() const {
  compiler::PlanOptions options{.strategies = is_semi_auto(), .batch_by_default = is_semi_auto()};
  options.whole_results = is_semi_auto();
  if (!is_parallel() || !options_.parallel_optimizer) return options;
  const auto add = [&](nn::Cell& cell) {
    for (const nn::Parameter* parameter : cell.trainable_parameters()) {
      const bool is_large = parameter->type.size_bytes() >= options_.parallel_optimizer_threshold;
      if (parameter->parallel_optimizer && is_large) options.optimizer_shards.insert(parameter->full_name());
    }
  };
  add(network_);
  if (loss_ != nullptr) add(*loss_);
  return options;
}

void Model::check_replicas() {
  if (replicas_checked_ || !is_parallel()) return;
  replicas_checked_ = true;
  uint32_t crc = 0;
  for (const auto& name : session_->names()) {
    const TensorView view = session_->view(name);
    if (!(view.type() == session_->global_type(name))) continue;
    crc = crc32c({static_cast<const std::byte*>(view.data), static_cast<size_t>(view.size_bytes())}, crc);
  }
  const int64_t own = crc;
  std::vector<int64_t> all(static_cast<size_t>(context_.size()));
  const std::vector<int64_t> counts(all.size(), 1);
  context_.world().all_gather(&own, all.data(), counts, DType::kI64, "comparing initial values");
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0] || context_.rank() != 0) continue;
    log_warning(
        "rank {} starts from other parameter values than rank 0: the replicas will differ; use one seed, or "
        "parameter_broadcast",
        rank);
    return;
  }
}

std::vector<session::InputSpec> Model::input_specs(const data::Dataset& dataset, int64_t global_rows) const {
  std::vector<session::InputSpec> specs;
  for (const auto& column : dataset.columns()) {
    Type type = column.type;
    if (type.shape.ndim() == 0) {
      throw InvalidArgument("column \"{}\" is {}: the data set must be batched before it is trained on", column.name,
                            type);
    }
    type.shape[0] = global_rows;
    specs.push_back({column.name, type});
  }
  return specs;
}

int64_t Model::global_rows_of(const data::Dataset& dataset, int64_t rows) const {
  // A data set that is one shard already has the rows of this rank.
  return is_parallel() && dataset.num_shards() > 1 ? rows * context_.size() : rows;
}

compiler::ShardingHints Model::input_hints(const std::vector<session::InputSpec>& inputs) const {
  compiler::ShardingHints hints;
  if (!is_parallel() || (is_semi_auto() && options_.full_batch)) return hints;
  const auto& strategy = options_.dataset_strategy;
  if (is_semi_auto() && !strategy.empty() && strategy.size() != inputs.size()) {
    throw InvalidArgument("dataset_strategy {} has {} tuples, there are {} inputs", mesh::to_string(strategy),
                          strategy.size(), inputs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int ndim = inputs[i].type.shape.ndim();
    auto sharding = mesh::Sharding::replicated(ndim);
    if (!is_semi_auto() || strategy.empty()) {
      if (ndim > 0) sharding.dims[0] = {0};
      hints[inputs[i].name] = {mesh(), sharding};
      continue;
    }
    // The tuple as a grid of ranks, repeated along a last axis.
    std::vector<mesh::Axis> axes;
    int left = context_.size();
    if (static_cast<int>(strategy[i].size()) != ndim) {
      throw InvalidArgument("dataset_strategy {} has {} counts for input \"{}\" {}", mesh::to_string(strategy),
                            strategy[i].size(), inputs[i].name, inputs[i].type);
    }
    for (int dim = 0; dim < ndim; ++dim) {
      const auto parts = static_cast<int>(strategy[i][static_cast<size_t>(dim)]);
      if (parts == 1) continue;
      if (left % parts != 0) {
        throw InvalidArgument("dataset_strategy {} does not divide {} ranks", mesh::to_string(strategy),
                              context_.size());
      }
      left /= parts;
      sharding.dims[static_cast<size_t>(dim)] = {static_cast<int>(axes.size())};
      axes.push_back({fmt::format("dim{}", dim), parts});
    }
    if (left > 1) axes.push_back({"repeated", left});
    hints[inputs[i].name] = {mesh::Mesh(axes), sharding};
  }
  return hints;
}

std::unique_ptr<session::Executable> Model::compile(const ir::Graph& graph,
                                                    const std::vector<session::InputSpec>& inputs) {
  return session_->compile(graph, mesh(), input_hints(inputs), plan_options());
}

std::vector<TensorView> Model::batch_views(session::Executable& executable,
                                           const std::vector<session::InputSpec>& inputs) {
  std::vector<TensorView> views;
  for (const auto& input : inputs) {
    if (!is_semi_auto()) {
      views.push_back(executable.input(input.name));
      continue;
    }
    auto& whole = whole_batches_[fmt::format("{} {}", input.name, input.type)];
    if (!(whole.type() == input.type)) whole = Tensor(input.type);
    views.push_back(whole.view());
  }
  return views;
}

void Model::distribute(session::Executable& executable, const std::vector<session::InputSpec>& inputs) {
  if (!is_semi_auto()) return;
  for (const auto& input : inputs) {
    if (executable.compiled().logical.find_input(input.name) == nullptr) continue;
    const TensorView whole = whole_batches_.at(fmt::format("{} {}", input.name, input.type)).view();
    copy_elements(mesh::piece_of(whole, executable.input_slice(input.name)), executable.input(input.name));
  }
}

ir::Graph Model::trace_train(const std::vector<session::InputSpec>& inputs) {
  if (optimizer_ == nullptr) throw InvalidArgument("training needs an optimizer");
  // The graph's loss is the mean over the global batch; the sum over ranks has a gradient that many times larger.
  const double sens = is_parallel() && !options_.gradients_mean ? context_.size() : 1.0;
  return session::trace_train_step(network_, loss_, *optimizer_, inputs, settings(true), {.sens = sens});
}

session::Executable& Model::train_executable_for(const std::vector<session::InputSpec>& inputs) {
  auto& executable = compiled_[signature_of("train", inputs)];
  if (!executable) {
    const ir::Graph graph = trace_train(inputs);
    place_values(graph, inputs);
    executable = compile(graph, inputs);
  }
  return *executable;
}

session::Executable& Model::eval_executable_for(const std::vector<session::InputSpec>& inputs) {
  auto& executable = compiled_[signature_of("eval", inputs)];
  if (!executable) {
    ir::Graph graph = loss_ != nullptr ? session::trace_loss(network_, *loss_, inputs, settings(false))
                                       : session::trace_forward(network_, std::span(inputs).first(inputs.size() - 1),
                                                                settings(false));
    // Parameters lie where training wants them.
    if (optimizer_ != nullptr && !values_placed_) place_values(trace_train(inputs), inputs);
    place_values(graph, inputs);
    executable = compile(graph, inputs);
  }
  return *executable;
}

data::BatchIterator Model::batches_of(const data::Dataset& dataset, data::Position start, int64_t num_epochs,
                                      const TrainOptions& options, const session::Executable& executable) const {
  data::IterateOptions iterate{.start = start, .num_epochs = num_epochs, .num_workers = options.num_workers};
  if (is_parallel() && !is_semi_auto() && dataset.num_shards() == 1) {
    iterate.part = context_.rank();
    iterate.num_parts = context_.size();
  }
  const auto& schedule = executable.compiled().schedule;
  for (const auto& [name, v] : schedule.inputs) {
    const auto& value = schedule.values[static_cast<size_t>(v)];
    if (value.type.shape.ndim() == 4 && !is_dense(value.type.shape, value.strides)) iterate.channels_last = true;
  }
  return dataset.batches(iterate);
}

void Model::build(const data::Dataset& train, const data::Dataset* valid) {
  train_executable_for(input_specs(train, global_rows_of(train, train.get_batch_size())));
  if (valid != nullptr) eval_executable_for(input_specs(*valid, global_rows_of(*valid, valid->get_batch_size())));
}

void Model::enable_profiling() {
  for (auto& [signature, executable] : compiled_) {
    if (signature.starts_with("train ")) executable->executor().set_profiling(true);
  }
}

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

std::map<std::string, double> Model::eval(const data::Dataset& dataset, const TrainOptions& options) {
  if (options_.metrics.empty()) throw InvalidArgument("eval: the model has no metrics");
  if (dataset.is_endless()) throw InvalidArgument("eval: the data set repeats without end");
  for (const auto& metric : options_.metrics) metric->clear();
  const auto full_inputs = input_specs(dataset, global_rows_of(dataset, dataset.get_batch_size()));
  auto batches = batches_of(dataset, {}, 1, options, eval_executable_for(full_inputs));
  while (const int64_t rows = batches.next_global_rows()) {
    const int64_t global_rows = global_rows_of(dataset, rows);
    const auto inputs = input_specs(dataset, global_rows);
    session::Executable& executable = eval_executable_for(inputs);
    const auto types = batches.next_types();
    Tensor label(types.back());
    auto views = batch_views(executable, std::vector(inputs.begin(), inputs.end() - 1));
    views.push_back(label.view());
    batches.next_into(views);
    if (is_semi_auto()) {
      whole_batches_[fmt::format("{} {}", inputs.back().name, inputs.back().type)] = label;
      distribute(executable, inputs);
    } else if (loss_ != nullptr) {
      copy_elements(label.view(), executable.input(inputs.back().name));
    }
    executable.run();
    const Tensor output = Tensor::copy_of(executable.output("output"));
    const double loss = loss_ != nullptr ? loss_of(executable) : 0.0;
    for (const auto& metric : options_.metrics) metric->update(output, label, loss, global_rows);
  }
  std::map<std::string, double> results;
  for (const auto& metric : options_.metrics) {
    double sums[2] = {metric->sum(), metric->count()};
    if (is_parallel() && !is_semi_auto() && !metric->is_global()) {
      context_.world().all_reduce(sums, 2, DType::kF64, comm::ReduceOp::kSum, "metrics");
    }
    results[metric->name()] = sums[1] > 0 ? sums[0] / sums[1] : 0.0;
  }
  return results;
}

Tensor Model::predict(const std::vector<Tensor>& inputs) {
  std::vector<session::InputSpec> specs;
  for (size_t i = 0; i < inputs.size(); ++i) specs.push_back({fmt::format("input{}", i), inputs[i].type()});
  auto& executable = compiled_[signature_of("predict", specs)];
  if (!executable) {
    const ir::Graph graph = session::trace_forward(network_, specs, settings(false));
    auto options = plan_options();
    options.batch_by_default = false;
    executable = session_->compile(graph, mesh(), {}, options);
  }
  for (size_t i = 0; i < inputs.size(); ++i) copy_elements(inputs[i].view(), executable->input(specs[i].name));
  executable->run();
  return Tensor::copy_of(executable->output("output"));
}

std::string Model::save_checkpoint(const std::string& path, const std::vector<checkpoint::Entry>& append_info,
                                   bool integrated) {
  if (!integrated) throw InvalidArgument("integrated_save=false is not available yet");
  std::vector<checkpoint::Entry> entries;
  for (const auto& name : session_->names()) {
    if (name == kRandomStep && session_->value(name).item() == 0) continue;  // nothing random was drawn
    entries.emplace_back(name, session_->value(name));
  }
  const checkpoint::CheckpointInfo info{.epoch = epoch_,
                                        .step_in_epoch = step_in_epoch_,
                                        .step = step_,
                                        .saved_at_ms = context_.clock().wall_ms(),
                                        .world_size = context_.size(),
                                        .seed = options_.seed,
                                        .data_position = position_.to_string()};
  checkpoint::SaveOptions options{.path = path, .append_info = append_info};
  if (!is_parallel()) return checkpoint::save(context_.file_system(), options, entries, info);
  RankBarrier barrier(context_.world());
  options.barrier = &barrier;
  options.writer = checkpoint::find_writer(context_.file_system(), barrier, parent_path(path), "tessera");
  return checkpoint::save(context_.file_system(), options, entries, info);
}

// First into tensors: either everything fits, or nothing changes.
void Model::take_values(const checkpoint::Checkpoint& loaded, const std::vector<std::string>& names,
                        bool allow_unexpected) {
  std::vector<std::pair<std::string, Tensor>> values;
  std::vector<checkpoint::Destination> destinations;
  for (const auto& name : names) {
    const auto* entry = loaded.find(name);
    if (name == kRandomStep && entry == nullptr) continue;
    const Type& type = session_->global_type(name);
    const bool regrouped = entry != nullptr && !entry->is_text && entry->shape.ndim() > 0 && type.shape.ndim() > 0 &&
                           (name.ends_with("moving_mean") || name.ends_with("moving_variance")) &&
                           entry->shape.back() == type.shape.back() && entry->shape.ndim() <= 2;
    values.emplace_back(name, Tensor(regrouped ? Type{type.dtype, entry->shape} : type));
    destinations.push_back({name, values.back().second.view()});
  }
  checkpoint::load_into(loaded, destinations, {.allow_unexpected = allow_unexpected});
  for (const auto& [name, value] : values) {
    const Type& type = session_->global_type(name);
    session_->set_value(name, value.type() == type ? value : regroup(value, type));
  }
}

checkpoint::CheckpointInfo Model::load_checkpoint(const std::string& path) {
  const auto loaded = checkpoint::load(context_.file_system(), path);
  take_values(loaded, session_->names(), /*allow_unexpected=*/false);
  if (loaded.find(kRandomStep) == nullptr) session_->set_value(kRandomStep, Tensor::zeros({DType::kI64, {}}));
  checkpoint::CheckpointInfo info;
  if (loaded.manifest()) info = loaded.manifest()->info;
  step_ = info.step;
  epoch_ = info.epoch;
  step_in_epoch_ = info.step_in_epoch;
  position_ = info.data_position.empty() ? data::Position{} : data::parse_position(info.data_position);
  replicas_checked_ = false;
  return info;
}

void Model::load_parameters(const std::string& path) {
  const auto loaded = checkpoint::load(context_.file_system(), path);
  std::vector<std::string> names;
  for (const nn::Parameter* parameter : network_.parameters()) names.push_back(parameter->full_name());
  take_values(loaded, names, /*allow_unexpected=*/true);
  replicas_checked_ = false;
}

}  // namespace tessera::train
