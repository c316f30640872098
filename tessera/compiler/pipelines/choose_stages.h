// How a training step becomes a pipeline without anybody saying where it is cut: the stages, the ranks of each, the
// split within each, the number of micro-batches and the schedule. What is taken is what simulates fastest within the
// memory of a rank; where the cuts lie is proven to be best by predicted times (choose_cuts.h), and the schedule has a
// proven bound.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/compiler/choose_plan.h"
#include "tessera/compiler/cuts/cut_places.h"
#include "tessera/compiler/cuts/simulate_stages.h"
#include "tessera/compiler/pipelines/deal_ranks.h"

namespace tessera::compiler {

// A training step of so many micro-batches, as it was traced.
struct StepGraphs {
  ir::Graph micro;      // of one micro-batch: gradients are added to accumulators
  ir::Graph update;     // from accumulators to the optimizer
  StageOptions stages;  // accumulators and common states
};

struct StageSearchOptions {
  int num_stages = 0;     // that a search looks at, however the ranks are dealt to them; 0: at any number
  int micro_batches = 0;  // 0: for a number of stages that is given four times as many, if the batch can be cut so
  std::string schedule = "auto";
  int segments = 0;  // how often the network goes over the stages; 0: as the schedule has it
  int receive_ahead = 1;
  int64_t memory_limit_bytes = 0;  // of a rank; 0: none
  // Whether the split within a stage is searched, too; else it is data parallel, with the strategies that there are.
  bool searches_inside = true;
  // Within a stage, whatever memory that takes; `memory_limit_bytes`, `hints` and the timeout are not looked at.
  SearchOptions search = {};
  // Binds all that is made: when it is over, nothing is begun any more, and what was begun ends by itself: tracing one
  // graph, planning a step on one number of ranks, finding one schedule.
  Deadline deadline = {};
  // As in StageSimulationOptions: with the kernels and options of a session, memory is that of its training, byte for
  // byte.
  const ops::KernelCatalogue* kernels = nullptr;
  CompileOptions compile = {};
};

// A StageSplit says how a stage's ranks share its work.
struct StageSplit {
  std::string name;  // "data parallel", "data parallel, optimizer shards", "searched on [x=2, y=2]"
  std::shared_ptr<const PlanRecord> record = nullptr;  // null for data parallel
  bool shards_parameters = false;  // replicas share the rows of parameters, with their states and updates
};

// By number of ranks, for each that a stage has.
using StageSplits = std::map<int, StageSplit>;
// "data parallel"; where they differ "searched on [x=3] with 3 ranks, data parallel with 2". One rank alone splits
// nothing, which is said only where no stage does.
std::string name_of(const StageSplits& splits);

// The stage and segment of each chunk of a network that goes over the stages `segments` times, from 0 up each time; for
// the schedule zb_v there and back. 0 segments: as many as the schedule has, 2 for interleaved_1f1b and zb_v, else 1.
// Throws InvalidArgument for other segments than the schedule can have.
std::vector<CellStage> chunks_of(int num_stages, int segments, const std::string& schedule);

// PlannedStages is a step in a pipeline.
struct PlannedStages {
  int num_stages = 1;
  mesh::StageRanks ranks;
  int micro_batches = 1;
  std::vector<CellStage> chunks;  // where each is
  StageSplits inside;
  CutPlaces places;
  StageCuts cuts;
  CellStages cells;
  SimulatedStages simulated;

  double step_seconds() const { return simulated.step_seconds(); }
  int num_chunks() const { return static_cast<int>(chunks.size()); }
  int num_segments() const { return num_chunks() / num_stages; }
  // The pieces of a chunk.
  int begin_of(int chunk) const { return chunk == 0 ? 0 : cuts.ends[static_cast<size_t>(chunk - 1)]; }
  int end_of(int chunk) const { return cuts.ends[static_cast<size_t>(chunk)]; }
};

// Numbers of stages that share so many ranks evenly, from 2 on, ascending.
std::vector<int> stage_counts(int num_ranks);
// At most so many times as many micro-batches as stages are tried.
inline constexpr int kMostTimes = 8;
// Numbers of micro-batches that are tried for so many stages: as many, twice, four and eight times as many, as far as
// the batch can be cut so.
std::vector<int> micro_batch_counts(int64_t rows, int num_stages);
// The one that is taken where nothing is said. Throws InvalidArgument where the batch cannot be cut so far.
int usual_micro_batches(int64_t rows, int num_stages);

// "2 stages, 4 micro-batches", "2 stages of 3 + 1 ranks, 4 micro-batches".
std::string name_of(const mesh::StageRanks& ranks, int micro_batches);

// How close a pipeline's ranks and cuts are to the best ways to deal and cut, by the longest chunk or message, a share
// of the sums of gradients included.
struct DealBound {
  double longest_seconds = 0;  // of the pipeline
  DealtRanks shortest;
  // 0 where no way is shorter, but for rounding.
  double gap() const;
};

// A StagePlanner finds pipelines for one network's step. Not thread-safe: it remembers what it has made.
class StagePlanner {
 public:
  // `whole`: a step of the whole batch of so many rows, simplified. `graphs_of` is asked once for each number of
  // micro-batches. All must outlive the planner.
  StagePlanner(const ir::Graph& whole, int64_t rows, std::function<StepGraphs(int micro_batches)> graphs_of,
               int num_ranks, const MachineProfile& profile, const StageSearchOptions& options);

  // The fastest pipeline of so many stages and micro-batches. Throws InvalidArgument where the ranks or the batch
  // cannot be dealt so, or the network cannot be cut so, and where nothing fits into the memory limit: the message then
  // has the least limit that would do, by the cuts that were simulated.
  PlannedStages plan(int num_stages, int micro_batches);
  // The same of stages that have these ranks, which are all that there are.
  PlannedStages plan(const mesh::StageRanks& ranks, int micro_batches);
  // The same with other cuts: for explanations. nullopt where it does not fit.
  std::optional<PlannedStages> plan_with(const PlannedStages& planned, const StageCuts& cuts);

  // One of the pipelines that were compared.
  struct Candidate {
    mesh::StageRanks ranks;
    int micro_batches = 1;
    // Seconds of a step, by its longest stage; where stages have different numbers of ranks with sums of gradients.
    double estimate = 0;
    std::optional<PlannedStages> planned;
    std::string fault;                    // why not
    std::optional<int64_t> needed_bytes;  // of a rank, where it does not fit: the least limit that would do
  };
  struct Search {
    // By their estimates, the shortest first; those whose stages have equally many ranks before all others.
    std::vector<Candidate> candidates;
    std::optional<size_t> fastest;      // that was simulated
    std::vector<std::string> left_out;  // because time was up
    int num_hopeless = 0;               // were not simulated: their estimates are longer than what was found
    int num_unequal = 0;                // ways to deal the ranks unequally that were estimated

    void add(Candidate candidate);
    // The candidate that needs least, and how much: "2 stages of 3 + 1 ranks, 4 micro-batches, about 3 GiB on a rank";
    // "" where none was too large.
    std::string what_needs_least() const;
    // Infinite where nothing fits.
    double fastest_seconds() const {
      return fastest ? candidates[*fastest].planned->step_seconds() : solver::kForbidden;
    }
  };
  // Compares pipelines of all numbers of stages, or of the one that is given, of micro-batches, and of ranks of each
  // stage. Of two that are equally
  // fast, one whose stages have equally many ranks is taken. Nothing is thrown where there is no pipeline.
  Search search();
  // Compares of these only the ones whose stages have different numbers of ranks, and are estimated to be faster than
  // any of equal stages, or nearly so: the few that promise most are simulated. Where `fits` is false, so that without
  // them there is no plan, they need not be faster, and those that need least memory are simulated, too.
  Search search_unequal(bool fits);

  // Numbers of micro-batches that are tried for so many stages.
  std::vector<int> micro_batches_for(int num_stages) const;
  // What the ranks are dealt by, for as many stages and micro-batches as `planned` has: data parallel in stages of
  // other numbers of ranks than it has. Of one stage there is nothing to deal.
  DealProblem deal_problem_for(const PlannedStages& planned);
  // deal_ranks() with sums of gradients, as the search does it, within the limits of such a pipeline.
  std::vector<DealtRanks> deal_ranks_for(const PlannedStages& planned, const DealProblem& problem) const;
  // shortest_deal() likewise, beside what was planned. nullopt where there is nothing to deal, or it is not known, or
  // there is no time.
  std::optional<DealBound> deal_bound(const PlannedStages& planned);

 private:
  // A step planned on the ranks of a stage, as one stage.
  struct Base {
    StageSplits inside;
    CutPlaces places;
  };
  // A way to deal the ranks, with the way within the stages by which it is estimated.
  struct Unequal {
    DealtRanks dealt;
    int micro_batches = 1;
    size_t way = 0;
    int64_t bytes = 0;  // that it needs, where it is dealt by memory
  };

  using PlacesKey = std::tuple<int, std::string, int, bool, int>;

  const StepGraphs& graphs(int micro_batches);
  // Ways to share a stage's work that nobody searches for, and all of them.
  std::vector<StageSplit> given_insides(int num_ranks) const;
  const std::vector<StageSplit>& insides(int num_ranks);
  std::vector<StageSplits> insides(const mesh::StageRanks& ranks);
  WithinStage within(const StageSplit& inside, const ir::Graph& micro, const StageOptions& stages, int num_ranks) const;
  StagedPlan stage(const StageSplits& inside, const mesh::StageRanks& ranks, int micro_batches,
                   const CellStages& cells);
  const CutPlaces& sized_places(const StageSplit& inside, int num_ranks, int micro_batches, int num_chunks,
                                const Link& link);
  CutPlaces places(const StageSplits& inside, const mesh::StageRanks& ranks, int micro_batches);
  DealProblem deal_problem(int num_stages, int micro_batches,
                           const std::function<StageSplit(int num_ranks)>& inside_of);
  std::vector<Base> bases(const mesh::StageRanks& ranks, int micro_batches);
  PlannedStages simulate(const Base& base, const mesh::StageRanks& ranks, int micro_batches, const StageCuts& cuts);
  PlannedStages fitted(const Base& base, const mesh::StageRanks& ranks, int micro_batches);
  // The fastest cuts within the limit, by what pieces say; where these say that none fits, those that need least, for
  // they err. Throws DoesNotFit where so much is missing that they cannot err so far.
  StageCuts estimated_cuts(const CutProblem& problem, CutLimits within) const;
  // Of stages that share the ranks evenly.
  mesh::StageRanks equal_ranks(int num_stages) const;
  CutLimits limits(int num_stages, int micro_batches) const;
  std::vector<CellStage> chunks(int num_stages) const {
    return chunks_of(num_stages, options_.segments, options_.schedule);
  }
  std::vector<int> stages_of_chunks(int num_stages) const;
  void require_shares(const mesh::StageRanks& ranks, int micro_batches) const;

  // Of the search.
  Search search_equal();
  // Calls f(deal problem, stages, micro-batches, way) for each number of stages and micro-batches, and each way within
  // a stage that nobody searches for.
  void for_each_deal(Search& result, const std::function<void(const DealProblem&, int, int, size_t)>& f);
  std::vector<Unequal> estimate_unequal(Search& result, bool fits);
  std::vector<Unequal> least_unequal(Search& result);
  void search_inside(Search& result);
  // Adds it with its plan, or with what speaks against it.
  void simulate_candidate(Search& result, Candidate candidate, const Base& base);

  const ir::Graph& whole_;
  int64_t rows_;
  std::function<StepGraphs(int)> graphs_of_;
  int num_ranks_;
  const MachineProfile& profile_;
  const StageSearchOptions& options_;
  std::map<int, StepGraphs> graphs_;
  std::map<int, std::vector<StageSplit>> insides_;
  // By number of ranks, way within the stage, micro-batches, whether a link between hosts is crossed, and chunks, 0
  // where no cell is cut.
  std::map<PlacesKey, CutPlaces> places_;
};

}  // namespace tessera::compiler
