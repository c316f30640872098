// Conversion: from the files of one placement to those of another. For each rank of the destination it says which
// tensors its file holds, and of which regions of which source files each is made. It reads no values.
//
// A parameter that both placements list is cut anew. Where several stages of the source have it, each in a layout of
// its own, it is read from the first whose files hold all that is wanted. One that a strategy file does not list is
// copied as it is from the source rank of equal number within its stage, modulo their number: learning rates, counters.
// Without a strategy file a side has one rank that holds everything whole; where source files say by their manifests
// that they hold parts, these are the source's placement. Where ranks saved together, the manifests always are the
// source's placement, whatever strategy file was given. Then no file belongs to one rank: nothing is left out, and what
// the destination's strategy file does not list is whole on each of its ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/checkpoint/convert/sources.h"
#include "tessera/checkpoint/strategy/placement.h"

namespace tessera::checkpoint {

// A region of the global value, and the source tensor that holds it.
struct SourcePart {
  int64_t rank = 0;
  const SourceTensor* tensor = nullptr;
  Region region;  // what the tensor holds in all
};

// An OutputTensor is one tensor of a destination file.
struct OutputTensor {
  const SourceTensor* like = nullptr;  // gives name, dtype, whether it is a text or was appended
  Shape global;
  Region region;                    // what the file holds of it
  std::vector<SourcePart> sources;  // they overlap with the region, not with each other, and cover it
};

struct OutputFile {
  int64_t rank = 0;
  std::vector<OutputTensor> tensors;
  int64_t size_bytes = 0;              // the size of the values
  std::optional<CheckpointInfo> info;  // the manifest of the file that unchanged values are copied from, if it has one
};

class Conversion {
 public:
  // `sources` may lack ranks that no destination rank in question needs; all must outlive the conversion. Throws
  // InvalidArgument when there are source ranks that the source placement does not have. Logs a warning where `from`
  // has layouts and is not needed.
  Conversion(const ParameterPlacement& from, const ParameterPlacement& to, const SourceFiles& sources,
             bool check_replicas);

  // How many files the destination has.
  int64_t num_outputs() const { return to_.num_ranks(); }
  // What the file of a rank of the destination holds, in an order that keeps that of the source files. Throws
  // InvalidArgument, naming the tensor and the ranks, when files and placements contradict each other: a shape or dtype
  // that does not fit, a missing tensor or file, replicas that differ (by their manifests' checksums). The function is
  // not thread-safe.
  OutputFile output(int64_t rank);
  // Names of parameters that are split on a side whose strategy file lists them, while the other's does not: they were
  // copied unchanged.
  const std::set<std::string>& copied_slices() const { return copied_slices_; }

 private:
  // A parameter of the source as it lies in a stage.
  struct Known {
    Slicing slicing;
    Shape global;
    const SourceTensor* like;
    bool is_certain = true;  // else the global shape is taken for that of equal parts, because some are not there
  };
  using Made = std::map<std::string, OutputTensor>;

  void require_all_ranks() const;
  int64_t num_source_ranks() const;
  const SourceFile* source(int64_t rank) const;
  const SourceFile& needed_source(int64_t rank, int64_t for_rank) const;
  const std::optional<Known>& known(const std::string& name, int64_t stage);
  std::optional<Known> find_out(const std::string& name, int64_t stage) const;
  std::optional<Known> find_in(const std::string& name, int64_t stage) const;
  void require_held(const std::string& name, int64_t stage, const Known& known) const;
  void require_equal_replicas(const std::string& name, const Known& known) const;
  void require_equal_stages(const std::string& name) const;
  std::optional<uint64_t> hash_in(const std::string& name, int64_t stage, const Known& known) const;
  std::optional<Region> destination_region(const std::string& name, const Shape& global, int64_t rank) const;
  std::vector<SourcePart> parts_in(const std::string& name, int64_t stage, const Known& known, const Region& wanted,
                                   int64_t rank) const;
  bool has_all_parts(int64_t stage, const Known& known, const Region& wanted) const;
  std::optional<OutputTensor> joined_by_manifest(const std::string& name, int64_t rank) const;
  std::vector<SourcePart> tiling_parts(const std::string& name, const std::vector<SourcePart>& parts,
                                       const Region& wanted, int64_t home) const;
  [[noreturn]] void fail_to_tile(const std::string& name, const std::vector<SourcePart>& parts) const;
  void cut_anew(int64_t rank, const std::vector<int64_t>& stages, Made& made);
  void join_by_manifest(int64_t rank, Made& made) const;
  void copy_unchanged(int64_t rank, const SourceFile& from, Made& made);

  const SourceFiles& sources_;
  const bool is_saved_together_;
  const ParameterPlacement& from_;  // the default one where the strategy file is not needed
  const ParameterPlacement& to_;
  bool by_manifest_ = false;  // the source files say themselves which parts they hold
  bool check_replicas_;
  std::map<std::pair<std::string, int64_t>, std::optional<Known>> known_;
  std::set<std::string> copied_slices_;
};

}  // namespace tessera::checkpoint
