// KeptMemory: bytes that outlive the process that writes them, in two versions: the newer one is written in the place
// of the older one and counts once it is whole. A process that is killed while it writes leaves the one before.
//
// The memory is a file without a name (memfd), held by the launcher, or handed on by a process to the one that begins
// anew in its place. It is this user's alone. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::cluster {

class KeptMemory {
 public:
  // The memory that is open at `path`, or, where that is "", memory of its own. Throws IoError where there is none.
  explicit KeptMemory(const std::string& path = "");
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  // The whole versions, the newest first; they hold until the next begin().
  std::vector<std::span<const std::byte>> versions() const;
  // What is newer than this version, which is one of versions(), counts no more, and the next one is written there.
  void forget_newer(std::span<const std::byte> version);
  // Room for the next version, in the place of the older one. Where it needs more than the memory has, that grows, and
  // what was kept is let go. Throws IoError where the system gives no more; what was kept stays then.
  std::span<std::byte> begin(size_t size_bytes);
  // What has been written since begin() is a version.
  void commit();

  int fd() const { return file_.fd; }

 private:
  struct Head;
  struct Mapped {
    int fd = -1;
    void* memory = nullptr;
    size_t size_bytes = 0;  // of the mapping

    Mapped() = default;
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    ~Mapped();
  };

  // In place of what is mapped now, which stays where this throws.
  void map(size_t size_bytes);
  Head& head() const { return *static_cast<Head*>(file_.memory); }
  std::byte* place(size_t slot) const;

  Mapped file_;
  size_t written_ = 0;  // the slot that begin() gave
};

}  // namespace tessera::cluster
