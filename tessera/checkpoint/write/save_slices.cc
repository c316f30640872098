#include "tessera/checkpoint/write/save_slices.h"

#include <algorithm>
#include <exception>
#include <map>

#include "tessera/base/error.h"
#include "tessera/checkpoint/format/ckpt_path.h"
#include "tessera/checkpoint/format/ckpt_writer.h"
#include "tessera/checkpoint/lock/find_writer.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/manifest/manifest_tensor.h"
#include "tessera/checkpoint/write/commit.h"

namespace tessera::checkpoint {
namespace {

TensorView record_of(const Slice& slice) {
  if (!slice.without_first_dim) return slice.value;
  TensorView row = slice.value;
  row.shape = Shape(std::span(slice.value.shape.begin() + 1, slice.value.shape.end()));
  row.strides = Strides(std::span(slice.value.strides.begin() + 1, slice.value.strides.end()));
  return row;
}

// One save of the ranks that see one directory, as one of them does its part.
class SliceSave {
 public:
  SliceSave(FileSystem& files, Barrier& barrier, const SliceSaveOptions& options, std::span<const Slice> slices,
            const CheckpointInfo& info)
      : files_(files),
        barrier_(barrier),
        options_(options),
        slices_(slices),
        info_(info),
        path_(with_ckpt_suffix(options.path)) {}

  std::string run() {
    check_encryption_to_write(options_.encryption);
    choose_leader();
    const auto prepared = run_together(barrier_, "cannot save", [&] { return is_leader() ? prepare() : ""; });
    const auto& leaders = prepared[static_cast<size_t>(leader_)];
    const auto space = leaders.find(' ');
    generation_ = std::stoll(leaders.substr(0, space));
    path_ = path_beside(path_, leaders.substr(space + 1));
    const auto written = write_all();
    lead([&] { stage_manifest(files_, path_, merge(written)); }, /*together=*/true);
    lead([&] { publish(files_, path_); }, /*together=*/false);
    run_together(barrier_, "cannot save", [&] {
      if (is_leader()) finish();
      return std::string();
    });
    return path_;
  }

 private:
  bool is_leader() const { return barrier_.rank() == leader_; }
  bool writes() const {
    return is_leader() || std::any_of(slices_.begin(), slices_.end(), [](const Slice& slice) { return slice.region; });
  }

  // The first of the directory's ranks that has anything to write, for NAME.ckpt must hold something.
  void choose_leader() {
    const auto has_values = barrier_.exchange(
        std::any_of(slices_.begin(), slices_.end(), [](const Slice& slice) { return slice.region; }) ? "values" : "");
    const auto& together = options_.together;
    const auto it = std::find_if(together.begin(), together.end(),
                                 [&](int rank) { return !has_values[static_cast<size_t>(rank)].empty(); });
    leader_ = it == together.end() ? together.front() : *it;
    leader_has_values_ = it != together.end();
  }

  // Returns the generation of the files to be written, higher than any that is there, and the name that all use.
  std::string prepare() {
    if (!leader_has_values_ && options_.append_info.empty()) {
      throw InvalidArgument("{}: a checkpoint must have a tensor with elements", path_);
    }
    path_ = ckpt_to_write(files_, options_.path);
    lock_ = prepare_commit(files_, path_);
    int64_t highest = 0;
    for (const auto& [name, generation] : slice_files()) highest = std::max(highest, generation);
    return fmt::format("{} {}", highest + 1, base_name(path_));
  }

  std::map<std::string, int64_t> slice_files() const {
    std::map<std::string, int64_t> found;
    for (const auto& name : files_.list(parent_path(path_))) {
      if (const auto generation = slice_file_generation(name, base_name(path_))) found[name] = *generation;
    }
    return found;
  }

  std::string own_path() const {
    return is_leader() ? temporary_path(path_) : slice_file_path(path_, barrier_.rank(), generation_);
  }

  Manifest write_file() {
    const auto name = is_leader() ? base_name(path_) : base_name(own_path());
    auto manifest = write_durably(files_, own_path(), access_of(options_.encryption), [&](WritableFile& destination) {
      return write_encrypted(destination, options_.encryption, [&](WritableFile& file) {
        Manifest described{.info = info_};
        CkptWriter writer(file, {.max_record_bytes = options_.max_record_bytes});
        for (const auto& slice : slices_) {
          if (!slice.region) continue;
          Entry entry(slice.name, record_of(slice));
          entry.streamed = slice.streamed;
          // A row of a value that is written without its first dim has no hash: it does not say where it lies.
          if (!slice.without_first_dim) entry.part = GlobalRegion{*slice.region, slice.type.shape};
          described.tensors.push_back(describe(slice, writer.add(entry)));
        }
        if (is_leader()) {
          for (const auto& entry : options_.append_info) {
            described.tensors.push_back(manifest_tensor(entry, writer.add(entry), /*appended=*/true));
          }
        }
        writer.finish();
        described.files.push_back({.name = name, .size_bytes = writer.size_bytes(), .crc32c = writer.crc32c()});
        return described;
      });
    });
    files_.sync_directory(parent_path(path_));
    return manifest;
  }

  static ManifestTensor describe(const Slice& slice, const Written& written) {
    return {.name = slice.name,
            .dtype = slice.type.dtype,
            .shape = slice.type.shape,
            .slices = {{.offset = slice.region->offset,
                        .shape = slice.region->shape,
                        .size_bytes = written.size_bytes,
                        .crc32c = written.crc32c,
                        .hash = slice.without_first_dim ? std::nullopt : written.hash}}};
  }

  // One manifest of those that describe the files of this directory's ranks.
  Manifest merge(const std::vector<std::string>& written) const {
    Manifest manifest{.info = info_};
    std::map<std::string, std::vector<ManifestSlice>> held;
    std::vector<ManifestTensor> appended;
    const auto add = [&](int rank) {
      const auto& text = written[static_cast<size_t>(rank)];
      if (text.empty()) return;
      auto own = parse_manifest(text, fmt::format("what rank {} wrote", rank));
      for (auto& tensor : own.tensors) {
        if (tensor.appended) {
          appended.push_back(std::move(tensor));
          continue;
        }
        auto& slice = held[tensor.name].emplace_back(std::move(tensor.slices[0]));
        slice.file = static_cast<int>(manifest.files.size());
      }
      manifest.files.push_back(std::move(own.files[0]));
    };
    add(leader_);
    for (const int rank : options_.together) {
      if (rank != leader_) add(rank);
    }
    for (const auto& slice : slices_) {
      ManifestTensor tensor{.name = slice.name, .dtype = slice.type.dtype, .shape = slice.type.shape};
      if (const auto it = held.find(slice.name); it != held.end()) {
        tensor.slices = it->second;
      } else if (slice.type.shape.num_elements() == 0) {
        const Region whole = Region::whole(slice.type.shape);
        tensor.slices.push_back({.offset = whole.offset, .shape = whole.shape});
      } else {
        ++manifest.info.values_elsewhere;  // no rank of this directory holds any of it
        continue;
      }
      manifest.tensors.push_back(std::move(tensor));
    }
    manifest.tensors.insert(manifest.tensors.end(), appended.begin(), appended.end());
    return manifest;
  }

  std::vector<std::string> write_all() {
    try {
      return run_together(barrier_, "cannot save", [&] { return writes() ? to_text(write_file()) : ""; });
    } catch (...) {
      remove_own_files();
      throw;
    }
  }

  // A step that the leaders take. Where one of them fails, files are taken back: of all directories (`together`), or of
  // its own. Where this rank does not hear how it went, since another was lost, its file stays: the leader may go on.
  void lead(FunctionRef<void()> step, bool together) {
    std::exception_ptr own;
    std::string failure;
    barrier_.run_long([&] {
      if (!is_leader()) return;
      try {
        if (has_lost_lock()) {
          throw IoError("{}: a later generation of this job saves it now, or somebody has removed {}", path_,
                        saving_lock_path(path_));
        }
        step();
      } catch (const std::exception& error) {
        own = std::current_exception();
        failure = error.what();
      }
    });
    const auto failures = barrier_.exchange(failure);
    const auto failed = std::find_if(failures.begin(), failures.end(), [](const auto& text) { return !text.empty(); });
    if (failed == failures.end()) return;
    if (together || !failures[static_cast<size_t>(leader_)].empty()) remove_own_files();
    if (own) std::rethrow_exception(own);
    throw IoError("rank {}: cannot save: {}", failed - failures.begin(), *failed);
  }

  void finish() {
    finish_commit(files_, path_);
    bool any = false;
    for (const auto& [name, generation] : slice_files()) {
      if (generation == generation_) continue;
      files_.remove(path_beside(path_, name));
      any = true;
    }
    if (any) files_.sync_directory(parent_path(path_));
    lock_.reset();  // here, where the others hear that this rank is alive
  }

  bool has_lost_lock() const { return lock_ != nullptr && !lock_->is_held(); }

  void remove_own_files() {
    if (has_lost_lock()) return;  // those of these names are another process's
    if (is_leader()) return abandon_commit(files_, path_);
    try {
      remove_if_there(files_, own_path());
    } catch (const Error&) {  // on a full or dead disk; what made the save fail is the error that counts
    }
  }

  FileSystem& files_;
  Barrier& barrier_;
  const SliceSaveOptions& options_;
  std::span<const Slice> slices_;
  const CheckpointInfo& info_;
  std::string path_;
  std::unique_ptr<WaitingLock> lock_;  // the leader's, until the save has ended
  int leader_ = 0;
  bool leader_has_values_ = true;
  int64_t generation_ = 1;
};

}  // namespace

std::vector<int> ranks_of_directory(FileSystem& files, Barrier& barrier, const std::string& directory) {
  const auto writers = barrier.exchange(std::to_string(find_writer(files, barrier, directory)));
  std::vector<int> together;
  for (size_t rank = 0; rank < writers.size(); ++rank) {
    if (writers[rank] == writers[static_cast<size_t>(barrier.rank())]) together.push_back(static_cast<int>(rank));
  }
  return together;
}

std::string save_slices(FileSystem& files, Barrier& barrier, const SliceSaveOptions& options,
                        std::span<const Slice> slices, const CheckpointInfo& info) {
  return SliceSave(files, barrier, options, slices, info).run();
}

}  // namespace tessera::checkpoint
