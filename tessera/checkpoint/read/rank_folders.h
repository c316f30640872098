// The files of one checkpoint in folders rank_0, rank_1, ... of a directory: of one name in all folders, or of names
// that end in the number of their folder, as conversions write them: rank_0/PREFIX0.ckpt, rank_1/PREFIX1.ckpt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

// Whether files with these manifests are of one save: of one step, number of ranks and job.
bool is_same_save(const CheckpointInfo& a, const CheckpointInfo& b);

// Where the checkpoints of a directory are looked for: in the lowest of its folders rank_N that hold any, or else in
// the directory itself. Where rank_0 is not that folder, what is found there may lack rank 0's part.
std::string folder_of_checkpoints(FileSystem& files, const std::string& directory);
// That folder, last, and the folders of lower ranks before it: these hold at most checkpoints that lack their
// NAME.ckpt.
std::vector<std::string> folders_of_checkpoints(FileSystem& files, const std::string& directory);

// "tr" of "tr1.ckpt" in the folder of rank 1; nullopt where the name does not end in that number, or `rank` is nullopt.
std::optional<std::string> prefix_of_rank(const std::string& file_name, std::optional<int64_t> rank);

struct OtherRanks {
  std::vector<std::string> paths;
  std::vector<std::string> missing;  // the folders that are missing, by the name that is looked for
};
// The files of the other ranks of a checkpoint, of which `path`, in a folder rank_N, holds one rank's part. `info` is
// of its manifest. Throws InvalidArgument where it lies in no such folder.
OtherRanks other_ranks(FileSystem& files, const std::string& path, const CheckpointInfo& info);

// The file of rank 0 that stands for `path`, a file of a folder rank_N that does not exist; nullopt if there is none.
std::optional<std::string> first_rank_instead_of(FileSystem& files, const std::string& path);

}  // namespace tessera::checkpoint
