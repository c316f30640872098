#include "tessera/checkpoint/resume/global_checkpoint.h"

#include <algorithm>
#include <memory>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/format/ckpt_path.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/read/content_reader.h"
#include "tessera/checkpoint/read/rank_folders.h"

namespace tessera::checkpoint {
namespace {

// What has no name may be of any training.
void require_job(const std::string& path, const std::optional<CheckpointInfo>& info, const std::string& job_name) {
  if (!info || info->job_name.empty() || job_name.empty() || info->job_name == job_name) return;
  throw InvalidArgument(
      "{}: is of the training \"{}\", not of \"{}\"; to go on with it nevertheless accept other jobs, to start a new "
      "training from its weights load the parameters only",
      path, info->job_name, job_name);
}

// What lies beside the path and could have been meant: a checkpoint or a directory; "" where nothing is near.
std::string near_name(FileSystem& files, const std::string& path) {
  const std::string directory = parent_path(path);
  if (!files.is_directory(directory)) return "";
  auto names = files.list(directory);
  std::erase_if(names, [&](const std::string& name) {
    return !name.ends_with(kCheckpointSuffix) && !files.is_directory(join_path(directory, name));
  });
  const std::string name = base_name(path);
  const bool lacks_suffix = std::ranges::find(names, with_ckpt_suffix(name)) != names.end();
  const std::string near = lacks_suffix ? with_ckpt_suffix(name) : closest(name, names);
  return near.empty() || path.find('/') == std::string::npos ? near : join_path(directory, near);
}

// Throws IoError where nothing can be opened there.
void require_there(FileSystem& files, const std::string& path) {
  try {
    files.open(path);
  } catch (const NoRoom&) {
    throw;
  } catch (const IoError& error) {
    const std::string near = near_name(files, path);
    throw IoError("{}; what is named must be a checkpoint, as net-3_100.ckpt, or a directory that holds some{}",
                  error.what(), near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }
}

}  // namespace

GlobalCheckpoint GlobalCheckpoint::open(FileSystem& files, const std::string& path, const std::string& job_name) {
  if (files.is_directory(path)) throw InvalidArgument("{}: is a directory, it must be one checkpoint", path);
  require_its_file(files, path);
  if (!files.exists(path)) {  // of a rank of a larger job than that which saved
    if (const auto first = first_rank_instead_of(files, path)) return open(files, *first, job_name);
    require_there(files, path);
  }
  auto sources = SourceFile::open_all(files, path);
  require_job(path, sources[0].info(), job_name);
  std::vector<std::string> missing;
  if (sources.size() == 1 && sources[0].holds_parts()) {
    auto others = other_ranks(files, path, *sources[0].info());
    missing = std::move(others.missing);
    for (const auto& other : others.paths) {
      for (auto& file : SourceFile::open_all(files, other)) {
        require_same_save(sources[0], file);
        sources.push_back(std::move(file));
      }
    }
  }
  if (!sources[0].info()) log_warning("{}: no manifest beside it, so nothing is verified", path);
  return {files, path, std::move(sources), std::move(missing)};
}

GlobalCheckpoint::GlobalCheckpoint(FileSystem& files, std::string path, std::vector<SourceFile> sources,
                                   std::vector<std::string> missing)
    : files_(&files), path_(std::move(path)), sources_(std::move(sources)), missing_(std::move(missing)) {
  info_ = sources_[0].info();
  for (size_t i = 0; i < sources_.size(); ++i) {
    for (const auto& tensor : sources_[i].tensors()) add(i, tensor);
  }
}

void GlobalCheckpoint::add(size_t source, const SourceTensor& tensor) {
  const auto [it, is_new] = index_.emplace(tensor.name, entries_.size());
  if (is_new) {
    const Shape& global = tensor.global();
    entries_.push_back({.name = tensor.name,
                        .is_text = tensor.is_text,
                        .dtype = tensor.dtype,
                        .shape = global,
                        .size_bytes = tensor.is_text ? tensor.size_bytes : Type{tensor.dtype, global}.size_bytes(),
                        .appended = tensor.appended});
    parts_.emplace_back();
  }
  const auto& entry = entries_[it->second];
  if (tensor.is_text != entry.is_text ||
      (!entry.is_text && (tensor.dtype != entry.dtype || tensor.global() != entry.shape))) {
    throw InvalidArgument("{}: {} is of {}{}, in {} it is of {}", sources_[source].path(), quoted_name(tensor.name),
                          to_string(tensor.dtype), tensor.global(), path_, entry.type_text());
  }
  const Region region = tensor.region();
  for (const auto& other : parts_[it->second]) {
    if (entry.is_text || tensor.appended) return;
    if (!(other.region == region)) continue;
    if (other.tensor->crc32c == tensor.crc32c) return;
    throw InvalidArgument("{}: {} {} does not have the same values as in {}, which holds the same part",
                          sources_[source].path(), quoted_name(tensor.name), region.to_string(),
                          sources_[other.source].path());
  }
  parts_[it->second].push_back({source, &tensor, region});
}

void GlobalCheckpoint::require_all_files() const {
  if (!missing_.empty()) {
    throw InvalidArgument("{}: is missing; {} holds only one rank's part", missing_[0], path_);
  }
}

const StoredEntry* GlobalCheckpoint::find(std::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &entries_[it->second];
}

void GlobalCheckpoint::verify_others(std::span<const std::string> names) const {
  constexpr int64_t kPieceBytes = 1 << 20;
  const std::unordered_set<std::string_view> left_out(names.begin(), names.end());
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (left_out.contains(entries_[i].name)) continue;
    for (const auto& [source, tensor, region] : parts_[i]) {
      if (!tensor->crc32c) continue;
      const auto& path = sources_[source].path();
      const auto file = open_ranges(*files_, path);
      uint32_t crc = 0;
      for (int64_t at = 0; at < tensor->size_bytes; at += kPieceBytes) {
        bytes.resize(static_cast<size_t>(std::min(kPieceBytes, tensor->size_bytes - at)));
        read_content(*file, tensor->pieces, at, bytes);
        crc = crc32c(bytes, crc);
      }
      if (crc == *tensor->crc32c) continue;
      throw InvalidArgument("{}: {} is damaged: crc32c is {:08x}, it must be {:08x}", path, quoted_name(tensor->name),
                            crc, *tensor->crc32c);
    }
  }
}

Tensor GlobalCheckpoint::read_whole(const std::string& name) const {
  const auto* entry = find(name);
  if (entry == nullptr || entry->is_text) throw InvalidArgument("{}: holds no tensor {}", path_, quoted_name(name));
  Tensor value(entry->type());
  const Wanted wanted{name, Region::whole(entry->shape), value.view()};
  read({&wanted, 1});
  return value;
}

}  // namespace tessera::checkpoint
