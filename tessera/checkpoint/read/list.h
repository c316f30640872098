// Which checkpoints are in a directory, for people and for programs: `tessera ckpt ls` and `tessera ckpt verify`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/checkpoint/read/load.h"

namespace tessera::checkpoint {

struct ListedFile {
  std::string path;
  int64_t size_bytes = 0;    // of all files of the checkpoint that are there
  int64_t num_files = 0;     // more than one where ranks saved into one directory
  bool is_strategy = false;  // a strategy file, which has the same suffix
  int64_t num_values = 0;
  int64_t num_elements = 0;
  bool holds_parts = false;            // whether its tensors are split over several files
  std::optional<CheckpointInfo> info;  // what the manifest says
  std::string problem;                 // "" unless it is neither of both
};

// `path` itself, or the .ckpt files in it and in its folders rank_N, ranks in their order. Where a checkpoint has
// several files, the file of any rank stands for all of them. One whose .ckpt file has gone is listed as one with a
// problem: its manifest names it. Looks at headers and manifests, not at values. Throws InvalidArgument when there is
// nothing of that name.
std::vector<ListedFile> list_checkpoints(FileSystem& files, const std::string& path);
std::string list_table(const std::vector<ListedFile>& list);
std::string list_json(const std::vector<ListedFile>& list);

// "A", or "A to C (3 files)": the files of one checkpoint in a few words.
std::string files_text(const std::vector<std::string>& paths);

struct VerifiedFile {
  std::string path;
  Verified state = Verified::kNo;
  std::string problem;         // "" unless state is kNo
  bool is_unreadable = false;  // a disk or a permission keeps a file from us: nothing shows whether it is damaged
};

// Reads every byte of these checkpoints; strategy files are left out.
std::vector<VerifiedFile> verify_checkpoints(FileSystem& files, const std::string& path);
std::string verify_table(const std::vector<VerifiedFile>& list);
std::string verify_json(const std::vector<VerifiedFile>& list);

// Why there was no checkpoint to verify at `path`: what it is, and what was expected.
std::string nothing_to_verify(FileSystem& files, const std::string& path);

}  // namespace tessera::checkpoint
