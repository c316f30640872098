// The commit of a checkpoint with its manifest: docs/checkpoint_format.md, "How a checkpoint is committed". Internal to
// checkpoint/.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/files/file_system.h"
#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/format/encryption.h"
#include "tessera/checkpoint/lock/waiting_lock.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

// The permission bits of what is written: the umask's; what is encrypted, and its manifest, is for its owner alone.
inline constexpr unsigned kUmaskAccess = 0666;
inline constexpr unsigned kOwnerAccess = 0600;
unsigned access_of(const Encryption& encryption);

// `write` writes the file's bytes and returns the manifest that describes them. Makes the directory. When commit
// returns, `path` and its manifest survive a power failure; when it throws, they are what they were before and the
// temporary files are removed. `mode` are the permission bits of the file. Of several that commit to one path each has
// its turn, and the last one's file and manifest stay.
void commit(FileSystem& files, const std::string& path, unsigned mode, FunctionRef<Manifest(WritableFile&)> write);

// `write` as above, into `file` by way of encryption where that is on; then the manifest describes the encrypted file.
Manifest write_encrypted(WritableFile& file, const Encryption& encryption, FunctionRef<Manifest(WritableFile&)> write);

// Its steps, for ranks that do them together. First the directory is made, and what an earlier save of that name left
// is put in place or removed. The others are done while the lock that this returns is held.
[[nodiscard]] std::unique_ptr<WaitingLock> prepare_commit(FileSystem& files, const std::string& path);
// "d/CKP-1_4.ckpt.saving": who holds it writes the files of that name.
std::string saving_lock_path(const std::string& path);
// "d/CKP-1_4.ckpt.tmp": where the data wait for their commit.
std::string temporary_path(const std::string& path);
// Writes a file of data and syncs it; returns what `write` returned.
Manifest write_durably(FileSystem& files, const std::string& path, unsigned mode,
                       FunctionRef<Manifest(WritableFile&)> write);
// The manifest waits, durable, beside the data.
void stage_manifest(FileSystem& files, const std::string& path, const Manifest& manifest);
// The data take their name: the commit.
void publish(FileSystem& files, const std::string& path);
// The manifest takes its name.
void finish_commit(FileSystem& files, const std::string& path);
// Gives up a commit of which nothing is published yet: removes the temporary files. Does not throw: what made the save
// fail is the error that counts.
void abandon_commit(FileSystem& files, const std::string& path);
void remove_if_there(FileSystem& files, const std::string& path);

}  // namespace tessera::checkpoint
