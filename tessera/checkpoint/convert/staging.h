// Staging: a directory of checkpoints that appears only when it is complete, and whose making can be interrupted and
// taken up again. Files are made in DIRECTORY.partial, which takes the directory's name at the end. A file .conversion
// then says what they were made from. Internal to this folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

class Staging {
 public:
  // `fingerprint` says what is made from what: a partial directory of another one is thrown away. `names` are the
  // checkpoint files that will be there, relative to the directory. Throws InvalidArgument when the directory has other
  // files, or when its partial one is not ours.
  Staging(FileSystem& files, const std::string& directory, const std::string& fingerprint,
          std::vector<std::string> names);

  // Whether the directory is what a staging of that fingerprint published, whatever was done to its files since.
  static bool was_published(FileSystem& files, const std::string& directory, const std::string& fingerprint);

  // Begins a file of that name.
  std::unique_ptr<WritableFile> create(const std::string& name);
  // Makes a file that was written and synced complete: its manifest is put beside it, durably.
  void complete(const std::string& name, const Manifest& manifest);
  // Whether that has been done, by an earlier attempt perhaps.
  bool is_complete(const std::string& name) const;
  // The manifest of a complete file.
  Manifest manifest(const std::string& name) const;
  // Puts everything in place: at once where the directory was missing or empty, else file by file.
  void publish();
  // Removes what was made.
  void discard();

 private:
  bool was_just_begun() const;
  std::string path(const std::string& name) const { return join_path(partial_, name); }
  void refuse_other_files() const;
  void replace(const std::string& name) const;

  FileSystem& files_;
  std::string directory_;
  std::string partial_;
  std::vector<std::string> names_;
};

// The path without "." and trailing slashes.
std::string plain_path(const std::string& path);

}  // namespace tessera::checkpoint
