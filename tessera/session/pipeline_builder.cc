#include "tessera/session/pipeline_builder.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/cuts/simulate_stages.h"
#include "tessera/compiler/stages/choose_schedule.h"
#include "tessera/compiler/stages/cut_staged_plan.h"
#include "tessera/compiler/stages/listed_lookups.h"
#include "tessera/compiler/stages/make_programs.h"
#include "tessera/session/agree/compare_collectives.h"
#include "tessera/session/agree/gather_texts.h"
#include "tessera/session/messages/message_channel.h"

namespace tessera::session {

using pipeline::PhaseKind;

namespace {

// Whether two boxes are rows and their numbers, of the same stretch of dim 0 and whole in all other dims: then they
// lie in one piece each. `shape`: of all rows.
bool are_whole_rows(const mesh::Box& numbers, const mesh::Box& rows, const Shape& shape) {
  if (numbers.empty() || numbers.size() > rows.size() || !(numbers[0] == rows[0])) return false;
  for (size_t dim = 1; dim < rows.size(); ++dim) {
    const int64_t size = shape[static_cast<int>(dim)];
    if (rows[dim].size != size || (dim < numbers.size() && numbers[dim].size != size)) return false;
  }
  return true;
}

}  // namespace

PipelineBuilder::PipelineBuilder(Session& session, compiler::StagedPlan& plan, const PipelinedOptions& options)
    : session_(session),
      plan_(plan),
      options_(options),
      context_(session.context_),
      trains_(plan.update.num_nodes() > 0),
      stage_(plan.ranks.stage_of(context_.rank())) {}

std::unique_ptr<PipelinedStep> PipelineBuilder::run() {
  make_programs();
  cut();
  lay_out();
  compile_phases();
  verify_memory();
  make_channels();
  find_views();
  compiler::Compiled whole;
  whole.logical = plan_.micro;
  parts_.arena = &session_.arena_;
  whole.plan = plan_.of_stage(stage_).micro;
  warn_of_different_graphs(context_, plan_.micro);
  return std::make_unique<PipelinedStep>(std::move(whole), context_, session_.core_watch_.get(), std::move(parts_));
}

void PipelineBuilder::make_programs() {
  const auto& graph = plan_.micro;
  if (trains_) {
    auto chosen = compiler::choose_schedule(plan_, options_.micro_batches, options_.schedule, options_.profile);
    parts_.schedule = std::move(chosen.found);
    messages_ = chunk_messages(graph, plan_.placement);
    parts_.all_programs = compiler::make_programs(parts_.schedule.schedule, plan_.placement, messages_,
                                                  {.micro_batches = options_.micro_batches,
                                                   .receive_ahead = options_.receive_ahead,
                                                   .sums = messages_of_sums(plan_.placement, plan_.options),
                                                   .values = messages_of_values(plan_.placement, plan_.options)});
  } else {
    messages_ = chunk_messages(graph, plan_.placement);
    parts_.all_programs = compiler::make_forward_programs(plan_.placement, messages_);
  }
  parts_.program = parts_.all_programs[static_cast<size_t>(stage_)];
  // What a rank does must fit what all others do: they have found the same.
  std::string text;
  for (const auto& program : parts_.all_programs) text += print(program);
  const auto all = gather_texts(context_.world(), text, "comparing the programs of the stages");
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) {
      throw InvalidArgument(
          "rank {} has found other programs of the pipeline than rank 0: all ranks must make one "
          "model, with the same options",
          rank);
    }
  }
}

void PipelineBuilder::cut() {
  for (const int chunk : plan_.placement.chunks_of(stage_)) {
    auto cut = cut_chunk(plan_, chunk);
    slots_[chunk].values = std::move(cut.slot);
    slots_[chunk].read = std::move(cut.read_in_slot);
    for (auto& phase : cut.phases) {
      if (phase.kind == PhaseKind::kForward || trains_) phases_.push_back({chunk, std::move(phase)});
    }
  }
  add_missing();
  if (!trains_) return;
  for (auto& round : cut_update(plan_, stage_)) {
    phases_.push_back({kNoChunk, {PhaseKind::kUpdate, std::move(round)}});
  }
  // Every rank has these where one stage needs them.
  const auto& others = plan_.options.other_accumulators;
  const auto is_completed = [&](const auto& other) { return is_completed_first(plan_, other.first); };
  if (std::any_of(others.begin(), others.end(), is_completed)) sums_at_ = add_once(cut_sums(plan_, stage_));
  if (!plan_.options.gathered.empty()) gather_at_ = add_once(cut_gather(plan_, stage_));
}

size_t PipelineBuilder::add_once(compiler::PlannedPart part) {
  phases_.push_back({kNoChunk, {PhaseKind::kUpdate, std::move(part)}});
  return phases_.size() - 1;
}

void PipelineBuilder::add_missing() {
  const auto ranks = plan_.ranks_of(stage_);
  std::map<int, size_t> counts;
  for (const int stage : plan_.placement.chunks.stages) ++counts[stage];
  size_t most = 0;
  for (const auto& [stage, count] : counts) most = std::max(most, count);
  const auto own = phases_.size() / counts.at(stage_);
  for (size_t chunk = counts.at(stage_); chunk < most; ++chunk) {
    for (size_t i = 0; i < own; ++i) {
      const auto kind = phases_[i].phase.kind;
      compiler::PartBuilder nothing(plan_.micro, plan_.of_stage(stage_).micro, ranks, pipeline::to_string(kind));
      phases_.push_back({kNoChunk, {kind, nothing.finish()}});
    }
  }
}

Type PipelineBuilder::local_type(const Type& type, const mesh::Layout& layout) const {
  return {type.dtype, mesh::local_shape(type.shape, layout.sharding, layout.mesh, context_.rank())};
}

void PipelineBuilder::lay_out() {
  layout_ = session_.values_.layout();
  std::set<std::string> in_slot;
  for (const auto& [chunk, slots] : slots_) {
    for (const auto& value : slots.values) in_slot.insert(value.name);
  }
  std::set<std::string> gathered;
  for (const auto& name : plan_.options.gathered) gathered.insert(compiler::gathered_name(name));
  for (const auto& [chunk, phase] : phases_) {
    for (const auto& input : phase.part.graph.inputs()) {
      if (layout_.offsets.contains(input.name) || in_slot.contains(input.name)) continue;
      if (is_read_in_slot(input.name)) continue;
      layout_.add(input.name, local_type(phase.part.graph.type(input.value), phase.part.plan.layout(input.value)));
      if (gathered.contains(input.name) || plan_.placement.unsummed.contains(input.name)) continue;
      if (phase.kind != PhaseKind::kUpdate || plan_.options.accumulators.contains(input.name)) {
        cleared_.push_back(input.name);
      }
    }
  }
  add_told();
  for (const auto& [chunk, phase] : phases_) copy_common_states(chunk, phase);
  parts_.memory.persistent_bytes = layout_.bytes;
  for (auto& [chunk, slots] : slots_) lay_out(chunk, slots);
  parts_.memory.slots_bytes = layout_.bytes - parts_.memory.persistent_bytes;
  session_.arena_.grow_to(layout_.bytes);
}

void PipelineBuilder::copy_common_states(int chunk, const compiler::ChunkPhase& phase) {
  if (chunk == kNoChunk || chunk == slots_.begin()->first) return;
  for (const auto& output : phase.part.graph.outputs()) {
    if (!is_common(output.name) || slots_.at(chunk).copies.contains(output.name)) continue;
    const auto name = fmt::format("{} of chunk {}", output.name, chunk);
    layout_.add(name, layout_.types.at(output.name));
    slots_.at(chunk).copies[output.name] = name;
  }
}

bool PipelineBuilder::is_common(const std::string& name) const {
  const auto at = plan_.placement.values.find(name);
  return session_.holds(name) && at != plan_.placement.values.end() && at->second == compiler::kEveryStage;
}

void PipelineBuilder::lay_out(int chunk, Slots& slots) {
  slots.layout = layout_;
  for (const auto& [name, copy] : slots.copies) slots.layout.offsets[name] = layout_.offsets.at(copy);
  for (const auto& value : slots.values) slots.layout.add(value.name, local_type(value.type, value.layout));
  ir::PersistentLayout end = slots.layout;
  end.add("the end of the slot", {DType::kU8, {0}});
  slots.begin = slots.values.empty() ? layout_.bytes : slots.layout.offsets.at(slots.values[0].name);
  slots.bytes = end.offsets.at("the end of the slot") - slots.begin;
  slots.layout.bytes = layout_.bytes = slots.begin + slots.bytes * num_slots(chunk);
  for (const auto& [accumulator, value] : slots.read) {
    check_equal(num_slots(chunk), 1, "slots of a chunk that has accumulators in them");
    layout_.offsets[accumulator] = slots.layout.offsets.at(value);
    layout_.types[accumulator] = slots.layout.types.at(value);
  }
}

bool PipelineBuilder::is_read_in_slot(const std::string& accumulator) const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [&](const auto& of_chunk) { return of_chunk.second.read.contains(accumulator); });
}

int PipelineBuilder::num_slots(int chunk) const { return parts_.program.slots.at(chunk); }

void PipelineBuilder::add_told() {
  const auto& graph = plan_.update;
  for (const auto& round : plan_.rounds.told) {
    for (const auto& [v, stage] : round) {
      const auto name = compiler::between_rounds_name(v);
      if (!layout_.offsets.contains(name)) layout_.add(name, graph.type(v));
    }
  }
}

void PipelineBuilder::compile_phases() {
  // All ranks together find out how fast their links are, also those that are alone on their stage.
  compile_options_ = session_.compile_options(static_cast<size_t>(*plan_.ranks.sizes().rbegin()), {});
  std::vector<compiler::Compiled> compiled;
  // Whatever is compiled, its own memory comes behind all slots.
  for (auto& [chunk, slots] : slots_) slots.layout.bytes = layout_.bytes;
  for (auto& [chunk, phase] : phases_) {
    compiler::Compiled part;
    part.logical = std::move(phase.part.graph);
    part.plan = std::move(phase.part.plan);
    session_.compile_with_agreed_kernels(part, compile_options_, chunk == kNoChunk ? layout_ : slots_.at(chunk).layout);
    compiled.push_back(std::move(part));
  }
  make_groups(compiled);
  const bool any_collectives = plan_.ranks.num_ranks() > plan_.num_stages();
  for (size_t i = 0; i < phases_.size(); ++i) {
    auto& part = compiled[i];
    parts_.memory.arena_bytes = std::max(parts_.memory.arena_bytes, part.schedule.arena_bytes - layout_.bytes);
    if (any_collectives) compare_collectives(context_, part.local);
    ++session_.num_compiled_;
    if (i == gather_at_ || i == sums_at_) {
      (i == gather_at_ ? parts_.gather : parts_.sums) = session_.make_executor(part.local, part.schedule);
      continue;
    }
    const auto& [chunk, phase] = phases_[i];
    if (phase.kind == PhaseKind::kUpdate) {
      parts_.rounds.push_back({.executor = session_.make_executor(part.local, part.schedule)});
      continue;
    }
    if (chunk == kNoChunk) continue;
    const PipelineParts::PhaseKey key{phase.kind, chunk};
    for (int slot = 0; slot < num_slots(chunk); ++slot) {
      auto& executors = parts_.phases[key];
      executors.push_back(session_.make_executor(part.local, in_slot(part.schedule, chunk, slot)));
      executors.back()->set_notes_bad_indices(true);
    }
    note_forward_states(chunk, part.logical);
    parts_.compiled.emplace(key, std::move(part));
  }
  session_.keep_measured_kernels();
}

void PipelineBuilder::verify_memory() const {
  const bool can_tell = trains_ && context_.rank() == plan_.ranks.first(stage_) && options_.schedule != "auto" &&
                        compile_options_.memory_limit_bytes == 0;
  if (!can_tell || compile_options_.verification != compiler::Verification::kAllRanks) return;
  auto plan = plan_;
  const auto simulated = compiler::simulate_stages(plan, options_.profile,
                                                   {.micro_batches = options_.micro_batches,
                                                    .schedule = options_.schedule,
                                                    .receive_ahead = options_.receive_ahead,
                                                    .kernels = &session_.kernels_,
                                                    .compile = compile_options_});
  const auto& planned = simulated.stages[static_cast<size_t>(stage_)];
  check_equal(parts_.memory.persistent_bytes, planned.persistent_bytes, "bytes that a stage keeps");
  for (const auto& [chunk, slots] : slots_) {
    check_equal(slots.bytes, simulated.chunks[static_cast<size_t>(chunk)].slot_bytes, "bytes of a chunk's slot");
  }
  if (!plan_.options.gathered.empty() || !plan_.ranks.are_equal()) return;
  check_equal(parts_.memory.arena_bytes, planned.arena_bytes, "bytes that a phase of a stage takes");
}

void PipelineBuilder::make_groups(const std::vector<compiler::Compiled>& compiled) {
  std::string own;
  for (const auto& part : compiled) {
    for (const auto& ranks : part.groups) own += fmt::format("{}\n", fmt::join(ranks, " "));
  }
  compiler::GroupLists lists;
  for (const auto& text : gather_texts(context_.world(), own, "making the groups of the stages")) {
    for (const auto line : split(text, '\n')) {
      std::vector<int> ranks;
      for (const auto word : split(line, ' ')) {
        if (!word.empty()) ranks.push_back(static_cast<int>(parse_int(word, "a group")));
      }
      if (!ranks.empty()) lists.insert(ranks);
    }
  }
  session_.make_groups(lists);
}

ir::Schedule PipelineBuilder::in_slot(ir::Schedule schedule, int chunk, int slot) const {
  const Slots& slots = slots_.at(chunk);
  for (auto& value : schedule.values) {
    if (value.space != ir::MemorySpace::kArena) continue;
    if (value.offset >= slots.begin && value.offset < slots.begin + slots.bytes) value.offset += slot * slots.bytes;
  }
  return schedule;
}

void PipelineBuilder::note_forward_states(int chunk, const ir::Graph& graph) {
  for (const auto& output : graph.outputs()) {
    if (!session_.holds(output.name) || slots_.at(chunk).copies.contains(output.name)) continue;
    parts_.forward_states.push_back(place_of(output.name));
  }
}

ValuePlace PipelineBuilder::place_of(const std::string& name) const {
  return {session_.arena_, layout_.offsets.at(name), layout_.types.at(name)};
}

ValuePlace PipelineBuilder::place_in_slot(int chunk, const std::string& name, int slot) const {
  const Slots& slots = slots_.at(chunk);
  return {session_.arena_, slots.layout.offsets.at(name) + slot * slots.bytes, slots.layout.types.at(name)};
}

std::vector<ValuePlace> PipelineBuilder::places_in_slots(int chunk, const std::string& name) const {
  std::vector<ValuePlace> places;
  for (int slot = 0; slot < num_slots(chunk); ++slot) places.push_back(place_in_slot(chunk, name, slot));
  return places;
}

void PipelineBuilder::make_channels() {
  for (auto first = messages_.begin(); first != messages_.end();) {
    const auto last = std::find_if(first, messages_.end(), [&](const auto& m) {
      return m.from != first->from || m.made != first->made || m.to != first->to;
    });
    if (trains_ || first->made == PhaseKind::kForward) make_channel({first, last});
    first = last;
  }
  if (!trains_) return;
  const auto summed = plan_.placement.split_backward ? PhaseKind::kWeightGradient : PhaseKind::kBackward;
  for (const auto& m : messages_of_sums(plan_.placement, plan_.options)) make_channel(summed, m);
  for (const auto& m : messages_of_values(plan_.placement, plan_.options)) {
    make_channel(PhaseKind::kUpdate, m);
    if (m.to != stage_) continue;
    for (const auto& name : m.values) parts_.received_values.push_back(place_of(name));
  }
}

void PipelineBuilder::make_channel(std::span<const compiler::ChunkMessage> messages) {
  const Way way{messages[0].from, messages[0].made, messages[0].to};
  const int from = plan_.placement.stage_of_chunk(way.from);
  const int to = plan_.placement.stage_of_chunk(way.to);
  std::vector<Travelling> values;
  bool are_numbers = false;  // of the rows before, which they go before
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto& message = messages[i];
    const auto name = compiler::slot_name(plan_.micro, message.value);
    if (from != to) {
      const auto counted = counted_rows(message, i + 1 < messages.size() ? &messages[i + 1] : nullptr);
      values.push_back(travelling(message));
      values.back().counted = counted;
      if (std::exchange(are_numbers, counted.has_value())) std::swap(values[i - 1], values[i]);
    } else if (from == stage_) {
      hand_over(way, name);
    }
  }
  make_lanes(way, from, values);
}

PipelineBuilder::Travelling PipelineBuilder::travelling(const compiler::ChunkMessage& message) const {
  const auto& graph = plan_.micro;
  const auto name = compiler::slot_name(graph, message.value);
  Travelling value{name, name, message_between(plan_, message)};
  const ir::NodeId n = graph.info(message.value).node;
  const auto& of_sender = plan_.of_chunk(message.from).micro;
  if (!compiler::is_spread_on_arrival(graph, of_sender, plan_.placement, n)) return value;
  const ir::Node& spread = graph.node(n);
  value.sent = compiler::slot_name(graph, spread.inputs[0]);
  value.listed = Travelling::Listed{compiler::slot_name(graph, spread.inputs[1]), spread.attributes.get_ints("bounds"),
                                    spread.source};
  const ir::NodeId lookup = compiler::find_lookup_in_place(graph, of_sender, plan_.placement, n);
  if (lookup != ir::kNone) {
    const auto& operands = graph.node(lookup).inputs;
    value.sent = std::ranges::find(graph.inputs(), operands[0], &ir::Input::value)->name;
    value.listed->in_place = {compiler::slot_name(graph, operands[1]), graph.type(operands[0]).shape,
                              of_sender.source_layout(operands[0])};
  }
  return value;
}

std::optional<CountedRows> PipelineBuilder::counted_rows(const compiler::ChunkMessage& message,
                                                         const compiler::ChunkMessage* behind) const {
  const auto& graph = plan_.micro;
  const ir::NodeId n = graph.info(message.value).node;
  if (n == ir::kNone || behind == nullptr || graph.node(n).op != "add_up_rows") return std::nullopt;
  const ir::Node& node = graph.node(n);
  if (node.outputs[0] != message.value || node.outputs[1] != behind->value) return std::nullopt;
  CountedRows rows{.table = node.attributes.get_string("table"), .num_rows = node.attributes.get_int("num_rows")};
  // An update of rows passes over those that have no number; whatever else reads them finds zeros there.
  for (const auto& [accumulator, parameter] : plan_.options.accumulators) {
    const ir::Input* held = parameter == rows.table ? plan_.update.find_input(accumulator) : nullptr;
    for (ir::NodeId reader = 0; held != nullptr && reader < plan_.update.num_nodes(); ++reader) {
      const auto& inputs = plan_.update.node(reader).inputs;
      if (plan_.update.node(reader).op == "update_rows") continue;
      rows.clears_rest = rows.clears_rest || std::find(inputs.begin(), inputs.end(), held->value) != inputs.end();
    }
  }
  return rows;
}

void PipelineBuilder::make_channel(PhaseKind made, const compiler::SharedMessage& message) {
  std::vector<Travelling> values;
  for (const auto& name : message.values) {
    values.push_back({is_completed_first(plan_, name) ? compiler::summed_name(name) : name, name,
                      message_between(plan_, name, message.from, message.to)});
  }
  make_lanes({message.from, made, message.to, /*of_all=*/true}, message.from, values);
}

void PipelineBuilder::hand_over(const Way& way, const std::string& name) {
  parts_.handed_over[way].push_back({places_in_slots(way.from, name), places_in_slots(way.to, name)});
}

comm::Communicator* PipelineBuilder::pair_of(const std::string& name, const std::vector<int>& ranks) {
  const auto [it, is_new] = session_.pairs_.try_emplace(name, nullptr);
  if (!is_new) return it->second;
  return it->second = session_.make_group(name, ranks);
}

void PipelineBuilder::make_lanes(const Way& way, int from_stage, const std::vector<Travelling>& values) {
  std::vector<compiler::StageMessage> messages;
  for (const auto& value : values) messages.push_back(value.message);
  for (const auto& [from, to] : pairs_of(messages)) {
    auto* pair = pair_of(fmt::format("{} of {} {} to {}, rank {} to {}", pipeline::to_string(way.made),
                                     way.of_all ? "stage" : "chunk", way.from, way.to, from, to),
                         {from, to});
    if (pair != nullptr) make_lane(*pair, way, from_stage, values);
  }
}

void PipelineBuilder::make_lane(comm::Communicator& pair, const Way& way, int from_stage,
                                const std::vector<Travelling>& values) {
  const bool sends = from_stage == stage_;
  const int chunk = sends ? way.from : way.to;
  std::vector<std::vector<TensorView>> by_slot(way.of_all ? 1 : static_cast<size_t>(num_slots(chunk)));
  std::vector<CountedRows> counted;
  std::vector<ListedRows> listed;
  std::optional<mesh::Box> box_before;
  for (const auto& value : values) {
    const int from = pair.ranks()[0];
    const int to = pair.ranks()[1];
    const auto before = std::exchange(box_before, std::nullopt);
    const auto box = sends ? sent_box(value.message, from, to) : received_box(value.message, from, to);
    if (!box) continue;
    box_before = box;
    if (value.counted && before && are_whole_rows(*before, *box, value.message.type.shape)) {
      counted.push_back(*value.counted);
      counted.back().rows = by_slot[0].size();
      counted.back().numbers = by_slot[0].size() - 1;
    }
    if (value.listed) {
      listed.push_back(listed_rows(value, chunk, sends, *box, from - plan_.ranks.first(from_stage), by_slot));
      continue;
    }
    const auto& name = sends ? value.sent : value.received;
    for (size_t slot = 0; slot < by_slot.size(); ++slot) {
      const auto place = way.of_all ? place_of(name) : place_in_slot(chunk, name, static_cast<int>(slot));
      by_slot[slot].push_back(mesh::piece_of(place.mark(), *box));
    }
  }
  const auto who = fmt::format("{} of stage {}", pipeline::to_string(way.made), from_stage);
  parts_.channels[way].push_back(make_message_channel(
      pair, sends, by_slot, session_.arena_.device(), context_.rank(), who,
      {context_.recorder(), fmt::format("{}, {} {} to {}, rank {} to {}", who, way.of_all ? "stage" : "chunk", way.from,
                                        way.to, pair.ranks()[0], pair.ranks()[1])},
      counted, listed));
}

// The sender has all rows, so that the box is what the receiver wants: its last dim is of a row's elements, the others
// are of places.
ListedRows PipelineBuilder::listed_rows(const Travelling& value, int chunk, bool sends, const mesh::Box& box,
                                        int sender, std::vector<std::vector<TensorView>>& by_slot) const {
  const auto& [places_name, bounds, table, in_place] = *value.listed;
  ListedRows listed{.rows = by_slot[0].size(), .table = table};
  if (in_place) {
    const auto& [shape, layout] = std::tie(in_place->table, in_place->layout);
    const auto part = slice_of(shape, layout.sharding, layout.mesh, layout.mesh.ranks()[static_cast<size_t>(sender)]);
    listed.in_place = {.num_elements = mesh::num_elements(part),
                       .own = part[0],
                       .first_element = box.back().offset,
                       .size = box.back().size,
                       .says_none = sender == 0};
    // Of a table that all servers have, one is enough.
    if (layout.sharding.is_replicated() && sender > 0) listed.in_place->own.size = 0;
  }
  for (size_t slot = 0; slot < by_slot.size(); ++slot) {
    const auto at = [&](const std::string& name) { return place_in_slot(chunk, name, static_cast<int>(slot)).mark(); };
    if (!sends) {
      by_slot[slot].push_back(mesh::piece_of(at(value.received), box));
      continue;
    }
    const TensorView places = at(places_name);
    listed.places.push_back(mesh::piece_of(places, mesh::Box(box.begin(), box.end() - 1)));
    if (in_place) {
      by_slot[slot].push_back(place_of(value.sent).mark());
      listed.in_place->numbers.push_back(at(in_place->numbers));
      continue;
    }
    const TensorView rows = at(value.sent);
    check_equal(rows.shape.ndim(), places.shape.ndim() + 1, "dims of rows that are sent once each");
    const TensorView all(rows.data, Type{rows.dtype, {places.num_elements(), rows.shape.back()}});
    by_slot[slot].push_back(mesh::piece_of(all, {{0, places.num_elements()}, box.back()}));
  }
  if (!sends) return listed;
  const Shape& shape = value.message.type.shape;
  const int64_t places_of_row = shape.num_elements() / shape[0] / shape.back();
  for (int64_t row = box[0].offset; row < box[0].offset + box[0].size; ++row) {
    listed.begins.push_back(*std::prev(std::upper_bound(bounds.begin(), bounds.end(), row)) * places_of_row);
  }
  return listed;
}

void PipelineBuilder::find_views() {
  for (const auto& name : cleared_) parts_.cleared.push_back(place_of(name));
  for (const auto& [chunk, slots] : slots_) {
    for (const auto& [name, copy] : slots.copies) parts_.copied_states.emplace_back(place_of(name), place_of(copy));
    find_loads(chunk, slots);
  }
  for (size_t round = 0; round < plan_.rounds.told.size(); ++round) {
    for (const auto& [v, stage] : plan_.rounds.told[round]) {
      const bool is_first = context_.rank() == plan_.ranks.first(stage);
      parts_.rounds[round].told.push_back({place_of(compiler::between_rounds_name(v)), is_first});
    }
  }
  for (const auto& input : plan_.micro.inputs()) {
    if (input.kind != ir::InputKind::kInput) continue;
    Type type = plan_.micro.type(input.value);
    type.shape[0] *= parts_.program.micro_batches;
    parts_.batch.emplace(input.name, Tensor::zeros(type));
  }
  for (const auto& [chunk, slots] : slots_) {
    const auto& forward = parts_.phases.at({PhaseKind::kForward, chunk})[0];
    if (forward->schedule().outputs.contains("micro_loss")) parts_.loss_chunk = chunk;
  }
  if (trains_) return;
  for (const auto& output : plan_.micro.outputs()) {
    if (plan_.micro.find_input(output.name) != nullptr) continue;
    const int chunk = plan_.placement.chunk_of_result(plan_.micro, output.value);
    const int first = plan_.ranks.first(plan_.placement.stage_of_chunk(chunk));
    parts_.results[output.name] = {Tensor::zeros(plan_.micro.type(output.value)), chunk, first};
  }
}

void PipelineBuilder::find_loads(int chunk, const Slots& slots) {
  for (const auto& value : slots.values) {
    if (!value.is_input) continue;
    PipelineParts::Load load{.chunk = chunk, .input = value.input, .slot_name = value.name};
    load.slice = mesh::slice_of(value.type.shape, value.layout.sharding, value.layout.mesh, context_.rank());
    load.slots = places_in_slots(chunk, value.name);
    parts_.loads.push_back(std::move(load));
  }
}

compiler::StagedPlan Session::plan_stages(const ir::Graph& micro, const ir::Graph* update,
                                          const mesh::StageRanks& ranks, std::map<int, compiler::WithinStage> within,
                                          const compiler::StageOptions& stages) {
  // Values that lie on their stages by now: on ranks from 0 on instead.
  for (const auto& [name, layouts] : splits_) {
    for (const auto& layout : layouts) {
      auto from_zero = layout.mesh.ranks();
      const int first = *std::min_element(from_zero.begin(), from_zero.end());
      const int stage = ranks.stage_of(first);
      if (layout.mesh.size() != ranks.count(stage)) continue;
      for (int& rank : from_zero) rank -= first;
      auto& of_stage = within.at(stages.kind_of(stage, ranks));
      of_stage.hints[name] = {compiler::with_ranks(layout.mesh, std::move(from_zero)), layout.sharding};
    }
  }
  return compiler::plan_stages(micro, update, ranks, within, stages, compile_options());
}

std::unique_ptr<PipelinedStep> Session::compile_stages(compiler::StagedPlan plan, const PipelinedOptions& options) {
  return PipelineBuilder(*this, plan, options).run();
}

}  // namespace tessera::session
