// GlobalCheckpoint: the values of a checkpoint as global tensors, whatever files hold them: one file of whole values,
// files of several ranks in one directory, or NAME.ckpt in folders rank_0, rank_1, ... A rank reads the regions that
// its own plan wants, and no other bytes.
//     const auto checkpoint = GlobalCheckpoint::open(files, "ckpt/CKP-2_73.ckpt");
//     checkpoint.read({{"fc.weight", region, view}}, &barrier);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/format/ckpt_reader.h"
#include "tessera/checkpoint/format/element_target.h"
#include "tessera/checkpoint/format/region.h"
#include "tessera/checkpoint/lock/barrier.h"
#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/checkpoint/read/source_file.h"

namespace tessera::checkpoint {

// Whether a read may end with stored slices of which too little was read to compare them with the manifest.
enum class Unverified { kAccepted, kRefused };

class GlobalCheckpoint {
 public:
  GlobalCheckpoint(GlobalCheckpoint&&) = default;
  GlobalCheckpoint& operator=(GlobalCheckpoint&&) = default;
  // Reads headers and manifests, not the values. `path` is NAME.ckpt: that checkpoint, with all its files; where it is
  // one rank's part and lies in a folder rank_N, with those of the folders rank_0 to rank_W-1 of W ranks that saved, by
  // this name or each with its rank at the end of the name; a folder rank_N that has none (N >= W) stands for rank_0.
  // Of a directory, Candidates say which.
  // Logs one warning where a manifest is missing. Throws InvalidArgument naming file and tensor when a file is damaged
  // or of another checkpoint, or when a file of the directory is missing; IoError when one cannot be read. Only the
  // folders rank_N whose values are read must be there. `job_name`: a checkpoint of a training of another name is
  // refused, too. One without a name is of any, and "" stands for any.
  static GlobalCheckpoint open(FileSystem& files, const std::string& path, const std::string& job_name = "");

  const std::string& path() const { return path_; }
  // Throws InvalidArgument naming a file of another rank that is missing.
  void require_all_files() const;
  // What the manifest says of the training; absent where there is none.
  const std::optional<CheckpointInfo>& info() const { return info_; }
  // The entries in the order of the files, with global shapes; without pieces: nothing is mapped.
  const std::vector<StoredEntry>& entries() const { return entries_; }
  // nullptr when there is none of that name.
  const StoredEntry* find(std::string_view name) const;

  struct Wanted {
    std::string name;
    Region region;
    TensorView to;  // has the region's shape and any strides; another dtype is converted
    // Whether this rank answers for these bytes' checksum: of the ranks that want the same region, one does.
    bool is_first = true;
    // Takes the elements where it is given: `to` has no memory then, and says their dtype.
    ElementTarget* target = nullptr;

    // Whether the elements go anywhere.
    bool is_taken() const { return to.data != nullptr || target != nullptr; }
  };
  struct Report {
    std::string path = {};     // of what was read
    int64_t bytes_wanted = 0;  // bytes of the regions, as stored
    int64_t bytes_read = 0;    // bytes of the files: more only where runs of less than 512 bytes are wanted
    // The stored slices that this rank, or the ranks together, read from: how many were read completely and had the
    // manifest's checksum, and how many not.
    int64_t slices_verified = 0;
    int64_t slices_unverified = 0;
  };
  // Fills every destination. Each rank checks the slices that it read completely; where ranks read together and give
  // their barrier, all together also check those of which each read a part. Throws on all ranks: InvalidArgument naming
  // the tensor for a checksum that differs, or elements that no file holds, and with Unverified::kRefused for a slice
  // that a manifest describes and that was not read as a whole; IoError when a file cannot be read. Destinations then
  // have any values.
  Report read(std::span<const Wanted> wanted, Barrier* barrier = nullptr,
              Unverified unverified = Unverified::kAccepted) const;
  // Reads the same bytes and throws as read() does, but writes to no destination: for who must know that all is whole
  // before the first value changes.
  Report verify(std::span<const Wanted> wanted, Barrier* barrier = nullptr,
                Unverified unverified = Unverified::kAccepted) const;
  // Compares with the manifest what is stored besides these values: texts, appended numbers. Throws InvalidArgument
  // naming what is damaged, IoError when it cannot be read.
  void verify_others(std::span<const std::string> names) const;
  // A whole value. Throws InvalidArgument for a text or an unknown name.
  Tensor read_whole(const std::string& name) const;

 private:
  // A region of a value and where it is stored.
  struct StoredRegion {
    size_t source = 0;
    const SourceTensor* tensor = nullptr;
    Region region;
  };
  class Reading;

  GlobalCheckpoint(FileSystem& files, std::string path, std::vector<SourceFile> sources,
                   std::vector<std::string> missing);
  void add(size_t source, const SourceTensor& tensor);

  FileSystem* files_;
  std::string path_;
  std::vector<SourceFile> sources_;
  std::optional<CheckpointInfo> info_;
  std::vector<StoredEntry> entries_;
  std::vector<std::vector<StoredRegion>> parts_;  // the parts of each entry
  std::unordered_map<std::string, size_t> index_;
  std::vector<std::string> missing_;  // files of other ranks
};

}  // namespace tessera::checkpoint
