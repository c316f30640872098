// Staging: a directory of checkpoints that appears only when it is complete, and whose making can be interrupted and
// taken up again. Files are made in DIRECTORY.partial, which takes the directory's name at the end. Internal to this
// folder.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/file_system.h"

namespace tessera::checkpoint {

class Staging {
 public:
  // `fingerprint` says what is made from what: a partial directory of another one is thrown away. `names` are the
  // checkpoint files that will be there, relative to the directory. Throws InvalidArgument when the directory has other
  // files, or when its partial one is not ours.
  Staging(FileSystem& files, const std::string& directory, const std::string& fingerprint,
          std::vector<std::string> names);

  // Where to write a file of that name.
  std::string path(const std::string& name) const { return join_path(partial_, name); }
  // Whether an earlier attempt completed it.
  bool is_complete(const std::string& name) const;
  // Puts everything in place: at once where the directory was missing or empty, else file by file.
  void publish();
  // Removes what was made.
  void discard();

 private:
  bool was_just_begun() const;
  void refuse_other_files() const;
  void replace(const std::string& name) const;

  FileSystem& files_;
  std::string directory_;
  std::string partial_;
  std::vector<std::string> names_;
};

// Without "." and trailing slashes.
std::string plain_path(const std::string& path);

}  // namespace tessera::checkpoint
