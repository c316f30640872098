// A model for tests, whose parameters are split in many ways over M ranks and in other ways over N, written as
// checkpoints. What a rank must hold is cut from the global values by mesh::slice_of, not by what is tested.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/mesh/mesh.h"
#include "tessera/mesh/stage_ranks.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

// How a parameter lies on the ranks of a stage: as a strategy file says it, and as the mesh does.
struct SplitCase {
  ParameterLayout layout;
  mesh::Mesh mesh;
  mesh::Sharding sharding;
};

// The parts of a split tensor on one side: the stages that hold it, and how each does.
struct ParameterCase {
  std::string name;
  Tensor value;
  std::map<int, SplitCase> splits;  // by stage
  // What the rank at `position` of a stage holds.
  Tensor slice(int stage, int position) const;
};

struct SideCase {
  mesh::StageRanks ranks;
  std::vector<ParameterCase> parameters;
  StrategyFile strategy;  // names as in a merged file when there are several stages
  int num_ranks() const { return ranks.num_ranks(); }
  // Values of one rank's file in order, unlisted ones at the end.
  std::vector<std::pair<std::string, Tensor>> held_by(int rank) const;
};

// Every way that the cases know to split `ndim` dims over so many ranks: each dim, both, some axes only, optimizer
// shards.
std::vector<SplitCase> all_splits(int ndim, int num_ranks);

// The same parameters on both sides: sizes that divide and sizes that do not, none at all, some shared by all stages,
// each of which splits them in a way of its own.
struct TransformCase {
  SideCase from;
  SideCase to;
};
TransformCase make_case(const mesh::StageRanks& from, const mesh::StageRanks& to, std::mt19937& random);

// Writes `side` to directory/rank_R/NAMER.ckpt.
void save_side(FileSystem& files, const SideCase& side, const std::string& directory, const std::string& name);

}  // namespace tessera::checkpoint
