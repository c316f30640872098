#include "tessera/checkpoint/read/load.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/files/mapped_guard.h"
#include "tessera/base/files/range_reader.h"
#include "tessera/base/logging.h"
#include "tessera/checkpoint/format/region.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/manifest/present_files.h"
#include "tessera/checkpoint/manifest/verified_entries.h"
#include "tessera/checkpoint/read/cut_value.h"
#include "tessera/checkpoint/read/decrypt_checkpoint.h"
#include "tessera/checkpoint/threads/crc_sum.h"

namespace tessera::checkpoint {
namespace {

// Names the tensor that a damaged byte lies in, if the file can still be parsed.
std::string damaged_tensors(FileSystem& files, const std::string& path, const Manifest& manifest, int index) {
  std::unordered_map<std::string, uint32_t> expected;
  for (const auto& tensor : manifest.tensors) {
    for (const auto& slice : tensor.slices) {
      if (slice.file == index) expected[tensor.name] = slice.crc32c;
    }
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

bool leaves_no_record(const ManifestTensor& tensor, const ManifestSlice& slice) {
  return !tensor.is_text && slice.size_bytes == 0;
}

// A row may be there without its first dim.
bool is_block(const Shape& shape, const Shape& block) {
  if (shape == block) return true;
  return block.ndim() == shape.ndim() + 1 && block[0] == 1 && std::equal(shape.begin(), shape.end(), block.begin() + 1);
}

// What differs from one value of the manifest; "" when nothing does.
std::string compare_entry(const StoredEntry& entry, size_t place, const ManifestTensor& tensor,
                          const ManifestSlice& slice) {
  if (entry.name != tensor.name) {
    return fmt::format("value {} is \"{}\", it must be \"{}\"", place, entry.name, tensor.name);
  }
  const bool same_type = entry.is_text == tensor.is_text &&
                         (entry.is_text || (entry.dtype == tensor.dtype && is_block(entry.shape, slice.shape)));
  if (same_type && entry.size_bytes == slice.size_bytes) return "";
  return fmt::format("tensor \"{}\" is {} of {} bytes, it must be {} of {} bytes", entry.name, entry.type_text(),
                     entry.size_bytes, tensor.is_text ? "str" : Type{tensor.dtype, slice.shape}.to_string(),
                     slice.size_bytes);
}

// What differs; "" when nothing does.
std::string compare_entries(const std::vector<StoredEntry>& entries, const Manifest& manifest, int index) {
  size_t next = 0;
  for (const auto& tensor : manifest.tensors) {
    if (tensor.slices.empty()) return fmt::format("tensor \"{}\" has no slices", tensor.name);
    for (const auto& slice : tensor.slices) {
      if (slice.file != index || leaves_no_record(tensor, slice)) continue;
      if (next == entries.size()) return fmt::format("tensor \"{}\" is missing in the file", tensor.name);
      if (auto text = compare_entry(entries[next], next, tensor, slice); !text.empty()) return text;
      ++next;
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

// One of the manifest's files, its bytes included.
void verify_file(FileSystem& files, const std::string& path, const Manifest& manifest, int index,
                 const std::string& manifest_file) {
  if (!files.exists(path)) throw InvalidArgument("{}: is missing; {} describes it", path, manifest_file);
  refuse_link_out(files, path, manifest_file);
  require_written_size(files, path, manifest, index);
  const auto& described = manifest.files[static_cast<size_t>(index)];
  const auto mapped = files.open(path);
  const MappedGuard guard(mapped->bytes(), path);
  const bool is_plain = described.encryption.empty();
  require_size(path, std::ssize(mapped->bytes()), described);  // it may have changed meanwhile
  const auto ranges = files.open_ranges(path);
  const uint32_t crc = ranges->is_on_disk(0, described.size_bytes) ? crc32c_of_file(*ranges, described.size_bytes)
                                                                   : crc32c_in_threads(mapped->bytes());
  guard.require_whole();
  if (crc != described.crc32c) {
    throw InvalidArgument("{}: crc32c is {:08x}, it must be {:08x}{}", path, crc, described.crc32c,
                          is_plain ? damaged_tensors(files, path, manifest, index) : "");
  }
  if (encryption_mode_of(mapped->bytes()).value_or("") != described.encryption) {
    throw InvalidArgument("{}: is not encrypted as its manifest says, with \"{}\"", path, described.encryption);
  }
  if (is_plain) require_entries(CkptFile::open(files, path), manifest, manifest_file);
}

// Against one manifest. Throws InvalidArgument with what is wrong.
Manifest verify_against(FileSystem& files, const std::string& path, const std::string& manifest_file) {
  auto manifest = read_manifest(files, manifest_file);
  file_index(manifest, manifest_file, base_name(path));
  int index = 0;
  for (const auto& file : manifest.files) {
    verify_file(files, path_beside(path, file.name), manifest, index++, manifest_file);
  }
  return manifest;
}

}  // namespace

void refuse_link_out(FileSystem& files, const std::string& path, const std::string& manifest_file) {
  const auto real = files.real_path(path);
  if (parent_path(real) == files.real_path(parent_path(path))) return;
  throw InvalidArgument("{}: is a link to {}, {} describes a file beside it", path, real, manifest_file);
}

void refuse_slices_without_manifest(FileSystem& files, const std::string& path) {
  for (const auto& name : files.list(parent_path(path))) {
    if (!slice_file_generation(name, base_name(path))) continue;
    throw InvalidArgument(
        "{}: holds one rank's slices, for {} lies beside it; {}, which says where they belong, is missing", path, name,
        manifest_path(path));
  }
}

int file_index(const Manifest& manifest, const std::string& manifest_file, const std::string& name) {
  const auto it = std::find_if(manifest.files.begin(), manifest.files.end(),
                               [&](const ManifestFile& file) { return file.name == name; });
  if (it != manifest.files.end()) return static_cast<int>(it - manifest.files.begin());
  if (manifest.files.empty()) throw InvalidArgument("{}: describes no file", manifest_file);
  throw InvalidArgument("{}: describes {}{}, not {}", manifest_file, manifest.files[0].name,
                        manifest.files.size() > 1 ? fmt::format(" and {} more", manifest.files.size() - 1) : "", name);
}

void require_written_size(FileSystem& files, const std::string& path, const Manifest& manifest, int index) {
  const auto& described = manifest.files[static_cast<size_t>(index)];
  if (files.is_directory(path)) {
    throw InvalidArgument("{}: is a directory; a file of {} bytes was written", path, described.size_bytes);
  }
  const auto size = files.size_bytes(path);
  if (size < described.size_bytes && described.encryption.empty()) {
    const auto mapped = files.open(path);
    const auto cut =
        parse_guarded(mapped->bytes(), path, [&](auto bytes) { return first_cut_value(bytes, manifest, index); });
    throw InvalidArgument(
        "{}: has {} bytes, {} were written: the file is truncated; \"{}\" is the first value that is not whole", path,
        size, described.size_bytes, cut);
  }
  require_size(path, size, described);
}

void require_values(const CkptFile& file, const Manifest& manifest, int index) {
  if (const auto difference = compare_entries(file.entries(), manifest, index); !difference.empty()) {
    throw InvalidArgument("{}: does not match its manifest: {}", file.path(), difference);
  }
}

void require_entries(const CkptFile& file, const Manifest& manifest, const std::string& manifest_file) {
  const auto& path = file.path();
  const int index = file_index(manifest, manifest_file, base_name(path));
  require_size(path, std::ssize(file.bytes()), manifest.files[static_cast<size_t>(index)]);
  require_values(file, manifest, index);
}

std::vector<DescribedEntry> described_entries(const CkptFile& file, const Manifest& manifest, int index) {
  std::vector<DescribedEntry> described;
  size_t next = 0;
  for (size_t t = 0; t < manifest.tensors.size(); ++t) {
    const auto& tensor = manifest.tensors[t];
    for (size_t s = 0; s < tensor.slices.size(); ++s) {
      const auto& slice = tensor.slices[s];
      if (slice.file != index) continue;
      auto& [tensor_index, slice_index, entry] = described.emplace_back();
      tensor_index = t;
      slice_index = s;
      if (leaves_no_record(tensor, slice)) {
        entry = {.name = tensor.name, .dtype = tensor.dtype, .shape = slice.shape};
      } else {
        entry = file.entries()[next++];
      }
      entry.appended = tensor.appended;
    }
  }
  return described;
}

FileVerification verify(FileSystem& files, const std::string& path) {
  FileVerification result;
  if (lacks_its_file(files, path)) {
    result.problem = missing_file_text(path);
    return result;
  }
  files.size_bytes(path);  // throws when there is no such file
  for (const auto& manifest_file : {manifest_path(path), pending_manifest_path(path)}) {
    if (!is_manifest_there(files, manifest_file)) continue;
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
    if (const auto checkpoint = checkpoint_of_slice_file(path)) {
      throw InvalidArgument("{}: holds one rank's slices of {}; without its manifest nothing shows where they belong",
                            path, *checkpoint);
    }
    CkptFile::open(files, path);
    refuse_slices_without_manifest(files, path);
    result.state = Verified::kNoManifest;
  } catch (const InvalidArgument& error) {
    result.problem = error.what();
  }
  return result;
}

std::vector<CkptFile> open_files(FileSystem& files, const std::string& path, const std::optional<Manifest>& manifest) {
  std::vector<CkptFile> opened;
  if (!manifest) {
    opened.push_back(CkptFile::open(files, path));
    return opened;
  }
  for (const auto& file : manifest->files) opened.push_back(CkptFile::open(files, path_beside(path, file.name)));
  return opened;
}

Checkpoint::Checkpoint(std::vector<CkptFile> files, std::string path, std::optional<Manifest> manifest)
    : files_(std::move(files)), path_(std::move(path)), manifest_(std::move(manifest)) {
  if (!manifest_) {
    entries_ = files_[0].entries();
  } else {
    join_files();
  }
  for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
}

// What one file holds is taken as it is there. What several hold is put together in memory.
void Checkpoint::join_files() {
  std::vector<std::vector<DescribedEntry>> of_tensor(manifest_->tensors.size());
  for (size_t file = 0; file < files_.size(); ++file) {
    for (auto& described : described_entries(files_[file], *manifest_, static_cast<int>(file))) {
      of_tensor[described.tensor].push_back(std::move(described));
    }
  }
  for (size_t t = 0; t < of_tensor.size(); ++t) {
    const auto& tensor = manifest_->tensors[t];
    const bool is_whole =
        of_tensor[t].size() == 1 && (tensor.is_text || files_.size() == 1 || tensor.slices[0].shape == tensor.shape);
    entries_.push_back(is_whole ? std::move(of_tensor[t][0].entry) : join_slices(tensor, of_tensor[t]));
  }
}

StoredEntry Checkpoint::join_slices(const ManifestTensor& tensor, const std::vector<DescribedEntry>& slices) {
  const Type type{tensor.dtype, tensor.shape};
  std::vector<Region> regions;
  for (const auto& described : slices) {
    const auto& slice = tensor.slices[described.slice];
    regions.push_back({slice.offset, slice.shape});
  }
  if (!covers_once(regions, tensor.shape)) {
    throw InvalidArgument("{}: its files do not hold each element of \"{}\" {} once", path_, tensor.name, type);
  }
  const Tensor& whole = joined_.emplace_back(type);
  for (size_t i = 0; i < slices.size(); ++i) slices[i].entry.read_into(view_of(whole.view(), regions[i]));
  return {.name = tensor.name,
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .size_bytes = whole.size_bytes(),
          .pieces = {whole.bytes()},
          .appended = tensor.appended};
}

const StoredEntry* Checkpoint::find(std::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &entries_[it->second];
}

Checkpoint load(FileSystem& files, const std::string& path, const Encryption& decryption) {
  require_ckpt_suffix(path);
  check_encryption(decryption);
  require_its_file(files, path);
  if (decryption.is_on()) return load(*decrypt_checkpoint(files, path, decryption), path);
  auto verification = verify(files, path);
  if (verification.state == Verified::kNo) throw InvalidArgument(verification.problem);
  if (verification.state == Verified::kNoManifest) {
    log_warning("{}: no manifest beside it, so nothing was verified", path);
  }
  auto opened = open_files(files, path, verification.manifest);
  return {std::move(opened), path, std::move(verification.manifest)};
}

}  // namespace tessera::checkpoint
