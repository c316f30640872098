#include "tessera/checkpoint/read/source_file.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/format/ckpt_file.h"
#include "tessera/checkpoint/format/ckpt_record.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/manifest/present_files.h"
#include "tessera/checkpoint/manifest/verified_entries.h"
#include "tessera/checkpoint/read/rank_folders.h"
#include "tessera/checkpoint/read/safetensors_header.h"

namespace tessera::checkpoint {
namespace {

// The manifest that describes the file `path`. nullopt when there is none; throws when the file is not as verify()
// wants it.
std::optional<Manifest> manifest_of(FileSystem& files, const std::string& path) {
  const auto manifest_file = manifest_path(path);
  if (!has_manifest(files, path)) return std::nullopt;
  if (is_manifest_there(files, pending_manifest_path(path))) {
    // After a crash: which of the two describes the values, only the values can tell.
    auto verification = verify(files, path);
    if (verification.state == Verified::kNo) throw InvalidArgument(verification.problem);
    return std::move(verification.manifest);
  }
  return read_manifest(files, manifest_file);
}

// The file `path` of a checkpoint whose manifest is `manifest_file`. What its size shows not to be the file that was
// written is refused before it is mapped. Throws InvalidArgument where its values are others, too.
CkptFile open_described(FileSystem& files, const std::string& path, const Manifest& manifest,
                        const std::string& manifest_file) {
  refuse_link_out(files, path, manifest_file);
  require_written_size(files, path, manifest, file_index(manifest, manifest_file, base_name(path)));
  auto file = CkptFile::open(files, path);
  require_entries(file, manifest, manifest_file);
  return file;
}

SourceTensor source_tensor(const StoredEntry& entry, const std::byte* file_begin) {
  SourceTensor tensor{.name = entry.name,
                      .is_text = entry.is_text,
                      .appended = entry.appended,
                      .dtype = entry.dtype,
                      .shape = entry.shape,
                      .size_bytes = entry.size_bytes};
  for (const auto piece : entry.pieces) tensor.pieces.push_back({piece.data() - file_begin, std::ssize(piece)});
  return tensor;
}

// Contents have checksums of their own; what is between them must be as the writer of the manifest wrote it. A reader
// would accept other spellings, such as "float32", but here each flipped bit counts.
void require_headers(const CkptFile& file) {
  constexpr size_t kEntriesPerRelease = 64;  // as in the reader
  for (size_t i = 0; i < file.entries().size(); ++i) {
    const auto& entry = file.entries()[i];
    if (i % kEntriesPerRelease == 0) file.release_pages();
    constexpr int64_t kTextDims[] = {0};
    const auto dims =
        entry.is_text ? std::span<const int64_t>(kTextDims) : std::span(entry.shape.begin(), entry.shape.end());
    for (const auto piece : entry.pieces) {
      const auto header =
          record_header(entry.name, entry.is_text ? "str" : ckpt_type_name(entry.dtype), dims, piece.size());
      const auto before = file.bytes().first(static_cast<size_t>(piece.data() - file.bytes().data()));
      if (as_text(before).ends_with(header)) continue;
      throw InvalidArgument("{}: the header of {} at byte {} is not as it was written: damaged", file.path(),
                            quoted_name(entry.name), entry.offset);
    }
  }
}

void add_manifest(SourceTensor& tensor, const ManifestTensor& described, const ManifestSlice& slice) {
  tensor.crc32c = slice.crc32c;
  if (!described.is_text) tensor.shape = slice.shape;
  tensor.hash = slice.hash;
  if (!described.is_text && slice.shape != described.shape) {
    tensor.part = GlobalRegion{{slice.offset, slice.shape}, described.shape};
  }
}

// A checkpoint of which the file of one rank was named.
std::vector<SourceFile> open_all_beside(FileSystem& files, const std::string& path, const std::string& checkpoint) {
  if (!files.exists(path)) throw InvalidArgument("{}: no such file", path);
  if (!files.exists(checkpoint)) {
    throw InvalidArgument(
        "{}: holds one rank's slices of {}, which is missing; all its files must lie beside each other", path,
        checkpoint);
  }
  auto opened = SourceFile::open_all(files, checkpoint);
  const bool is_described =
      std::any_of(opened.begin(), opened.end(), [&](const SourceFile& file) { return file.path() == path; });
  if (!is_described) {
    throw InvalidArgument("{}: {} does not describe it; it is left of a save that was not finished", path,
                          manifest_path(checkpoint));
  }
  return opened;
}

std::string save_text(const CheckpointInfo& info) {
  const auto job = info.job_id.empty() ? "" : fmt::format(" of job \"{}\"", info.job_id);
  return fmt::format("step {} of {} ranks{}", info.step, info.world_size, job);
}

}  // namespace

void require_same_save(const SourceFile& first, const SourceFile& other) {
  const auto& info = first.info();
  const auto& its = other.info();
  check(info.has_value(), "what is compared with has a manifest");
  if (its && is_same_save(*its, *info)) return;
  throw InvalidArgument("{}: is of another checkpoint than {}: {}, not {}", other.path(), first.path(),
                        its ? save_text(*its) : "without a manifest", save_text(*info));
}

std::string read_text(FileSystem& files, const SourceFile& source, const std::string& name) {
  const auto file = CkptFile::open(files, source.path());
  for (const auto& entry : file.entries()) {
    if (entry.name == name) return entry.read_text();
  }
  throw IoError("{}: changed while it was read", source.path());
}

std::optional<int64_t> rank_of_folder(const std::string& name) {
  constexpr std::string_view kPrefix = "rank_";
  constexpr size_t kMaxDigits = 9;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto digits = name.substr(kPrefix.size());
  if (digits.empty() || digits.size() > kMaxDigits || digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoll(digits);
}

SourceFile SourceFile::open(FileSystem& files, const std::string& path) {
  if (path.ends_with(".safetensors")) {
    SourceFile source;
    source.path_ = path;
    source.size_bytes_ = files.size_bytes(path);
    for (auto& tensor : read_safetensors_header(files, path)) source.add(std::move(tensor));
    return source;
  }
  const auto manifest = manifest_of(files, path);
  return {manifest ? open_described(files, path, *manifest, manifest_path(path)) : CkptFile::open(files, path),
          manifest};
}

std::vector<SourceFile> SourceFile::open_all(FileSystem& files, const std::string& path) {
  if (path.ends_with(".safetensors")) return {open(files, path)};
  if (const auto checkpoint = checkpoint_of_slice_file(path)) return open_all_beside(files, path, *checkpoint);
  require_its_file(files, path);
  const auto manifest = manifest_of(files, path);
  if (!manifest) {
    const auto file = CkptFile::open(files, path);
    refuse_slices_without_manifest(files, path);
    return {SourceFile(file, manifest)};
  }
  std::vector<SourceFile> opened{SourceFile(open_described(files, path, *manifest, manifest_path(path)), manifest)};
  for (const auto& described : manifest->files) {
    const auto other = path_beside(path, described.name);
    if (described.name == base_name(path)) continue;
    if (!files.exists(other)) throw InvalidArgument("{}: is missing; {} describes it", other, manifest_path(path));
    opened.push_back(SourceFile(open_described(files, other, *manifest, manifest_path(path)), manifest));
  }
  return opened;
}

SourceFile::SourceFile(const CkptFile& file, const std::optional<Manifest>& manifest)
    : path_(file.path()), size_bytes_(std::ssize(file.bytes())) {
  const std::byte* begin = file.bytes().data();
  if (!manifest) {
    for (const auto& entry : file.entries()) add(source_tensor(entry, begin));
    return;
  }
  require_headers(file);
  const int index = file_index(*manifest, manifest_path(path_), base_name(path_));
  info_ = manifest->info;
  is_one_of_several_ = manifest->files.size() > 1;
  crc32c_ = manifest->files[static_cast<size_t>(index)].crc32c;
  for (const auto& described : described_entries(file, *manifest, index)) {
    const auto& tensor = manifest->tensors[described.tensor];
    auto source = source_tensor(described.entry, begin);
    add_manifest(source, tensor, tensor.slices[described.slice]);
    add(std::move(source));
  }
}

void SourceFile::add(SourceTensor tensor) {
  index_.emplace(tensor.name, tensors_.size());
  tensors_.push_back(std::move(tensor));
}

const SourceTensor* SourceFile::find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

bool SourceFile::holds_parts() const {
  if (info_ && info_->values_elsewhere > 0) return true;
  return std::any_of(tensors_.begin(), tensors_.end(), [](const SourceTensor& tensor) { return tensor.part; });
}

void SourceFile::forget_parts() {
  for (auto& tensor : tensors_) {
    if (tensor.part) tensor.hash.reset();  // it counts elements by their places in the global value
    tensor.part.reset();
  }
  if (info_) info_->values_elsewhere = 0;
}

}  // namespace tessera::checkpoint
