// The group file: which ranks form each communication group, and which ranks hold the same parameter slices as the rank
// that wrote the file: any one of their checkpoints may stand in for a lost one. The reference's Protocol Buffers form,
// byte-compatible with its release 2.10; docs/checkpoint_format.md gives every byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint {

struct GroupRanks {
  std::string name;
  std::vector<int64_t> ranks;  // in the group's order
  bool operator==(const GroupRanks&) const = default;
};

struct GroupFile {
  std::vector<GroupRanks> groups;
  std::vector<int64_t> restore_ranks;  // hold the same slices as the writer, which is one of them
  bool operator==(const GroupFile&) const = default;
};

// The file's bytes; groups in the order given. Throws InvalidArgument, naming the group, for a name that is empty, not
// UTF-8 or occurs twice, and for a rank that is negative, above 2^31 - 1 or twice in a list.
std::string group_file_to_protobuf(const GroupFile& groups);

// Throws InvalidArgument naming `path` and the byte for what is not a whole group file: empty, truncated, malformed, or
// what group_file_to_protobuf refuses. A file without a list of restore ranks is fine: the list is empty.
GroupFile parse_group_file(std::string_view bytes, const std::string& path);

// Reads and parses the file. Throws IoError when it cannot be read.
GroupFile read_group_file(FileSystem& files, const std::string& path);
// Replaces the file atomically, readable and writable by its owner only; makes the directories above it.
void write_group_file(FileSystem& files, const std::string& path, const GroupFile& groups);

// The ranks whose checkpoints may replace that of the rank that wrote the group file at `path`, as the file has them.
// With data parallel 2 and model parallel 4, rank 0's file gives {0, 4}. {} where the file has no such list.
std::vector<int64_t> restore_group_info_list(FileSystem& files, const std::string& path);

}  // namespace tessera::checkpoint
