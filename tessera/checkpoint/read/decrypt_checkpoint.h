// An encrypted checkpoint as plain files, for whatever reads checkpoints.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/format/encryption.h"

namespace tessera::checkpoint {

// The files of the checkpoint NAME.ckpt in memory, decrypted, under the paths that they have; where it has a manifest,
// it is verified, and one that describes the plain files stands beside them. Takes twice their size for a moment.
// Throws InvalidArgument naming the file when the key is another one, or what is there is damaged or not encrypted.
std::unique_ptr<FileSystem> decrypt_checkpoint(FileSystem& files, const std::string& path,
                                               const Encryption& encryption);

}  // namespace tessera::checkpoint
