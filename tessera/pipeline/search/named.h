// The schedules that have a name, as rules for the list scheduler. None has code of its own: a name is a row of limits
// on what is in flight and an order of preference.
//
//   gpipe      all forwards of a stage before its first backward. Huang et al., "GPipe", NeurIPS 2019
//   1f1b       on stage s of p at most p - s micro-batches between forward and backward; backward first. Narayanan et
//   al.,
//              "PipeDream", SOSP 2019; with one version of the weights
//   interleaved_1f1b   the network passes the stages several times; micro-batches go in groups of p. Narayanan et al.,
//              "Efficient large-scale language model training on GPU clusters", SC 2021
//   zb_h1      1f1b whose weight gradients fill what would be idle; no stage keeps more than the first one does in
//   1f1b.
//              Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, as are the next two
//   zb_h2      with so many micro-batches in flight, up to 2p - 1, that no stage is idle between its first phase and
//   its last zb_v       the network goes over the stages there and back, with the memory of 1f1b
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/pipeline/search/list_schedule.h"

namespace tessera::pipeline {

// Lists them in the order above.
std::vector<std::string> schedule_names();

// Throws InvalidArgument, with the nearest name, where it is neither one of these nor "auto".
void require_schedule_name(std::string_view name);

// Why the named schedule is none for this problem: its placement, its number of micro-batches, a backward that is not
// split; "" where it is one. Memory is looked at by named_schedule. Throws InvalidArgument for a name that is unknown.
std::string misfit(const PipelineProblem& problem, std::string_view name);

// The named schedule's rules. The problem must be valid and fit.
SchedulingRules named_rules(const PipelineProblem& problem, const SeriesTable& table, std::string_view name);

// What comes out of them. Throws InvalidArgument for a problem that is not valid, an unknown name, a misfit, or where
// the rules admit no schedule within the memory limits.
PipelineSchedule named_schedule(const PipelineProblem& problem, std::string_view name);

// Keys by kind first, in the order given, then by micro-batch, then along the way of a micro-batch.
std::vector<int64_t> keys_by_kind(const SeriesTable& table, const std::vector<PhaseKind>& kinds);

// Micro-batches in flight as a reserve: a visit to a stage takes one of its limit, until its backward has ended or
// (`until_weight_gradient`) its weight gradient.
Reserve in_flight(const PipelineProblem& problem, std::vector<int64_t> limits, bool until_weight_gradient);

}  // namespace tessera::pipeline
