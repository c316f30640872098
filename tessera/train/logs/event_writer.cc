#include "tessera/train/logs/event_writer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "tessera/base/error.h"
#include "tessera/session/executable.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

constexpr std::string_view kEventFile = ".out.tfevents.";  // behind the prefix

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != 0 ? name.data() : "localhost";
}

// Seconds since 1970 that no event file of the directory has reached.
int64_t unused_time(FileSystem& files, const std::string& directory, int64_t now) {
  int64_t time = now;
  for (const auto& name : files.list(directory)) {
    const size_t at = name.find(kEventFile);
    if (at == std::string::npos) continue;
    int64_t taken = 0;
    const char* const end = name.data() + name.size();
    // A file that a broken clock has named would have all others named like it.
    if (std::from_chars(name.data() + at + kEventFile.size(), end, taken).ec == std::errc() && taken < 9'999'999'999) {
      time = std::max(time, taken + 1);
    }
  }
  return time;
}

}  // namespace

EventWriter::EventWriter(FileSystem& files, const Clock& clock, const std::string& directory, int64_t first_step,
                         const EventFileName& name)
    : clock_(clock) {
  for (const auto& part : {name.prefix, name.suffix}) {
    if (part.find('/') != std::string::npos) {
      throw InvalidArgument("an event file's prefix and suffix must have no '/', got \"{}\"", part);
    }
  }
  files.create_directories(directory);
  const int64_t time = unused_time(files, directory, clock.wall_ms() / 1000);
  path_ = join_path(directory, fmt::format("{}{}{:010}.{}.{}{}", name.prefix, kEventFile, time, host_name(), ::getpid(),
                                           name.suffix));
  file_ = files.create(path_, 0666);
  write(version_event(wall_time()));
  write(restart_event(wall_time(), first_step));
}

double EventWriter::wall_time() const { return static_cast<double>(clock_.wall_ms()) / 1e3; }

void EventWriter::add(const EventSummary& summary, int64_t step) {
  if (!summary.is_empty()) write(summary_event(wall_time(), step, summary));
}

void EventWriter::add_graph(Model& model) {
  const session::Executable* const step = model.train_executable();
  if (step == nullptr) {
    throw InvalidArgument(
        "add_graph: the model has compiled no training step, so there is no graph yet; train it before");
  }
  write(graph_event(wall_time(), graph_message(step->compiled().logical)));
}

void EventWriter::close() {
  if (file_ != nullptr) file_->close();
  file_.reset();
}

void EventWriter::write(std::string_view event) {
  if (file_ == nullptr) throw InvalidArgument("{}: it is closed", path_);
  const std::string record = event_record(event);
  // Not append(): of a large file that keeps the last megabytes to itself.
  file_->write_at(size_bytes_, std::as_bytes(std::span(record)));
  size_bytes_ += static_cast<int64_t>(record.size());
}

}  // namespace tessera::train
