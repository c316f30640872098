// MappedGuard: while it lives, a mapped file that somebody cuts short does not end this process. The system answers a
// look at a page beyond a file's new end with SIGBUS; a guarded page reads as zeros instead, and require_whole()
// throws.
//     const MappedGuard guard(file->bytes(), path);
//     const auto crc = crc32c(file->bytes());
//     guard.require_whole();  // before anything that was read is believed
//
// Guards of any number, in any threads; bytes that are not mapped may be guarded, too. The first guard installs a
// handler of SIGBUS, which passes on what concerns no guard to the one that was there before.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tessera/base/error.h"

namespace tessera {

class MappedGuard {
 public:
  // The mapping must outlive the guard. `path` is for the message.
  MappedGuard(std::span<const std::byte> bytes, std::string path);
  ~MappedGuard();
  MappedGuard(const MappedGuard&) = delete;
  MappedGuard& operator=(const MappedGuard&) = delete;

  // Throws IoError when bytes were looked at that the file no longer has, or that the disk could not give.
  void require_whole() const;

  struct Slot;  // what the handler knows of a guard

 private:
  Slot* slot_;
  std::string path_;
};

// What `parse` makes of a mapped file. Throws IoError where the file became shorter meanwhile, whatever `parse` thinks
// of the zeros that it saw.
template <typename Parse>
auto parse_guarded(std::span<const std::byte> bytes, const std::string& path, const Parse& parse) {
  const MappedGuard guard(bytes, path);
  try {
    auto parsed = parse(bytes);
    guard.require_whole();
    return parsed;
  } catch (const InvalidArgument&) {
    guard.require_whole();
    throw;
  }
}

}  // namespace tessera
