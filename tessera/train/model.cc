#include "tessera/train/model.h"

#include <exception>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/session/agree/agree_on_step.h"
#include "tessera/session/index_fault.h"
#include "tessera/train/batches.h"
#include "tessera/train/compiled_steps.h"
#include "tessera/train/core/averages.h"
#include "tessera/train/core/model_core.h"
#include "tessera/train/core/value_recording.h"
#include "tessera/train/evaluation.h"
#include "tessera/train/kept/kept_training.h"
#include "tessera/train/saving/loader.h"
#include "tessera/train/saving/saver.h"
#include "tessera/train/saving/snapshot.h"
#include "tessera/train/saving/training_identity.h"
#include "tessera/train/saving/training_progress.h"
#include "tessera/train/training.h"

namespace tessera::train {

struct Model::Parts {
  Parts(cluster::Context& context, const TrainedCells& cells, const ModelOptions& options)
      : core(context, cells, options) {}

  ModelCore core;
  Averages averages{core};
  ValueRecording recording{core};
  TrainingIdentity identity{core};
  TrainingProgress progress;
  Snapshot snapshot;
  CompiledSteps steps{core, identity, snapshot};
  WholeBatches whole_batches;
  Saver saver{core, identity, progress, snapshot};
  Loader loader{core, identity};
  KeptTraining kept{core, identity, progress, snapshot};
  Training training{{core, steps, whole_batches, progress, snapshot, saver, kept, recording}};
  EvaluationResult latest_evaluation;
  bool is_trained = false;  // now, by train()
};

namespace {

constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();  // oneDNN counts so

InputSpecs numbered(const std::vector<Type>& types) {
  InputSpecs specs;
  for (size_t i = 0; i < types.size(); ++i) specs.push_back({fmt::format("input{}", i), types[i]});
  return specs;
}

// Where the ranks share a prediction. Collective there.
void agree_on_inputs(const ModelCore& core, const std::vector<Tensor>& inputs) {
  std::string types;
  std::vector<TensorView> batch;
  for (const Tensor& input : inputs) {
    types += fmt::format("{}{}", types.empty() ? "" : ", ", input.type());
    batch.push_back(input.view());
  }
  session::agree_on_batch(
      core.context.world(), [] { return std::string("predict"); }, types, batch);
}

// What is being saved is copied first.
void refresh_copies(ModelCore& core, Snapshot& snapshot) {
  if (core.mode->steps_together()) return;
  snapshot.finish();
  core.mode->refresh_copies(core.session());
}

void check_sink(const TrainOptions& options) {
  if (options.sink_size == 0 || options.sink_size < -1) {
    throw InvalidArgument("train: sink_size must be a number of steps above 0, or -1, a whole epoch, got {}",
                          options.sink_size);
  }
  if (options.sink_size != -1 && !options.dataset_sink_mode) {
    throw InvalidArgument("train: sink_size = {} has no effect without dataset_sink_mode: set that, too",
                          options.sink_size);
  }
}

}  // namespace

Model::Model(cluster::Context& context, nn::Cell& network, nn::Cell* loss, nn::Optimizer* optimizer,
             const ModelOptions& options)
    : parts_(std::make_unique<Parts>(context, TrainedCells{network, loss, optimizer}, options)) {}

Model::~Model() = default;

void Model::train(int64_t num_epochs, const data::Dataset& dataset, const Callbacks& callbacks,
                  const TrainOptions& options) {
  parts_->averages.require_not_in_place("train");
  check_sink(options);
  struct Trained {
    explicit Trained(bool& is_trained) : is_trained(is_trained) { is_trained = true; }
    ~Trained() { is_trained = false; }
    bool& is_trained;
  };
  if (parts_->is_trained) {
    throw InvalidArgument(
        "train: the model is being trained: a callback cannot train it again; give this training more epochs, or train "
        "another model of the network");
  }
  const Trained trained(parts_->is_trained);
  parts_->training.run(*this, num_epochs, dataset, callbacks, options);
}

double Model::train_step(const std::vector<TensorView>& local_batch, int64_t global_rows) {
  parts_->averages.require_not_in_place("train_step");
  // Before anything is compiled for them.
  const bool are_own = !parts_->core.mode->takes_whole_batches() && parts_->core.context.size() > 1;
  for (const TensorView& column : local_batch) {
    if (column.shape.ndim() == 0 || column.shape[0] == global_rows) continue;
    if (are_own && global_rows > 0 && global_rows <= kMostRows) continue;  // each rank's are compared with its plan
    throw InvalidArgument("train_step: global_rows is {}, the batch has {} rows{}", global_rows, column.shape[0],
                          are_own ? fmt::format("; at most {} are possible", kMostRows) : "");
  }
  return parts_->training.run_step_on(local_batch, global_rows);
}

std::map<std::string, double> Model::eval(const data::Dataset& dataset, const TrainOptions& options) {
  if (!options.resume.empty()) {
    throw InvalidArgument("eval: resume={} is of train(): load_checkpoint() loads what is to be evaluated",
                          options.resume);
  }
  parts_->core.meet("begin of an evaluation");
  refresh_copies(parts_->core, parts_->snapshot);
  auto metrics = evaluate(parts_->core, parts_->steps, parts_->whole_batches, dataset, options);
  auto& latest = parts_->latest_evaluation;
  latest = {.number = latest.number + 1, .step = parts_->progress.step, .metrics = metrics};
  return metrics;
}

const EvaluationResult& Model::latest_evaluation() const { return parts_->latest_evaluation; }

Tensor Model::predict(const std::vector<Tensor>& inputs) {
  std::vector<Type> types;
  for (const Tensor& input : inputs) types.push_back(input.type());
  const auto specs = numbered(types);
  if (parts_->core.mode->predicts_together()) parts_->core.mode->come_together();
  const bool have_one_batch = parts_->steps.predicts_one_batch();
  if (have_one_batch) agree_on_inputs(parts_->core, inputs);
  auto& executable = parts_->steps.prediction(specs);
  if (parts_->core.mode->predicts_together()) {
    refresh_copies(parts_->core, parts_->snapshot);
    parts_->core.values->compare_new();
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& name = specs[i].name;
    copy_elements(mesh::piece_of(inputs[i].view(), executable.input_slice(name)), executable.input(name));
  }
  parts_->core.values->set_assigned(executable.compiled().logical);
  // A rank that stopped alone would leave the others waiting.
  executable.set_notes_bad_indices(have_one_batch);
  executable.run();
  if (have_one_batch) session::throw_first_bad_index(parts_->core.context.world(), executable.noted_bad_index("input"));
  return Tensor::copy_of(executable.output("output"));
}

void Model::build(const data::Dataset& train, const data::Dataset* valid) {
  parts_->training.build(train);
  if (valid == nullptr) return;
  const int64_t rows = parts_->core.mode->global_rows(*valid, valid->get_batch_size());
  parts_->steps.evaluation(input_specs(*valid, rows));
}

void Model::network_changed() { parts_->steps.doubt(); }

void Model::build_predict(const std::vector<Type>& inputs) { parts_->steps.build_prediction(numbered(inputs)); }

ir::Graph Model::trace_train(const std::vector<session::InputSpec>& inputs) {
  return parts_->steps.trace_training(inputs);
}

std::string Model::save_checkpoint(const std::string& path, const SaveCheckpointOptions& options) {
  parts_->averages.require_not_in_place("save_checkpoint");
  auto* executable = parts_->training.executable();
  return parts_->saver.save(path, options, executable != nullptr ? executable->updated() : std::vector<TensorView>());
}

void Model::reserve_snapshot(const std::string& path, const SaveCheckpointOptions& options) {
  parts_->saver.reserve_snapshot(path, options);
}

void Model::leave() { parts_->core.mode->leave(); }

void Model::finish_saves() { parts_->saver.finish(); }

checkpoint::CheckpointInfo Model::load_checkpoint(const std::string& path, const LoadCheckpointOptions& options) {
  parts_->averages.require_not_in_place("load_checkpoint");
  parts_->saver.finish();
  auto info = parts_->loader.load_training(path, options);
  parts_->training.resume(info);
  return info;
}

LoadedParameters Model::load_parameters(const std::string& path, const LoadParametersOptions& options) {
  parts_->averages.require_not_in_place("load_parameters");
  parts_->saver.finish();
  return parts_->loader.load_parameters(path, options);
}

void Model::record_values(const ValueRecordOptions& options) { parts_->recording.begin(options); }

void Model::put_averages_in_place() {
  parts_->core.meet("averages in the places of the parameters");
  refresh_copies(parts_->core, parts_->snapshot);
  parts_->snapshot.finish();
  parts_->averages.put_in_place();
}

void Model::restore_parameters() { parts_->averages.restore(); }

AveragedParameters::~AveragedParameters() {
  try {
    model_.restore_parameters();
  } catch (const std::exception& error) {
    log_error("the parameters could not be put back in the places of their averages: {}", error.what());
  }
}

session::Session& Model::session() {
  parts_->snapshot.finish();
  parts_->core.values->set_changed();
  return parts_->core.session();
}

const session::Session& Model::session() const { return parts_->core.session(); }
const session::Session& Model::bare_session() const { return parts_->core.bare_session(); }
const std::vector<std::string>& Model::names() const { return bare_session().names(); }
std::vector<std::string> Model::parameter_names() const {
  std::vector<std::string> names;
  for (const nn::Parameter* parameter : parts_->core.cells.parameters()) names.push_back(parameter->full_name());
  return names;
}
Tensor Model::value(const std::string& name) {
  // The ranks put together what none of them has whole.
  if (bare_session().is_split(name)) parts_->core.mode->come_together();
  return parts_->core.session().value(name);
}
bool Model::has_row_per_rank(const std::string& name) const { return parts_->core.values->has_row_per_rank(name); }
Tensor Model::own_value(const std::string& name) {
  return has_row_per_rank(name) ? parts_->core.values->own_value(name) : value(name);
}
std::set<std::string> Model::take_assigned() { return parts_->core.values->take_assigned(); }
void Model::set_value(const std::string& name, const Tensor& value) {
  session().set_value(name, value);
  parts_->core.values->set_by_hand();
}

void Model::set_own_value(const std::string& name, const Tensor& value) {
  parts_->snapshot.finish();
  parts_->core.values->set_own_value(name, value);
  parts_->core.values->set_by_hand();
}

const std::vector<checkpoint::ParameterLayout>& Model::layouts() const { return parts_->core.mode->layouts(); }
const compiler::PlanRecord* Model::plan() const { return parts_->core.mode->plan().get(); }
bool Model::is_shared() const { return parts_->core.mode->is_shared(); }
bool Model::evaluates_own_rows() const { return is_shared() && !parts_->core.mode->takes_whole_batches(); }

Snapshot& Model::snapshot() { return parts_->snapshot; }
const checkpoint::GlobalCheckpoint::Report& Model::load_report() const { return parts_->loader.report(); }
const std::string& Model::training_id() { return parts_->identity.id(); }
bool Model::was_skipped() const { return parts_->training.was_skipped(); }
int64_t Model::step() const { return parts_->progress.step; }
const data::Position& Model::position() const { return parts_->progress.position; }
cluster::Context& Model::context() { return parts_->core.context; }
const ModelOptions& Model::options() const { return parts_->core.options; }
void Model::enable_profiling() { parts_->steps.enable_profiling(); }
session::Executable* Model::train_executable() { return parts_->training.executable(); }

}  // namespace tessera::train
