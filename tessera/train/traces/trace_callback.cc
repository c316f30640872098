#include "tessera/train/traces/trace_callback.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/timeline/timeline_files.h"
#include "tessera/train/model.h"

namespace tessera::train {

Trace::Trace(std::string file, const TraceOptions& options) {
  if (file.empty()) throw InvalidArgument("Trace: the file has no name");
  if (options.first_step < 1 || options.last_step < 0 ||
      (options.last_step > 0 && options.last_step < options.first_step)) {
    throw InvalidArgument(
        "Trace: first_step must be at least 1 and last_step not below it, or 0 for all to the end; got {} and {}",
        options.first_step, options.last_step);
  }
  if (options.num_spans < 1) {
    throw InvalidArgument("Trace: num_spans must be at least 1, got {}", options.num_spans);
  }
  options_.file = std::move(file);
  options_.steps.first = options.first_step;
  if (options.last_step > 0) options_.steps.last = options.last_step;
  options_.num_spans = options.num_spans;
}

void Trace::begin(RunContext& run) {
  auto& context = run.model.context();
  timeline::TimelineRecorder* recorder = context.recorder();
  if (recorder == nullptr) throw InvalidArgument("Trace: this rank's context has nothing to record by");
  is_recording_ = !recorder->is_begun();
  if (is_recording_) {
    timeline::remove_earlier(context.file_system(), options_.file, {context.rank()});
    recorder->begin(options_, context.file_system(), context.clock());
  } else if (context.rank() == 0) {
    log_warning("Trace: {} is not written: this job's timeline is recorded already, for {}", options_.file,
                recorder->options().file);
  }
}

void Trace::end(RunContext& run) {
  if (!std::exchange(is_recording_, false)) return;
  auto& context = run.model.context();
  context.recorder()->end();
  if (context.size() > 1 && !run.has_failed) context.world().barrier("what is recorded of the ranks");
  if (context.rank() != 0) return;
  FileSystem& files = context.file_system();
  const auto ranks = timeline::ranks_with_parts(files, options_.file, context.size());
  if (std::ssize(ranks) == context.size() && !(run.has_failed && context.size() > 1)) {
    log_info("{}", timeline::join_job(files, options_.file, context.size()));
  } else {
    log_warning(
        "Trace: {0} is not written: the ranks' parts, {0}.rank.N, are not all here; tessera trace merge -o {0} "
        "{0}.rank.* joins them where they are",
        options_.file);
  }
}

}  // namespace tessera::train
