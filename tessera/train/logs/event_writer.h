// EventWriter: an event file of TensorBoard that is being written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/base/clock.h"
#include "tessera/base/files/file_system.h"
#include "tessera/train/logs/event_message.h"

namespace tessera::train {

class Model;

// What stands in front of the name of an event file, and behind it: neither with a '/'.
struct EventFileName {
  std::string prefix = "events";
  std::string suffix = {};
};

// Every record is with the system when the call returns: a process that is killed loses none, and leaves at most a part
// of one, which readers pass over.
class EventWriter {
 public:
  // Makes the file events.out.tfevents.TIME.HOST.PID in `directory`, which is made where it is missing; `name` may say
  // another prefix than `events`, and a suffix. TIME is later than that of the files there: TensorBoard reads them in
  // the order of their names. `first_step`: what they have of it and of later steps is void. The file's mode follows
  // the umask. `files` and `clock` outlive the writer. Throws InvalidArgument for a prefix or a suffix with a '/'.
  EventWriter(FileSystem& files, const Clock& clock, const std::string& directory, int64_t first_step,
              const EventFileName& name = {});

  // One event. Does nothing for an empty summary.
  void add(const EventSummary& summary, int64_t step);
  // The graph of the run: what the model has compiled for its latest training batch, as graph_message() says. A later
  // one takes its place. Throws InvalidArgument where it has compiled nothing yet.
  void add_graph(Model& model);
  // Reports late errors. Nothing can be added after it.
  void close();
  const std::string& path() const { return path_; }
  // Returns the seconds since 1970.
  double wall_time() const;

 private:
  void write(std::string_view event);

  const Clock& clock_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;
  int64_t size_bytes_ = 0;
};

}  // namespace tessera::train
