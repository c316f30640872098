// How many ranks each stage of a pipeline has, where a search says: a stretch of a network that takes long and cannot
// be cut is given more of them than others. Data in, data out; pipelines/choose_stages.h plans and simulates what is
// found here.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tessera/compiler/cuts/choose_cuts.h"
#include "tessera/mesh/stage_ranks.h"

namespace tessera::compiler {

// What the pieces and places of one network are on stages of each number of ranks.
using SizedCutProblems = std::map<int, CutProblem>;

struct DealProblem {
  SizedCutProblems sizes;
  std::vector<int> stages;  // by chunk
  int num_ranks = 1;
};

// DealtRanks says how many ranks each stage has, and how a network is best cut into stages of so many.
struct DealtRanks {
  mesh::StageRanks ranks;
  StageCuts cuts;
  double estimate = 0;  // seconds of a step, by its longest stage
};

// Up to so many ranks a stage is tried with any number of them: 8 have 7 sizes, of which 16 would have 15.
inline constexpr int kFewRanks = 8;

// Adds to the time of each piece its sums of gradients over the ranks of a stage, which are made once a step: a share
// in each micro-batch. More ranks compute faster, and sum longer.
DealProblem with_sums(DealProblem problem, int micro_batches);

// The numbers of ranks that a stage is tried with: each, where there are few ranks; else powers of two, what divides
// the ranks, and what these leave of them. Ascending.
std::vector<int> sizes_of_stages(int num_ranks);

// By its longest chunk: all micro-batches pass through it, and the first one through all others.
double estimated_step(const CutProblem& problem, const StageCuts& cuts, const CutLimits& limits);

// The pieces of such stages: of a chunk those of its stage.
CutProblem cut_problem_for(const DealProblem& problem, const mesh::StageRanks& ranks);

// Ways to deal the ranks to the stages, each stage with a number that is among the sizes, each with the cuts that
// choose_cuts() takes for it; the one with the shortest estimate first, of equal ones that of equal stages. All ways
// there are where these are few; else the one of shortest_deal() and that of equal stages. None where no way fits into
// the limits.
std::vector<DealtRanks> deal_ranks(const DealProblem& problem, const CutLimits& limits);

// The ways that deal_ranks() goes through, each with the cuts that need least memory, whatever the limit is: the one
// that needs least first, in bytes of a rank.
struct DealtByMemory {
  DealtRanks dealt;
  int64_t bytes = 0;
};
std::vector<DealtByMemory> deal_by_memory(const DealProblem& problem, const CutLimits& limits);

// Of all ways and all cuts one whose longest chunk or message is shortest; of these one whose chunks and messages take
// least one after the other. That is proven: all are looked at, by dynamic programming over places and ranks. Where
// stages have several segments, all ways are gone through, if they are few. nullopt where no way fits into the limits,
// or it is not known.
std::optional<DealtRanks> shortest_deal(const DealProblem& problem, const CutLimits& limits);

}  // namespace tessera::compiler
