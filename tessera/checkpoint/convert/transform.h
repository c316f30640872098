// Checkpoints are converted from the M ranks of one strategy to the N ranks of another: any two numbers, any dims,
// optimizer shards, pipeline stages, parts of unequal size. What is moved are the intersections of the slices that are
// there with those that are wanted: no tensor is ever whole in memory, which stays at a few MiB whatever the size of
// the model. docs/checkpoints.md shows how it is used.
//
// A strategy file of "" means one rank that holds everything whole; where the source files' manifests say which parts
// they hold, these count. What a strategy file does not list is copied unchanged from the source rank of equal number
// within its stage, modulo their number. Where ranks saved into one directory, the manifest says where all slices lie:
// a source strategy is not needed then, and what the destination's does not list is whole on each rank.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint {

struct TransformProgress {
  int64_t files_done = 0;
  int64_t num_files = 0;
  int64_t bytes_done = 0;  // bytes of values written
  int64_t num_bytes = 0;
};

struct TransformOptions {
  // That copy values, each another tensor at a time; 0: four.
  int num_threads = 0;
  // Compare the values that are read with the checksums in the source's manifests, where there are any.
  bool verify = true;
  // Refuse sources in which ranks that hold the same slice have different values, as their manifests say. Where this is
  // off, the values of the rank that would be read anyway count.
  bool check_replicas = true;
  // Called now and then, by one thread at a time.
  std::function<void(const TransformProgress&)> progress;
};

struct TransformReport {
  std::vector<std::string> files;         // by rank
  int64_t num_bytes = 0;                  // bytes of values written; files that were kept do not count
  int64_t files_kept = 0;                 // complete ones of an earlier call that was interrupted
  std::vector<std::string> sources = {};  // the files that the values are of
};

// Converts source/rank_M/*.ckpt, of each rank the newest step that all have, to dst_directory/rank_N/PREFIXN.ckpt with
// manifests. `source` may also be a directory with the files of all ranks, or one checkpoint, with all its files.
// Everything is written to dst_directory.partial, which takes the name dst_directory when it is complete; interrupted,
// the next call goes on from what is there. The source is only read.
//
// Throws InvalidArgument when the directories are the same, dst_directory has files that this conversion does not
// write, a needed rank is missing, or strategy files, sources and their manifests contradict each other: all that
// before anything is written, but for values that do not match their checksums. IoError when a file cannot be read or
// written, or the disk has not enough space.
TransformReport transform_checkpoints(FileSystem& files, const std::string& source, const std::string& dst_directory,
                                      const std::string& prefix, const std::string& src_strategy_file = "",
                                      const std::string& dst_strategy_file = "", const TransformOptions& options = {});

// The ranks of the source whose checkpoints are needed for `rank` of the destination, ascending. Where no strategy file
// holds the parameters' shapes, all parts are taken to be equal. Throws InvalidArgument for ranks that do not exist.
std::vector<int64_t> rank_list_for_transform(FileSystem& files, int64_t rank, const std::string& src_strategy_file = "",
                                             const std::string& dst_strategy_file = "");

// Writes the checkpoint of one rank, and its manifest: the same bytes as transform_checkpoints, from the files of (at
// least) the ranks that rank_list_for_transform names. `save_path` must end in ".ckpt".
void transform_checkpoint_by_rank(FileSystem& files, int64_t rank,
                                  const std::map<int64_t, std::string>& checkpoint_files, const std::string& save_path,
                                  const std::string& src_strategy_file = "", const std::string& dst_strategy_file = "",
                                  const TransformOptions& options = {});

}  // namespace tessera::checkpoint
