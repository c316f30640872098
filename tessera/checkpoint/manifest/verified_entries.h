// A file's values against its manifest: an intact file can still have a manifest that lies about it. Internal to this
// folder.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/format/ckpt_reader.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

// Which of the manifest's files has this name. Throws InvalidArgument when none has.
int file_index(const Manifest& manifest, const std::string& manifest_file, const std::string& name);

// A manifest speaks of files beside it and must not make us read others: throws InvalidArgument where `path` is a link
// that leads out of its directory.
void refuse_link_out(FileSystem& files, const std::string& path, const std::string& manifest_file);

// Files of other ranks beside a checkpoint show that it holds only a part, though no manifest says so: throws
// InvalidArgument where there are any.
void refuse_slices_without_manifest(FileSystem& files, const std::string& path);

// Throws InvalidArgument unless `path`, the manifest's file of that index, has the size that was written. One that has
// grown, by terabytes maybe, is not mapped: it must not take the address space. One that was cut short is looked at,
// to say which value it was cut in.
void require_written_size(FileSystem& files, const std::string& path, const Manifest& manifest, int file_index);

// Throws InvalidArgument unless the manifest describes exactly this file: its name, size, and the names, types and
// sizes of its values in their order. Contents are not read.
void require_entries(const CkptFile& file, const Manifest& manifest, const std::string& manifest_file);

// Throws InvalidArgument unless the manifest describes exactly the file's values, whatever its name and size are.
void require_values(const CkptFile& file, const Manifest& manifest, int file_index);

// A value of a file and what the manifest says of it.
struct DescribedEntry {
  size_t tensor = 0;  // index into Manifest::tensors
  size_t slice = 0;   // index into its slices
  StoredEntry entry;  // without pieces for a tensor without elements, which has no record
};
// The entries in the order of the file, which require_entries() has found to be as the manifest says.
std::vector<DescribedEntry> described_entries(const CkptFile& file, const Manifest& manifest, int file_index);

}  // namespace tessera::checkpoint
