// SourceFiles: the files of one checkpoint, as conversions, comparisons and exports read them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tessera/base/file_system.h"
#include "tessera/checkpoint/source_file.h"

namespace tessera::checkpoint {

// By rank.
using SourceFiles = std::map<int64_t, SourceFile>;

// The checkpoint files of all ranks: of each folder rank_N of `directory` the newest, by epoch and step as numbers,
// that every rank has of one save. Where there are no such folders, the newest checkpoint of `directory` itself is rank
// 0's. One that is damaged is passed over with a warning that names the reason. Throws InvalidArgument when there is
// none.
SourceFiles open_sources(FileSystem& files, const std::string& directory);

}  // namespace tessera::checkpoint
