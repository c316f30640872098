// ParameterPlacement: which rank holds which part of which parameter, as a strategy file says. Pure arithmetic on
// names, counts and shapes; no checkpoint is read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/format/region.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/mesh/stage_ranks.h"

namespace tessera::checkpoint {

// How one tensor is cut over the ranks of a stage. Each dim is cut by any number of cuts, outer first, the parts of one
// by the next; parts are balanced, larger first, and may be empty. Optimizer shards are one more cut of dim 0.
class Slicing {
 public:
  // Every rank of `num_ranks` holds all.
  static Slicing whole(int ndim, int64_t num_ranks);
  // Throws InvalidArgument, naming `where` and the parameter, for a split by hand, and for optimizer shards of which
  // some are on no rank.
  Slicing(const ParameterLayout& layout, const std::string& where);

  int ndim() const { return static_cast<int>(cuts_.size()); }
  // The ranks of the stage; a rank's position counts from 0 there.
  int64_t num_ranks() const { return num_ranks_; }
  bool is_whole() const;
  // Whether the same ranks hold the same parts by both; one that says less, no dims, is whole.
  bool cuts_like(const Slicing& other) const;
  int64_t num_parts(int dim) const;
  // Which part of a dim the rank at `position` holds.
  int64_t part(int dim, int64_t position) const;
  // What it holds of a tensor of this global shape, of ndim() dims.
  Region region(const Shape& global, int64_t position) const;
  // What a position means beside the parts that it holds: ranks of equal replica together hold everything once.
  int64_t replica(int64_t position) const;
  // Which of the slices it holds, counted row-major over the parts of all dims.
  int64_t slice_index(int64_t position) const;
  // The global shape of a tensor of which ranks hold these, by position; nullopt for a rank that is not known, no
  // elements for one that holds none. A dim is the sum of its parts; where not all are known it is taken for so many
  // equal ones, and the result is no certain one. Where no rank has elements, their shapes are taken as they are;
  // nullopt when no rank is known. Whether each rank's shape fits the result remains to be checked.
  struct Inferred {
    Shape shape;
    bool is_certain = true;
  };
  std::optional<Inferred> global_shape(std::span<const std::optional<Shape>> held) const;

 private:
  // The rank at position p holds part p / stride % parts.
  struct Cut {
    int64_t parts;
    int64_t stride;
    int64_t part(int64_t position) const { return position / stride % parts; }
    bool operator==(const Cut&) const = default;
  };
  Slicing() = default;
  bool every_part_is_held() const;

  std::vector<std::vector<Cut>> cuts_;  // by dim
  int64_t num_ranks_ = 1;
};

// One side of a conversion: the parameters of all pipeline stages and how each is cut. Ranks are numbered stage by
// stage.
class ParameterPlacement {
 public:
  // One rank, which holds everything whole.
  ParameterPlacement() = default;
  // Names of the form STAGE-NAME are those of several stages, merged. Throws InvalidArgument naming `path` when there
  // are no layouts, when stages are missing, when layouts of one stage have different numbers of devices, when the file
  // is that of a later stage alone, when a parameter has other dims or another shape in one stage than in another.
  ParameterPlacement(const StrategyFile& strategy, const std::string& path);
  // The placement that a file describes; the default one for "".
  static ParameterPlacement read(FileSystem& files, const std::string& path);

  // Says how parameters are split; false of the default placement.
  bool has_layouts() const { return !layouts_.empty(); }
  const std::string& path() const { return path_; }
  int64_t num_stages() const { return ranks_.num_stages(); }
  int64_t num_ranks() const { return ranks_.num_ranks(); }
  int64_t num_ranks_of(int64_t stage) const { return ranks_.count(static_cast<int>(stage)); }
  int64_t first_rank_of(int64_t stage) const { return ranks_.first(static_cast<int>(stage)); }
  // These throw InvalidArgument when there is no such rank. The position is the one within its stage.
  int64_t stage_of(int64_t rank) const;
  int64_t position_of(int64_t rank) const { return rank - first_rank_of(stage_of(rank)); }

  // How a parameter lies in one stage.
  struct InStage {
    ParameterLayout layout;  // its name is without the stage
    Slicing slicing;
  };
  // Each stage that has a parameter may cut it in a way of its own.
  struct Parameter {
    std::map<int64_t, InStage> stages;  // never empty
    bool is_in(int64_t stage) const { return stages.contains(stage); }
    const InStage& in(int64_t stage) const { return stages.at(stage); }
    // Says whether it is whole in all of its stages.
    bool is_whole() const;
    // Whether all stages cut it in the same way.
    bool is_cut_alike() const;
    int ndim() const;
    // The global shape, where a stage's layout says it; else {}.
    std::vector<int64_t> shape() const;
  };
  // The parameters by name.
  const std::map<std::string, Parameter>& parameters() const { return layouts_; }
  // nullptr when the file does not list it.
  const Parameter* find(const std::string& name) const;

 private:
  std::string path_;
  std::map<std::string, Parameter> layouts_;
  mesh::StageRanks ranks_;
};

}  // namespace tessera::checkpoint
