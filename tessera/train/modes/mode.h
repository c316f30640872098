// Mode: how the ranks of a context share one training: what they agree on, how values and batches lie on them, how
// their losses become one, and who saves what. Each parallel mode has a file in this folder; whoever trains asks the
// mode, never which one it is. The answers in this header are those of stand-alone training, which shares nothing.
//
// A model's mode belongs to that model, and looks at its context, its cells and its options as long as it lives. Every
// rank makes the same calls; which of them communicate is said.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/lock/barrier.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/data/dataset.h"
#include "tessera/session/session.h"
#include "tessera/session/trace.h"
#include "tessera/train/modes/save_form.h"
#include "tessera/train/modes/trained_cells.h"
#include "tessera/train/options/model_options.h"

namespace tessera::train {

using InputSpecs = std::vector<session::InputSpec>;

// What a mode is made for.
struct ModeParts {
  cluster::Context& context;
  const ModelOptions& options;
  TrainedCells cells;
};

class Mode {
 public:
  explicit Mode(const ModeParts& parts) : context_(parts.context), options_(parts.options), cells_(parts.cells) {}
  virtual ~Mode() = default;
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;

  // Whether the ranks train one network together. Off: each by itself, and nothing communicates.
  virtual bool is_shared() const { return true; }

  // Which values ranks share, and how they lie.

  // Throws InvalidArgument for a parameter that cannot be trained in this mode.
  virtual void check_parameter(const nn::Parameter&) const {}
  // Whether each rank has values of its own of the parameters that are not trained: statistics of its batches.
  virtual bool has_own_statistics() const { return false; }
  // Whether ranks compare the values that they start with, and take rank 0's.
  virtual bool agrees_on_values() const { return false; }
  // How a parameter or a state lies from the beginning, where no rank that others may do without is ever to have all of
  // it. Absent: it is whole on every rank until a plan says where it is to lie.
  virtual std::optional<mesh::Layout> first_layout(const nn::Parameter&) const { return std::nullopt; }
  // The ranks that a value, or the rows of a batch, may be split over.
  virtual mesh::Mesh mesh() const { return mesh::Mesh({{"data", 1}}, {context_.rank()}); }
  nn::Settings settings(bool training) const {
    return {.training = training, .batch_norm_groups = batch_norm_groups(), .seed = options_.seed};
  }
  // Those of a prediction: where each rank has statistics of its own, the rows are one part, of this rank.
  nn::Settings settings_of_prediction() const {
    auto settings = this->settings(false);
    settings.batch_norm_groups = std::min(settings.batch_norm_groups, 1);
    return settings;
  }
  // Into how many parts, one per rank, a batch is cut for batch normalisation, each with statistics of its own. 0:
  // none.
  virtual int batch_norm_groups() const { return 0; }

  // Which rows of a batch a rank reads.

  // Throws InvalidArgument where the ranks' data sets are no parts of the same batches; where each has batches of its
  // own, and the steps of an epoch are not equal. Collective.
  virtual void compare_data(const data::Dataset&) const {}
  virtual void compare_steps(int64_t /*of_an_epoch*/) const {}
  // The rows of a batch of all ranks of which the data set says `rows`.
  virtual int64_t global_rows(const data::Dataset&, int64_t rows) const { return rows; }
  // Whether a data set gives each rank the rows that it reads; else all read the whole batch. Throws InvalidArgument
  // where it gives rows of one rank, and all must read the whole batch.
  virtual bool gives_own_rows(const data::Dataset&) const { return true; }
  // Which part of each batch of a data set this rank reads.
  struct BatchShare {
    int64_t index = 0;
    int64_t count = 1;
  };
  virtual BatchShare share_of(const data::Dataset&) const { return {}; }
  // Whether train_step() and eval() are given the whole batch on every rank, which takes of it what its plan wants.
  virtual bool takes_whole_batches() const { return false; }

  // How a step is planned and compiled, and its losses become one.

  // The ranks whose losses' mean is the loss, where each rank's graph is its own.
  virtual std::optional<ops::RankGroup> ranks_of_loss() const { return std::nullopt; }
  // By how much the gradient of the loss is multiplied.
  virtual double gradient_scale() const { return 1.0; }
  // The mean of a step's loss, of any shape. Collective where its elements are split.
  virtual double mean_loss(const TensorView& loss) const;
  // Gives the operators of a graph the strategies of the user's file: of the training step, whose operators the file
  // must name all, or of a part of it.
  virtual void apply_strategies(ir::Graph&, bool /*is_training*/) const {}
  // Plans the training step while parameters and states are whole; they are to lie as its plan says. Absent: they stay.
  // May communicate.
  virtual std::optional<compiler::Compiled> plan_training(session::Session&, const ir::Graph&, const InputSpecs&) {
    return std::nullopt;
  }
  // Where parameters and states are to lie from the first training step on, or the first evaluation of a model that
  // does not train, in a mode that plans no such step as a whole. May communicate.
  virtual compiler::StageLayouts plan_values(session::Session&, const InputSpecs&) { return {}; }
  // The same for a prediction, where no training step is known.
  virtual std::optional<compiler::Compiled> plan_prediction(session::Session&, const ir::Graph&) const {
    return std::nullopt;
  }
  // Where parameters and states are to lie for the predictions of a model that does not train, in a mode that plans no
  // such graph as a whole. Empty: they stay.
  virtual compiler::StageLayouts plan_values_of_prediction(session::Session&, const ir::Graph&) { return {}; }
  // Whether plan_values_of_prediction() is asked for any prediction that comes before values have their places, and not
  // only for one that is built.
  virtual bool places_for_predictions() const { return false; }
  // Compiles a training step or an evaluation, and a prediction, with values where they lie. Collective.
  virtual std::unique_ptr<session::Executable> compile(session::Session& session, const ir::Graph& graph,
                                                       const InputSpecs& inputs) const;
  virtual std::unique_ptr<session::Executable> compile_prediction(session::Session& session, const ir::Graph& graph,
                                                                  bool values_are_placed) const;
  // Whether all ranks compile a step when one of them does. Off: once values are placed, each compiles by itself what
  // its own rows need.
  virtual bool compiles_together() const { return true; }
  // Whether all ranks predict together; else each may predict alone.
  virtual bool predicts_together() const { return false; }
  // Whether a prediction is of one batch that every rank gives as a whole, because ranks share its work: it may be only
  // once values lie where a plan wants them. All ranks say the same.
  virtual bool predicts_one_batch(bool /*values_are_placed*/) const { return false; }

  // Whether the ranks are at the same step when a step is done. Off: they are where they all make a collective call, as
  // a save or an evaluation is.
  virtual bool steps_together() const { return true; }
  // How often the optimizer's states are updated in a step of training.
  virtual int64_t updates_per_step() const { return 1; }
  // Gives values of which this rank has a copy what the ranks that update them have. Asked before values are looked at:
  // before an evaluation, a prediction of all ranks, a save, and when a training ends. Collective where
  // steps_together() is off.
  virtual void refresh_copies(session::Session&) {}

  // This rank comes to a call that all ranks make together: where it is steps ahead of others it waits for them here,
  // as long as they go on, and not there until the deadline. Where all are together already it does nothing. Collective
  // where steps_together() is off.
  virtual void come_together() {}

  // All ranks begin a training.
  virtual void begin_training() {}
  // A callback of this rank has stopped the training before its last step, which all ranks must do after the same step:
  // others that go on hear of it where they wait for this one.
  virtual void stop_training();

  // An exception ends this rank's training: the words that its threads end the job with, where they have to.
  virtual void note_failure(const std::exception_ptr&) {}

  // This rank is about to leave its job, and its model computes no more: threads that wait for other ranks end. All
  // ranks call it, or the job has failed.
  virtual void leave() {}

  // Why a training by this mode on this data set needs the number of ranks that it began with, when an elastic job goes
  // on with another one; "" where any number has the same losses. Asked once the training step is planned.
  virtual std::string why_fixed(const data::Dataset& dataset) const;
  // Why fewer ranks than this training has cannot hold its values, to save them; "" where they can. Asked as
  // why_fixed().
  virtual std::string why_not_held_by_fewer() const;
  // Whether there are trainings by this mode that go on with any number. All ranks do the same there.
  virtual bool may_be_resized() const { return false; }

  // What is written of it.

  // Notes how the ranks share a compiled training step, or prediction, and writes it where the options name files.
  // Collective, by `ranks`.
  virtual void record(const session::Executable&, bool /*is_training*/, checkpoint::Barrier& /*ranks*/) {}
  // How parameters and states lie, as it was noted; empty before, and where each rank has values of its own.
  const std::vector<checkpoint::ParameterLayout>& layouts() const { return layouts_; }
  // The plan that a search has found for the training step; nullptr before, and where none searches.
  virtual std::shared_ptr<const compiler::PlanRecord> plan() const { return nullptr; }
  virtual SaveForm form_of_save(bool /*integrated*/) const { return SaveForm::kAlone; }

 protected:
  // Why a data set that gives each rank rows of its own needs the number of ranks; "" for one that gives all rows.
  static std::string rows_of_ranks(const data::Dataset& dataset);

  cluster::Context& context_;
  const ModelOptions& options_;
  TrainedCells cells_;
  std::vector<checkpoint::ParameterLayout> layouts_;
};

// The mode that the options name; a context of one rank trains by itself, whatever they name. Throws what reading the
// options' files throws.
std::unique_ptr<Mode> make_mode(const ModeParts& parts);

// The modes that make_mode() chooses from.
std::unique_ptr<Mode> make_stand_alone(const ModeParts& parts);
std::unique_ptr<Mode> make_data_parallel(const ModeParts& parts);
std::unique_ptr<Mode> make_hybrid(const ModeParts& parts);
std::unique_ptr<Mode> make_semi_automatic(const ModeParts& parts);
std::unique_ptr<Mode> make_automatic(const ModeParts& parts);
std::unique_ptr<Mode> make_pipeline(const ModeParts& parts);
// Of data parallel, where the options say that some ranks keep parameters.
std::unique_ptr<Mode> make_servers(const ModeParts& parts);
// The same where workers do not wait for each other.
std::unique_ptr<Mode> make_stale_servers(const ModeParts& parts);

}  // namespace tessera::train
