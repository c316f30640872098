// Timelines as files: the ranks' parts are joined, and a job's timeline is read.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/timeline/rank_timeline.h"

namespace tessera::timeline {

// Reads a timeline or a part. Throws InvalidArgument for what is neither and for files that are too large, IoError
// where the file cannot be read.
JobTimeline read_timeline(FileSystem& files, const std::string& path);
// Reads a job's timeline; of a part, that of a job whose other ranks are missing. Throws as read_timeline() does.
JobTimeline read_job(FileSystem& files, const std::string& path);

// Reads the parts of one job's ranks, and joins them on one clock. `predicted`: a simulation that is shown beside; "":
// none. Throws as read_timeline() and align() do.
JobTimeline join_parts(FileSystem& files, const std::vector<std::string>& parts, const std::string& predicted = "");
// Writes the timeline to `path`, which only its owner may read.
void write_timeline(FileSystem& files, const std::string& path, const JobTimeline& job);

// The ranks, from 0 to `num_ranks` - 1, of which `file` has a part.
std::vector<int> ranks_with_parts(FileSystem& files, const std::string& file, int num_ranks);
// Joins the parts that there are into `file`, and removes them. Returns in a few words what came of it, and what is
// missing; "" where there is no part. Throws nothing: what fails is said, and the parts stay.
std::string join_job(FileSystem& files, const std::string& file, int num_ranks);
// Removes what an earlier job has left: the file, the request, and the parts of these ranks.
void remove_earlier(FileSystem& files, const std::string& file, const std::vector<int>& ranks);

}  // namespace tessera::timeline
