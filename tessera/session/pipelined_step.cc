#include "tessera/session/pipelined_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

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
    for (const auto& [way, channels] : parts_.channels) {
      for (const auto& channel : channels) channel.lane->drain();
    }
  }
  DrainsChannels(const DrainsChannels&) = delete;
  DrainsChannels& operator=(const DrainsChannels&) = delete;

 private:
  const PipelineParts& parts_;
};

PipelineParts::Way way_of(const ProgramItem& item, int stage) {
  const bool of_all = item.micro_batch < 0;
  const int here = of_all ? stage : item.chunk;
  const int there = of_all ? item.peer : item.peer_chunk;
  const bool leaves = item.kind == ItemKind::kSend || item.kind == ItemKind::kPass;
  return {leaves ? here : there, item.phase, leaves ? there : here, of_all};
}

}  // namespace

PipelinedStep::PipelinedStep(compiler::Compiled compiled, cluster::Context& context, CoreWatch* core_watch,
                             PipelineParts parts)
    : Executable(std::move(compiled), context, core_watch),
      parts_(std::move(parts)),
      loss_(Tensor::zeros({DType::kF64, {}})),
      loss_view_(loss_.view()) {
  for (const auto& [name, whole] : parts_.batch) inputs_[name] = whole.view();
  for (const auto& [name, result] : parts_.results) results_[name] = result.whole.view();
  for (const auto& state : parts_.forward_states) parts_.kept_states.push_back(state.read());
}

PipelinedStep::~PipelinedStep() = default;

const TensorView& PipelinedStep::input(const std::string& name) const {
  const auto it = inputs_.find(name);
  if (it == inputs_.end()) throw InvalidArgument("graph {} has no data input \"{}\"", compiled().logical.name(), name);
  return it->second;
}

const TensorView& PipelinedStep::output(const std::string& name) const {
  if (name == "loss" && !results_.contains(name)) return loss_view_;
  if (name == ir::kUpdateGuard && may_skip()) return parts_.rounds.back().executor->output(name);
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

std::vector<TensorView> PipelinedStep::places_of_own_rows(const std::string& name) const {
  const TensorView& whole = input(name);
  const int64_t count = context().size() / parts_.program.num_stages;
  const int64_t rows = whole.shape[0] / parts_.program.micro_batches;
  if (rows % count != 0) {
    throw InvalidArgument(
        "each of the {} ranks of a stage gives {} rows, which cannot be cut into {} micro-batches of equally many: "
        "batches of a multiple of {} rows can (drop_remainder leaves out a last one that is smaller)",
        count, whole.shape[0] / count, parts_.program.micro_batches, parts_.program.micro_batches);
  }
  const mesh::Range own{context().rank() % count * (rows / count), rows / count};
  for (const auto& load : parts_.loads) {
    if (load.input != name) continue;
    const mesh::Range& wanted = load.slice.at(0);
    if (wanted.offset >= own.offset && wanted.offset + wanted.size <= own.offset + own.size) continue;
    throw InvalidArgument(
        "rank {} gives rows {} to {} of each micro-batch of input \"{}\", but its plan reads {} to {}: give every rank "
        "whole batches (full_batch)",
        context().rank(), own.offset, own.offset + own.size, name, wanted.offset, wanted.offset + wanted.size);
  }
  std::vector<TensorView> places;
  for (int micro_batch = 0; micro_batch < parts_.program.micro_batches; ++micro_batch) {
    auto slice = input_slice(name);
    slice[0] = {first_row(whole, micro_batch) + own.offset, own.size};
    places.push_back(mesh::piece_of(whole, slice));
  }
  return places;
}

void PipelinedStep::set_before_update(const std::function<void(const TensorView&)>& call) {
  before_update_ = call;
  if (trains()) parts_.rounds.back().executor->set_before_update(call);
  if (parts_.forward_states.empty()) return;
  // Slots are not of interest, states that forward changes are.
  for (auto& [key, slots] : parts_.phases) {
    for (auto& executor : slots) {
      executor->set_before_update([this, call](const TensorView& changed) {
        for (const ValuePlace& state : parts_.forward_states) {
          if (state.mark().data == changed.data) call(changed);
        }
      });
    }
  }
}

std::vector<TensorView> PipelinedStep::updated() const {
  std::vector<TensorView> all;
  for (const ValuePlace& state : parts_.forward_states) all.push_back(state.mark());
  if (!trains()) return all;
  for (const auto& view : parts_.rounds.back().executor->updated()) all.push_back(view);
  for (const ValuePlace& value : parts_.received_values) all.push_back(value.mark());
  return all;
}

void PipelinedStep::set_profiling(bool on) {
  for (auto& [key, slots] : parts_.phases) {
    for (auto& executor : slots) executor->set_profiling(on);
  }
  for (auto& round : parts_.rounds) round.executor->set_profiling(on);
  if (parts_.gather) parts_.gather->set_profiling(on);
  if (parts_.sums) parts_.sums->set_profiling(on);
}

bool PipelinedStep::may_skip() const {
  return trains() && parts_.rounds.back().executor->schedule().outputs.contains(ir::kUpdateGuard);
}

bool PipelinedStep::was_skipped() const { return may_skip() && !*output(ir::kUpdateGuard).as<bool>(); }

// Slots are taken anew while a step runs, so what a micro-batch began with is not there any more.
std::string PipelinedStep::find_non_finite() { return "not looked for in a pipeline"; }

void PipelinedStep::run(const std::string& input_noun) {
  look_at_cores();
  begin();
  const DrainsChannels end(parts_);
  try {
    run_items(input_noun);
    for (auto& [slot, sends] : leaving_) wait_for_all(sends);
    wait_for_all(leaving_once_);
    if (!trains()) {
      if (parts_.program.micro_batches == 1 && !parts_.results.empty()) share_results();
      share_loss(input_noun);
    }
  } catch (...) {
    give_back_states();
    throw;
  }
  if (was_skipped()) give_back_states();
}

// Once all phases are done. Nothing persistent is written before the loss is known to be finite, or may be skipped.
void PipelinedStep::update(const std::string& input_noun) {
  for (auto& [slot, sends] : leaving_) wait_for_all(sends);
  wait_for_all(leaving_once_);
  share_loss(input_noun);
  const double loss = *loss_view_.as<double>();
  if (!may_skip() && !std::isfinite(loss)) throw executor::NonFiniteLoss(fmt::format("loss is {}", loss));
  for (auto& round : parts_.rounds) {
    round.executor->run();
    tell(round);
  }
}

// The sum of what the first rank of a stage has and of zeros, as whole numbers: all ranks get the same bits.
void PipelinedStep::tell(const PipelineParts::Round& round) {
  if (round.told.empty()) return;
  const auto words = [](const ValuePlace& value) { return (value.type().size_bytes() + 7) / 8; };
  int64_t count = 0;
  for (const auto& told : round.told) count += words(told.value);
  told_.assign(static_cast<size_t>(count), 0);
  int64_t at = 0;
  for (const auto& [value, is_ours] : round.told) {
    if (is_ours) value.read_to({&told_[static_cast<size_t>(at)], value.type()});
    at += words(value);
  }
  context().world().all_reduce(told_.data(), count, DType::kI64, comm::ReduceOp::kSum, "what the stages are told");
  at = 0;
  for (const auto& [value, is_ours] : round.told) {
    value.write({&told_[static_cast<size_t>(at)], value.type()});
    at += words(value);
  }
}

void PipelinedStep::wait_for_all(std::vector<UnderWay>& messages) {
  for (const auto& message : messages) message.lane->wait(message.ticket);
  messages.clear();
}

void PipelinedStep::give_back_states() {
  for (size_t i = 0; i < parts_.forward_states.size(); ++i) {
    parts_.forward_states[i].write(parts_.kept_states[i].view());
  }
}

// Accumulators hold nothing, and the states that forward changes are remembered.
void PipelinedStep::begin() {
  bad_index_.reset();
  leaving_.clear();
  leaving_once_.clear();
  are_sums_complete_ = false;
  loss_sum_ = 0;
  loss_count_ = 0;
  holders_.clear();
  arriving_.clear();
  for (const ValuePlace& accumulator : parts_.cleared) accumulator.set_zero();
  for (size_t i = 0; i < parts_.forward_states.size(); ++i) {
    parts_.forward_states[i].read_to(parts_.kept_states[i].view());
  }
  for (const auto& [original, copy] : parts_.copied_states) copy.write(original.read().view());
  if (parts_.gather) parts_.gather->run();
}

// Names are made at the first step that is recorded.
uint32_t PipelinedStep::span_name(const ProgramItem& item) {
  const bool waits = item.kind == ItemKind::kAwait;
  const auto [name, is_new] = span_names_.try_emplace({waits, item.phase, item.chunk, item.micro_batch});
  if (is_new) {
    name->second = context().recorder()->add_name(
        {.kind = waits ? timeline::SpanKind::kWait : timeline::SpanKind::kPhase,
         .text = fmt::format(
             "{}{}{}{}", waits ? "wait for what the " : "", pipeline::to_string(item.phase),
             waits ? " of another stage sends" : "",
             item.micro_batch < 0 ? "" : fmt::format(", chunk {}, micro-batch {}", item.chunk, item.micro_batch)),
         .graph = "pipeline"});
  }
  return name->second;
}

void PipelinedStep::run_items(const std::string& input_noun) {
  timeline::TimelineRecorder* recorder = context().recorder();
  const bool is_recorded = recorder != nullptr && recorder->is_on();
  for (const ProgramItem& item : parts_.program.items) {
    const bool has_span = is_recorded && (item.kind == ItemKind::kRun || item.kind == ItemKind::kAwait);
    if (!has_span) {
      run_item(item, input_noun);
      continue;
    }
    timeline::TimedSpan span{.begin_ns = recorder->now_ns(), .step = recorder->step(), .name = span_name(item)};
    run_item(item, input_noun);
    span.end_ns = recorder->now_ns();
    recorder->add_to_main({&span, 1});
  }
}

void PipelinedStep::run_item(const ProgramItem& item, const std::string& input_noun) {
  if (item.micro_batch < 0 && item.kind == ItemKind::kRun) return update(input_noun);
  if (item.micro_batch >= 0) take_slot(item.chunk, item.slot, item.micro_batch);
  switch (item.kind) {
    case ItemKind::kReceive:
    case ItemKind::kSend: start_messages(item); break;
    case ItemKind::kAwait: wait_for_all(arriving_.at({way_of(item, parts_.program.stage), item.micro_batch})); break;
    case ItemKind::kRun: run_phase(item); break;
    case ItemKind::kPass: hand_over(item); break;
  }
}

// A bad index does not end the step here: other ranks wait for what this one sends.
void PipelinedStep::run_phase(const ProgramItem& item) {
  if (item.phase == PhaseKind::kForward) load(item);
  const PipelineParts::PhaseKey key{item.phase, item.chunk};
  auto& phase = *parts_.phases.at(key)[static_cast<size_t>(item.slot)];
  phase.run();
  if (phase.bad_index() && !bad_index_) bad_index_ = {key, item.micro_batch, *phase.bad_index()};
  if (item.phase == PhaseKind::kForward && item.chunk == parts_.loss_chunk) add_loss(phase);
}

void PipelinedStep::take_slot(int chunk, int slot, int micro_batch) {
  const auto [holder, is_new] = holders_.try_emplace({chunk, slot}, micro_batch);
  if (is_new || std::exchange(holder->second, micro_batch) != micro_batch) wait_for_all(leaving_[{chunk, slot}]);
}

void PipelinedStep::hand_over(const ProgramItem& item) {
  const int to = item.micro_batch % parts_.program.slots.at(item.peer_chunk);
  take_slot(item.peer_chunk, to, item.micro_batch);
  for (const auto& value : parts_.handed_over.at(way_of(item, parts_.program.stage))) {
    const TensorView from = value.from[static_cast<size_t>(item.slot)].mark();
    parts_.arena->queue().copy(value.to[static_cast<size_t>(to)].mark().data, from.data, from.size_bytes(),
                               CopyWay::kWithin);
  }
}

int64_t PipelinedStep::first_row(const TensorView& whole, int micro_batch) const {
  return whole.shape[0] / parts_.program.micro_batches * micro_batch;
}

void PipelinedStep::load(const ProgramItem& item) {
  for (const auto& load : parts_.loads) {
    if (load.chunk != item.chunk) continue;
    const TensorView& whole = inputs_.at(load.input);
    auto slice = load.slice;
    slice[0].offset += first_row(whole, item.micro_batch);
    load.slots[static_cast<size_t>(item.slot)].write(mesh::piece_of(whole, slice));
  }
}

// Whether the next item waits for what this one starts, and for nothing else: then who waits does it, and the lane's
// thread sleeps on.
bool PipelinedStep::is_awaited_at_once(const ProgramItem& item) const {
  const ProgramItem* const next = &item + 1;
  if (next == parts_.program.items.data() + parts_.program.items.size()) return false;
  if (item.kind == ItemKind::kReceive) {
    return next->kind == ItemKind::kAwait && next->micro_batch == item.micro_batch &&
           way_of(*next, parts_.program.stage) == way_of(item, parts_.program.stage);
  }
  const auto has_left = [](const auto& of_slot) { return of_slot.second.empty(); };
  return next->kind == ItemKind::kRun && next->phase == PhaseKind::kUpdate && leaving_once_.empty() &&
         std::all_of(leaving_.begin(), leaving_.end(), has_left);
}

void PipelinedStep::start_messages(const ProgramItem& item) {
  const bool sends = item.kind == ItemKind::kSend;
  const bool of_all = item.micro_batch < 0;
  const auto way = way_of(item, parts_.program.stage);
  if (of_all && sends && item.phase != PhaseKind::kUpdate && parts_.sums && !std::exchange(are_sums_complete_, true)) {
    parts_.sums->run();
  }
  if (of_all && !sends && item.phase == PhaseKind::kUpdate && before_update_) {
    for (const ValuePlace& value : parts_.received_values) before_update_(value.mark());
  }
  const size_t number = of_all ? 0 : static_cast<size_t>(item.slot);
  // Of several lanes, each does its own meanwhile.
  const bool wakes = parts_.channels[way].size() != 1 || !is_awaited_at_once(item);
  auto& under_way = !sends   ? arriving_[{way, item.micro_batch}]
                    : of_all ? leaving_once_
                             : leaving_[{item.chunk, item.slot}];
  // A rank that has nothing of what the other stage needs has no channels.
  for (auto& channel : parts_.channels[way]) {
    if (channel.queue != nullptr) parts_.arena->queue().record(*channel.may_start[number]);
    under_way.push_back({channel.lane.get(), channel.lane->start(channel.tasks[number], wakes)});
  }
}

void PipelinedStep::add_loss(executor::Executor& phase) {
  for (const double value : Tensor::copy_of(phase.output("micro_loss")).to_doubles()) loss_sum_ += value;
  loss_count_ += static_cast<double>(phase.output("micro_loss").num_elements());
}

// The mean over all elements of all micro-batches: every rank that has a piece of the loss says what it has. Where a
// rank has met a bad index, that is the loss of nothing.
void PipelinedStep::share_loss(const std::string& input_noun) {
  double sums[3] = {loss_sum_, loss_count_, bad_index_ ? 1.0 : 0.0};
  context().world().all_reduce(sums, 3, DType::kF64, comm::ReduceOp::kSum, "loss");
  *loss_view_.as<double>() = sums[1] > 0 ? loss_factor_ * sums[0] / sums[1] : 0;
  if (sums[2] > 0) throw_first_bad_index(context().world(), bad_index_ ? describe(*bad_index_, input_noun) : "");
}

std::string PipelinedStep::describe(const BadIndexAt& bad, const std::string& input_noun) const {
  const auto find_data = [&](const ir::Input& input) -> std::optional<DataPiece> {
    for (const auto& load : parts_.loads) {
      if (load.chunk != bad.phase.second || load.slot_name != input.name) continue;
      return DataPiece{load.input, load.slice, first_row(inputs_.at(load.input), bad.micro_batch)};
    }
    return std::nullopt;
  };
  return session::describe_bad_index(parts_.compiled.at(bad.phase), bad.index, find_data, input_noun);
}

// What a chunk has computed whole, on all ranks.
void PipelinedStep::share_results() {
  for (auto& [name, view] : results_) {
    const auto& result = parts_.results.at(name);
    if (const auto made = parts_.phases.find({PhaseKind::kForward, result.chunk}); made != parts_.phases.end()) {
      copy_elements(made->second[0]->output(name == "loss" ? "micro_loss" : name), view);
    }
    context().world().broadcast(view.data, view.num_elements(), view.dtype, result.rank, "result " + name);
  }
}

}  // namespace tessera::session
