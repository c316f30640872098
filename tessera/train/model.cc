#include "tessera/train/model.h"

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/train/modes/mode_options.h"
#include "tessera/train/options/precision.h"
#include "tessera/train/rank_barrier.h"

namespace tessera::train {
namespace {

std::string signature_of(const char* what, const std::vector<session::InputSpec>& inputs) {
  std::string text = what;
  for (const auto& input : inputs) text += fmt::format(" {}:{}", input.name, input.type);
  return text;
}

}  // namespace

Model::Model(cluster::Context& context, nn::Cell& network, nn::Cell* loss, nn::Optimizer* optimizer,
             const ModelOptions& options)
    : context_(context), cells_{network, loss, optimizer}, options_(options) {
  if (options_.gradient_accumulation_steps < 1) {
    throw InvalidArgument("gradient_accumulation_steps must be at least 1, got {}",
                          options_.gradient_accumulation_steps);
  }
  precision_of(options_);  // refuses what does not fit
  require_no_refused(options_, context_.size());
  if (const int parts = options_.optimizer_weight_shard_size;
      parts < 0 || (parts > 0 && context_.size() % parts != 0)) {
    throw InvalidArgument("optimizer_weight_shard_size {} must divide the {} ranks", parts, context_.size());
  }
  if (context_.rank() == 0) {
    for (const auto& line : unused_options(options_, context_.size())) log_warning("{}", line);
  }
  mode_ = make_mode({context_, options_, cells_});
  if (mode_->is_shared()) {
    auto seed = static_cast<int64_t>(options_.seed);
    context_.world().broadcast(&seed, 1, DType::kI64, 0, "agreeing on the seed");
    options_.seed = static_cast<uint64_t>(seed);
  }
  for (const nn::Parameter* parameter : cells_.trainable_parameters()) {
    options_.session.partition.fusion_ids[parameter->full_name()] = parameter->comm_fusion;
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

void Model::say_unused_strategies(const ir::Graph& graph) {
  if (reads_strategies(options_.parallel_mode) || strategies_said_ || context_.rank() != 0) return;
  std::set<std::string> operators;
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    if (!node.strategy.empty() && node.forward == ir::kNone) operators.insert(node.source + ":" + node.op);
  }
  if (operators.empty()) return;
  strategies_said_ = true;
  log_warning("the strategies of {} operator{} have no effect in {}: only in {}; \"{}\" has one", operators.size(),
              operators.size() == 1 ? "" : "s", to_string(options_.parallel_mode), modes_that_read_strategies(),
              *operators.begin());
}

ir::Graph Model::trace_train(const std::vector<session::InputSpec>& inputs) {
  return trace_train(inputs, accumulates() ? session::StepPart::kUpdate : session::StepPart::kWhole);
}

ir::Graph Model::trace_train(const std::vector<session::InputSpec>& inputs, session::StepPart part) {
  if (cells_.optimizer == nullptr) throw InvalidArgument("training needs an optimizer");
  const double sens = mode_->gradient_scale() / static_cast<double>(options_.gradient_accumulation_steps);
  auto graph = session::trace_train_step(cells_.network, cells_.loss, *cells_.optimizer, inputs, mode_->settings(true),
                                         {.sens = sens,
                                          .part = part,
                                          .ranks = mode_->ranks_of_loss(),
                                          .precision = precision_of(options_),
                                          .loss_scale = loss_scale_of(options_)});
  mode_->apply_strategies(graph, /*is_training=*/true);
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
  auto& executable = *(compiled_[signature] = mode_->compile(*session_, graph, inputs));
  executable.executor().set_before_update([this, threads = ParallelFor(session_->num_threads())](
                                              const TensorView& changed) { snapshot_.finish(changed, threads); });
  if (!accumulating) record_plan(executable, /*is_training=*/true);
  return executable;
}

session::Executable& Model::eval_executable_for(const std::vector<session::InputSpec>& inputs) {
  const auto signature = signature_of("eval", inputs);
  if (const auto known = compiled_.find(signature); known != compiled_.end()) return *known->second;
  const auto precision = precision_of(options_);
  auto graph = cells_.loss != nullptr
                   ? session::trace_loss(cells_.network, *cells_.loss, inputs, mode_->settings(false),
                                         mode_->ranks_of_loss(), precision)
                   : session::trace_forward(cells_.network, std::span(inputs).first(inputs.size() - 1),
                                            mode_->settings(false), precision);
  say_unused_strategies(graph);
  mode_->apply_strategies(graph, /*is_training=*/false);
  // Parameters lie where training wants them.
  if (!values_placed_) place_values(cells_.optimizer != nullptr ? trace_train(inputs) : graph, inputs);
  return *(compiled_[signature] = mode_->compile(*session_, graph, inputs));
}

void Model::build(const data::Dataset& train, const data::Dataset* valid) {
  const auto inputs = input_specs(train, mode_->global_rows(train, train.get_batch_size()));
  for (const auto part : parts()) train_executable_for(inputs, part);
  if (valid != nullptr) eval_executable_for(input_specs(*valid, mode_->global_rows(*valid, valid->get_batch_size())));
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
  if (mode_->takes_whole_batches() && dataset.num_shards() > 1) {
    throw InvalidArgument(
        "eval: every rank must read the whole data set, but this is one rank's part of {} (num_shards)",
        dataset.num_shards());
  }
  for (const auto& metric : options_.metrics) metric->clear();
  const auto full_inputs = input_specs(dataset, mode_->global_rows(dataset, dataset.get_batch_size()));
  auto batches = batches_of(dataset, {}, 1, options, eval_executable_for(full_inputs));
  int64_t batch = 0;
  while (const int64_t rows = batches.next_global_rows()) {
    if (options.before_batch) options.before_batch();
    ++batch;
    const int64_t global_rows = mode_->global_rows(dataset, rows);
    const auto inputs = input_specs(dataset, global_rows);
    session::Executable& executable = eval_executable_for(inputs);
    const auto types = batches.next_types();
    Tensor label(types.back());
    auto place =
        place_of_batch(executable, std::vector(inputs.begin(), inputs.end() - 1), !mode_->takes_whole_batches());
    place.written.push_back(label.view());
    if (mode_->takes_whole_batches()) {
      place.add_piece(executable, inputs.back().name, label.view());
    } else if (cells_.loss != nullptr) {
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
    const double loss = cells_.loss != nullptr ? loss_of(executable) : 0.0;
    for (const auto& metric : options_.metrics) metric->update(output, label, loss, global_rows);
  }
  std::map<std::string, double> results;
  for (const auto& metric : options_.metrics) {
    auto totals = metric->counts();
    if (mode_->is_shared() && !mode_->takes_whole_batches() && !metric->is_global()) {
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
  ir::Graph graph = session::trace_forward(cells_.network, inputs, mode_->settings(false), precision_of(options_));
  say_unused_strategies(graph);
  mode_->apply_strategies(graph, /*is_training=*/false);
  if (places_values && !is_placed) {
    if (const auto layouts = mode_->layouts_to_predict(*session_, graph)) {
      place(*layouts);
      predicts_split_ = true;
    }
  }
  return *(compiled_[signature] = mode_->compile_prediction(*session_, graph, is_placed || places_values));
}

void Model::build_predict(const std::vector<Type>& inputs) {
  std::vector<session::InputSpec> specs;
  for (size_t i = 0; i < inputs.size(); ++i) specs.push_back({fmt::format("input{}", i), inputs[i]});
  record_plan(predict_executable_for(specs, /*places_values=*/true), /*is_training=*/false);
}

void Model::record_plan(const session::Executable& executable, bool is_training) {
  RankBarrier ranks(context_.world());
  mode_->record(executable, is_training, ranks);
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
