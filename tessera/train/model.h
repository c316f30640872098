// Model: a network, its loss and its optimizer, and what one does with them: train, eval, predict, save and load, on
// the ranks of a context, under a parallel mode. Every rank makes the same calls.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/checkpoint/global_checkpoint.h"
#include "tessera/checkpoint/save.h"
#include "tessera/cluster/context.h"
#include "tessera/data/batch_iterator.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizer.h"
#include "tessera/session/session.h"
#include "tessera/session/trace.h"
#include "tessera/train/background_save.h"
#include "tessera/train/batch_place.h"
#include "tessera/train/callback.h"
#include "tessera/train/checkpoint_job.h"
#include "tessera/train/metrics.h"
#include "tessera/train/modes/mode.h"
#include "tessera/train/network_identity.h"
#include "tessera/train/options/model_options.h"
#include "tessera/train/rank_barrier.h"
#include "tessera/train/snapshot.h"
#include "tessera/train/training_place.h"

namespace tessera::train {

struct TrainOptions {
  // Callbacks run once per `sink_size` steps instead of every step.
  bool dataset_sink_mode = false;
  int64_t sink_size = -1;  // -1: the whole epoch
  int num_workers = 1;     // threads that make batches ahead
  // Called before each batch, whatever callbacks there are: what it throws ends the call.
  std::function<void()> before_batch = {};
};

// How Model::save_checkpoint saves.
struct SaveCheckpointOptions {
  // Information after the values, such as epoch_num and step_num.
  std::vector<checkpoint::Entry> append_info = {};
  // True: one file of whole values, as one device would write it. False: each rank writes the slices that it holds, at
  // once and without sending anything; ranks that name one directory write each slice once, into one checkpoint.
  bool integrated = true;
  // Copy the values that this rank writes and return; a thread writes them while training goes on. One save is under
  // way at a time: the next one waits for it, and throws its error.
  bool async = false;
  checkpoint::Encryption encryption = {};
  // Called when the checkpoint is committed, before the save counts as done; on the first rank of each directory, by
  // the thread that wrote.
  std::function<void()> after_commit = {};
};

// How Model::load_checkpoint loads.
struct LoadCheckpointOptions {
  checkpoint::Encryption decryption = {};
  // Go on with the checkpoint of another training: of another name (ModelOptions::job_name), of an optimizer of another
  // kind, or of a network that computes something else with parameters of equal names and shapes.
  bool accept_other_jobs = false;
};

class Model {
 public:
  // Loss and optimizer may be null for a model that only predicts. All outlive the model.
  Model(cluster::Context& context, nn::Cell& network, nn::Cell* loss, nn::Optimizer* optimizer,
        const ModelOptions& options = {});
  ~Model();

  // Trains until `num_epochs` epochs of the data set are done, those of a loaded checkpoint included. The last column
  // of the data set is the label. In hybrid parallel each rank has a data set of its own; all have as many batches, and
  // short ones at the same places. Throws InvalidArgument for data that does not fit the network, Error naming the step
  // for a loss that is not finite, InvalidArgument naming batch, column, row, value and range for an index (a token, a
  // label) that is out of range (nothing is updated by that step), IoError when a rank is lost. When it returns,
  // saves that a thread was writing are done; what one of them threw, it throws.
  void train(int64_t num_epochs, const data::Dataset& dataset, const Callbacks& callbacks = {},
             const TrainOptions& options = {});
  // The metrics over the data set, by name; the same on every rank. The loss is one of them only where asked for.
  std::map<std::string, double> eval(const data::Dataset& dataset, const TrainOptions& options = {});
  // The network's result for these inputs, whole on every rank; each rank computes by itself, but in hybrid parallel,
  // where all predict together.
  Tensor predict(const std::vector<Tensor>& inputs);
  // Compiles the training step, and the evaluation when `valid` is given, without running them.
  void build(const data::Dataset& train, const data::Dataset* valid = nullptr);
  // Compiles the prediction for inputs of these types. In semi-automatic parallelism the parameters come to lie as the
  // network's strategies say, where no training step has placed them before, and the strategy file is written.
  void build_predict(const std::vector<Type>& inputs);
  // How parameters and states lie on the ranks, as a strategy file says it, with their shapes: of the training step,
  // else of the prediction that was built. Empty before, and where each rank has values of its own.
  const std::vector<checkpoint::ParameterLayout>& layouts() const { return mode_->layouts(); }
  // One step on one global batch: each rank gives its rows (all of them in semi-automatic parallelism, where it takes
  // what its plan wants; in hybrid parallel the batch is its own, and global_rows are its rows). Returns the loss.
  // Where gradients are accumulated, a call is one micro-batch, and the loss is the mean of the losses of this step so
  // far.
  double train_step(const std::vector<TensorView>& local_batch, int64_t global_rows);

  // Values by name: parameters, then states. value() is collective where values are split.
  const std::vector<std::string>& names() const { return session_->names(); }
  Tensor value(const std::string& name) { return session_->value(name); }
  void set_value(const std::string& name, const Tensor& value) { session().set_value(name, value); }

  // Writes parameters, states, step, data position and random state so that training resumes exactly, under this plan
  // or another. Ranks that name one directory write one checkpoint together; in hybrid parallel each rank has values of
  // its own and needs a directory of its own. Returns the path. Every rank calls it; when one fails all throw, naming
  // it and the reason, and no directory has changed.
  std::string save_checkpoint(const std::string& path, const SaveCheckpointOptions& options = {});
  // Takes the memory in which an async save with these options keeps its copy, so that no step waits for it: as much as
  // this rank writes. It is kept as long as the model. Every rank calls it.
  void reserve_snapshot(const std::string& path, const SaveCheckpointOptions& options);
  // The copy that an async save makes, of the values as they are when it is called, while the next step runs.
  Snapshot& snapshot() { return snapshot_; }
  // Waits for a save that a thread is writing. Throws its error, once.
  void finish_saves();
  // Takes all values of a checkpoint of this network and optimizer, and where training stood. The checkpoint may have
  // been saved by any number of ranks, under any plan, whole or in slices (checkpoint/global_checkpoint.h says what
  // `path` may name); each rank reads what its own plan wants, which is known after build(): before, that is
  // everything. A table of learning rates is this model's own, so that a training can be made longer. Throws
  // InvalidArgument listing missing, unexpected and mis-shaped names, naming a damaged file, or the training whose
  // checkpoint it is where that is another one, and what differs; then nothing has changed. What the network computes
  // is known after build(): before, it is compared at the first step, which throws. Where the path is a directory,
  // files that are damaged or of another training are passed over, with a warning, and so is a file without a manifest
  // where an older one has one. IoError when a file cannot be read. Files must not change meanwhile. Every rank calls
  // it. An encrypted checkpoint needs its key, and twice its size in memory.
  checkpoint::CheckpointInfo load_checkpoint(const std::string& path, const LoadCheckpointOptions& options = {});
  // The network's parameters only, of any training: to evaluate, or to start a new training from them. Other entries
  // are left out.
  void load_parameters(const std::string& path, const checkpoint::Encryption& decryption = {});
  // What the latest of these two read.
  const checkpoint::GlobalCheckpoint::Report& load_report() const { return load_report_; }

  // Whether the latest step, or micro-batch, was skipped because a gradient or the loss was not finite.
  bool was_skipped() const { return was_skipped_; }
  // Automatic: the plan of the training step, once it is compiled; nullptr before, and in other modes.
  const compiler::PlanRecord* plan() const { return mode_->plan().get(); }
  // How the ranks share the training; that of one rank where the context has no more.
  const Mode& mode() const { return *mode_; }
  // The id of this training: a random one, or that of the checkpoint that was loaded to go on from. Every rank calls
  // it.
  const std::string& training_id();
  // Steps since the beginning of training, skipped ones included.
  int64_t step() const { return place_.step; }
  const data::Position& position() const { return place_.position; }
  cluster::Context& context() { return context_; }
  // Whose values the caller may change: a copy of them that is being made for a save is finished first.
  session::Session& session() {
    snapshot_.finish();
    values_are_initial_ = false;
    return *session_;
  }
  const session::Session& session() const { return *session_; }
  const ModelOptions& options() const { return options_; }
  // Measures each kernel of the compiled training steps from here on.
  void enable_profiling();
  // What was compiled for the latest training batch; nullptr before the first.
  session::Executable* train_executable() { return train_; }
  // The logical graph of the training step for these columns (global shapes).
  ir::Graph trace_train(const std::vector<session::InputSpec>& inputs);

 private:
  bool accumulates() const { return options_.gradient_accumulation_steps > 1; }
  ir::Graph trace_train(const std::vector<session::InputSpec>& inputs, session::StepPart part);
  // Has the mode note how the ranks share what is compiled, and write it. Collective.
  void record_plan(const session::Executable& executable, bool is_training);
  // Says once that strategies of the network have no effect in this mode.
  void say_unused_strategies(const ir::Graph& graph);
  // The executable of the next batch: with gradient accumulation that of a step's last one is another.
  session::Executable& train_executable_for(const std::vector<session::InputSpec>& inputs);
  session::Executable& train_executable_for(const std::vector<session::InputSpec>& inputs, session::StepPart part);
  session::Executable& eval_executable_for(const std::vector<session::InputSpec>& inputs);
  // places_values: where they lie whole until now, and strategies are to split them.
  session::Executable& predict_executable_for(const std::vector<session::InputSpec>& inputs, bool places_values);

  // model_values.cc: how parameters and states start and where they lie.
  void prepare_values();
  // Gives them their first values. Of data that the user gave each rank takes its own.
  void initialize_values();
  // States that count steps.
  std::vector<std::string> counters() const;
  void agree_on_values();
  void place_values(const ir::Graph& graph, const std::vector<session::InputSpec>& inputs);
  void place(const compiler::ShardingHints& layouts);
  void check_replicas();

  // model_batches.cc: from the data set to the inputs of a step.
  std::vector<session::InputSpec> input_specs(const data::Dataset& dataset, int64_t global_rows) const;
  data::BatchIterator batches_of(const data::Dataset& dataset, data::Position start, int64_t num_epochs,
                                 const TrainOptions& options, const session::Executable& executable) const;
  // `has_own_rows`: the data set is one rank's part, which lies in memory as the step reads it.
  BatchPlace place_of_batch(session::Executable& executable, const std::vector<session::InputSpec>& inputs,
                            bool has_own_rows);

  // model_training.cc
  double loss_of(session::Executable& executable) const { return mode_->mean_loss(executable.output("loss")); }
  // Micro-batches of the present step that are done. The state of that name.
  int64_t& accumulated_batches();
  session::StepPart next_part();
  std::vector<session::StepPart> parts() const;
  // Throws InvalidArgument for a data set that does not make whole steps.
  int64_t steps_per_epoch(const data::Dataset& dataset) const;
  // So that the place counts batches of the data set. Throws InvalidArgument where a step is not whole there.
  void find_place_in(const data::Dataset& dataset, int64_t full_rows);
  // Says once that a table of learning rates ends before the training, which goes on to this step.
  void say_short_rates(int64_t last_step);
  void run_batch(session::Executable& executable, const RunContext& run);
  // Runs it and notes whether it was skipped.
  void run_step(session::Executable& executable);
  // Whether the batch was the last of its step.
  bool count_batch();

  // model_checkpoint.cc
  bool says_nothing(const std::string& name);
  std::map<std::string, double> fixed_rates();
  std::vector<CheckpointJob::Value> held_values();
  // All of a save but its copy of the values. Collective.
  CheckpointJob make_save(const std::string& path, const SaveCheckpointOptions& options);
  // Whether each rank has checkpoints of its own, of its own values.
  bool has_own_checkpoints() const { return mode_->form_of_save(/*integrated=*/true) == SaveForm::kOwn; }
  void require_own_directory(const std::string& directory, bool is_shared);
  comm::Communicator& save_group();
  struct OpenedCheckpoint {
    std::unique_ptr<FileSystem> plain;  // what was encrypted, in memory; the checkpoint reads from it
    checkpoint::GlobalCheckpoint checkpoint;
  };
  // What is to be loaded of a checkpoint, and how.
  struct Loading {
    checkpoint::Encryption decryption;
    std::string job_name;  // as in checkpoint::GlobalCheckpoint::open
    std::vector<std::string> names;
    bool is_resumed = false;  // the values of a training that goes on, all of them
    bool accepts_other_trainings = false;
  };
  // Where the values of an opened checkpoint go.
  struct Destinations {
    std::vector<checkpoint::GlobalCheckpoint::Wanted> wanted;
    std::vector<std::pair<std::string, Tensor>> elsewhere;  // values that do not lie as the checkpoint has them
  };
  OpenedCheckpoint load(const std::string& path, const Loading& loading);
  // `reads_once`: what is damaged may be noticed when values have changed already.
  OpenedCheckpoint load_first_usable(const std::string& path, const Loading& loading, RankBarrier* others,
                                     bool reads_once);
  bool can_begin_anew(RankBarrier* others);
  OpenedCheckpoint open_checkpoint(const std::string& path, const Loading& loading);
  Destinations destinations_in(const checkpoint::GlobalCheckpoint& loaded, const Loading& loading);
  void take_elsewhere(const checkpoint::GlobalCheckpoint& loaded, const Destinations& destinations);
  // Throws InvalidArgument saying what differs when a checkpoint's optimizer or network is another one. A network that
  // is not known yet is compared when it is.
  void require_same_training(const std::string& path, const checkpoint::CheckpointInfo& info) const;
  void require_same_network(const std::string& path, const NetworkIdentity& there) const;
  void note_network(const ir::Graph& train_step);

  cluster::Context& context_;
  TrainedCells cells_;
  ModelOptions options_;
  std::unique_ptr<Mode> mode_;
  std::unique_ptr<session::Session> session_;
  std::vector<nn::Parameter> states_;
  std::map<std::string, std::unique_ptr<session::Executable>> compiled_;
  session::Executable* train_ = nullptr;
  TrainingPlace place_;
  bool was_skipped_ = false;
  double loss_sum_ = 0;               // the losses of train_step's micro-batches of the present step
  std::set<std::string> own_values_;  // the names of values that differ between ranks by intention
  bool strategies_said_ = false;
  bool rates_said_ = false;
  bool predicts_split_ = false;  // values lie as strategies say
  bool replicas_checked_ = false;
  bool values_placed_ = false;
  bool values_are_initial_ = false;              // nobody has trained, set or loaded any
  std::map<std::string, Tensor> whole_batches_;  // by signature of an input
  checkpoint::GlobalCheckpoint::Report load_report_;
  std::string training_id_;                            // "" before it is asked for
  NetworkIdentity network_identity_;                   // once the training step is traced
  std::optional<NetworkIdentity> network_to_compare_;  // the network of the checkpoint that was loaded before that
  std::string loaded_path_;
  std::string save_group_;  // the name of the group that threads save with; "" before the first
  Snapshot snapshot_;
  BackgroundSave background_save_;  // reads the snapshot
};

}  // namespace tessera::train
