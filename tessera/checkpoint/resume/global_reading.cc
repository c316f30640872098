// Reading regions of values: in threads, each byte of a file once, its checksum taken while it is in the cache. What
// the system has in memory is copied from there, by a thread per core. What lies on the disk is read in large blocks,
// several at a time, so that the disk always has the next one to read while others are summed up and copied to their
// places.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/base/files/mapped_guard.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/base/strings.h"
#include "tessera/base/workers/in_threads.h"
#include "tessera/checkpoint/convert/region_reader.h"
#include "tessera/checkpoint/format/ckpt_file.h"
#include "tessera/checkpoint/format/region_runs.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/read/content_reader.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/checkpoint/threads/crc_sum.h"
#include "tessera/tensor/dlpack/truths.h"

namespace tessera::checkpoint {
namespace {

// Small enough to stay in a core's own cache until the checksum is taken.
constexpr int64_t kPieceBytes = 256 << 10;
// Tasks that lie close together in a file are read in one go. Four of a large value fill a block, with what alignment
// adds to them.
constexpr int64_t kTaskBytes = DiskBlock::kBytes / 4 - DiskBlock::kAlignment;
// Shorter runs are not worth a system call each: as long as rows fit into a page, which the disk reads anyway, what
// lies between them is read along.
constexpr int64_t kMinRunBytes = 512;
constexpr int64_t kPageBytes = 4096;
// So that a checkpoint of a thousand ranks does not run out of file descriptors.
constexpr size_t kMaxOpenFiles = 64;

// What is left of a region without a part of it.
std::vector<Region> without(Region region, const Region& part) {
  std::vector<Region> rest;
  for (int dim = 0; dim < region.ndim(); ++dim) {
    const int64_t end = region.offset[dim] + region.shape[dim];
    const int64_t part_end = part.offset[dim] + part.shape[dim];
    const auto cut = [&](int64_t from, int64_t to) {
      if (from == to) return;
      Region piece = region;
      piece.offset[dim] = from;
      piece.shape[dim] = to - from;
      rest.push_back(piece);
    };
    cut(region.offset[dim], part.offset[dim]);
    cut(part_end, end);
    region.offset[dim] = part.offset[dim];
    region.shape[dim] = part.shape[dim];
  }
  return rest;
}

// Where a byte of a content lies in the file.
int64_t offset_in_file(std::span<const Extent> extents, int64_t offset) {
  for (const Extent& extent : extents) {
    if (offset < extent.size) return extent.offset + offset;
    offset -= extent.size;
  }
  throw InternalError("a tensor's content is shorter than its shape");
}

// A file of which one stretch may be in memory.
class BlockReader : public RangeReader {
 public:
  void use(std::shared_ptr<const RangeReader> file) {
    file_ = std::move(file);
    held_ = {};
  }
  void hold(const Extent& range) {
    held_ = file_->read_block(range.offset, range.size, block_);
    begin_ = range.offset;
  }
  void read(int64_t offset, std::span<std::byte> to) const override {
    if (offset < begin_ || offset + std::ssize(to) > begin_ + std::ssize(held_)) return file_->read(offset, to);
    std::memcpy(to.data(), held_.data() + (offset - begin_), to.size());
  }

 private:
  std::shared_ptr<const RangeReader> file_;
  DiskBlock block_;
  int64_t begin_ = 0;
  std::span<const std::byte> held_;
};

// The files that threads read from.
class OpenFiles {
 public:
  OpenFiles(FileSystem& files, std::span<const SourceFile> sources) : files_(files), sources_(sources) {}

  std::shared_ptr<const RangeReader> of(size_t source) {
    const std::lock_guard lock(mutex_);
    auto it = readers_.find(source);
    if (it == readers_.end()) {
      if (readers_.size() == kMaxOpenFiles) readers_.clear();
      it = readers_.emplace(source, open_ranges(files_, sources_[source].path())).first;
    }
    return it->second;
  }

 private:
  FileSystem& files_;
  std::span<const SourceFile> sources_;
  std::mutex mutex_;
  std::unordered_map<size_t, std::shared_ptr<const RangeReader>> readers_;
};

// What to read for a region: itself, with whole rows of its container where its own runs are short.
Region region_to_read(Region region, const Region& container, int64_t element_bytes) {
  int64_t run_bytes = element_bytes;
  int64_t row_bytes = element_bytes;
  for (int dim = region.ndim() - 1; dim > 0; --dim) {
    run_bytes *= region.shape[dim];
    row_bytes *= container.shape[dim];
    if (run_bytes >= kMinRunBytes || row_bytes > kPageBytes) break;
    region.offset[dim] = container.offset[dim];
    region.shape[dim] = container.shape[dim];
    run_bytes = row_bytes;
  }
  return region;
}

}  // namespace

// One rank's part in read().
class GlobalCheckpoint::Reading {
 public:
  explicit Reading(const GlobalCheckpoint& checkpoint) : checkpoint_(checkpoint) {}

  // Notes what is to be read for a region. `wanted` must outlive the reading.
  void add(const Wanted& wanted) {
    const auto it = checkpoint_.index_.find(wanted.name);
    if (it == checkpoint_.index_.end() || checkpoint_.entries_[it->second].is_text) {
      throw InvalidArgument("{}: holds no tensor {}", checkpoint_.path_, quoted_name(wanted.name));
    }
    if (wanted.region.is_empty()) return;
    report.bytes_wanted +=
        wanted.region.shape.num_elements() * static_cast<int64_t>(size_bytes(checkpoint_.entries_[it->second].dtype));
    std::vector<Region> rest{wanted.region};
    const auto& parts = checkpoint_.parts_[it->second];
    for (size_t p = 0; p < parts.size(); ++p) {
      const auto& part = parts[p];
      std::vector<Region> left;
      for (const Region& region : rest) {
        const auto common = intersection(region, part.region);
        if (!common) {
          left.push_back(region);
          continue;
        }
        add_tasks(part, slices_[{it->second, p}], *common, wanted);
        const auto others = without(region, *common);
        left.insert(left.end(), others.begin(), others.end());
      }
      rest = std::move(left);
    }
    if (rest.empty()) return;
    throw InvalidArgument(
        "{}: holds no {} of {}{}", checkpoint_.path_, rest[0].to_string(), quoted_name(wanted.name),
        checkpoint_.missing_.empty() ? std::string() : fmt::format("; {} is missing", checkpoint_.missing_[0]));
  }

  // Reads all that was noted.
  void run();

  // Checks what this rank read completely by itself.
  void verify_own() {
    for (auto& [place, slice] : slices_) {
      if (!slice.expected || slice.all.num_bytes() != slice.size_bytes) continue;
      slice.require(slice.all);
      slice.is_verified = true;
    }
  }

  // What is left to check together: of each slice its bytes, their sum and how all ranks name it, one after the other.
  std::string open_sums() const {
    std::string text;
    for (const auto& [place, slice] : slices_) {
      if (slice.is_verified || !slice.expected || slice.first.num_bytes() == 0) continue;
      const auto name = slice.name();
      text += fmt::format("{} {} {} {}", slice.first.num_bytes(), slice.first.crc32c(), name.size(), name);
    }
    return text;
  }

  void verify_together(const std::vector<std::string>& of_ranks, Unverified unverified) {
    std::map<std::string, CrcSum, std::less<>> sums;
    for (std::string_view text : of_ranks) {
      const auto number = [&](const std::string& what) {
        const auto end = text.find(' ');
        const auto value = parse_int(text.substr(0, end), what);
        text.remove_prefix(end + 1);
        return value;
      };
      while (!text.empty()) {
        const auto bytes = number("bytes");
        const auto sum = number("checksum");
        const auto name_bytes = static_cast<size_t>(number("the length of a name"));
        sums[std::string(text.substr(0, name_bytes))].add(CrcSum(bytes, static_cast<uint32_t>(sum)));
        text.remove_prefix(name_bytes);
      }
    }
    for (auto& [place, slice] : slices_) {
      if (!slice.is_verified && slice.expected) {
        const auto it = sums.find(slice.name());
        const CrcSum sum = it == sums.end() ? slice.first : it->second;
        if (sum.num_bytes() == slice.size_bytes) {
          slice.require(sum);
          slice.is_verified = true;
        } else if (unverified == Unverified::kRefused) {
          throw InvalidArgument("{}: {} of the {} bytes of {} were read, so its checksum cannot be compared",
                                slice.path, sum.num_bytes(), slice.size_bytes, slice.described());
        }
      }
      ++(slice.is_verified ? report.slices_verified : report.slices_unverified);
    }
  }

  Report report;

 private:
  // What was read of a stored slice, by all of this rank's regions, and by those for which it answers.
  struct Slice {
    const StoredRegion* part = nullptr;
    std::string path;
    int64_t size_bytes = 0;
    std::optional<uint32_t> expected;
    CrcSum all;
    CrcSum first;
    bool is_verified = false;

    // The same on each rank, and no other slice's.
    std::string name() const { return fmt::format("{} {}", part->region.to_string(), part->tensor->name); }
    std::string described() const {
      if (part->region.ndim() == 0) return quoted_name(part->tensor->name);  // all of a scalar
      return fmt::format("{} {}", part->region.to_string(), quoted_name(part->tensor->name));
    }
    void require(const CrcSum& sum) const {
      if (sum.crc32c() == *expected) return;
      throw InvalidArgument("{}: {} is damaged: crc32c is {:08x}, it must be {:08x}", path, described(), sum.crc32c(),
                            *expected);
    }
  };

  // A part of a wanted region, as one file holds it.
  struct Task {
    const StoredRegion* part;
    const Wanted* wanted;
    Slice* slice;
    Region region;
    // What is read of the file for it lies within, with other bytes between where it is not in one piece.
    Extent range;
    int64_t num_bytes = 0;
  };
  // Tasks that follow each other in a file.
  struct Batch {
    size_t begin = 0;  // of tasks_
    size_t end = 0;
    Extent range;
    int64_t num_bytes = 0;
    bool is_on_disk = false;

    // Whether a block can be read for them: it has room, and little is read in vain.
    bool is_dense() const { return DiskBlock::fits(range.offset, range.size) && range.size <= 2 * num_bytes; }
  };

  // What a thread works with.
  class Reader {
   public:
    explicit Reader(const GlobalCheckpoint& checkpoint) : checkpoint_(checkpoint) {}
    // What the tasks of a batch add to the checksums of their slices, each to a place of its own in `sums`.
    void read(const Batch& batch, std::span<const Task> tasks, std::span<CrcSum> sums, OpenFiles& files);
    int64_t bytes_read() const { return bytes_read_; }

   private:
    CrcSum read(const Task& task);
    // Elements of a region, of any strides, to the target that wants them.
    void give(const TensorView& elements, const Region& region, const Wanted& wanted);
    // The same of bytes that nobody wants but for their checksum and that are in memory: they are looked at where they
    // lie, not copied.
    CrcSum look_at(const Task& task);
    struct Mapped {
      std::unique_ptr<ReadableFile> file;
      std::unique_ptr<MappedGuard> guard;
    };
    const Mapped& mapped(size_t source);

    const GlobalCheckpoint& checkpoint_;
    BlockReader file_;
    std::unordered_map<size_t, Mapped> mapped_;
    std::vector<std::byte> scratch_;
    std::vector<std::byte> converted_;
    int64_t bytes_read_ = 0;
  };

  void add_tasks(const StoredRegion& part, Slice& slice, const Region& common, const Wanted& wanted) {
    slice.part = &part;
    slice.path = checkpoint_.sources_[part.source].path();
    slice.size_bytes = part.tensor->size_bytes;
    slice.expected = part.tensor->crc32c;
    const auto element_bytes = static_cast<int64_t>(size_bytes(part.tensor->dtype));
    for_each_piece(common, kTaskBytes / element_bytes, [&](const Region& region) {
      const Region read = region_to_read(region, part.region, element_bytes);
      Region last = read;
      for (int dim = 0; dim < last.ndim(); ++dim) last.offset[dim] += last.shape[dim] - 1;
      const int64_t begin = offset_in_file(part.tensor->pieces, offset_in(part.region, read) * element_bytes);
      const int64_t end =
          offset_in_file(part.tensor->pieces, (offset_in(part.region, last) + 1) * element_bytes - 1) + 1;
      const int64_t num_bytes = read.shape.num_elements() * element_bytes;
      tasks_.push_back({&part, &wanted, &slice, region, {begin, end - begin}, num_bytes});
    });
  }

  // In the order of the files, so that what lies together is read together.
  std::vector<Batch> make_batches(OpenFiles& files);

  const GlobalCheckpoint& checkpoint_;
  std::map<std::pair<size_t, size_t>, Slice> slices_;  // by their entry and its part
  std::vector<Task> tasks_;
};

void GlobalCheckpoint::Reading::Reader::read(const Batch& batch, std::span<const Task> tasks, std::span<CrcSum> sums,
                                             OpenFiles& files) {
  const bool is_wanted = tasks[batch.begin].wanted->is_taken();
  file_.use(files.of(tasks[batch.begin].part->source));
  if (batch.is_on_disk && batch.is_dense()) file_.hold(batch.range);
  for (size_t i = batch.begin; i < batch.end; ++i) {
    sums[i] = is_wanted || batch.is_on_disk ? read(tasks[i]) : look_at(tasks[i]);
  }
}

CrcSum GlobalCheckpoint::Reading::Reader::read(const Task& task) {
  const StoredRegion& part = *task.part;
  const Wanted& wanted = *task.wanted;
  const Region& region = task.region;
  const DType dtype = part.tensor->dtype;
  const auto element_bytes = static_cast<int64_t>(size_bytes(dtype));
  CrcSum sum;
  for_each_run(region_to_read(region, part.region, element_bytes), part.region, [&](const Region& run) {
    for_each_piece(run, kPieceBytes / element_bytes, [&](const Region& piece) {
      const Region needed = *intersection(piece, region);
      const bool has_memory = wanted.to.data != nullptr;
      const TensorView to = has_memory ? view_of(wanted.to, relative(needed, wanted.region)) : TensorView();
      const bool in_place = has_memory && needed == piece && to.dtype == dtype && to.is_dense();
      const int64_t bytes = piece.shape.num_elements() * element_bytes;
      if (!in_place) scratch_.resize(static_cast<size_t>(kPieceBytes));
      const std::span<std::byte> content(in_place ? static_cast<std::byte*>(to.data) : scratch_.data(),
                                         static_cast<size_t>(bytes));
      read_content(file_, part.tensor->pieces, offset_in(part.region, piece) * element_bytes, content);
      bytes_read_ += bytes;
      for_each_run(needed, piece, [&](const Region& counted) {
        const auto begin = static_cast<size_t>(offset_in(piece, counted) * element_bytes);
        const auto size = static_cast<size_t>(counted.shape.num_elements() * element_bytes);
        sum.add(content.subspan(begin, size), offset_in(part.region, counted) * element_bytes, task.slice->size_bytes);
      });
      if (wanted.is_taken() && dtype == DType::kBool) make_truths(content);
      if (in_place || !wanted.is_taken()) return;
      const TensorView elements = view_of({content.data(), Type{dtype, piece.shape}}, relative(needed, piece));
      has_memory ? copy_elements(elements, to) : give(elements, needed, wanted);
    });
  });
  return sum;
}

void GlobalCheckpoint::Reading::Reader::give(const TensorView& elements, const Region& region, const Wanted& wanted) {
  const Region at = relative(region, wanted.region);
  const Type type{wanted.to.dtype, elements.shape};
  const auto size = static_cast<size_t>(type.size_bytes());
  if (elements.dtype == type.dtype && elements.is_dense()) {
    return wanted.target->write(at, {static_cast<const std::byte*>(elements.data), size});
  }
  converted_.resize(std::max(converted_.size(), size));
  copy_elements(elements, {converted_.data(), type});
  wanted.target->write(at, {converted_.data(), size});
}

CrcSum GlobalCheckpoint::Reading::Reader::look_at(const Task& task) {
  const StoredRegion& part = *task.part;
  const auto element_bytes = static_cast<int64_t>(size_bytes(part.tensor->dtype));
  const auto& [file, guard] = mapped(part.source);
  const auto in_file = file->bytes();
  CrcSum sum;
  for_each_run(task.region, part.region, [&](const Region& run) {
    int64_t begin = offset_in(part.region, run) * element_bytes;
    const int64_t end = begin + run.shape.num_elements() * element_bytes;
    bytes_read_ += end - begin;
    int64_t extent_begin = 0;
    for (const Extent& extent : part.tensor->pieces) {
      const int64_t extent_end = extent_begin + extent.size;
      if (begin < std::min(end, extent_end)) {
        const int64_t size = std::min(end, extent_end) - begin;
        const int64_t offset = extent.offset + begin - extent_begin;
        if (offset + size > std::ssize(in_file)) {
          throw IoError("{}: ends at byte {}; it was longer when it was opened", task.slice->path, in_file.size());
        }
        sum.add(in_file.subspan(static_cast<size_t>(offset), static_cast<size_t>(size)), begin, task.slice->size_bytes);
        begin += size;
      }
      extent_begin = extent_end;
    }
    check_equal(begin, end, "bytes of a tensor that its records hold");
  });
  guard->require_whole();
  file->release_pages();
  return sum;
}

const GlobalCheckpoint::Reading::Reader::Mapped& GlobalCheckpoint::Reading::Reader::mapped(size_t source) {
  auto it = mapped_.find(source);
  if (it == mapped_.end()) {
    if (mapped_.size() == kMaxOpenFiles) mapped_.clear();
    const auto& path = checkpoint_.sources_[source].path();
    auto file = checkpoint_.files_->open(path);
    auto guard = std::make_unique<MappedGuard>(file->bytes(), path);
    it = mapped_.emplace(source, Mapped{std::move(file), std::move(guard)}).first;
  }
  return it->second;
}

std::vector<GlobalCheckpoint::Reading::Batch> GlobalCheckpoint::Reading::make_batches(OpenFiles& files) {
  const auto place = [](const Task& task) { return std::pair(task.part->source, task.range.offset); };
  std::stable_sort(tasks_.begin(), tasks_.end(), [&](const Task& a, const Task& b) { return place(a) < place(b); });
  std::vector<Batch> batches;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const Task& task = tasks_[i];
    const Batch own{i, i + 1, task.range, task.num_bytes};
    if (i > 0 && tasks_[i - 1].part->source == task.part->source) {
      Batch joined = batches.back();
      const int64_t end = std::max(joined.range.offset + joined.range.size, task.range.offset + task.range.size);
      joined.end = own.end;
      joined.range.size = end - joined.range.offset;
      joined.num_bytes += task.num_bytes;
      if (joined.is_dense()) {
        batches.back() = joined;
        continue;
      }
    }
    batches.push_back(own);
  }
  for (auto& batch : batches) {
    batch.is_on_disk = files.of(tasks_[batch.begin].part->source)->is_on_disk(batch.range.offset, batch.range.size);
  }
  return batches;
}

void GlobalCheckpoint::Reading::run() {
  OpenFiles files(*checkpoint_.files_, checkpoint_.sources_);
  const auto batches = make_batches(files);
  const auto num_on_disk = std::count_if(batches.begin(), batches.end(), [](const Batch& b) { return b.is_on_disk; });
  const int num_threads =
      std::max(threads_for(report.bytes_wanted), static_cast<int>(std::min<int64_t>(num_on_disk, kReadsInFlight)));
  std::vector<Reader> readers;
  for (int i = 0; i < num_threads; ++i) readers.emplace_back(checkpoint_);
  std::vector<CrcSum> sums(tasks_.size());
  for_each_in_threads(num_threads, batches.size(),
                      [&](const ThreadTurn& turn) { readers[turn.thread].read(batches[turn.i], tasks_, sums, files); });
  for (size_t i = 0; i < tasks_.size(); ++i) {
    tasks_[i].slice->all.add(sums[i]);
    if (tasks_[i].wanted->is_first) tasks_[i].slice->first.add(sums[i]);
  }
  for (const auto& reader : readers) report.bytes_read += reader.bytes_read();
}

GlobalCheckpoint::Report GlobalCheckpoint::read(std::span<const Wanted> wanted, Barrier* barrier,
                                                Unverified unverified) const {
  Reading reading(*this);
  reading.report.path = path();
  const auto read_own = [&] {
    for (const auto& each : wanted) reading.add(each);
    reading.run();
    reading.verify_own();
    return reading.open_sums();
  };
  if (barrier == nullptr) {
    read_own();
    reading.verify_together({}, unverified);
  } else {
    const auto sums = run_together(*barrier, "cannot load", read_own);
    // All ranks see the same sums, but only those that read from a slice know what it must be.
    run_together(*barrier, "cannot load", [&] {
      reading.verify_together(sums, unverified);
      return std::string();
    });
  }
  return reading.report;
}

GlobalCheckpoint::Report GlobalCheckpoint::verify(std::span<const Wanted> wanted, Barrier* barrier,
                                                  Unverified unverified) const {
  std::vector<Wanted> read_only(wanted.begin(), wanted.end());
  for (auto& each : read_only) {
    each.to = TensorView();
    each.target = nullptr;
  }
  return read(read_only, barrier, unverified);
}

}  // namespace tessera::checkpoint
