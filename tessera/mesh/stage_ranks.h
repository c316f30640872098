// StageRanks: which ranks of a job the stages of a pipeline have. Stage 0 has the first ones, stage 1 those after them,
// and so on; stages may have different numbers of ranks.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace tessera::mesh {

class StageRanks {
 public:
  // One stage of one rank.
  StageRanks() : StageRanks({1}) {}
  // `counts` says how many each stage has. Throws InvalidArgument where there is no stage, or one without ranks.
  explicit StageRanks(const std::vector<int>& counts);
  static StageRanks equal(int num_stages, int ranks_per_stage);

  int num_stages() const { return static_cast<int>(ends_.size()); }
  int num_ranks() const { return ends_.back(); }
  int first(int stage) const { return stage == 0 ? 0 : ends_[static_cast<size_t>(stage - 1)]; }
  int count(int stage) const { return ends_[static_cast<size_t>(stage)] - first(stage); }
  std::vector<int> ranks_of(int stage) const;
  // Throws InvalidArgument when there is no such rank.
  int stage_of(int rank) const;

  // Says of each stage how many.
  std::vector<int> counts() const;
  // Each number of ranks that a stage has, once.
  std::set<int> sizes() const;
  bool are_equal() const { return sizes().size() == 1; }
  // "3 + 1"; "2 each" of equal ones.
  std::string to_string() const;
  bool operator==(const StageRanks&) const = default;

 private:
  std::vector<int> ends_;  // by stage: one past its last rank
};

}  // namespace tessera::mesh
