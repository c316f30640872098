#include "tessera/checkpoint/convert/transform.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/text_file.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/base/workers/in_threads.h"
#include "tessera/checkpoint/convert/conversion.h"
#include "tessera/checkpoint/convert/output_writer.h"
#include "tessera/checkpoint/convert/staging.h"
#include "tessera/checkpoint/convert/tensor_hashes.h"
#include "tessera/checkpoint/format/ckpt_path.h"
#include "tessera/checkpoint/lock/waiting_lock.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/checkpoint/strategy/needed_ranks.h"

namespace tessera::checkpoint {
namespace {

// More than many machines have cores: some of the threads wait for the disk.
constexpr int kDefaultThreads = 4;
// So that a destination of a thousand ranks does not run out of file descriptors.
constexpr size_t kFilesAtOnce = 64;

void refuse_same_directory(FileSystem& files, const std::string& from, const std::string& to) {
  std::error_code ignored;
  const bool is_same = plain_path(from) == plain_path(to) ||
                       (&files == &FileSystem::local() && std::filesystem::equivalent(from, to, ignored));
  if (is_same) throw InvalidArgument("{}: is source and destination; the source is never changed", from);
}

void require_space(FileSystem& files, const std::string& directory, int64_t num_bytes) {
  if (&files != &FileSystem::local()) return;
  std::error_code error;
  auto existing = std::filesystem::absolute(directory, error);
  if (error) throw IoError("{}: cannot be looked at: {}", directory, error.message());
  // What cannot be looked at is not there; whoever makes it says why it cannot be made.
  while (!std::filesystem::exists(existing, error) && existing != existing.parent_path()) {
    existing = existing.parent_path();
  }
  const auto space = std::filesystem::space(existing, error);
  if (error || static_cast<int64_t>(space.available) >= num_bytes) return;
  throw IoError("{}: the conversion writes {}, there is room for {}", directory, format_bytes(num_bytes),
                format_bytes(static_cast<int64_t>(space.available)));
}

std::string describe_file(FileSystem& files, const std::string& path) {
  const auto text = path.empty() ? std::string() : read_settings(files, path, "strategy file");
  return fmt::format("{} {:08x}", text.size(), crc32c(std::as_bytes(std::span(text))));
}

// What is converted, and how: an interrupted conversion may only be taken up when nothing of it has changed.
std::string fingerprint(FileSystem& files, const SourceFiles& sources, const std::string& prefix,
                        const std::string& src_strategy_file, const std::string& dst_strategy_file) {
  std::string text = fmt::format("tessera conversion 1\nprefix {}\nfrom {}\nto {}\n", prefix,
                                 describe_file(files, src_strategy_file), describe_file(files, dst_strategy_file));
  for (const auto& [rank, source] : sources) {
    text += fmt::format("rank {} {} {}", rank, source.path(), source.size_bytes());
    if (source.crc32c()) text += fmt::format(" crc32c {:08x}", *source.crc32c());
    std::error_code error;
    const auto time = std::filesystem::last_write_time(source.path(), error);
    if (&files == &FileSystem::local() && !error) text += fmt::format(" time {}", time.time_since_epoch().count());
    text += "\n";
  }
  return text;
}

void warn_of_slices(const Conversion& conversion, const ParameterPlacement& from, const ParameterPlacement& to) {
  const auto& names = conversion.copied_slices();
  if (names.empty()) return;
  const std::string& path = from.has_layouts() && from.find(*names.begin()) == nullptr ? from.path() : to.path();
  log_warning(
      "{} does not list {} split parameter{}, \"{}\" among them; copied unchanged from the rank of equal number", path,
      names.size(), names.size() == 1 ? "" : "s", *names.begin());
}

// The sum of what is written; finds every contradiction before anything is.
struct Planned {
  std::vector<std::string> names;
  std::vector<int64_t> bytes;
  int64_t num_bytes = 0;
};
Planned plan(Conversion& conversion, const std::string& prefix) {
  Planned planned;
  for (int64_t rank = 0; rank < conversion.num_outputs(); ++rank) {
    const auto output = conversion.output(rank);
    if (output.size_bytes == 0)
      throw InvalidArgument("rank {} would hold nothing: every parameter's part is empty", rank);
    planned.names.push_back(fmt::format("rank_{}/{}{}{}", rank, prefix, rank, kCheckpointSuffix));
    planned.bytes.push_back(output.size_bytes);
    planned.num_bytes += output.size_bytes;
  }
  return planned;
}

// Calls the user's function, from one thread at a time, with what has been done.
class ProgressCounter {
 public:
  ProgressCounter(const TransformOptions& options, int64_t num_files, int64_t num_bytes) : report_(options.progress) {
    progress_.num_files = num_files;
    progress_.num_bytes = num_bytes;
  }
  void add(int64_t files, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    progress_.files_done += files;
    progress_.bytes_done += bytes;
    if (report_) report_(progress_);
  }

 private:
  const std::function<void(const TransformProgress&)>& report_;
  std::mutex mutex_;
  TransformProgress progress_;
};

bool are_verified(FileSystem& files, const std::vector<std::string>& paths) {
  return std::all_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return files.exists(path) && verify(files, path).state == Verified::kYes;
  });
}

// Writes some files of the destination in one pass over the sources. Returns their manifests.
std::vector<Manifest> convert(OutputWriter& writer, std::span<const OutputFile> outputs, int64_t world_size,
                              const std::vector<std::string>& names, Staging& staging, int num_threads,
                              ProgressCounter& progress) {
  std::vector<std::unique_ptr<WritableFile>> opened;
  std::vector<WritableFile*> to;
  std::vector<std::string> own_names;
  for (const auto& output : outputs) {
    const auto& name = names[static_cast<size_t>(output.rank)];
    own_names.push_back(base_name(name));
    opened.push_back(staging.create(name));
    to.push_back(opened.back().get());
  }
  auto manifests = writer.write(outputs, to, own_names, world_size);
  for_each_in_threads(num_threads, outputs.size(), [&](size_t i) {
    to[i]->sync();
    to[i]->close();
    staging.complete(names[static_cast<size_t>(outputs[i].rank)], manifests[i]);
    progress.add(1, 0);
  });
  return manifests;
}

}  // namespace

TransformReport transform_checkpoints(FileSystem& files, const std::string& source, const std::string& dst_directory,
                                      const std::string& prefix, const std::string& src_strategy_file,
                                      const std::string& dst_strategy_file, const TransformOptions& options) {
  if (prefix.find('/') != std::string::npos) throw InvalidArgument("prefix \"{}\": must not contain /", prefix);
  refuse_same_directory(files, source, dst_directory);
  // Where each rank of a job makes the same call, one does the work, and the others find it done.
  const WaitingLock lock(files, plain_path(dst_directory) + ".converting");
  const auto sources = open_checkpoint(files, source);
  const auto from = ParameterPlacement::read(files, src_strategy_file);
  const auto to = ParameterPlacement::read(files, dst_strategy_file);
  Conversion conversion(from, to, sources, options.check_replicas);
  const auto planned = plan(conversion, prefix);
  const auto what = fingerprint(files, sources, prefix, src_strategy_file, dst_strategy_file);
  TransformReport report{.sources = paths_of(sources)};
  for (const auto& name : planned.names) report.files.push_back(join_path(plain_path(dst_directory), name));
  if (Staging::was_published(files, dst_directory, what) && are_verified(files, report.files)) {
    report.files_kept = std::ssize(report.files);
    return report;
  }
  warn_of_slices(conversion, from, to);
  Staging staging(files, dst_directory, what, planned.names);

  TensorHashes written;  // of files that were kept, too
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < conversion.num_outputs(); ++rank) {
    const auto& name = planned.names[static_cast<size_t>(rank)];
    if (staging.is_complete(name)) {
      ++report.files_kept;
      written.add(staging.manifest(name));
    } else {
      ranks.push_back(rank);
      report.num_bytes += planned.bytes[static_cast<size_t>(rank)];
    }
  }
  try {
    require_space(files, dst_directory, report.num_bytes);
  } catch (const IoError&) {
    if (report.files_kept == 0) staging.discard();
    throw;
  }

  ProgressCounter progress(options, std::ssize(ranks), report.num_bytes);
  const int num_threads = options.num_threads > 0 ? options.num_threads : kDefaultThreads;
  OutputWriter writer(
      files, sources,
      {.verify = options.verify, .num_threads = num_threads, .count = [&](int64_t bytes) { progress.add(0, bytes); }});
  try {
    for (size_t first = 0; first < ranks.size(); first += kFilesAtOnce) {
      std::vector<OutputFile> outputs;
      for (size_t i = first; i < std::min(first + kFilesAtOnce, ranks.size()); ++i) {
        outputs.push_back(conversion.output(ranks[i]));
      }
      for (const auto& manifest :
           convert(writer, outputs, conversion.num_outputs(), planned.names, staging, num_threads, progress)) {
        written.add(manifest);
      }
    }
    // The proof: by what was written, not by how it came to be.
    written.require_same(TensorHashes(sources), dst_directory);
  } catch (const InvalidArgument&) {  // damaged sources: what was made of them is worth nothing
    staging.discard();
    throw;
  }
  staging.publish();
  return report;
}

std::vector<int64_t> rank_list_for_transform(FileSystem& files, int64_t rank, const std::string& src_strategy_file,
                                             const std::string& dst_strategy_file) {
  const auto from = ParameterPlacement::read(files, src_strategy_file);
  const auto to = ParameterPlacement::read(files, dst_strategy_file);
  const int64_t to_stage = to.stage_of(rank);
  // The positions that are read in a stage of so many ranks, of which `home` is preferred.
  const auto positions_of = [&](int64_t num_ranks, int64_t home) {
    std::set<int64_t> positions = {home};
    for (const auto& [name, parameter] : from.parameters()) {
      const auto* wanted = to.find(name);
      if (to.has_layouts() && (wanted == nullptr || !wanted->is_in(to_stage))) continue;
      const int ndim = std::max(parameter.ndim(), wanted == nullptr ? 0 : wanted->ndim());
      const auto target =
          wanted == nullptr ? Slicing::whole(ndim, 1) : slicing_for(wanted->in(to_stage), ndim, to.path());
      for (const auto& [stage, in_stage] : parameter.stages) {
        if (in_stage.slicing.num_ranks() != num_ranks) continue;
        const auto source = slicing_for(in_stage, ndim, from.path());
        Shape shape;
        for (int dim = 0; dim < ndim; ++dim) shape.push_back(std::lcm(source.num_parts(dim), target.num_parts(dim)));
        if (const auto known = parameter.shape(); !known.empty()) shape = Shape(known);
        if (wanted != nullptr && !wanted->shape().empty()) shape = Shape(wanted->shape());
        const auto region = target.region(shape, to.position_of(rank));
        for (const auto& [slice, position] :
             choose_holders(source, shape, region, home, [](int64_t) { return true; })) {
          positions.insert(position);
        }
      }
    }
    return positions;
  };
  std::vector<int64_t> ranks;
  for (const int64_t stage : needed_stages(from, to, to_stage)) {
    const int64_t first = from.first_rank_of(stage);
    const int64_t home = home_rank(from, to, stage, rank) - first;
    for (const int64_t position : positions_of(from.num_ranks_of(stage), home)) ranks.push_back(first + position);
  }
  return ranks;
}

void transform_checkpoint_by_rank(FileSystem& files, int64_t rank,
                                  const std::map<int64_t, std::string>& checkpoint_files, const std::string& save_path,
                                  const std::string& src_strategy_file, const std::string& dst_strategy_file,
                                  const TransformOptions& options) {
  require_ckpt_suffix(save_path);
  const auto from = ParameterPlacement::read(files, src_strategy_file);
  const auto to = ParameterPlacement::read(files, dst_strategy_file);
  to.stage_of(rank);
  const auto sources = open_files_of_ranks(files, checkpoint_files);
  for (const auto& path : paths_of(sources)) {
    if (plain_path(path) != plain_path(save_path)) continue;
    throw InvalidArgument("{}: is source and destination; the source is never changed", path);
  }
  Conversion conversion(from, to, sources, options.check_replicas);
  const auto output = conversion.output(rank);
  if (output.size_bytes == 0)
    throw InvalidArgument("rank {} would hold nothing: every parameter's part is empty", rank);
  warn_of_slices(conversion, from, to);
  require_space(files, parent_path(save_path), output.size_bytes);
  ProgressCounter progress(options, 1, output.size_bytes);
  OutputWriter(files, sources,
               {.verify = options.verify,
                .num_threads = options.num_threads > 0 ? options.num_threads : kDefaultThreads,
                .count = [&](int64_t bytes) { progress.add(0, bytes); }})
      .commit(output, conversion.num_outputs(), save_path);
  progress.add(1, 0);
}

}  // namespace tessera::checkpoint
