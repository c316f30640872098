// Text files that a user names. They are read whole, so their size is looked at first: a wrong name must not take the
// machine's memory.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/files/file_system.h"

namespace tessera {

// What a text is, as messages say it, how large it may be, and what to do with a larger one.
struct TextKind {
  const char* name;
  int64_t max_bytes;
  const char* remedy;
};

// JSON and other settings that people and Tessera write: profiles, budgets, plans, graphs.
inline constexpr int64_t kMaxSettingsBytes = int64_t{256} << 20;

// Throws InvalidArgument naming the file, its size and the limit before anything is read, IoError when the file cannot
// be read.
std::string read_text_file(FileSystem& files, const std::string& path, const TextKind& kind);

// Settings: "machine profile", "plan".
std::string read_settings(FileSystem& files, const std::string& path, const char* name);

}  // namespace tessera
