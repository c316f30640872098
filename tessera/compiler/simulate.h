// Simulation of a step without values: schedules and a machine profile to seconds, bytes and memory.
//
// A rank has the lanes that executor/ has: compute runs its steps in order, each of two for communication its
// collectives in order; a wait joins them. A step that computes takes the longer of its arithmetic and its reading and
// writing, each at full speed, and the overhead. A collective begins when the last rank of its group has come to it and
// ends for all of them at once, after the time that the busiest member takes: it receives from every peer directly,
// over the links of the profile. Where the cores that compute move the bytes, too, what a collective takes of their
// time while it is hidden behind compute is added where it is waited for. Nothing is random.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/deadline.h"
#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/compiler/rank_classes.h"

namespace tessera::compiler {

// What one rank has to do with the groups of one name.
struct GroupSimulation {
  int group_size = 0;
  int num_collectives = 0;
  int64_t received_bytes = 0;
  double seconds = 0;  // in which its collectives were running
};

// When a step ran: a collective's is its time on its communication lane, a wait's the time that compute stood still.
struct TimedStep {
  int step = 0;
  double begin_seconds = 0;
  double end_seconds = 0;
};

struct ClassSimulation {
  std::vector<int> ranks;
  double compute_seconds = 0;        // steps of the compute lane
  double exposed_seconds = 0;        // in which compute waited for communication or data, or was slowed down by them
  double communication_seconds = 0;  // what its collectives take together
  int64_t received_bytes = 0;
  int64_t persistent_bytes = 0;                   // parameters and states
  int64_t peak_memory_bytes = 0;                  // these included: the highest byte that a step touches
  std::map<std::string, GroupSimulation> groups;  // by the groups' name
  std::vector<TimedStep> timeline;                // in the order in which they begin, each lane in its order

  double step_seconds() const { return compute_seconds + exposed_seconds; }
};

struct Simulation {
  double step_seconds = 0;     // until the last rank is done
  int64_t received_bytes = 0;  // by all ranks
  std::vector<ClassSimulation> classes;
};

// The classes together are all ranks that take part: of each group, of all its members. Throws InvalidArgument for
// point-to-point steps, which no plan makes, for a group with other ranks, and for schedules that wait for one another;
// DeadlineOver where there is no time to come to the end.
Simulation simulate(std::span<const RankClass> classes, const MachineProfile& profile,
                    const Deadline& deadline = kNoDeadline);

// Simulates whole steps, whose data inputs come over the machine's host_link, where it has one, beside the step before:
// no class's step is shorter than that takes, and what it waits is exposed.
Simulation simulate_with_data(std::span<const RankClass> classes, const MachineProfile& profile,
                              const Deadline& deadline = kNoDeadline);

}  // namespace tessera::compiler
