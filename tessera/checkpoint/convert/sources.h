// SourceFiles: the files of one checkpoint, as conversions, comparisons and exports read them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/read/source_file.h"

namespace tessera::checkpoint {

// The files by rank; by any number where ranks saved together, see are_saved_together().
struct SourceFiles : std::map<int64_t, SourceFile> {
  std::string path = {};    // the file or directory that stands for them; "" where each was named by itself
  bool in_folders = false;  // path/rank_N/*.ckpt
};

// The checkpoint that a path stands for: of a directory see open_sources(); of a file all files that its manifest
// names. Throws InvalidArgument naming what is missing.
SourceFiles open_checkpoint(FileSystem& files, const std::string& path);

// The checkpoint files of all ranks: of each folder rank_N of `directory` the newest, by epoch and step as numbers,
// that every rank has of one save. Where there are no such folders, the newest checkpoint of `directory` itself, with
// all files that its manifest names. One that is damaged is passed over with a warning that names the reason. Throws
// InvalidArgument when there is none.
SourceFiles open_sources(FileSystem& files, const std::string& directory);

// The files of these paths, by rank; where ranks saved together, also their files that no path names.
SourceFiles open_files_of_ranks(FileSystem& files, const std::map<int64_t, std::string>& paths);

// Whether the files of several ranks lie in one directory under one manifest. It says where in which tensor the slices
// of each file lie, so that a strategy file is not needed; the number of a file here is not that of a rank.
bool are_saved_together(const SourceFiles& sources);

std::vector<std::string> paths_of(const SourceFiles& sources);

}  // namespace tessera::checkpoint
