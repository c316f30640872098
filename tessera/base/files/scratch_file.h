// Memory in a file that has no name: for what is larger than the memory there is and needs no longer life than its
// process. Nobody but this process can open such a file, and it is gone when the process is, however that ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera {

struct ScratchFile {
  std::string directory;  // where the file lies; empty: the system's directory for temporary files
  std::string what;       // for messages, "the tables of this server"
  std::string remedy;     // what to do where there is no room, "name another directory, spill_directory"
};

// The directory itself. Throws IoError where the system names none that is there.
std::string directory_of(const ScratchFile& file);

// Zeroed bytes in a new file, from a page's boundary on. All its blocks are taken from the disk at once. Throws IoError
// where the directory is not there, or its disk has less room.
std::shared_ptr<void> allocate_in_file(const ScratchFile& file, int64_t size_bytes);
// Puts such bytes in the place of those that are mapped at `address`, a page's boundary. They are there until the
// address space is given back.
void map_in_file(const ScratchFile& file, void* address, int64_t size_bytes);

// Whether files of that directory are memory (tmpfs): then they take what they were to spare.
bool is_in_memory(const std::string& directory);

}  // namespace tessera
