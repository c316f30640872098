// How a rank compiles its stage of a pipeline: phases as graphs of their own, over one layout of persistent values,
// accumulators and slots.
#include <algorithm>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/stages/make_programs.h"
#include "tessera/session/agree/compare_collectives.h"
#include "tessera/session/agree/gather_texts.h"
#include "tessera/session/pipelined_step.h"

namespace tessera::session {

using pipeline::PhaseKind;

class PipelineBuilder {
 public:
  PipelineBuilder(Session& session, compiler::StagedPlan& plan, const PipelinedOptions& options)
      : session_(session),
        plan_(plan),
        options_(options),
        context_(session.context_),
        trains_(plan.update.graph.num_nodes() > 0),
        stage_(context_.rank() / plan.ranks_per_stage()) {}

  std::unique_ptr<PipelinedStep> run() {
    make_programs();
    cut();
    lay_out();
    compile_phases();
    make_channels();
    find_views();
    compiler::Compiled whole;
    whole.logical = plan_.micro.graph;
    parts_.arena = &session_.arena_;
    whole.plan = plan_.micro.plan;
    warn_of_different_graphs(context_, plan_.micro.graph);
    return std::make_unique<PipelinedStep>(std::move(whole), context_, session_.core_watch_.get(), std::move(parts_));
  }

 private:
  void make_programs() {
    const auto& graph = plan_.micro.graph;
    if (trains_) {
      auto chosen = compiler::choose_schedule(plan_, options_.micro_batches, options_.schedule, options_.profile);
      parts_.schedule = std::move(chosen.found);
      messages_ = stage_messages(graph, plan_.placement);
      parts_.all_programs = compiler::make_programs(parts_.schedule.schedule, messages_,
                                                    {.micro_batches = options_.micro_batches,
                                                     .receive_ahead = options_.receive_ahead,
                                                     .sums = messages_of_sums(plan_.placement, plan_.options),
                                                     .values = messages_of_values(plan_.placement, plan_.options)});
    } else {
      messages_ = stage_messages(graph, plan_.placement);
      parts_.all_programs = compiler::make_forward_programs(plan_.num_stages(), messages_);
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

  void cut() {
    const auto ranks = plan_.ranks_of(stage_);
    auto cut = cut_stage(plan_.micro.graph, plan_.micro.plan, plan_.placement, stage_, ranks);
    slot_ = std::move(cut.slot);
    for (auto& phase : cut.phases) {
      if (phase.kind == PhaseKind::kForward || trains_) phases_.push_back(std::move(phase));
    }
    if (!trains_) return;
    auto rounds = compiler::cut_update(plan_.update.graph, plan_.update.plan, plan_.rounds, stage_,
                                       update_outputs(plan_, stage_), ranks);
    for (auto& round : rounds) phases_.push_back({PhaseKind::kUpdate, std::move(round)});
    if (plan_.options.gathered.empty()) return;
    gather_at_ = phases_.size();
    phases_.push_back({PhaseKind::kUpdate, cut_gather(plan_, stage_)});
  }

  Type local_type(const Type& type, const mesh::Layout& layout) const {
    return {type.dtype, mesh::local_shape(type.shape, layout.sharding, layout.mesh, context_.rank())};
  }

  // Behind the session's own values: what lives for a step, then the first slot, then the others.
  void lay_out() {
    layout_ = session_.values_.layout();
    std::set<std::string> in_slot;
    for (const auto& value : slot_) in_slot.insert(value.name);
    std::set<std::string> gathered;
    for (const auto& name : plan_.options.gathered) gathered.insert(compiler::gathered_name(name));
    for (const auto& phase : phases_) {
      for (const auto& input : phase.part.graph.inputs()) {
        if (layout_.offsets.contains(input.name) || in_slot.contains(input.name)) continue;
        layout_.add(input.name, local_type(phase.part.graph.type(input.value), phase.part.plan.layout(input.value)));
        if (gathered.contains(input.name)) continue;
        if (phase.kind != PhaseKind::kUpdate || plan_.options.accumulators.contains(input.name)) {
          cleared_.push_back(input.name);
        }
      }
    }
    add_told();
    for (const auto& value : slot_) layout_.add(value.name, local_type(value.type, value.layout));
    ir::PersistentLayout end = layout_;
    end.add("the end of the slot", {DType::kU8, {0}});
    slot_begin_ = slot_.empty() ? layout_.bytes : layout_.offsets.at(slot_[0].name);
    slot_bytes_ = end.offsets.at("the end of the slot") - slot_begin_;
    layout_.bytes = slot_begin_ + slot_bytes_ * parts_.program.slots;
    session_.arena_.grow_to(layout_.bytes);
  }

  // What other stages tell between rounds of the update lies here, too, whether it is read or not.
  void add_told() {
    const auto& graph = plan_.update.graph;
    for (const auto& round : plan_.rounds.told) {
      for (const auto& [v, stage] : round) {
        const auto name = compiler::between_rounds_name(v);
        if (!layout_.offsets.contains(name)) layout_.add(name, graph.type(v));
      }
    }
  }

  void compile_phases() {
    const auto options = session_.compile_options(static_cast<size_t>(plan_.ranks_per_stage()), {});
    std::vector<compiler::Compiled> compiled;
    for (auto& phase : phases_) {
      compiler::Compiled part;
      part.logical = std::move(phase.part.graph);
      part.plan = std::move(phase.part.plan);
      session_.compile_with_agreed_kernels(part, options, layout_);
      compiled.push_back(std::move(part));
    }
    make_groups(compiled);
    for (size_t i = 0; i < phases_.size(); ++i) {
      auto& part = compiled[i];
      if (plan_.ranks_per_stage() > 1) compare_collectives(context_, part.local);
      ++session_.num_compiled_;
      if (i == gather_at_) {
        parts_.gather = session_.make_executor(part.schedule);
        continue;
      }
      if (phases_[i].kind == PhaseKind::kUpdate) {
        parts_.rounds.push_back({.executor = session_.make_executor(part.schedule)});
        continue;
      }
      for (int slot = 0; slot < parts_.program.slots; ++slot) {
        auto& phase = parts_.phases[{phases_[i].kind, slot}];
        phase = session_.make_executor(in_slot(part.schedule, slot));
        phase->set_notes_bad_indices(true);
      }
      note_forward_states(part.logical);
      parts_.compiled.emplace(phases_[i].kind, std::move(part));
    }
    session_.keep_measured_kernels();
  }

  // Every rank makes the groups of all stages.
  void make_groups(const std::vector<compiler::Compiled>& compiled) {
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

  ir::Schedule in_slot(ir::Schedule schedule, int slot) const {
    for (auto& value : schedule.values) {
      if (value.space != ir::MemorySpace::kArena) continue;
      if (value.offset >= slot_begin_ && value.offset < slot_begin_ + slot_bytes_) value.offset += slot * slot_bytes_;
    }
    return schedule;
  }

  // States of the session that a phase gives new values.
  void note_forward_states(const ir::Graph& graph) {
    for (const auto& output : graph.outputs()) {
      if (!session_.holds(output.name)) continue;
      parts_.forward_states.push_back(place_of(output.name, 0));
    }
  }

  ValuePlace place_of(const std::string& name, int slot) const {
    return {session_.arena_, layout_.offsets.at(name) + slot * slot_bytes_, layout_.types.at(name)};
  }

  // Lanes between this rank and its like in other stages. All ranks make all pairs' groups, in one order.
  void make_channels() {
    for (auto first = messages_.begin(); first != messages_.end();) {
      const auto last = std::find_if(first, messages_.end(), [&](const auto& m) {
        return m.from != first->from || m.made != first->made || m.to != first->to;
      });
      if (trains_ || first->made == PhaseKind::kForward) {
        std::vector<std::string> names;
        for (auto m = first; m != last; ++m) names.push_back(compiler::slot_name(plan_.micro.graph, m->value));
        make_channel({first->from, first->made, first->to}, names, parts_.program.slots);
      }
      first = last;
    }
    if (!trains_) return;
    const auto summed = plan_.placement.split_backward ? PhaseKind::kWeightGradient : PhaseKind::kBackward;
    for (const auto& m : messages_of_sums(plan_.placement, plan_.options)) {
      make_channel({m.from, summed, m.to, /*of_all=*/true}, m.values, 1);
    }
    for (const auto& m : messages_of_values(plan_.placement, plan_.options)) {
      make_channel({m.from, PhaseKind::kUpdate, m.to, /*of_all=*/true}, m.values, 1);
      if (m.to != stage_) continue;
      for (const auto& name : m.values) parts_.received_values.push_back(place_of(name, 0));
    }
  }

  // The session's group of that name, made when it is asked for first.
  comm::Communicator* pair_of(const std::string& name, const std::vector<int>& ranks) {
    const auto [it, is_new] = session_.pairs_.try_emplace(name, nullptr);
    if (!is_new) return it->second;
    return it->second = session_.make_group(name, ranks);
  }

  struct Way {
    int from = 0;
    PhaseKind made = PhaseKind::kForward;
    int to = 0;
    bool of_all = false;  // micro-batches together
  };
  void make_channel(const Way& way, const std::vector<std::string>& names, int slots) {
    for (int i = 0; i < plan_.ranks_per_stage(); ++i) {
      const int from = plan_.ranks_of(way.from)[static_cast<size_t>(i)];
      const int to = plan_.ranks_of(way.to)[static_cast<size_t>(i)];
      auto* pair = pair_of(fmt::format("{}{} of stage {} to {}, rank {}", way.of_all ? "all " : "",
                                       pipeline::to_string(way.made), way.from, way.to, i),
                           {from, to});
      if (pair != nullptr) make_lane(*pair, way, names, slots);
    }
  }

  void make_lane(comm::Communicator& pair, const Way& way, const std::vector<std::string>& names, int slots) {
    const bool sends = way.from == stage_;
    auto& channel = parts_.channels[{sends, way.made, sends ? way.to : way.from, way.of_all}];
    channel.lane = std::make_unique<executor::CommLane>(context_.rank());
    Device* const device = session_.arena_.device();
    if (device != nullptr) channel.queue = device->make_queue();
    const auto add = [&channel](std::function<void()> task) {
      channel.tasks.push_back(std::make_shared<const std::function<void()>>(std::move(task)));
    };
    for (int slot = 0; slot < slots; ++slot) {
      std::vector<TensorView> values;
      for (const auto& name : names) values.push_back(place_of(name, slot).mark());
      // Messages come from, and go to, memory of the host.
      const auto on_device = values;
      std::shared_ptr<std::byte> staging;
      if (device != nullptr) staging = stage(values, *device);
      const auto who = fmt::format("{} of stage {}", pipeline::to_string(way.made), way.from);
      std::function<void()> travel;
      if (sends) {
        travel = [&pair, values, who] {
          for (const auto& v : values) pair.send(v.data, v.num_elements(), v.dtype, 1, who);
        };
      } else {
        travel = [&pair, values, who] {
          for (const auto& v : values) pair.receive(v.data, v.num_elements(), v.dtype, 0, who);
        };
      }
      if (device == nullptr) {
        add(std::move(travel));
        continue;
      }
      Event* const may_start = channel.may_start.emplace_back(device->make_event()).get();
      add([=, &queue = *channel.queue, travel = std::move(travel)] {
        may_start->synchronize();
        if (!sends) travel();
        for (size_t i = 0; i < values.size(); ++i) {
          void* const to = sends ? values[i].data : on_device[i].data;
          const void* const from = sends ? on_device[i].data : values[i].data;
          queue.copy(to, from, values[i].size_bytes(), sends ? CopyWay::kToHost : CopyWay::kToDevice);
        }
        queue.synchronize();
        if (sends) travel();
        (void)staging;  // lives as long as the task
      });
    }
  }

  // Memory of the host for these values, which they are moved to.
  static std::shared_ptr<std::byte> stage(std::vector<TensorView>& values, Device& device) {
    int64_t bytes = 0;
    const auto take = [&](const TensorView& v) {
      return std::exchange(bytes, bytes + (v.size_bytes() + 63) / 64 * 64);
    };
    std::vector<int64_t> offsets;
    for (const auto& v : values) offsets.push_back(take(v));
    auto memory = device.allocate_on_host(bytes);
    for (size_t i = 0; i < values.size(); ++i) values[i].data = memory.get() + offsets[i];
    return memory;
  }

  void find_views() {
    for (const auto& name : cleared_) parts_.cleared.push_back(place_of(name, 0));
    for (size_t round = 0; round < plan_.rounds.told.size(); ++round) {
      for (const auto& [v, stage] : plan_.rounds.told[round]) {
        const bool is_first = context_.rank() == plan_.ranks_of(stage)[0];
        parts_.rounds[round].told.push_back({place_of(compiler::between_rounds_name(v), 0), is_first});
      }
    }
    for (const auto& value : slot_) {
      if (!value.is_input) continue;
      PipelineParts::Load load{.input = value.input, .slot_name = value.name};
      load.slice = mesh::slice_of(value.type.shape, value.layout.sharding, value.layout.mesh, context_.rank());
      for (int slot = 0; slot < parts_.program.slots; ++slot) load.slots.push_back(place_of(value.name, slot));
      parts_.loads.push_back(std::move(load));
    }
    for (const auto& input : plan_.micro.graph.inputs()) {
      if (input.kind != ir::InputKind::kInput) continue;
      Type type = plan_.micro.graph.type(input.value);
      type.shape[0] *= parts_.program.micro_batches;
      parts_.batch.emplace(input.name, Tensor::zeros(type));
    }
    const auto& forward = parts_.phases.at({PhaseKind::kForward, 0});
    parts_.has_loss = forward->schedule().outputs.contains("micro_loss");
    if (trains_) return;
    for (const auto& output : plan_.micro.graph.outputs()) {
      if (plan_.micro.graph.find_input(output.name) != nullptr) continue;
      parts_.results.emplace(output.name, Tensor::zeros(plan_.micro.graph.type(output.value)));
    }
  }

  Session& session_;
  compiler::StagedPlan& plan_;
  const PipelinedOptions& options_;
  cluster::Context& context_;
  bool trains_;
  int stage_;
  PipelineParts parts_;
  std::vector<compiler::StageMessage> messages_;
  std::vector<compiler::StagePhase> phases_;
  std::vector<compiler::SlotValue> slot_;
  ir::PersistentLayout layout_;
  std::vector<std::string> cleared_;
  std::optional<size_t> gather_at_;  // in phases_
  int64_t slot_begin_ = 0;
  int64_t slot_bytes_ = 0;
};

compiler::StagedPlan Session::plan_stages(const ir::Graph& micro, const ir::Graph* update, const mesh::Mesh& mesh,
                                          const compiler::ShardingHints& input_hints, const compiler::PlanOptions& plan,
                                          const compiler::StageOptions& stages) {
  // Values that lie on their stages by now: on the first stage's ranks instead.
  auto hints = input_hints;
  for (const auto& [name, split] : splits_) {
    const auto layout = compiler::without_stages(split, mesh.size());
    if (static_cast<int>(layout.mesh.ranks().size()) != mesh.size()) continue;
    auto ranks = layout.mesh.ranks();
    const int first = *std::min_element(ranks.begin(), ranks.end());
    for (int& rank : ranks) rank -= first;
    hints[name] = {compiler::with_ranks(layout.mesh, std::move(ranks)), layout.sharding};
  }
  return compiler::plan_stages(micro, update, mesh, hints, stages,
                               compile_options(static_cast<size_t>(mesh.size()), plan));
}

std::unique_ptr<PipelinedStep> Session::compile_stages(compiler::StagedPlan plan, const PipelinedOptions& options) {
  return PipelineBuilder(*this, plan, options).run();
}

}  // namespace tessera::session
