#include "tessera/checkpoint/convert/staging.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/files/text_file.h"
#include "tessera/checkpoint/write/commit.h"

namespace tessera::checkpoint {
namespace {

constexpr const char* kMarker = "conversion";
constexpr const char* kPublished = ".conversion";

// A line for each rank and what is said of all.
std::string read_marker(FileSystem& files, const std::string& path) {
  return read_settings(files, path, "marker of a conversion");
}

}  // namespace

std::string plain_path(const std::string& path) {
  auto plain = std::filesystem::path(path).lexically_normal().string();
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  return plain;
}

bool Staging::was_published(FileSystem& files, const std::string& directory, const std::string& fingerprint) {
  const auto published = join_path(plain_path(directory), kPublished);
  return files.exists(published) && read_marker(files, published) == fingerprint;
}

Staging::Staging(FileSystem& files, const std::string& directory, const std::string& fingerprint,
                 std::vector<std::string> names)
    : files_(files), directory_(plain_path(directory)), partial_(directory_ + ".partial"), names_(std::move(names)) {
  refuse_other_files();
  const auto marker = join_path(partial_, kMarker);
  if (files_.is_directory(partial_)) {
    if (!files_.exists(marker)) {
      if (!was_just_begun()) {
        throw InvalidArgument("{}: is in the way, and was not made by a conversion; move it away", partial_);
      }
    } else if (read_marker(files_, marker) == fingerprint) {
      return;
    }
    files_.remove_directory_tree(partial_);
  }
  files_.create_directories(partial_);
  files_.write_atomically(marker, fingerprint, 0666);
}

// Stopped before the marker was in place: there is nothing but what writing it leaves.
bool Staging::was_just_begun() const {
  const auto names = files_.list(partial_);
  return std::all_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.starts_with(fmt::format("{}.tmp.", kMarker)); });
}

void Staging::refuse_other_files() const {
  if (!files_.is_directory(directory_)) {
    if (files_.exists(directory_)) throw InvalidArgument("{}: is a file, it must be a directory", directory_);
    return;
  }
  std::set<std::string> folders;
  std::set<std::string> expected = {kMarker, kPublished};
  for (const auto& name : names_) {
    folders.insert(parent_path(name));
    for (const auto& file : {name, manifest_path(name), pending_manifest_path(name)}) expected.insert(file);
  }
  const auto refuse = [&](const std::string& name) {
    throw InvalidArgument("{}: holds {}, which would not belong to the new checkpoint; give an empty directory",
                          directory_, name);
  };
  for (const auto& name : files_.list(directory_)) {
    if (!folders.contains(name)) {
      if (!expected.contains(name)) refuse(name);
      continue;
    }
    for (const auto& inner : files_.list(join_path(directory_, name))) {
      if (!expected.contains(join_path(name, inner))) refuse(join_path(name, inner));
    }
  }
}

std::unique_ptr<WritableFile> Staging::create(const std::string& name) {
  const auto directory = parent_path(path(name));
  files_.create_directories(directory);
  if (files_.exists(manifest_path(path(name)))) {  // of a file that was changed since
    files_.remove(manifest_path(path(name)));
    files_.sync_directory(directory);
  }
  return files_.create(path(name), kUmaskAccess);
}

void Staging::complete(const std::string& name, const Manifest& manifest) {
  const auto pending = pending_manifest_path(path(name));
  const auto file = files_.create(pending, kUmaskAccess);
  file->append(to_text(manifest));
  file->sync();
  file->close();
  files_.rename(pending, manifest_path(path(name)));
  files_.sync_directory(parent_path(pending));
}

bool Staging::is_complete(const std::string& name) const {
  const auto file = path(name);
  if (!files_.exists(file) || !files_.exists(manifest_path(file))) return false;
  try {
    const auto described = manifest(name);
    return described.files.size() == 1 && described.files[0].size_bytes == files_.size_bytes(file);
  } catch (const InvalidArgument&) {
    return false;
  }
}

Manifest Staging::manifest(const std::string& name) const {
  const auto file = manifest_path(path(name));
  return read_manifest(files_, file);
}

// The order in which a single checkpoint is committed.
void Staging::replace(const std::string& name) const {
  const auto from = path(name);
  const auto to = join_path(directory_, name);
  files_.create_directories(parent_path(to));
  files_.rename(manifest_path(from), pending_manifest_path(to));
  files_.sync_directory(parent_path(to));
  files_.rename(from, to);
  files_.sync_directory(parent_path(to));
  files_.rename(pending_manifest_path(to), manifest_path(to));
  files_.sync_directory(parent_path(to));
}

void Staging::publish() {
  files_.sync_directory(partial_);
  const auto marker = join_path(directory_, kMarker);
  const auto published = join_path(directory_, kPublished);
  const bool has_files = files_.is_directory(directory_) && !files_.list(directory_).empty();
  if (has_files) {
    // While files are replaced one by one, the directory is no conversion's.
    if (files_.exists(published)) {
      files_.remove(published);
      files_.sync_directory(directory_);
    }
    for (const auto& name : names_) replace(name);
    // A copy goes along: without its own marker, the partial directory would be nobody's.
    const auto copy = join_path(partial_, kPublished);
    files_.write_atomically(copy, read_marker(files_, join_path(partial_, kMarker)), 0666);
    files_.rename(copy, marker);
    files_.sync_directory(directory_);
    files_.remove_directory_tree(partial_);
  } else {
    files_.rename(partial_, directory_);
    files_.sync_directory(parent_path(directory_));
  }
  files_.rename(marker, published);
  files_.sync_directory(directory_);
}

void Staging::discard() { files_.remove_directory_tree(partial_); }

}  // namespace tessera::checkpoint
