#include "tessera/base/files/text_file.h"

#include "tessera/base/error.h"
#include "tessera/base/files/mapped_guard.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"

namespace tessera {

std::string read_text_file(FileSystem& files, const std::string& path, const TextKind& kind) {
  const auto file = files.open(path);
  const auto bytes = file->bytes();
  if (std::ssize(bytes) > kind.max_bytes) {
    throw InvalidArgument("{} \"{}\": has {}, at most {} are read: {}", kind.name, printable(path),
                          format_bytes(std::ssize(bytes)), format_bytes(kind.max_bytes), kind.remedy);
  }
  const MappedGuard guard(bytes, path);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  guard.require_whole();
  return text;
}

std::string read_settings(FileSystem& files, const std::string& path, const char* name) {
  return read_text_file(files, path,
                        {.name = name, .max_bytes = kMaxSettingsBytes, .remedy = "name the file that is meant"});
}

}  // namespace tessera
