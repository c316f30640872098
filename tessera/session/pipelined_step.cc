#include "tessera/session/pipelined_step.h"

#include <cmath>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/session/index_fault.h"

namespace tessera::session {

using ir::ItemKind;
using ir::ProgramItem;
using pipeline::PhaseKind;

namespace {

// When a step ends, however it does, no message is under way: its memory is used again.
class DrainsChannels {
 public:
  explicit DrainsChannels(const PipelineParts& parts) : parts_(parts) {}
  ~DrainsChannels() {
    for (const auto& [key, channel] : parts_.channels) channel.lane->drain();
  }
  DrainsChannels(const DrainsChannels&) = delete;
  DrainsChannels& operator=(const DrainsChannels&) = delete;

 private:
  const PipelineParts& parts_;
};

}  // namespace

PipelinedStep::PipelinedStep(compiler::Compiled compiled, cluster::Context& context, CoreWatch* core_watch,
                             PipelineParts parts)
    : Executable(std::move(compiled), nullptr, context, core_watch),
      parts_(std::move(parts)),
      loss_(Tensor::zeros({DType::kF64, {}})),
      loss_view_(loss_.view()) {
  for (const auto& [name, whole] : parts_.batch) inputs_[name] = whole.view();
  for (const auto& [name, whole] : parts_.results) results_[name] = whole.view();
  for (const auto& state : parts_.forward_states) parts_.kept_states.push_back(Tensor::copy_of(state));
  holders_.assign(static_cast<size_t>(parts_.program.slots), -1);
  leaving_.resize(holders_.size());
}

PipelinedStep::~PipelinedStep() = default;

const TensorView& PipelinedStep::input(const std::string& name) const {
  const auto it = inputs_.find(name);
  if (it == inputs_.end()) throw InvalidArgument("graph {} has no data input \"{}\"", compiled().logical.name(), name);
  return it->second;
}

const TensorView& PipelinedStep::output(const std::string& name) const {
  if (name == "loss" && !results_.contains(name)) return loss_view_;
  const auto it = results_.find(name);
  if (it == results_.end()) throw InvalidArgument("graph {} has no result \"{}\"", compiled().logical.name(), name);
  return it->second;
}

std::vector<mesh::Range> PipelinedStep::input_slice(const std::string& name) const {
  std::vector<mesh::Range> whole;
  for (const int64_t size : input(name).shape.to_vector()) whole.push_back({0, size});
  return whole;
}

std::vector<mesh::Range> PipelinedStep::output_slice(const std::string& name) const {
  std::vector<mesh::Range> whole;
  for (const int64_t size : output(name).shape.to_vector()) whole.push_back({0, size});
  return whole;
}

void PipelinedStep::set_before_update(const std::function<void(const TensorView&)>& call) {
  if (parts_.update) parts_.update->set_before_update(call);
  if (parts_.forward_states.empty()) return;
  // Slots are not of interest, states that forward changes are.
  for (auto& [key, executor] : parts_.phases) {
    executor->set_before_update([this, call](const TensorView& changed) {
      for (const TensorView& state : parts_.forward_states) {
        if (state.data == changed.data) call(changed);
      }
    });
  }
}

std::vector<TensorView> PipelinedStep::updated() const {
  auto all = parts_.forward_states;
  if (!parts_.update) return all;
  for (const auto& view : parts_.update->updated()) all.push_back(view);
  return all;
}

void PipelinedStep::set_profiling(bool on) {
  for (auto& [key, executor] : parts_.phases) executor->set_profiling(on);
  if (parts_.update) parts_.update->set_profiling(on);
}

void PipelinedStep::run(const std::string& input_noun) {
  look_at_cores();
  begin();
  const DrainsChannels end(parts_);
  run_items();
  for (size_t slot = 0; slot < leaving_.size(); ++slot) {
    for (const auto& message : leaving_[slot]) message.lane->wait(message.ticket);
    leaving_[slot].clear();
  }
  if (!parts_.update && parts_.program.micro_batches == 1 && !parts_.results.empty()) share_results();
  if (share_loss()) {
    give_back_states();
    throw_first_bad_index(bad_index_ ? describe(*bad_index_, input_noun) : "");
  }
  if (!parts_.update) return;
  const double loss = *loss_view_.as<double>();
  if (!std::isfinite(loss)) {
    give_back_states();
    throw executor::NonFiniteLoss(fmt::format("loss is {}", loss));
  }
  parts_.update->run();
}

// Accumulators hold nothing, and the states that forward changes are remembered.
void PipelinedStep::begin() {
  bad_index_.reset();
  loss_sum_ = 0;
  loss_count_ = 0;
  holders_.assign(holders_.size(), -1);
  arriving_.clear();
  for (const TensorView& view : parts_.accumulators) {
    std::memset(view.data, 0, static_cast<size_t>(view.size_bytes()));
  }
  for (size_t i = 0; i < parts_.forward_states.size(); ++i) {
    copy_elements(parts_.forward_states[i], parts_.kept_states[i].view());
  }
}

void PipelinedStep::give_back_states() {
  for (size_t i = 0; i < parts_.forward_states.size(); ++i) {
    copy_elements(parts_.kept_states[i].view(), parts_.forward_states[i]);
  }
}

void PipelinedStep::run_items() {
  for (const ProgramItem& item : parts_.program.items) {
    if (item.micro_batch < 0) continue;  // the update, once the loss is known
    take_slot(item);
    switch (item.kind) {
      case ItemKind::kReceive:
      case ItemKind::kSend: start_messages(item); break;
      case ItemKind::kAwait: {
        const auto& message = arriving_.at({item.phase, item.peer, item.micro_batch});
        message.lane->wait(message.ticket);
        break;
      }
      case ItemKind::kRun: run_phase(item); break;
    }
  }
}

// A bad index does not end the step here: other ranks wait for what this one sends.
void PipelinedStep::run_phase(const ProgramItem& item) {
  if (item.phase == PhaseKind::kForward) load(item);
  auto& phase = *parts_.phases.at({item.phase, item.slot});
  phase.run();
  if (phase.bad_index() && !bad_index_) bad_index_ = {item.phase, item.micro_batch, *phase.bad_index()};
  if (item.phase == PhaseKind::kForward && parts_.has_loss) add_loss(phase);
}

void PipelinedStep::take_slot(const ProgramItem& item) {
  const auto slot = static_cast<size_t>(item.slot);
  if (holders_[slot] == item.micro_batch) return;
  holders_[slot] = item.micro_batch;
  for (const auto& message : leaving_[slot]) message.lane->wait(message.ticket);
  leaving_[slot].clear();
}

int64_t PipelinedStep::first_row(const TensorView& whole, int micro_batch) const {
  return whole.shape[0] / parts_.program.micro_batches * micro_batch;
}

void PipelinedStep::load(const ProgramItem& item) {
  for (const auto& load : parts_.loads) {
    const TensorView& whole = inputs_.at(load.input);
    auto slice = load.slice;
    slice[0].offset += first_row(whole, item.micro_batch);
    copy_elements(mesh::piece_of(whole, slice), load.slots[static_cast<size_t>(item.slot)]);
  }
}

void PipelinedStep::start_messages(const ProgramItem& item) {
  const bool sends = item.kind == ItemKind::kSend;
  auto& channel = parts_.channels.at({sends, item.phase, item.peer});
  const int64_t ticket = channel.lane->start(channel.tasks[static_cast<size_t>(item.slot)]);
  if (sends) {
    leaving_[static_cast<size_t>(item.slot)].push_back({channel.lane.get(), ticket});
  } else {
    arriving_[{item.phase, item.peer, item.micro_batch}] = {channel.lane.get(), ticket};
  }
}

void PipelinedStep::add_loss(executor::Executor& phase) {
  for (const double value : Tensor::copy_of(phase.output("micro_loss")).to_doubles()) loss_sum_ += value;
  loss_count_ += static_cast<double>(phase.output("micro_loss").num_elements());
}

// The mean over all elements of all micro-batches: every rank that has a piece of the loss says what it has. Returns
// whether any rank has met a bad index: then that is the loss of nothing.
bool PipelinedStep::share_loss() {
  double sums[3] = {loss_sum_, loss_count_, bad_index_ ? 1.0 : 0.0};
  context().world().all_reduce(sums, 3, DType::kF64, comm::ReduceOp::kSum, "loss");
  *loss_view_.as<double>() = sums[1] > 0 ? loss_factor_ * sums[0] / sums[1] : 0;
  return sums[2] > 0;
}

std::string PipelinedStep::describe(const BadIndexAt& bad, const std::string& input_noun) const {
  const auto find_data = [&](const ir::Input& input) -> std::optional<DataPiece> {
    for (const auto& load : parts_.loads) {
      if (load.slot_name != input.name) continue;
      return DataPiece{load.input, load.slice, first_row(inputs_.at(load.input), bad.micro_batch)};
    }
    return std::nullopt;
  };
  return session::describe_bad_index(parts_.compiled.at(bad.phase), bad.index, find_data, input_noun);
}

// What the last stage has computed whole, on all ranks.
void PipelinedStep::share_results() {
  const int ranks_per_stage = context().size() / parts_.program.num_stages;
  const bool is_last = parts_.program.stage == parts_.program.num_stages - 1;
  const int root = context().size() - ranks_per_stage;
  for (auto& [name, view] : results_) {
    if (is_last) {
      const auto& made = parts_.phases.at({PhaseKind::kForward, 0})->output(name == "loss" ? "micro_loss" : name);
      copy_elements(made, view);
    }
    context().world().broadcast(view.data, view.num_elements(), view.dtype, root, "result " + name);
  }
}

}  // namespace tessera::session
