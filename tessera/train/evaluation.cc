#include "tessera/train/evaluation.h"

#include <string>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/comm/communicator.h"
#include "tessera/session/agree/agree_on_step.h"
#include "tessera/session/agree/gather_texts.h"
#include "tessera/session/index_fault.h"
#include "tessera/train/metrics.h"
#include "tessera/train/modes/common_data.h"
#include "tessera/train/modes/mode_options.h"

namespace tessera::train {
namespace {

// Where every rank reads whole batches: throws InvalidArgument on all of them where their data sets are not the same,
// as far as that is known without reading them. Collective.
void compare_evaluated(const ModelCore& core, const data::Dataset& dataset) {
  const auto all =
      session::gather_texts(core.context.world(), describe_data(dataset), "comparing the data of the ranks");
  require_common_data(all, BatchParts::kOfCommon, "eval");
}

// Where ranks give rows of their own of one batch: throws InvalidArgument on all of them where a data set is a part of
// another number than there are ranks. Collective.
void compare_parts(const ModelCore& core, const data::Dataset& dataset) {
  const auto mode = working_mode(core.options);
  if (mode == ParallelMode::kStandAlone || core.mode->ranks_of_loss()) return;  // rows are each rank's own affair
  if (core.context.size() == 1 && mode == ParallelMode::kHybrid) return;
  const auto all =
      session::gather_texts(core.context.world(), describe_data(dataset), "comparing the data of the ranks");
  require_all_parts(all, core.context.size(), "eval");
}

// What a metric of one rank refuses of that rank's rows is refused on all of them, in the words of the first that does.
// `of_this_rank`: what this rank's metrics say, or "". Collective.
void throw_first_refusal(comm::Communicator& ranks, const std::string& of_this_rank) {
  const std::string first = session::first_text(ranks, of_this_rank, "what metrics refuse");
  if (!first.empty()) throw InvalidArgument("eval: {}", first);
}

}  // namespace

std::map<std::string, double> evaluate(ModelCore& core, CompiledSteps& steps, WholeBatches& whole_batches,
                                       const data::Dataset& dataset, const TrainOptions& options) {
  const Mode& mode = *core.mode;
  const auto& metrics = core.options.metrics;
  const bool has_loss = core.cells.loss != nullptr;
  if (metrics.empty()) {
    throw InvalidArgument("eval: the model has no metrics: name them where it is made, as metrics=[\"accuracy\"]");
  }
  if (dataset.is_endless()) throw InvalidArgument("eval: the data set repeats without end");
  if (mode.takes_whole_batches() && dataset.num_shards() > 1) {
    throw InvalidArgument(
        "eval: every rank must read the whole data set, but this is one rank's part of {} (num_shards)",
        dataset.num_shards());
  }
  const bool have_one_batch = mode.is_shared() && mode.takes_whole_batches();
  if (have_one_batch) {
    compare_evaluated(core, dataset);
  } else {
    compare_parts(core, dataset);
  }
  for (const auto& metric : metrics) metric->clear();
  const timeline::ScopedSpan span(core.context.recorder(), timeline::SpanKind::kEvaluation);
  const auto full_inputs = input_specs(dataset, mode.global_rows(dataset, dataset.get_batch_size()));
  auto batches = batches_of(dataset, mode, {}, 1, options, steps.evaluation(full_inputs), core.context.recorder());
  core.values->compare_new();
  int64_t batch = 0;
  // The first ones of this rank, where each rank has rows of its own.
  std::string bad_index;
  std::string refused;
  const bool may_refuse_alone = mode.is_shared() && !have_one_batch && core.context.size() > 1;
  bool has_compared = !may_refuse_alone;
  while (const int64_t rows = batches.next_global_rows()) {
    if (options.before_batch) options.before_batch();
    ++batch;
    const int64_t global_rows = mode.global_rows(dataset, rows);
    const auto inputs = input_specs(dataset, global_rows);
    session::Executable& executable = steps.evaluation(inputs);
    const auto types = batches.next_types();
    Tensor label(types.back());
    auto place =
        whole_batches.place(executable, std::vector(inputs.begin(), inputs.end() - 1), !mode.takes_whole_batches());
    place.written.push_back(label.view());
    if (mode.takes_whole_batches()) {
      place.add_piece(executable, inputs.back().name, label.view());
    } else if (has_loss) {
      place.pieces.emplace_back(label.view(), executable.input(inputs.back().name));
    }
    {
      const timeline::ScopedSpan batch_span(core.context.recorder(), timeline::SpanKind::kBatch);
      batches.next_into(place.written);
      place.distribute();
    }
    // What a data set computes is known by now.
    if (have_one_batch) {
      const auto step = [&] { return fmt::format("eval: batch {}", batch); };
      session::agree_on_batch(core.context.world(), step, "", place.written);
    }
    core.values->set_assigned(executable.compiled().logical);
    // A rank that stopped alone would leave the others waiting: in the collectives of this batch, or of a later one.
    executable.set_notes_bad_indices(mode.is_shared());
    try {
      executable.run("column");
      // Before metrics are given the labels of all ranks, and may refuse them.
      if (have_one_batch) session::throw_first_bad_index(core.context.world(), executable.noted_bad_index("column"));
    } catch (const executor::InvalidIndex& error) {
      throw executor::InvalidIndex(fmt::format("eval: batch {}: {}", batch, error.what()));
    }
    const Tensor output = Tensor::copy_of(executable.output("output"));
    const double loss = has_loss ? mode.mean_loss(executable.output("loss")) : 0.0;
    if (mode.is_shared() && bad_index.empty()) {
      const auto bad = executable.noted_bad_index("column");
      if (!bad.empty()) bad_index = fmt::format("batch {}: {}", batch, bad);
    }
    for (const auto& metric : metrics) {
      // The rest is for the ranks that have to come to their end, some of it in metrics of the whole batch.
      if (!metric->is_global() && (!bad_index.empty() || !refused.empty())) continue;
      try {
        metric->update(output, label, loss, global_rows);
      } catch (const InvalidArgument& error) {
        if (!may_refuse_alone || metric->is_global()) throw;
        refused = fmt::format("batch {}: {}", batch, error.what());
      }
    }
    // What is wrong with all rows is known by now; what is wrong with one of them is told at the end.
    if (!std::exchange(has_compared, true)) throw_first_refusal(core.context.world(), refused);
  }
  if (!has_compared) throw_first_refusal(core.context.world(), "");
  if (mode.is_shared() && !have_one_batch) {
    try {
      session::throw_first_bad_index(core.context.world(), bad_index);
    } catch (const executor::InvalidIndex& error) {
      throw executor::InvalidIndex(fmt::format("eval: {}", error.what()));
    }
  }
  if (may_refuse_alone) throw_first_refusal(core.context.world(), refused);
  std::map<std::string, double> results;
  for (const auto& metric : metrics) {
    auto totals = metric->counts();
    if (mode.is_shared() && !mode.takes_whole_batches() && !metric->is_global()) {
      core.context.world().all_reduce(totals.data(), static_cast<int64_t>(totals.size()), DType::kF64,
                                      comm::ReduceOp::kSum, "metrics");
    }
    results[metric->name()] = metric->value(totals);
  }
  return results;
}

}  // namespace tessera::train
