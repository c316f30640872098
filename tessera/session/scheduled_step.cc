#include "tessera/session/scheduled_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/mesh/layout.h"
#include "tessera/session/index_fault.h"

namespace tessera::session {

std::vector<mesh::Range> ScheduledStep::input_slice(const std::string& name) const {
  const ir::Input* input = compiled().logical.find_input(name);
  if (input == nullptr) throw InvalidArgument("graph {} has no input \"{}\"", compiled().logical.name(), name);
  const auto layout = compiled().plan.layout(input->value);
  return mesh::slice_of(compiled().logical.type(input->value).shape, layout.sharding, layout.mesh, context().rank());
}

std::vector<mesh::Range> ScheduledStep::output_slice(const std::string& name) const {
  const auto& outputs = compiled().logical.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].name != name) continue;
    const auto layout = compiled().plan.output_layout(compiled().logical, i);
    return mesh::slice_of(compiled().logical.type(outputs[i].value).shape, layout.sharding, layout.mesh,
                          context().rank());
  }
  throw InvalidArgument("graph {} has no output \"{}\"", compiled().logical.name(), name);
}

std::string ScheduledStep::describe_bad_index(const std::string& input_noun) const {
  const auto find_data = [this](const ir::Input& input) -> std::optional<DataPiece> {
    if (input.kind != ir::InputKind::kInput) return std::nullopt;
    return DataPiece{.name = input.name, .slice = input_slice(input.name)};
  };
  return session::describe_bad_index(compiled(), *executor_->bad_index(), find_data, input_noun);
}

std::string ScheduledStep::noted_bad_index(const std::string& input_noun) const {
  return executor_->bad_index() ? describe_bad_index(input_noun) : "";
}

std::string ScheduledStep::describe_non_finite_data(const std::string& input_noun) const {
  std::string text;
  for (const ir::Input& data : compiled().logical.inputs()) {
    if (data.kind != ir::InputKind::kInput) continue;
    const DataPiece piece{.name = data.name, .slice = input_slice(data.name)};
    const auto found = describe_non_finite(piece, input(data.name), input_noun);
    if (!found.empty()) text += "; " + found;
  }
  return text;
}

// All ranks have stopped for one loss: they tell each other whether an index was the reason.
void ScheduledStep::stop_for_bad_indices(const std::string& input_noun) {
  if (!executor_->stops_together()) return;
  throw_first_bad_index(context().world(), noted_bad_index(input_noun));
}

// Whether a guard left out the updates, and the loss is not finite: the same on all ranks.
bool ScheduledStep::skipped_for_its_loss() const {
  const auto& outputs = executor_->schedule().outputs;
  if (!outputs.contains(ir::kUpdateGuard) || !outputs.contains("loss")) return false;
  return !*output(ir::kUpdateGuard).as<bool>() && !executor::all_finite(output("loss"));
}

void ScheduledStep::run_steps(Until until) {
  if (!value_watch_.is_on) return until == Until::kDone ? executor_->run() : executor_->run_until_decided();
  RunValues values(compiled(), context().rank(), ++value_watch_.num_runs);
  for (const ir::Input& data : compiled().logical.inputs()) {
    if (data.kind == ir::InputKind::kInput) values.add_input(data, input(data.name));
  }
  // Of a run that fails, too: there it is looked at most.
  struct Taken {
    ~Taken() {
      auto entries = values.take();
      std::ranges::move(entries, std::back_inserter(watch.entries));
      watch.num_missing = std::max(watch.num_missing, values.num_missing());
    }
    RunValues& values;
    ValueWatch& watch;
  } const taken{values, value_watch_};
  executor_->run(&values);
}

void ScheduledStep::call(FunctionRef<void()> run, const std::string& input_noun) {
  try {
    run();
  } catch (const executor::InvalidIndex&) {
    throw executor::InvalidIndex(describe_bad_index(input_noun));
  } catch (const executor::NonFiniteLoss& error) {
    stop_for_bad_indices(input_noun);
    // The step's inputs and all parameters are as they were: run it again and look where it begins.
    const auto where = executor_->find_non_finite();
    const auto in_data = describe_non_finite_data(input_noun);
    if (where.empty() && in_data.empty()) throw;
    const auto of_result = where.empty() ? std::string() : fmt::format("; first non-finite result: {}", where);
    throw executor::NonFiniteLoss(fmt::format("{}{}{}", error.what(), of_result, in_data));
  }
}

void ScheduledStep::start(const std::string& input_noun) {
  look_at_cores();
  call([&] { executor_->start(); }, input_noun);
}

void ScheduledStep::finish(const std::string& input_noun) {
  call([&] { executor_->finish(); }, input_noun);
}

void ScheduledStep::run(Until until, const std::string& input_noun) {
  look_at_cores();
  call([&] { run_steps(until); }, input_noun);
  if (executor_->stops_together() && skipped_for_its_loss()) stop_for_bad_indices(input_noun);
}

}  // namespace tessera::session
