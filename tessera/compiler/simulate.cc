#include "tessera/compiler/simulate.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/compiler/cost/collective_time.h"
#include "tessera/compiler/cost/operator_time.h"
#include "tessera/compiler/schedule/memory_plan.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/tensor/alignment.h"

namespace tessera::compiler {
namespace {

using ir::Schedule;
using ir::Step;
using ir::StepKind;

std::vector<Type> types_of(const Schedule& schedule, const std::vector<int>& values) {
  std::vector<Type> types;
  for (const int v : values) types.push_back(schedule.values[static_cast<size_t>(v)].type);
  return types;
}

// Operands and results come in pairs; a second buffer is the last operand.
bool has_second_buffer(const Step& step) { return step.inputs.size() > step.outputs.size(); }

int64_t bytes_of(const Schedule& schedule, int value) {
  return schedule.values[static_cast<size_t>(value)].type.size_bytes();
}

std::vector<ir::ScheduledValue> values_of(const Schedule& schedule, const std::vector<int>& values) {
  std::vector<ir::ScheduledValue> result;
  for (const int v : values) result.push_back(schedule.values[static_cast<size_t>(v)]);
  return result;
}

double compute_seconds(const Schedule& schedule, const Step& step, const MachineProfile& profile) {
  if (step.kind == StepKind::kCopy) {
    return copy_seconds(schedule.values[static_cast<size_t>(step.inputs[0])],
                        schedule.values[static_cast<size_t>(step.outputs[0])], profile);
  }
  const auto inputs = types_of(schedule, step.inputs);
  const auto outputs = types_of(schedule, step.outputs);
  if (step.kind == StepKind::kCompute) {
    return operator_seconds(step.op, step.attributes, inputs, outputs, profile) +
           rearranging_seconds(step.op, values_of(schedule, step.inputs), values_of(schedule, step.outputs), profile);
  }
  double bytes = 0;
  for (const auto* types : {&inputs, &outputs}) {
    for (const Type& type : *types) bytes += static_cast<double>(type.size_bytes());
  }
  return profile.work_seconds(step.op, DType::kF32, 0, bytes);
}

GroupMembers members_of(const Step& step, int rank, const MachineProfile& profile) {
  const Ints& members = step.attributes.get_ints("ranks");
  GroupMembers group(std::vector<int>(members.begin(), members.end()), rank, profile);
  if (group.own() == group.size()) {
    throw InvalidArgument("rank {} takes part in {} of group \"{}\", whose ranks are {}", rank, step.op,
                          step.attributes.get_string("group"), fmt::join(group.ranks(), " "));
  }
  return group;
}

// The step without its second buffer.
ops::CollectiveCall call_of(const Schedule& schedule, const Step& step) {
  ops::CollectiveCall call{step.attributes, types_of(schedule, step.inputs), types_of(schedule, step.outputs)};
  if (has_second_buffer(step)) call.inputs.resize(call.outputs.size());
  return call;
}

// What comes from other ranks, and what is copied on this one.
Received received_by(const Schedule& schedule, const Step& step, const GroupMembers& members) {
  const auto& collective = *ops::collective_of(step.op);
  if (collective.is_transfer()) {
    throw InvalidArgument("a step with {} \"{}\" cannot be simulated: which of a class's ranks it is for is not known",
                          step.op, step.source);
  }
  const auto call = call_of(schedule, step);
  const auto traffic = collective.traffic(call);
  Received received{.rounds = collective.num_steps};
  const auto add = [&](int64_t from, int64_t bytes) {
    if (from != members.own()) (members.is_near(from) ? received.from_host : received.from_other) += bytes;
  };
  if (traffic.sender) {
    add(*traffic.sender, traffic.bytes);
  } else if (traffic.by_sender.empty()) {
    received = members.from_all(traffic.bytes, collective.num_steps);
  }
  for (size_t i = 0; i < traffic.by_sender.size(); ++i) add(static_cast<int64_t>(i), traffic.by_sender[i]);
  if (has_second_buffer(step)) received.packed = collective.packed(call, members.own());
  return received;
}

// The highest byte of the arena that a step touches.
int64_t highest_byte(const Schedule& schedule) {
  int64_t end = schedule.persistent_bytes;
  const auto touch = [&](int v) {
    if (schedule.values[static_cast<size_t>(v)].space != ir::MemorySpace::kArena) return;
    end = std::max(end, aligned(schedule.values[static_cast<size_t>(v)].offset + bytes_of(schedule, v)));
  };
  for (const auto& [name, v] : schedule.inputs) touch(v);
  for (const Step& step : schedule.steps) {
    for (const int v : step.inputs) touch(v);
    for (const int v : step.outputs) touch(v);
    // The scratch memory of what the host computes is its own.
    if (!step.on_host) end = std::max(end, aligned(step.scratch_offset + step.scratch_bytes));
  }
  return end;
}

// One collective of one group; of a group of classes, all groups whose members are of the same classes.
struct Meeting {
  std::vector<int> expected;  // classes
  int num_arrived = 0;
  double begin = 0;
  double seconds = 0;
  bool is_complete() const { return num_arrived == static_cast<int>(expected.size()); }
};

// What a class's rank needs to know of one of its groups, whichever collective it is for.
struct GroupView {
  GroupMembers members;
  std::vector<int> classes;  // of the members, each once
  int pattern = 0;           // equal for groups of members of the same classes, host by host
};

class Simulator {
 public:
  Simulator(std::span<const RankClass> classes, const MachineProfile& profile, const Deadline& deadline)
      : classes_(classes), profile_(profile), deadline_(deadline), states_(classes.size()) {
    for (size_t c = 0; c < classes.size(); ++c) {
      for (const int rank : classes[c].ranks) class_of_[rank] = static_cast<int>(c);
      State& state = states_[c];
      state.ended.resize(classes[c].schedule.steps.size());
      state.result.ranks = classes[c].ranks;
      state.result.persistent_bytes = classes[c].schedule.persistent_bytes;
      state.result.peak_memory_bytes = highest_byte(classes[c].schedule);
    }
  }

  Simulation run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t c = 0; c < classes_.size(); ++c) {
        deadline_.throw_if_over();
        moved = advance_compute(c) || moved;
        for (Lane& lane : states_[c].lanes) moved = advance_communication(c, lane) || moved;
      }
    }
    Simulation simulation;
    for (size_t c = 0; c < classes_.size(); ++c) {
      check_done(c);
      auto& result = states_[c].result;
      std::sort(result.timeline.begin(), result.timeline.end(), [](const TimedStep& a, const TimedStep& b) {
        return std::tie(a.begin_seconds, a.step) < std::tie(b.begin_seconds, b.step);
      });
      simulation.step_seconds = std::max(simulation.step_seconds, result.step_seconds());
      simulation.received_bytes += result.received_bytes * static_cast<int64_t>(result.ranks.size());
      simulation.classes.push_back(std::move(result));
    }
    return simulation;
  }

 private:
  // A collective that compute has handed over, and not yet ended.
  struct Started {
    int step = 0;
    double at = 0;
    Meeting* meeting = nullptr;  // once this class has come to it
  };
  struct Lane {
    std::deque<Started> under_way;
    double free_at = 0;  // when it has ended its last collective
  };
  struct Ended {
    double at = 0;
    double seconds = 0;  // in which it was running
  };
  struct State {
    size_t next = 0;  // step of the compute lane
    double now = 0;
    std::array<Lane, ir::kNumCommLanes> lanes;
    std::vector<std::optional<Ended>> ended;  // collectives, by the step that starts them
    std::map<Ints, GroupView> groups;         // by the members' ranks
    ClassSimulation result;
  };

  const Step& step_of(size_t c, int step) const { return classes_[c].schedule.steps[static_cast<size_t>(step)]; }

  // Until the end or a wait for what has not ended. Whether anything was done.
  bool advance_compute(size_t c) {
    State& state = states_[c];
    const auto& schedule = classes_[c].schedule;
    const size_t begin = state.next;
    for (; state.next < schedule.steps.size(); ++state.next) {
      const Step& step = schedule.steps[state.next];
      const auto index = static_cast<int>(state.next);
      if (step.kind == StepKind::kStart) {
        state.lanes[static_cast<size_t>(ir::lane_of(step.attributes))].under_way.push_back({index, state.now});
      } else if (step.kind == StepKind::kWait) {
        const auto& ended = state.ended[static_cast<size_t>(step.joins)];
        if (!ended) break;
        const double stands = std::max(0.0, ended->at - state.now);
        // What was hidden behind compute has slowed it down.
        const double lost = profile_.communication_load * std::max(0.0, ended->seconds - stands);
        if (stands + lost > 0) {
          state.result.exposed_seconds += stands + lost;
          state.result.timeline.push_back({index, state.now, state.now + stands + lost});
          state.now += stands + lost;
        }
      } else {
        const double seconds = compute_seconds(schedule, step, profile_);
        state.result.timeline.push_back({index, state.now, state.now + seconds});
        state.result.compute_seconds += seconds;
        state.now += seconds;
      }
    }
    return state.next != begin;
  }

  // Comes to the next collective once the one before has ended; ends those that all members have come to.
  bool advance_communication(size_t c, Lane& lane) {
    State& state = states_[c];
    bool moved = false;
    while (!lane.under_way.empty()) {
      Started& head = lane.under_way.front();
      if (head.meeting == nullptr) {
        head.meeting = &arrive(c, head, lane.free_at);
        moved = true;
      }
      if (!head.meeting->is_complete()) break;
      const double end = head.meeting->begin + head.meeting->seconds;
      state.ended[static_cast<size_t>(head.step)] = {end, head.meeting->seconds};
      lane.free_at = end;
      state.result.communication_seconds += head.meeting->seconds;
      state.result.timeline.push_back({head.step, head.meeting->begin, end});
      state.result.groups[step_of(c, head.step).attributes.get_string("group")].seconds += head.meeting->seconds;
      lane.under_way.pop_front();
      moved = true;
    }
    return moved;
  }

  Meeting& arrive(size_t c, const Started& started, double lane_free_at) {
    State& state = states_[c];
    const Step& step = step_of(c, started.step);
    const GroupView& group = group_of(c, step);
    const auto received = received_by(classes_[c].schedule, step, group.members);
    const auto [it, is_new] = meetings_.try_emplace({step.attributes.get_int("order"), group.pattern});
    Meeting& meeting = it->second;
    if (is_new) meeting.expected = group.classes;
    ++meeting.num_arrived;
    meeting.begin = std::max({meeting.begin, started.at, lane_free_at});
    meeting.seconds = std::max(meeting.seconds, group.members.seconds_of(received));
    auto& traffic = state.result.groups[step.attributes.get_string("group")];
    traffic.group_size = static_cast<int>(group.members.size());
    ++traffic.num_collectives;
    traffic.received_bytes += received.from_host + received.from_other;
    state.result.received_bytes += received.from_host + received.from_other;
    return meeting;
  }

  const GroupView& group_of(size_t c, const Step& step) {
    auto& known = states_[c].groups;
    const Ints& ranks = step.attributes.get_ints("ranks");
    if (const auto it = known.find(ranks); it != known.end()) return it->second;
    GroupView view{members_of(step, classes_[c].ranks[0], profile_), {}, 0};
    std::map<int, std::vector<int>> by_host;
    for (const int rank : view.members.ranks()) {
      const auto it = class_of_.find(rank);
      if (it == class_of_.end()) {
        throw InvalidArgument("rank {} of group \"{}\" is in no class", rank, step.attributes.get_string("group"));
      }
      by_host[profile_.host_of(rank)].push_back(it->second);
      view.classes.push_back(it->second);
    }
    std::vector<std::vector<int>> hosts;
    for (auto& [host, classes] : by_host) {
      std::sort(classes.begin(), classes.end());
      hosts.push_back(std::move(classes));
    }
    std::sort(hosts.begin(), hosts.end());
    view.pattern = patterns_.emplace(std::move(hosts), static_cast<int>(patterns_.size())).first->second;
    std::sort(view.classes.begin(), view.classes.end());
    view.classes.erase(std::unique(view.classes.begin(), view.classes.end()), view.classes.end());
    return known.emplace(ranks, std::move(view)).first->second;
  }

  void check_done(size_t c) const {
    const State& state = states_[c];
    for (const Lane& lane : state.lanes) {
      if (lane.under_way.empty()) continue;
      const Step& step = step_of(c, lane.under_way.front().step);
      throw InvalidArgument("rank {} waits for ever in {} #{} of group \"{}\": the schedules do not communicate alike",
                            classes_[c].ranks[0], step.op, step.attributes.get_int("order"),
                            step.attributes.get_string("group"));
    }
  }

  std::span<const RankClass> classes_;
  const MachineProfile& profile_;
  const Deadline& deadline_;
  std::vector<State> states_;
  std::map<int, int> class_of_;
  std::map<std::vector<std::vector<int>>, int> patterns_;
  std::map<std::pair<int64_t, int>, Meeting> meetings_;  // by order and pattern
};

}  // namespace

Simulation simulate(std::span<const RankClass> classes, const MachineProfile& profile, const Deadline& deadline) {
  return Simulator(classes, profile, deadline).run();
}

Simulation simulate_with_data(std::span<const RankClass> classes, const MachineProfile& profile,
                              const Deadline& deadline) {
  Simulation simulation = simulate(classes, profile, deadline);
  if (profile.host_link.bytes_per_second <= 0) return simulation;
  for (size_t c = 0; c < classes.size(); ++c) {
    double seconds = 0;
    for (const auto& [name, value] : classes[c].schedule.inputs) {
      seconds += profile.host_link.latency_seconds +
                 static_cast<double>(bytes_of(classes[c].schedule, value)) / profile.host_link.bytes_per_second;
    }
    ClassSimulation& ranks = simulation.classes[c];
    ranks.exposed_seconds += std::max(0.0, seconds - ranks.step_seconds());
    simulation.step_seconds = std::max(simulation.step_seconds, ranks.step_seconds());
  }
  return simulation;
}

}  // namespace tessera::compiler
