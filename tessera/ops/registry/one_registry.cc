#include "tessera/ops/registry/one_registry.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::ops {
namespace {

// As cluster::kExitUsage: nothing was begun.
constexpr int kExitCode = 2;

// A note of ELF: it lies in every program and library that has this file in itself, stays when names are stripped or
// hidden, and is found while it is loaded.
struct CopyNote {
  uint32_t name_bytes = sizeof(name);
  uint32_t content_bytes = 0;
  uint32_t type = 1;
  char name[8] = "Tessera";
};
alignas(4) [[gnu::section(".note.tessera"), gnu::used]] constexpr CopyNote kNote{};

using Segment = ElfW(Phdr);

bool is_loaded(std::span<const Segment> segments, const Segment& part) {
  for (const Segment& segment : segments) {
    const auto end = segment.p_vaddr + segment.p_memsz;
    if (segment.p_type != PT_LOAD || part.p_vaddr < segment.p_vaddr) continue;
    if (part.p_vaddr <= end && part.p_memsz <= end - part.p_vaddr) return true;
  }
  return false;
}

bool has_note(std::string_view notes, size_t align) {
  const auto aligned = [align](size_t size) { return (size + align - 1) / align * align; };
  const std::string_view wanted(kNote.name, sizeof(kNote.name));
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header{};
    std::memcpy(&header, notes.data(), sizeof(header));
    if (notes.substr(sizeof(header), header.n_namesz) == wanted) return true;
    const size_t size = aligned(aligned(sizeof(header) + header.n_namesz) + header.n_descsz);
    notes.remove_prefix(std::min(size, notes.size()));
  }
  return false;
}

std::string name_of(const dl_phdr_info& object) {
  if (object.dlpi_name != nullptr && *object.dlpi_name != '\0') return object.dlpi_name;
  std::array<char, 4096> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  return size > 0 ? std::string(path.data(), static_cast<size_t>(size)) : "the program";
}

// Adds the name of a program or library that has the note to the list at `names`.
int collect(dl_phdr_info* object, size_t, void* names) {
  const std::span<const Segment> segments(object->dlpi_phdr, object->dlpi_phnum);
  for (const Segment& segment : segments) {
    if (segment.p_type != PT_NOTE || !is_loaded(segments, segment)) continue;
    const auto* begin = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
    if (!has_note({begin, segment.p_memsz}, segment.p_align == 8 ? 8 : 4)) continue;
    static_cast<std::vector<std::string>*>(names)->push_back(name_of(*object));
    break;
  }
  return 0;
}

// Comes before whatever else this copy does before main(): what both copies make then would be destroyed twice.
__attribute__((constructor(101))) void require_when_loaded() { require_one_registry(); }

}  // namespace

void require_one_registry() {
  std::vector<std::string> names;
  dl_iterate_phdr(collect, &names);
  if (names.size() < 2) return;
  const std::string text = fmt::format(
      "error: Tessera is in this process twice, in {} and in {}, each with operators of its own: link all of them with "
      "Tessera::shared, or only one of them with Tessera::tessera\n",
      names[0], names[1]);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  _exit(kExitCode);
}

}  // namespace tessera::ops
