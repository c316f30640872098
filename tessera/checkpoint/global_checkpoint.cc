#include "tessera/checkpoint/global_checkpoint.h"

#include <algorithm>
#include <map>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/box_reader.h"
#include "tessera/checkpoint/crc_sum.h"
#include "tessera/checkpoint/range_reader.h"
#include "tessera/checkpoint/wire.h"

namespace tessera::checkpoint {
namespace {

// Large enough for full disk speed, small enough to stay in the cache until the checksum is taken.
constexpr int64_t kPieceBytes = 1 << 20;
// Shorter runs are not worth a system call each: as long as rows fit into a page, which the disk reads anyway, what
// lies between them is read along.
constexpr int64_t kMinRunBytes = 512;
constexpr int64_t kPageBytes = 4096;
// So that a checkpoint of a thousand ranks does not run out of file descriptors.
constexpr size_t kMaxOpenFiles = 64;

Box part_of(const SourceTensor& tensor) { return tensor.part ? tensor.part->box : Box::whole(tensor.shape); }
const Shape& global_of(const SourceTensor& tensor) { return tensor.part ? tensor.part->global : tensor.shape; }

// From here on the dims of a box lie one row after the other in its container.
int first_contiguous_dim(const Box& box, const Box& container) {
  int dim = std::max(box.ndim() - 1, 0);
  while (dim > 0 && box.shape[dim] == container.shape[dim]) --dim;
  return dim;
}

// Calls `f` with the parts of a box that are contiguous in a container of it, in order.
void for_each_run(const Box& box, const Box& container, FunctionRef<void(const Box&)> f) {
  const int inner = first_contiguous_dim(box, container);
  Box run = box;
  for (int dim = 0; dim < inner; ++dim) run.shape[dim] = 1;
  while (true) {
    f(run);
    int dim = inner - 1;
    while (dim >= 0 && ++run.offset[dim] == box.offset[dim] + box.shape[dim]) {
      run.offset[dim] = box.offset[dim];
      --dim;
    }
    if (dim < 0) return;
  }
}

// In elements, row-major.
int64_t offset_in(const Box& container, const Box& box) {
  const auto strides = dense_strides(container.shape);
  int64_t offset = 0;
  for (int dim = 0; dim < box.ndim(); ++dim) offset += (box.offset[dim] - container.offset[dim]) * strides[dim];
  return offset;
}

// What is left of a box without a part of it.
std::vector<Box> without(Box box, const Box& part) {
  std::vector<Box> rest;
  for (int dim = 0; dim < box.ndim(); ++dim) {
    const int64_t end = box.offset[dim] + box.shape[dim];
    const int64_t part_end = part.offset[dim] + part.shape[dim];
    const auto cut = [&](int64_t from, int64_t to) {
      if (from == to) return;
      Box piece = box;
      piece.offset[dim] = from;
      piece.shape[dim] = to - from;
      rest.push_back(piece);
    };
    cut(box.offset[dim], part.offset[dim]);
    cut(part_end, end);
    box.offset[dim] = part.offset[dim];
    box.shape[dim] = part.shape[dim];
  }
  return rest;
}

// What to read for a box: itself, with whole rows of its container where its own runs are short.
Box box_to_read(Box box, const Box& container, int64_t element_bytes) {
  int64_t run_bytes = element_bytes;
  int64_t row_bytes = element_bytes;
  for (int dim = box.ndim() - 1; dim > 0; --dim) {
    run_bytes *= box.shape[dim];
    row_bytes *= container.shape[dim];
    if (run_bytes >= kMinRunBytes || row_bytes > kPageBytes) break;
    box.offset[dim] = container.offset[dim];
    box.shape[dim] = container.shape[dim];
    run_bytes = row_bytes;
  }
  return box;
}

// The checkpoints of the ranks beside the one of a folder rank_N, those that are missing by name.
struct OtherRanks {
  std::vector<std::string> paths;
  std::vector<std::string> missing;
};
OtherRanks other_ranks(FileSystem& files, const std::string& path, int world_size) {
  const auto folder = parent_path(path);
  const auto own = rank_of_folder(base_name(folder));
  if (!own) {
    throw InvalidArgument(
        "{}: is one rank's part of a checkpoint; to be read together they must lie in folders rank_0 to rank_{}", path,
        world_size - 1);
  }
  OtherRanks others;
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank == *own) continue;
    const auto other = join_path(join_path(parent_path(folder), fmt::format("rank_{}", rank)), base_name(path));
    (files.exists(other) ? others.paths : others.missing).push_back(other);
  }
  return others;
}

// What has no name may be of any training.
void require_job(const std::string& path, const std::optional<CheckpointInfo>& info, const std::string& job_name) {
  if (!info || info->job_name.empty() || job_name.empty() || info->job_name == job_name) return;
  throw InvalidArgument(
      "{}: is of the training \"{}\", not of \"{}\"; to go on with it nevertheless accept other jobs, to start a new "
      "training from its weights load the parameters only",
      path, info->job_name, job_name);
}

}  // namespace

GlobalCheckpoint GlobalCheckpoint::open(FileSystem& files, const std::string& path, const std::string& job_name) {
  if (files.is_directory(path)) {
    const auto first_folder = join_path(path, "rank_0");
    const auto folder = files.is_directory(first_folder) ? first_folder : path;
    std::string problem;
    for (const auto& candidate : checkpoints_newest_first(files, folder)) {
      try {
        auto checkpoint = open(files, candidate, job_name);
        if (!checkpoint.missing_.empty()) throw InvalidArgument("{}: is missing", checkpoint.missing_[0]);
        if (!problem.empty()) log_warning("{}; {} is taken instead", problem, candidate);
        return checkpoint;
      } catch (const InvalidArgument& error) {
        if (problem.empty()) problem = error.what();
      }
    }
    if (!problem.empty()) throw InvalidArgument(problem);
    throw InvalidArgument("{}: holds no checkpoint: neither rank_0/*.ckpt nor *.ckpt", path);
  }
  if (!files.exists(path) && rank_of_folder(base_name(parent_path(path)))) {
    // A rank of a larger job than that which saved.
    const auto first = join_path(join_path(parent_path(parent_path(path)), "rank_0"), base_name(path));
    if (first != path && files.exists(first)) return open(files, first, job_name);
  }
  auto sources = SourceFile::open_all(files, path);
  require_job(path, sources[0].info(), job_name);
  std::vector<std::string> missing;
  if (sources.size() == 1 && sources[0].holds_parts()) {
    auto others = other_ranks(files, path, sources[0].info()->world_size);
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
    const Shape& global = global_of(tensor);
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
      (!entry.is_text && (tensor.dtype != entry.dtype || global_of(tensor) != entry.shape))) {
    throw InvalidArgument("{}: {} is of {}{}, in {} it is of {}", sources_[source].path(), quoted_name(tensor.name),
                          to_string(tensor.dtype), global_of(tensor), path_, entry.type_text());
  }
  const Box box = part_of(tensor);
  for (const auto& other : parts_[it->second]) {
    if (entry.is_text || tensor.appended) return;
    if (!(other.box == box)) continue;
    if (other.tensor->crc32c == tensor.crc32c) return;
    throw InvalidArgument("{}: {} {} does not have the same values as in {}, which holds the same part",
                          sources_[source].path(), quoted_name(tensor.name), box.to_string(),
                          sources_[other.source].path());
  }
  parts_[it->second].push_back({source, &tensor, box});
}

const StoredEntry* GlobalCheckpoint::find(std::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &entries_[it->second];
}

// One rank's part in read().
class GlobalCheckpoint::Reading {
 public:
  explicit Reading(const GlobalCheckpoint& checkpoint) : checkpoint_(checkpoint) {}

  void read(const Wanted& wanted) {
    const auto it = checkpoint_.index_.find(wanted.name);
    if (it == checkpoint_.index_.end() || checkpoint_.entries_[it->second].is_text) {
      throw InvalidArgument("{}: holds no tensor {}", checkpoint_.path_, quoted_name(wanted.name));
    }
    if (wanted.box.is_empty()) return;
    report.bytes_wanted +=
        wanted.box.shape.num_elements() * static_cast<int64_t>(size_bytes(checkpoint_.entries_[it->second].dtype));
    std::vector<Box> rest{wanted.box};
    for (const auto& part : checkpoint_.parts_[it->second]) {
      std::vector<Box> left;
      for (const Box& box : rest) {
        const auto common = intersection(box, part.box);
        if (!common) {
          left.push_back(box);
          continue;
        }
        read_part(part, *common, wanted);
        const auto others = without(box, *common);
        left.insert(left.end(), others.begin(), others.end());
      }
      rest = std::move(left);
    }
    if (rest.empty()) return;
    throw InvalidArgument(
        "{}: holds no {} of {}{}", checkpoint_.path_, rest[0].to_string(), quoted_name(wanted.name),
        checkpoint_.missing_.empty() ? std::string() : fmt::format("; {} is missing", checkpoint_.missing_[0]));
  }

  // Checks what this rank read completely by itself.
  void verify_own() {
    for (auto& [key, slice] : slices_) {
      if (!slice.expected || slice.all.num_bytes() != slice.size_bytes) continue;
      require(key, slice, slice.all);
      slice.is_verified = true;
    }
  }

  // What is left to check together: a line for each slice.
  std::string open_sums() const {
    std::string text;
    for (const auto& [key, slice] : slices_) {
      if (slice.is_verified || !slice.expected || slice.first.num_bytes() == 0) continue;
      text += fmt::format("{} {} {}\n", slice.first.num_bytes(), slice.first.crc32c(), key);
    }
    return text;
  }

  void verify_together(const std::vector<std::string>& of_ranks) {
    std::map<std::string, CrcSum> sums;
    for (const auto& text : of_ranks) {
      for (const auto& line : split(text, '\n')) {
        if (line.empty()) continue;
        const auto bytes_end = line.find(' ');
        const auto sum_end = line.find(' ', bytes_end + 1);
        const auto bytes = parse_int(line.substr(0, bytes_end), "bytes");
        const auto sum = parse_int(line.substr(bytes_end + 1, sum_end - bytes_end - 1), "checksum");
        sums[std::string(line.substr(sum_end + 1))].add(CrcSum(bytes, static_cast<uint32_t>(sum)));
      }
    }
    for (auto& [key, slice] : slices_) {
      const auto it = sums.find(key);
      if (slice.is_verified || it == sums.end() || it->second.num_bytes() != slice.size_bytes) continue;
      require(key, slice, it->second);
      slice.is_verified = true;
    }
    for (const auto& [key, slice] : slices_) ++(slice.is_verified ? report.slices_verified : report.slices_unverified);
  }

  Report report;

 private:
  // What was read of a stored slice, by all of this rank's boxes, and by those for which it answers.
  struct Slice {
    std::string path;
    int64_t size_bytes = 0;
    std::optional<uint32_t> expected;
    CrcSum all;
    CrcSum first;
    bool is_verified = false;
  };

  static void require(const std::string& key, const Slice& slice, const CrcSum& sum) {
    if (sum.crc32c() == *slice.expected) return;
    throw InvalidArgument("{}: {} is damaged: crc32c is {:08x}, it must be {:08x}", slice.path, key, sum.crc32c(),
                          *slice.expected);
  }

  void read_part(const Part& part, const Box& common, const Wanted& wanted) {
    const DType dtype = part.tensor->dtype;
    const auto element_bytes = static_cast<int64_t>(size_bytes(dtype));
    auto& slice = slices_[fmt::format("{} {}", part.box.to_string(), quoted_name(wanted.name))];
    slice.path = checkpoint_.sources_[part.source].path();
    slice.size_bytes = part.tensor->size_bytes;
    slice.expected = part.tensor->crc32c;
    for_each_run(box_to_read(common, part.box, element_bytes), part.box, [&](const Box& run) {
      for_each_piece(run, kPieceBytes / element_bytes, [&](const Box& piece) {
        const Box needed = *intersection(piece, common);
        const TensorView to = view_of(wanted.to, relative(needed, wanted.box));
        const bool in_place = needed == piece && to.dtype == dtype && to.is_dense();
        const int64_t bytes = piece.shape.num_elements() * element_bytes;
        if (!in_place) scratch_.resize(static_cast<size_t>(kPieceBytes));
        const std::span<std::byte> content(in_place ? static_cast<std::byte*>(to.data) : scratch_.data(),
                                           static_cast<size_t>(bytes));
        read_content(reader_of(part.source), part.tensor->pieces, offset_in(part.box, piece) * element_bytes, content);
        report.bytes_read += bytes;
        for_each_run(needed, piece, [&](const Box& counted) {
          const auto begin = static_cast<size_t>(offset_in(piece, counted) * element_bytes);
          const auto size = static_cast<size_t>(counted.shape.num_elements() * element_bytes);
          const int64_t offset = offset_in(part.box, counted) * element_bytes;
          CrcSum sum;
          sum.add(content.subspan(begin, size), offset, slice.size_bytes);
          slice.all.add(sum);
          if (wanted.is_first) slice.first.add(sum);
        });
        if (!in_place) copy_elements(view_of({content.data(), Type{dtype, piece.shape}}, relative(needed, piece)), to);
      });
    });
  }

  const RangeReader& reader_of(size_t source) {
    auto it = readers_.find(source);
    if (it == readers_.end()) {
      if (readers_.size() == kMaxOpenFiles) readers_.clear();
      it = readers_.emplace(source, open_ranges(*checkpoint_.files_, checkpoint_.sources_[source].path())).first;
    }
    return *it->second;
  }

  const GlobalCheckpoint& checkpoint_;
  std::map<std::string, Slice> slices_;  // by box and name
  std::unordered_map<size_t, std::unique_ptr<RangeReader>> readers_;
  std::vector<std::byte> scratch_;
};

GlobalCheckpoint::Report GlobalCheckpoint::read(std::span<const Wanted> wanted, Barrier* barrier) const {
  Reading reading(*this);
  const auto read_own = [&] {
    for (const auto& each : wanted) reading.read(each);
    reading.verify_own();
    return reading.open_sums();
  };
  if (barrier == nullptr) {
    read_own();
    reading.verify_together({});
  } else {
    const auto sums = run_together(*barrier, "cannot load", read_own);
    // All ranks see the same sums, but only those that read from a slice know what it must be.
    run_together(*barrier, "cannot load", [&] {
      reading.verify_together(sums);
      return std::string();
    });
  }
  return reading.report;
}

Tensor GlobalCheckpoint::read_whole(const std::string& name) const {
  const auto* entry = find(name);
  if (entry == nullptr || entry->is_text) throw InvalidArgument("{}: holds no tensor {}", path_, quoted_name(name));
  Tensor value(entry->type());
  const Wanted wanted{name, Box::whole(entry->shape), value.view()};
  read({&wanted, 1});
  return value;
}

}  // namespace tessera::checkpoint
