#include "tessera/checkpoint/load.h"

#include "tessera/base/crc32c.h"
#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/checkpoint/verified_entries.h"

namespace tessera::checkpoint {
namespace {

// What the manifest says of a file of that name, when it is one that a single file can fulfil.
const ManifestFile& only_file(const Manifest& manifest, const std::string& manifest_file, const std::string& name) {
  if (manifest.files.size() != 1) {
    throw InvalidArgument("{}: describes {} files; loading a checkpoint of several files is not available yet",
                          manifest_file, manifest.files.size());
  }
  if (manifest.files[0].name != name) {
    throw InvalidArgument("{}: describes {}, not {}", manifest_file, manifest.files[0].name, name);
  }
  return manifest.files[0];
}

// Names the tensor that a damaged byte lies in, if the file can still be parsed.
std::string damaged_tensors(FileSystem& files, const std::string& path, const Manifest& manifest) {
  std::unordered_map<std::string, uint32_t> expected;
  for (const auto& tensor : manifest.tensors) {
    if (tensor.slices.size() == 1) expected[tensor.name] = tensor.slices[0].crc32c;
  }
  try {
    const auto file = CkptFile::open(files, path);
    for (const auto& entry : file.entries()) {
      const auto it = expected.find(entry.name);
      if (it != expected.end() && entry.crc32c() != it->second) {
        return fmt::format("; the tensor \"{}\" {} at byte {} is damaged", entry.name, entry.type_text(), entry.offset);
      }
    }
    return "; no tensor's content is, so a name, dtype or shape must be";
  } catch (const Error& error) {
    return fmt::format("; {}", error.what());
  }
}

// What differs; "" when nothing does.
std::string compare_entries(const std::vector<StoredEntry>& entries, const Manifest& manifest) {
  size_t next = 0;
  for (const auto& tensor : manifest.tensors) {
    if (tensor.slices.size() != 1) {
      return fmt::format("tensor \"{}\" has {} slices; only one is available yet", tensor.name, tensor.slices.size());
    }
    const auto& slice = tensor.slices[0];
    if (!tensor.is_text && slice.size_bytes == 0) continue;  // leaves no record
    if (next == entries.size()) return fmt::format("tensor \"{}\" is missing in the file", tensor.name);
    const auto& entry = entries[next++];
    if (entry.name != tensor.name) {
      return fmt::format("value {} is \"{}\", it must be \"{}\"", next - 1, entry.name, tensor.name);
    }
    const bool same_type = entry.is_text == tensor.is_text &&
                           (entry.is_text || (entry.dtype == tensor.dtype && entry.shape == slice.shape));
    if (!same_type || entry.size_bytes != slice.size_bytes) {
      return fmt::format("tensor \"{}\" is {} of {} bytes, it must be {} of {} bytes", entry.name, entry.type_text(),
                         entry.size_bytes, tensor.is_text ? "str" : Type{tensor.dtype, slice.shape}.to_string(),
                         slice.size_bytes);
    }
  }
  if (next < entries.size()) return fmt::format("the file has the value \"{}\" too", entries[next].name);
  return "";
}

void require_size(const std::string& path, int64_t size, const ManifestFile& described) {
  if (size == described.size_bytes) return;
  throw InvalidArgument("{}: has {} bytes, {} were written: {}", path, size, described.size_bytes,
                        size < described.size_bytes ? "the file is truncated" : "the file was changed");
}

// Against one manifest. Throws InvalidArgument with what is wrong.
Manifest verify_against(FileSystem& files, const std::string& path, const std::string& manifest_file) {
  auto manifest = parse_manifest(files.read_text(manifest_file), manifest_file);
  const auto& described = only_file(manifest, manifest_file, base_name(path));
  const auto mapped = files.open(path);
  require_size(path, std::ssize(mapped->bytes()), described);
  const uint32_t crc = crc32c(mapped->bytes());
  if (crc != described.crc32c) {
    throw InvalidArgument("{}: crc32c is {:08x}, it must be {:08x}{}", path, crc, described.crc32c,
                          damaged_tensors(files, path, manifest));
  }
  require_entries(CkptFile::open(files, path), manifest, manifest_file);
  return manifest;
}

}  // namespace

void require_entries(const CkptFile& file, const Manifest& manifest, const std::string& manifest_file) {
  const auto& path = file.path();
  require_size(path, std::ssize(file.bytes()), only_file(manifest, manifest_file, base_name(path)));
  if (const auto difference = compare_entries(file.entries(), manifest); !difference.empty()) {
    throw InvalidArgument("{}: does not match its manifest: {}", path, difference);
  }
}

Verification verify(FileSystem& files, const std::string& path) {
  Verification result;
  files.size_bytes(path);  // throws when there is no such file
  for (const auto& manifest_file : {manifest_path(path), pending_manifest_path(path)}) {
    if (!files.exists(manifest_file)) continue;
    try {
      auto manifest = verify_against(files, path, manifest_file);
      return {.state = Verified::kYes, .manifest_file = manifest_file, .manifest = std::move(manifest)};
    } catch (const InvalidArgument& error) {
      // The first manifest is the usual one; what is wrong with it is what the reader wants to know.
      if (result.problem.empty()) result.problem = error.what();
    }
  }
  if (!result.problem.empty()) return result;
  try {
    CkptFile::open(files, path);
    result.state = Verified::kNoManifest;
  } catch (const InvalidArgument& error) {
    result.problem = error.what();
  }
  return result;
}

Checkpoint::Checkpoint(CkptFile file, std::optional<Manifest> manifest)
    : file_(std::move(file)), manifest_(std::move(manifest)) {
  if (!manifest_) {
    entries_ = file_.entries();
  } else {
    size_t next = 0;
    for (const auto& tensor : manifest_->tensors) {
      if (!tensor.is_text && tensor.slices[0].size_bytes == 0) {
        entries_.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.slices[0].shape});
      } else {
        entries_.push_back(file_.entries()[next++]);
      }
      entries_.back().appended = tensor.appended;
    }
  }
  for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
}

const StoredEntry* Checkpoint::find(std::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &entries_[it->second];
}

Checkpoint load(FileSystem& files, const std::string& path) {
  if (!path.ends_with(".ckpt")) throw InvalidArgument("{}: a checkpoint's name must end in .ckpt", path);
  auto verification = verify(files, path);
  if (verification.state == Verified::kNo) throw InvalidArgument(verification.problem);
  if (verification.state == Verified::kNoManifest) {
    log_warning("{}: no manifest beside it, so nothing was verified", path);
  }
  return {CkptFile::open(files, path), std::move(verification.manifest)};
}

}  // namespace tessera::checkpoint
