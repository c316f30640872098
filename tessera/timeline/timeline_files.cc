#include "tessera/timeline/timeline_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files/text_file.h"
#include "tessera/base/printable.h"
#include "tessera/timeline/align_clocks.h"
#include "tessera/timeline/step_times.h"
#include "tessera/timeline/timeline_json.h"

namespace tessera::timeline {
namespace {

// Of a job whose number of ranks has changed, the parts of its last generation.
void keep_latest(std::vector<RankTimeline>& parts) {
  const auto latest =
      std::ranges::max_element(parts, {}, [](const RankTimeline& part) { return part.clocks.system_ms; });
  std::erase_if(parts, [size = latest->rank.size](const RankTimeline& part) { return part.rank.size != size; });
}

std::vector<RankTimeline> read_parts(FileSystem& files, const std::vector<std::string>& paths) {
  std::vector<RankTimeline> ranks;
  for (const std::string& path : paths) {
    JobTimeline read = read_timeline(files, path);
    if (!read.clocks.empty()) {
      throw InvalidArgument("{}: this is a whole job's timeline; name the parts of its ranks, FILE.rank.N",
                            printable(path));
    }
    for (RankTimeline& rank : read.ranks) ranks.push_back(std::move(rank));
  }
  return ranks;
}

// "rank 2", "ranks 0, 3".
std::string name_ranks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

// The ranks that could not write their parts, and what the first of them says of it.
struct UnwrittenParts {
  std::vector<int> ranks;
  std::string reason;

  void add(int rank, const std::string& why) {
    if (ranks.empty()) reason = printable(why);
    ranks.push_back(rank);
  }
};

// Why ranks have no spans: those that could not write them, and the others of `missing`, which wrote nothing.
std::string why_missing(const std::vector<int>& missing, const UnwrittenParts& unwritten) {
  std::vector<int> silent = missing;
  std::erase_if(silent, [&](int rank) { return std::ranges::find(unwritten.ranks, rank) != unwritten.ranks.end(); });
  std::vector<std::string> words;
  if (!unwritten.ranks.empty()) {
    words.push_back(fmt::format("{}, which could not write: {}", name_ranks(unwritten.ranks), unwritten.reason));
  }
  if (!silent.empty()) words.push_back(fmt::format("{}, which wrote nothing", name_ranks(silent)));
  return fmt::format("{}", fmt::join(words, "; and without "));
}

constexpr TextKind kTimelineKind{"a timeline", int64_t{2} << 30, "record fewer steps (--trace_steps FIRST:LAST)"};

}  // namespace

JobTimeline read_timeline(FileSystem& files, const std::string& path) {
  return parse_timeline(read_text_file(files, path, kTimelineKind), path);
}

JobTimeline read_job(FileSystem& files, const std::string& path) {
  JobTimeline job = read_timeline(files, path);
  return job.clocks.empty() ? align(std::move(job.ranks)) : job;
}

JobTimeline join_parts(FileSystem& files, const std::vector<std::string>& parts, const std::string& predicted) {
  JobTimeline job = align(read_parts(files, parts));
  if (!predicted.empty()) {
    job.predicted = parse_predicted(read_text_file(files, predicted, kTimelineKind), predicted);
  }
  return job;
}

void write_timeline(FileSystem& files, const std::string& path, const JobTimeline& job) {
  files.write_atomically(path, job_json(job, find_steps(job)), 0600);
}

std::vector<int> ranks_with_parts(FileSystem& files, const std::string& file, int num_ranks) {
  std::vector<int> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (files.exists(part_path(file, rank))) ranks.push_back(rank);
  }
  return ranks;
}

std::string join_job(FileSystem& files, const std::string& file, int num_ranks) {
  const std::string shown = printable(file);
  try {
    const std::vector<int> ranks = ranks_with_parts(files, file, num_ranks);
    if (ranks.empty()) return "";
    std::vector<std::string> parts;
    std::vector<std::string> filled;
    UnwrittenParts unwritten;
    for (const int rank : ranks) {
      parts.push_back(part_path(file, rank));
      if (files.size_bytes(parts.back()) > 0) {
        filled.push_back(parts.back());
      } else {
        unwritten.add(rank, "there was no room on the disk for a word");
      }
    }
    std::vector<RankTimeline> read = read_parts(files, filled);
    if (!read.empty()) keep_latest(read);
    for (const RankTimeline& part : read) {
      if (!part.failure.empty()) unwritten.add(part.rank.rank, part.failure);
    }
    if (std::ranges::none_of(read, &RankTimeline::is_written)) {
      for (const std::string& part : parts) files.remove(part);
      if (!unwritten.ranks.empty()) {
        std::ranges::sort(unwritten.ranks);
        return fmt::format("there is no timeline {}: {} could not write: {}", shown, name_ranks(unwritten.ranks),
                           unwritten.reason);
      }
      return fmt::format("{}: no rank has come to write a timeline, or none ran a step that was to be recorded", shown);
    }
    const JobTimeline job = align(std::move(read));
    const std::vector<int> missing = job.missing_ranks();
    write_timeline(files, file, job);
    for (const std::string& part : parts) files.remove(part);
    if (files.exists(request_path(file))) files.remove(request_path(file));
    std::string text = fmt::format("the timeline is {}", shown);
    if (!missing.empty()) {
      text += ", without " + why_missing(missing, unwritten);
    }
    if (job.num_dropped() > 0) {
      text += fmt::format("; the buffers were too small for {}", plural(job.num_dropped(), "span"));
    }
    return text + fmt::format("; tessera trace summary {} says where the time went", shown);
  } catch (const std::exception& error) {
    return fmt::format("the ranks' timelines could not be joined into {}: {}; tessera trace merge does it from {}",
                       shown, error.what(), printable(part_path(file, 0)) + ", ...");
  }
}

void remove_earlier(FileSystem& files, const std::string& file, const std::vector<int>& ranks) {
  std::vector<std::string> paths{file, request_path(file)};
  for (const int rank : ranks) paths.push_back(part_path(file, rank));
  for (const std::string& path : paths) {
    if (files.exists(path) && !files.is_directory(path)) files.remove(path);
  }
}

}  // namespace tessera::timeline
