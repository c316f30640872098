// Removal of checkpoints: an order in which a crash at any instant leaves either the whole checkpoint or what is known
// to be the rest of a removal, which the next writer of the directory ends. Internal to this folder.
//   1. NAME.ckpt -> NAME.ckpt.removing: from here on it is no checkpoint      (rename, fsync of the directory)
//   2. NAME.ckpt.rank_R, NAME.ckpt.manifest and whatever else is NAME's go    (remove, fsync of the directory)
//   3. NAME.ckpt.removing goes
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/base/file_system.h"

namespace tessera::checkpoint {

// The names of files by those of the checkpoints, PREFIX-EPOCH_STEP.ckpt; this one first where it is there.
using FilesOfCheckpoints = std::map<std::string, std::vector<std::string>>;
FilesOfCheckpoints files_of_checkpoints(FileSystem& files, const std::string& directory);

// Removes whole checkpoints with all their files.
void remove_checkpoints(FileSystem& files, const std::string& directory, const FilesOfCheckpoints& checkpoints);

// Ends the removals that were begun and takes them out of `checkpoints`. Where the name is in use again, that
// checkpoint stays.
void finish_removals(FileSystem& files, const std::string& directory, FilesOfCheckpoints& checkpoints);

// Removes what is left of checkpoints that have no NAME.ckpt, manifests last: they say whose it is.
void remove_leftovers(FileSystem& files, const std::string& directory, const FilesOfCheckpoints& checkpoints);

}  // namespace tessera::checkpoint
