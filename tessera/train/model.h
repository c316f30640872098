// Model: a network, its loss and its optimizer, and what one does with them: train, eval, predict, save and load, on
// the ranks of a context, under a parallel mode. Every rank makes the same calls.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/cell.h"
#include "tessera/nn/optimizers/optimizer.h"
#include "tessera/train/callback.h"
#include "tessera/train/options/model_options.h"
#include "tessera/train/options/train_options.h"

namespace tessera::checkpoint {
struct ParameterLayout;
}
namespace tessera::session {
class Executable;
class Session;
struct InputSpec;
}  // namespace tessera::session

namespace tessera::train {

class Snapshot;
struct ValueRecordOptions;

// What an evaluation has given.
struct EvaluationResult {
  int64_t number = 0;  // of the model's evaluations, from 1; 0 before the first
  int64_t step = 0;    // those trained before it
  std::map<std::string, double> metrics = {};
};

class Model {
 public:
  // Loss and optimizer may be null for a model that only predicts. All outlive the model. What is trained are the
  // model's values, which go with it: the network's parameters are what they were given before (value(), or
  // save_checkpoint(), has the trained ones).
  Model(cluster::Context& context, nn::Cell& network, nn::Cell* loss, nn::Optimizer* optimizer,
        const ModelOptions& options = {});
  ~Model();

  // Trains until `num_epochs` epochs of the data set are done, those of a loaded checkpoint included. The last column
  // of the data set is the label. In hybrid parallel each rank has a data set of its own; all have as many batches, of
  // whatever rows. TrainOptions::resume has it go on from a checkpoint, with the bits that it would have had without
  // the interruption, and throws what load_checkpoint() throws. Throws InvalidArgument for data that does not fit the
  // network, NonFiniteLoss naming the step for a loss that is not finite, InvalidArgument naming batch, column, row,
  // value and range for an index (a token, a label) that is out of range (nothing is updated by that step),
  // InvalidArgument on every rank where one has read other rows than the others though each reads the whole batch
  // (which is compared for the batches 1, 2, 4, ... 64 and every 64th), IoError when a rank is lost, and what data and
  // callbacks throw. When it returns, saves that a thread was writing are done; what one of them threw, it throws.
  // After an exception the values are those of the last whole step, and the next train() is a new training of as many
  // epochs as it is asked for, unless a checkpoint is loaded before; one that is saved before says how far this came.
  void train(int64_t num_epochs, const data::Dataset& dataset, const Callbacks& callbacks = {},
             const TrainOptions& options = {});
  // The metrics over the data set, by name; the same on every rank. The loss is one of them only where asked for. In
  // modes in which every rank reads whole batches (all but data parallel without servers, and hybrid parallel) the
  // ranks compare what they read: where it differs every rank throws InvalidArgument. So does every rank for an index
  // that is out of range in the rows of one of them, whose rank, batch, column, row, value and range are named.
  std::map<std::string, double> eval(const data::Dataset& dataset, const TrainOptions& options = {});
  // The latest one's result: callbacks write it down.
  const EvaluationResult& latest_evaluation() const;
  // The network's result for these inputs, whole on every rank. In hybrid parallel all predict together, each for its
  // own rows. Where ranks share the work (with parameter servers; in a pipeline, in automatic parallelism and by
  // strategies once values lie where the training step, or build_predict(), wants them) every rank gives the same
  // inputs: where they differ every rank throws InvalidArgument. Else each predicts what it likes.
  Tensor predict(const std::vector<Tensor>& inputs);
  // Compiles the training step, and the evaluation when `valid` is given, without running them.
  void build(const data::Dataset& train, const data::Dataset* valid = nullptr);
  // Compiles the prediction for inputs of these types. In semi-automatic parallelism the parameters come to lie as the
  // network's strategies say, where no training step has placed them before, and the strategy file is written.
  void build_predict(const std::vector<Type>& inputs);
  // How parameters and states lie on the ranks, as a strategy file says it, with their shapes: of the training step,
  // else of the prediction that was built. Empty before, and where each rank has values of its own.
  const std::vector<checkpoint::ParameterLayout>& layouts() const;
  // Says that the network may compute something else from here on, as after a cell's setting or a parameter's
  // requires_grad has been changed: what was compiled is traced again before it runs next, and compiled again where it
  // is something else. Throws InvalidArgument then, not now, where the network has other parameters than when the model
  // was made.
  void network_changed();
  // One step on one global batch: each rank gives its rows (all of them in semi-automatic parallelism, where it takes
  // what its plan wants; in hybrid parallel the batch is its own, and global_rows are its rows). Returns the loss.
  // Where gradients are accumulated, a call is one micro-batch, and the loss is the mean of the losses of this step so
  // far. Throws InvalidArgument, on every rank, where ranks that train one batch together name other global_rows or
  // give other columns, where one, of a batch that was compiled before, gives other rows of its own than it should, or
  // where each gives the whole batch and one gives other rows: nothing is computed then. Workers of parameter servers
  // that do not wait for each other (server_staleness) are not compared.
  double train_step(const std::vector<TensorView>& local_batch, int64_t global_rows);

  // Values by name: parameters, then states. value() is collective where values are split.
  const std::vector<std::string>& names() const;
  // Returns the names of the parameters alone: those of the network come first, then those of the loss.
  std::vector<std::string> parameter_names() const;
  Tensor value(const std::string& name);
  // The value as a network on one device has it: of moving statistics with one row per rank
  // (BatchNormStatistics::kLocal) this rank's row, without its first dim and without communication; of all else
  // value(), and set_value().
  bool has_row_per_rank(const std::string& name) const;
  Tensor own_value(const std::string& name);
  void set_own_value(const std::string& name, const Tensor& value);
  // The names of the values that predictions and evaluations have assigned since this was asked last.
  std::set<std::string> take_assigned();
  // Gives the value to this rank alone. Ranks that then train, evaluate or, in hybrid parallel, predict with values
  // that differ hear of it.
  void set_value(const std::string& name, const Tensor& value);

  // Writes parameters, states, step, data position and random state so that training resumes exactly, under this plan
  // or another. Ranks that name one directory write one checkpoint together; in hybrid parallel each rank has values of
  // its own and needs a directory of its own. Returns the path. Every rank calls it; when one fails all throw, naming
  // it and the reason, and no directory has changed.
  std::string save_checkpoint(const std::string& path, const SaveCheckpointOptions& options = {});
  // Takes the memory in which an async save with these options keeps its copy, so that no step waits for it: as much as
  // this rank writes. It is kept as long as the model. Every rank calls it.
  void reserve_snapshot(const std::string& path, const SaveCheckpointOptions& options);
  // The copy that an async save makes, of the values as they are when it is called, while the next step runs.
  Snapshot& snapshot();
  // Waits for a save that a thread is writing. Throws its error, once.
  void finish_saves();
  // Ends threads that wait for other ranks, before a context goes that the model outlives. All ranks call it, or the
  // job has failed; the model computes no more.
  void leave();
  // Takes all values of a checkpoint of this network and optimizer, and where training stood. The checkpoint may have
  // been saved by any number of ranks, under any plan, whole or in slices (checkpoint/resume/global_checkpoint.h says
  // what `path` may name; of a directory it is the newest that can be used, see checkpoint/read/candidates.h); each
  // rank reads what its own plan wants, which is known after build(): before, that is everything. A table of learning
  // rates is this model's own, so that a training can be made longer. Throws InvalidArgument listing missing,
  // unexpected and mis-shaped names, naming a damaged file, or the training whose checkpoint it is where that is
  // another one, and what differs; then nothing has changed. What the network computes is known after build(): before,
  // it is compared at the first step, which throws. Where the path is a directory, files that are damaged or of another
  // training are passed over, with a warning, and so is a file without a manifest where an older one has one;
  // NoUsableCheckpoint says why none is left. IoError when a file cannot be read. Files must not change meanwhile.
  // Every rank calls it. An encrypted checkpoint needs its key, and twice its size in memory.
  checkpoint::CheckpointInfo load_checkpoint(const std::string& path, const LoadCheckpointOptions& options = {});
  // The network's parameters only, of any training: to evaluate, or to start a new training from them. Other entries
  // are left out. Returns what was loaded and what not. Throws InvalidArgument as load_checkpoint() does, for a pattern
  // that matches no parameter, where two values are renamed alike, and where nothing would be loaded. Every rank calls
  // it, in hybrid parallel with a file of its own.
  LoadedParameters load_parameters(const std::string& path, const LoadParametersOptions& options = {});
  // What the latest load_checkpoint() or load_parameters() read.
  const checkpoint::GlobalCheckpoint::Report& load_report() const;

  // Puts the averages of the parameters in their places, where the optimizer keeps such (nn/tuning/
  // exponential_moving_average.h), rounded for parameters of half types: evaluations, predictions and value() see them
  // until restore_parameters() puts back the bits that were there. AveragedParameters does both. Meanwhile training,
  // saving and loading throw InvalidArgument; before the first update the averages are the parameters. Throws
  // InvalidArgument where there are none, and where they are there already. Takes the memory of this rank's parameters
  // once more. Every rank calls it.
  void put_averages_in_place();
  void restore_parameters();

  // Records the values of the steps from the next one on, and compares them with those of an earlier run, as the
  // options say; without a directory it does so no more. Throws InvalidArgument for steps that are none, and where
  // there is nothing to compare with. What the options of the model say is begun when it is made. Every rank calls it.
  void record_values(const ValueRecordOptions& options);

  // Whether the latest step, or micro-batch, was skipped because a gradient or the loss was not finite.
  bool was_skipped() const;
  // Automatic: the plan of the training step, once it is compiled; nullptr before, and in other modes.
  const compiler::PlanRecord* plan() const;
  // Whether the ranks train one network together: not in stand-alone mode, nor on one rank.
  bool is_shared() const;
  // Whether the rows that this rank evaluates are its own part of a batch, which metrics add up over the ranks.
  bool evaluates_own_rows() const;
  // The id of this training: a random one, or that of the checkpoint that was loaded to go on from. Every rank calls
  // it.
  const std::string& training_id();
  // Steps since the beginning of training, skipped ones included.
  int64_t step() const;
  const data::Position& position() const;
  cluster::Context& context();
  // The session with the model's values, which the caller may change. A copy that is being made for a save is finished
  // first.
  session::Session& session();
  const session::Session& session() const;
  // For what needs no values, which are made at the first session(): names, types and how they lie.
  const session::Session& bare_session() const;
  const ModelOptions& options() const;
  // Measures each kernel of the compiled training steps from here on.
  void enable_profiling();
  // What was compiled for the latest training batch; nullptr before the first.
  session::Executable* train_executable();
  // The logical graph of the training step for these columns (global shapes).
  ir::Graph trace_train(const std::vector<session::InputSpec>& inputs);

 private:
  struct Parts;  // model.cc
  std::unique_ptr<Parts> parts_;
};

// The averages of a model's parameters are in their places for as long as this lives:
//     const AveragedParameters averaged(model);
//     const auto metrics = model.eval(valid);
class AveragedParameters {
 public:
  // Does what Model::put_averages_in_place() does, and throws as that. The model outlives it. Every rank makes one.
  explicit AveragedParameters(Model& model) : model_(model) { model.put_averages_in_place(); }
  ~AveragedParameters();
  AveragedParameters(const AveragedParameters&) = delete;
  AveragedParameters& operator=(const AveragedParameters&) = delete;

 private:
  Model& model_;
};

}  // namespace tessera::train
