// The names of a checkpoint's files: PREFIX-EPOCH_STEP.ckpt, which names the checkpoint, and beside it
// PREFIX-EPOCH_STEP.ckpt.rank_R for what each further rank wrote. manifest.h has those of manifests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/format/ckpt_path.h"

namespace tessera::checkpoint {

// "CKP-2_73.ckpt". Throws InvalidArgument for a prefix that is empty or contains '/'.
std::string checkpoint_name(const std::string& prefix, int64_t epoch, int64_t step_in_epoch);

struct CheckpointName {
  std::string prefix;
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
};
// Returns nullopt for a name of another form.
std::optional<CheckpointName> parse_checkpoint_name(std::string_view file_name);

// `prefix` where the directory has no checkpoint of it; else "CKP_1", or "CKP_N+1" where CKP_N is the highest, so that
// a new run does not mix with an old one. A missing directory has none.
std::string unused_prefix(FileSystem& files, const std::string& directory, const std::string& prefix);

// The N of "CKP_N" for the prefix "CKP", 0 for "CKP" itself; nullopt for another prefix.
std::optional<int64_t> successor_of(const std::string& name_prefix, const std::string& prefix);

// "d/CKP-1_4.ckpt" -> "d/CKP-1_4.ckpt.rank_3", of a later generation "d/CKP-1_4.ckpt.rank_3.2".
std::string slice_file_path(const std::string& checkpoint_path, int rank, int64_t generation = 1);
// The generation of a file name of that form; nullopt for other names. `checkpoint_name` is the name of the NAME.ckpt.
std::optional<int64_t> slice_file_generation(const std::string& file_name, const std::string& checkpoint_name);
// "d/CKP-1_4.ckpt.rank_3.2" -> "d/CKP-1_4.ckpt"; nullopt for a path of another form.
std::optional<std::string> checkpoint_of_slice_file(const std::string& path);
// The same of a file; `path` itself where there is no such checkpoint.
std::string checkpoint_of_file(FileSystem& files, const std::string& path);

// "d/CKP-1_4.ckpt" -> "d/CKP-1_4.ckpt.removing": what the file is called while its checkpoint is removed.
std::string removal_mark_path(const std::string& checkpoint_path);

// Whether a checkpoint was saved as `path` and that file, NAME.ckpt, has gone since: its manifest, which gets its name
// after NAME.ckpt and goes before the mark of a removal, is still there.
bool lacks_its_file(FileSystem& files, const std::string& path);
// "d/CKP-1_4.ckpt: is missing; d/CKP-1_4.ckpt.manifest describes it".
std::string missing_file_text(const std::string& path);
// Throws InvalidArgument with that text where it does.
void require_its_file(FileSystem& files, const std::string& path);

// The names NAME.ckpt of the checkpoints of a directory, sorted; also of those that lack this file.
std::vector<std::string> names_of_checkpoints(FileSystem& files, const std::string& directory);

}  // namespace tessera::checkpoint
