// Removal of checkpoints: an order in which a crash at any instant leaves either the whole checkpoint or what is known
// to be the rest of a removal, which the next writer of the directory ends. Internal to this folder.
//   1. NAME.ckpt -> NAME.ckpt.removing: from here on it is no checkpoint      (rename, fsync of the directory)
//   2. NAME.ckpt.rank_R, NAME.ckpt.manifest and whatever else is NAME's go    (remove, fsync of the directory)
//   3. NAME.ckpt.removing goes
// Where a file of one checkpoint cannot be removed, the others go all the same; then IoError is thrown.
#pragma once

#include <exception>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/function_ref.h"

namespace tessera::checkpoint {

// Goes on where one of several things fails, so that a file that cannot be removed keeps no others; its error comes at
// the end.
class Attempts {
 public:
  // Calls f. Returns false where it throws IoError.
  bool operator()(FunctionRef<void()> f) {
    try {
      f();
      return true;
    } catch (const IoError&) {
      if (!first_error_) first_error_ = std::current_exception();
      return false;
    }
  }
  // Throws the first error.
  void finish() const {
    if (first_error_) std::rethrow_exception(first_error_);
  }

 private:
  std::exception_ptr first_error_;
};

// The names of files by those of the checkpoints, PREFIX-EPOCH_STEP.ckpt; this one first where it is there.
using FilesOfCheckpoints = std::map<std::string, std::vector<std::string>>;
FilesOfCheckpoints files_of_checkpoints(FileSystem& files, const std::string& directory);

// Removes whole checkpoints with all their files.
void remove_checkpoints(FileSystem& files, const std::string& directory, const FilesOfCheckpoints& checkpoints);

// Ends the removals that were begun and takes them out of `checkpoints`. Where the name is in use again, that
// checkpoint stays.
void finish_removals(FileSystem& files, const std::string& directory, FilesOfCheckpoints& checkpoints);

// Whether another thread or process saves under that name now. `names` are those of its files.
bool is_being_saved(FileSystem& files, const std::string& directory, const std::string& checkpoint,
                    const std::vector<std::string>& names);

// Removes what is left of checkpoints that have no NAME.ckpt, manifests last: they say whose it is.
void remove_leftovers(FileSystem& files, const std::string& directory, FilesOfCheckpoints checkpoints);

}  // namespace tessera::checkpoint
