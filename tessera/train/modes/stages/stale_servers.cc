#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/nn/gradients/pushed_gradients.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/train/modes/stages/servers.h"
#include "tessera/train/modes/stages/stale_step.h"
#include "tessera/train/options/precision.h"

namespace tessera::train {
namespace {

// Parameter servers whose workers do not wait for each other, or no longer than a bound says. Values lie as they do
// where workers wait, and evaluations and predictions are the same; training steps are this mode's own.
class StaleServers final : public Servers {
 public:
  explicit StaleServers(const ModeParts& parts) : Servers(parts) {
    const auto refuse = [](const char* what, const char* instead) {
      throw InvalidArgument("server_staleness is not there with {}: {}", what, instead);
    };
    if (options_.pipeline.micro_batches > 1)
      refuse("pipeline.micro_batches", "a worker's rows of a batch are one part; use smaller batches");
    if (loss_scale_of(options_))
      refuse("a loss scale, as float16 has", "workers would scale by different numbers; use bfloat16 or float32");
    if (options_.parallel_optimizer) refuse("parallel_optimizer", "servers share the rows of what they keep already");
    if (context_.recovery() != nullptr && context_.recovery()->is_elastic())
      refuse("an elastic job",
             "which worker has done which step is not known to ranks that go on; leave out --min_ranks");
    if (!options_.session.device.empty() && options_.session.device != "cpu")
      refuse("another device than the CPU", "servers give values from the host's memory; leave out the device");
  }

  // The states that belong to no parameter are the servers', too: each counts updates.
  std::optional<mesh::Layout> first_layout(const nn::Parameter& value) const override {
    if (auto rows = Servers::first_layout(value)) return rows;
    const auto is_common = [&] { return value.full_name() == nn::kRandomStep; };
    if (value.kind != ir::InputKind::kState || is_common()) return std::nullopt;
    return mesh::Layout{servers(), mesh::Sharding::replicated(value.type.shape.ndim())};
  }
  // What all ranks have whole is the servers', too, and the workers' copies are known as such.
  compiler::StageLayouts plan_values(session::Session& session, const InputSpecs& inputs) override {
    auto layouts = Servers::plan_values(session, inputs);
    for (const auto& name : served()) {
      if (layouts.contains(name) || !session.layouts(name).empty()) continue;
      const auto whole = mesh::Sharding::replicated(session.global_type(name).shape.ndim());
      layouts[name] = {{servers(), whole}, {mesh::Mesh({{"data", ranks_.count(1)}}, ranks_.ranks_of(1)), whole}};
    }
    return layouts;
  }
  bool steps_together() const override { return false; }
  void leave() override {
    if (training_) training_->exchange.close();
  }
  void begin_training() override {
    ++num_trainings_;
    if (training_) training_->training = num_trainings_;
  }
  // The servers would wait for what this worker never sends. They hear of it in their next step, if they make one.
  void stop_training() override {
    if (!training_ || stage() == 0) return;
    const ServerExchange::Head stop{.kind = ServerExchange::Kind::kStop, .training = num_trainings_};
    for (const int server : ranks_.ranks_of(0)) training_->exchange.send(server, stop, {});
  }
  int64_t updates_per_step() const override { return ranks_.count(1); }
  void come_together() override {
    if (training_) training_->come_together();
  }
  void note_failure(const std::exception_ptr& failure) override {
    if (training_) training_->exchange.note_failure(failure);
  }
  void refresh_copies(session::Session& session) override {
    come_together();
    if (!training_ || !std::exchange(training_->are_copies_old, false)) return;
    for (const auto& name : served()) {
      const auto layouts = session.layouts(name);
      if (layouts.size() < 2) continue;  // workers have nothing of it
      const Tensor whole = session.value(name);
      if (stage() != 0) session.set_value(name, whole);
    }
  }

 private:
  mesh::Mesh servers() const { return mesh::Mesh({{"data", ranks_.count(0)}}, ranks_.ranks_of(0)); }

  std::set<std::string> served() const override {
    auto names = Servers::served();
    for (const auto* parameter : cells_.trainable_parameters()) {
      if (parameter->on_servers) continue;
      throw InvalidArgument(
          "server_staleness: parameter \"{}\" is not set_on_servers(): what workers train among themselves they train "
          "together, in every step; have servers keep all that is trained, or leave server_staleness out",
          parameter->full_name());
    }
    return names;
  }

  std::unique_ptr<session::Executable> make_step(session::Session& session, compiler::StagedPlan staged,
                                                 const InputSpecs& inputs) const override {
    if (!training_) {
      training_ = std::make_unique<StaleTraining>(context_, session, ranks_, options_.server_staleness);
      training_->training = num_trainings_;
      if (context_.rank() == 0) {
        const auto& staleness = options_.server_staleness;
        log_info("{} {}", who_works(),
                 staleness.is_bounded() ? fmt::format("at most {} steps apart", staleness.bound())
                                        : "without waiting for each other");
      }
    }
    StaleStep::Parts parts{.inputs = inputs, .parts = {}, .part_of = {}, .rows_of = {}};
    const int64_t rows = inputs.at(0).type.shape[0];
    const int workers = ranks_.count(1);
    if (rows < workers) {
      throw InvalidArgument(
          "server_staleness: a batch of {} rows has none for some of the {} workers: batches of at least {} rows have "
          "(drop_remainder leaves out a last one that is smaller)",
          rows, workers, workers);
    }
    for (int worker = 0; worker < workers; ++worker) {
      parts.rows_of.push_back(mesh::balanced_part(rows, workers, worker));
      const int64_t own = parts.rows_of.back().size;
      auto known = std::ranges::find_if(parts.parts, [&](const auto& part) { return part.rows == own; });
      if (known == parts.parts.end()) {
        parts.parts.push_back(make_part(session, inputs, own));
        known = parts.parts.end() - 1;
      }
      parts.part_of.push_back(static_cast<size_t>(known - parts.parts.begin()));
    }
    if (stage() != 0) {
      auto& own = parts.parts[parts.part_of[static_cast<size_t>(context_.rank() - ranks_.first(1))]];
      if (!own.graphs.lookups.empty()) own.numbers = session.compile_local(own.graphs.numbers);
      own.step = session.compile_local(own.graphs.step);
    }
    compiler::Compiled whole;
    whole.plan = staged.of_stage(stage()).micro;
    whole.logical = std::move(staged.micro);
    return std::make_unique<StaleStep>(std::move(whole), context_, *training_, std::move(parts));
  }

  // Collective.
  StaleStep::BatchPart make_part(session::Session& session, const InputSpecs& inputs, int64_t rows) const {
    auto own = inputs;
    for (auto& input : own) input.type.shape[0] = rows;
    const auto names = served();
    const auto graph = session::trace_train_step(
        cells_.network, cells_.loss, *cells_.optimizer, own, settings(true),
        {.part = session::StepPart::kPush, .precision = precision_of(options_), .rows = {names}});
    StaleStep::BatchPart part{.rows = rows, .graphs = cut_for_worker(graph, names)};
    const auto update =
        session::trace_pushed_update(cells_.network, cells_.loss, *cells_.optimizer, settings(true), part.graphs.step);
    part.update = session.compile_on(update, servers(), hints_of(session, part.graphs));
    return part;
  }

  // Gradients lie as the servers have their parameters.
  compiler::ShardingHints hints_of(const session::Session& session, const WorkerGraphs& graphs) const {
    compiler::ShardingHints hints;
    for (const auto& name : graphs.pushed) {
      const auto pushed = *nn::parse_pushed_name(name);
      const auto& graph = graphs.step;
      const int ndim = graph.type(graph.find_output(name)->value).shape.ndim();
      const auto& [mesh, sharding] = session.layouts(pushed.parameter).front();
      auto own = mesh::Sharding::replicated(ndim);
      for (size_t dim = 0; dim < own.dims.size() && !pushed.is_by_rows; ++dim) own.dims[dim] = sharding.dims[dim];
      hints[name] = {mesh, own};
    }
    return hints;
  }

  mutable std::unique_ptr<StaleTraining> training_;  // once a step is compiled
  int64_t num_trainings_ = 0;                        // that were begun; of all ranks alike
};

}  // namespace

std::unique_ptr<Mode> make_stale_servers(const ModeParts& parts) { return std::make_unique<StaleServers>(parts); }

}  // namespace tessera::train
