#include "tessera/train/model.h"

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/nn/gradient_accumulation.h"
#include "tessera/session/rank_group.h"
#include "tessera/train/mode_options.h"
#include "tessera/train/precision.h"
#include "tessera/train/strategy_record.h"

namespace tessera::train {
namespace {

std::string signature_of(const char* what, const std::vector<session::InputSpec>& inputs) {
  std::string text = what;
  for (const auto& input : inputs) text += fmt::format(" {}:{}", input.name, input.type);
  return text;
}

}  // namespace

ParallelMode parse_parallel_mode(const std::string& text) {
  for (const auto mode : {ParallelMode::kStandAlone, ParallelMode::kDataParallel, ParallelMode::kHybrid,
                          ParallelMode::kSemiAuto, ParallelMode::kAutomatic}) {
    if (text == to_string(mode)) return mode;
  }
  throw InvalidArgument(
      "unknown parallel mode \"{}\"; available: stand_alone, data_parallel, hybrid_parallel, semi_auto_parallel, "
      "auto_parallel",
      text);
}

Model::Model(cluster::Context& context, nn::Cell& network, nn::Cell* loss, nn::Optimizer* optimizer,
             const ModelOptions& options)
    : context_(context), network_(network), loss_(loss), optimizer_(optimizer), options_(options) {
  if (options_.gradient_accumulation_steps < 1) {
    throw InvalidArgument("gradient_accumulation_steps must be at least 1, got {}",
                          options_.gradient_accumulation_steps);
  }
  precision_of(options_);  // refuses what does not fit
  if (is_hybrid() && options_.parallel_optimizer) {
    throw InvalidArgument("parallel_optimizer is not available in hybrid_parallel");
  }
  if (const int parts = options_.optimizer_weight_shard_size;
      parts < 0 || (parts > 0 && context_.size() % parts != 0)) {
    throw InvalidArgument("optimizer_weight_shard_size {} must divide the {} ranks", parts, context_.size());
  }
  if (context_.rank() == 0) {
    for (const auto& line : unused_options(options_, context_.size())) log_warning("{}", line);
  }
  if (is_parallel()) {
    auto seed = static_cast<int64_t>(options_.seed);
    context_.world().broadcast(&seed, 1, DType::kI64, 0, "agreeing on the seed");
    options_.seed = static_cast<uint64_t>(seed);
  }
  read_strategies();
  for (nn::Cell* cell : {&network_, loss_}) {
    if (cell == nullptr) continue;
    for (const nn::Parameter* parameter : cell->trainable_parameters()) {
      options_.session.partition.fusion_ids[parameter->full_name()] = parameter->comm_fusion;
    }
  }
  session_ = std::make_unique<session::Session>(context_, options_.session);
  prepare_values();
}

Model::~Model() {
  try {
    finish_saves();
  } catch (const std::exception& error) {
    log_error("a checkpoint was not saved: {}", error.what());
  }
  if (!save_group_.empty()) context_.destroy_group(save_group_);
}

bool Model::is_parallel() const { return options_.parallel_mode != ParallelMode::kStandAlone && context_.size() > 1; }

nn::Settings Model::settings(bool training) const {
  const bool local = is_data_parallel() && options_.batch_norm_statistics == BatchNormStatistics::kLocal;
  return {.training = training, .batch_norm_groups = local ? context_.size() : 0, .seed = options_.seed};
}

mesh::Mesh Model::mesh() const {
  if (is_parallel() && !is_hybrid()) return mesh::Mesh({{"data", context_.size()}});
  return mesh::Mesh({{"data", 1}}, {context_.rank()});
}

void Model::say_unused_strategies(const ir::Graph& graph) {
  const ParallelMode mode = options_.parallel_mode;
  const bool splits = mode == ParallelMode::kSemiAuto || mode == ParallelMode::kAutomatic;
  if (splits || strategies_said_ || context_.rank() != 0) return;
  std::set<std::string> operators;
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    if (!node.strategy.empty() && node.forward == ir::kNone) operators.insert(node.source + ":" + node.op);
  }
  if (operators.empty()) return;
  strategies_said_ = true;
  log_warning(
      "the strategies of {} operator{} have no effect in {}: only in semi_auto_parallel, auto_parallel; \"{}\" has one",
      operators.size(), operators.size() == 1 ? "" : "s", to_string(mode), *operators.begin());
}

compiler::PlanOptions Model::plan_options() const {
  if (is_automatic()) {
    // Before the training step is known all values are whole.
    return {.strategies = false, .whole_results = true, .record = plan_};
  }
  compiler::PlanOptions options{.strategies = is_semi_auto(), .batch_by_default = is_semi_auto()};
  options.propagate_strategies = options_.sharding_propagation;
  options.optimizer_shard_size = options_.optimizer_weight_shard_size;
  options.whole_results = is_semi_auto();
  if (is_parallel() && accumulates()) {
    for (const auto& state : states_) {
      if (nn::is_accumulated_gradient(state.full_name())) options.partial_states.insert(state.full_name());
    }
  }
  const auto shards = strategies_ ? std::optional(optimizer_shards_of(*strategies_)) : std::nullopt;
  if (!is_parallel() || (!shards && !options_.parallel_optimizer)) return options;
  const auto add = [&](nn::Cell& cell) {
    for (const nn::Parameter* parameter : cell.trainable_parameters()) {
      if (shards) {
        if (shards->contains(parameter->full_name())) options.optimizer_shards.insert(parameter->full_name());
        continue;
      }
      const bool is_large = parameter->type.size_bytes() >= options_.parallel_optimizer_threshold;
      if (parameter->parallel_optimizer && is_large) options.optimizer_shards.insert(parameter->full_name());
    }
  };
  add(network_);
  if (loss_ != nullptr) add(*loss_);
  return options;
}

std::unique_ptr<session::Executable> Model::compile(const ir::Graph& graph,
                                                    const std::vector<session::InputSpec>& inputs) {
  if (is_hybrid()) return session_->compile_own(graph);
  return session_->compile(graph, mesh(), input_hints(inputs), plan_options());
}

std::optional<ops::RankGroup> Model::ranks_of_loss() const {
  return is_hybrid() ? std::optional(session::rank_group(context_)) : std::nullopt;
}

ir::Graph Model::trace_train(const std::vector<session::InputSpec>& inputs) {
  return trace_train(inputs, accumulates() ? session::StepPart::kUpdate : session::StepPart::kWhole);
}

ir::Graph Model::trace_train(const std::vector<session::InputSpec>& inputs, session::StepPart part) {
  if (optimizer_ == nullptr) throw InvalidArgument("training needs an optimizer");
  // The graph's loss is the mean over the global batch; the sum over ranks has a gradient that many times larger.
  const double ranks = is_data_parallel() && !options_.gradients_mean ? context_.size() : 1.0;
  const double sens = ranks / static_cast<double>(options_.gradient_accumulation_steps);
  auto graph = session::trace_train_step(network_, loss_, *optimizer_, inputs, settings(true),
                                         {.sens = sens,
                                          .part = part,
                                          .ranks = ranks_of_loss(),
                                          .precision = precision_of(options_),
                                          .loss_scale = loss_scale_of(options_)});
  if (strategies_) apply_strategies(graph, *strategies_, options_.strategy_ckpt_load_file);
  return graph;
}

session::Executable& Model::train_executable_for(const std::vector<session::InputSpec>& inputs) {
  return train_executable_for(inputs, next_part());
}

session::Executable& Model::train_executable_for(const std::vector<session::InputSpec>& inputs,
                                                 session::StepPart part) {
  const bool accumulating = part == session::StepPart::kAccumulate;
  const auto signature = signature_of(accumulating ? "accumulate" : "train", inputs);
  if (const auto known = compiled_.find(signature); known != compiled_.end()) return *known->second;
  // Values lie where the step that updates them wants them.
  if (!values_placed_) place_values(trace_train(inputs), inputs);
  const auto graph = trace_train(inputs, part);
  say_unused_strategies(graph);
  note_network(graph);
  auto& executable = *(compiled_[signature] = compile(graph, inputs));
  executable.executor().set_before_update([this, threads = ParallelFor(session_->num_threads())](
                                              const TensorView& changed) { snapshot_.finish(changed, threads); });
  if (!accumulating) write_strategies(executable, /*is_training=*/true);
  return executable;
}

session::Executable& Model::eval_executable_for(const std::vector<session::InputSpec>& inputs) {
  const auto signature = signature_of("eval", inputs);
  if (const auto known = compiled_.find(signature); known != compiled_.end()) return *known->second;
  const auto precision = precision_of(options_);
  auto graph =
      loss_ != nullptr
          ? session::trace_loss(network_, *loss_, inputs, settings(false), ranks_of_loss(), precision)
          : session::trace_forward(network_, std::span(inputs).first(inputs.size() - 1), settings(false), precision);
  say_unused_strategies(graph);
  if (strategies_) apply_known_strategies(graph, *strategies_);
  // Parameters lie where training wants them.
  if (!values_placed_) place_values(optimizer_ != nullptr ? trace_train(inputs) : graph, inputs);
  return *(compiled_[signature] = compile(graph, inputs));
}

void Model::build(const data::Dataset& train, const data::Dataset* valid) {
  const auto inputs = input_specs(train, global_rows_of(train, train.get_batch_size()));
  for (const auto part : parts()) train_executable_for(inputs, part);
  if (valid != nullptr) eval_executable_for(input_specs(*valid, global_rows_of(*valid, valid->get_batch_size())));
}

void Model::enable_profiling() {
  for (auto& [signature, executable] : compiled_) {
    if (signature.starts_with("train ") || signature.starts_with("accumulate "))
      executable->executor().set_profiling(true);
  }
}

std::map<std::string, double> Model::eval(const data::Dataset& dataset, const TrainOptions& options) {
  if (options_.metrics.empty()) throw InvalidArgument("eval: the model has no metrics");
  if (dataset.is_endless()) throw InvalidArgument("eval: the data set repeats without end");
  if (is_semi_auto() && dataset.num_shards() > 1) {
    throw InvalidArgument(
        "eval: every rank must read the whole data set, but this is one rank's part of {} (num_shards)",
        dataset.num_shards());
  }
  for (const auto& metric : options_.metrics) metric->clear();
  const auto full_inputs = input_specs(dataset, global_rows_of(dataset, dataset.get_batch_size()));
  auto batches = batches_of(dataset, {}, 1, options, eval_executable_for(full_inputs));
  int64_t batch = 0;
  while (const int64_t rows = batches.next_global_rows()) {
    if (options.before_batch) options.before_batch();
    ++batch;
    const int64_t global_rows = global_rows_of(dataset, rows);
    const auto inputs = input_specs(dataset, global_rows);
    session::Executable& executable = eval_executable_for(inputs);
    const auto types = batches.next_types();
    Tensor label(types.back());
    auto place = place_of_batch(executable, std::vector(inputs.begin(), inputs.end() - 1), !is_semi_auto());
    place.written.push_back(label.view());
    if (is_semi_auto()) {
      place.add_piece(executable, inputs.back().name, label.view());
    } else if (loss_ != nullptr) {
      place.pieces.emplace_back(label.view(), executable.input(inputs.back().name));
    }
    batches.next_into(place.written);
    place.distribute();
    values_are_initial_ = false;  // of states that each batch changes
    try {
      executable.run("column");
    } catch (const executor::InvalidIndex& error) {
      throw executor::InvalidIndex(fmt::format("eval: batch {}: {}", batch, error.what()));
    }
    const Tensor output = Tensor::copy_of(executable.output("output"));
    const double loss = loss_ != nullptr ? loss_of(executable) : 0.0;
    for (const auto& metric : options_.metrics) metric->update(output, label, loss, global_rows);
  }
  std::map<std::string, double> results;
  for (const auto& metric : options_.metrics) {
    auto totals = metric->counts();
    if ((is_data_parallel() || is_hybrid()) && !metric->is_global()) {
      context_.world().all_reduce(totals.data(), static_cast<int64_t>(totals.size()), DType::kF64, comm::ReduceOp::kSum,
                                  "metrics");
    }
    results[metric->name()] = metric->value(totals);
  }
  return results;
}

session::Executable& Model::predict_executable_for(const std::vector<session::InputSpec>& inputs, bool places_values) {
  const auto signature = signature_of("predict", inputs);
  const bool is_placed = values_placed_ || predicts_split_;
  if (const auto known = compiled_.find(signature); known != compiled_.end() && (is_placed || !places_values)) {
    return *known->second;
  }
  ir::Graph graph = session::trace_forward(network_, inputs, settings(false), precision_of(options_));
  say_unused_strategies(graph);
  if (strategies_) apply_known_strategies(graph, *strategies_);
  if (is_hybrid()) return *(compiled_[signature] = session_->compile_own(graph));
  auto options = plan_options();
  options.batch_by_default = false;
  options.strategies = options.strategies && (is_placed || places_values);  // until then all values are whole
  if (places_values && !is_placed && is_semi_auto()) {
    options.optimizer_shards.clear();  // what predicts has no optimizer
    place_values(graph, session_->plan(graph, mesh(), {}, options));
    predicts_split_ = true;
  }
  return *(compiled_[signature] = session_->compile(graph, mesh(), {}, options));
}

void Model::build_predict(const std::vector<Type>& inputs) {
  std::vector<session::InputSpec> specs;
  for (size_t i = 0; i < inputs.size(); ++i) specs.push_back({fmt::format("input{}", i), inputs[i]});
  write_strategies(predict_executable_for(specs, /*places_values=*/true), /*is_training=*/false);
}

Tensor Model::predict(const std::vector<Tensor>& inputs) {
  std::vector<session::InputSpec> specs;
  for (size_t i = 0; i < inputs.size(); ++i) specs.push_back({fmt::format("input{}", i), inputs[i].type()});
  auto& executable = predict_executable_for(specs, /*places_values=*/false);
  for (size_t i = 0; i < inputs.size(); ++i) copy_elements(inputs[i].view(), executable.input(specs[i].name));
  values_are_initial_ = false;
  executable.run();
  return Tensor::copy_of(executable.output("output"));
}

}  // namespace tessera::train
