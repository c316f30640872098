#include "tessera/train/core/value_recording.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "tessera/base/logging.h"
#include "tessera/base/usage_error.h"
#include "tessera/cluster/launch.h"
#include "tessera/session/agree/gather_texts.h"
#include "tessera/train/core/lasting_job_id.h"
#include "tessera/train/options/precision.h"

namespace tessera::train {
namespace {

// Throws UsageError naming the variable.
void require_steps_of_environment(const std::string& text) {
  try {
    RecordedSteps{text};
  } catch (const InvalidArgument& error) {
    throw UsageError("TESSERA_RECORD_STEPS is {}: {}", text, error.what());
  }
}

// What the options say, and where they say nothing the environment.
ValueRecordOptions chosen_records(const ModelOptions& options) {
  const auto variables = cluster::value_records_from_environment();
  const auto first = [](const std::string& a, const std::string& b) { return a.empty() ? b : a; };
  const std::string on_difference = first(options.on_difference, variables.on_difference);
  if (!on_difference.empty() && on_difference != "stop" && on_difference != "warn") {
    if (options.on_difference.empty()) {
      throw UsageError("TESSERA_ON_DIFFERENCE is {}; it must be stop or warn", on_difference);
    }
    throw InvalidArgument("on_difference must be \"stop\" or \"warn\", got \"{}\"", on_difference);
  }
  if (options.record_steps.empty()) require_steps_of_environment(variables.steps);
  return {.directory = first(options.record_values, variables.directory),
          .compare_with = first(options.compare_values, variables.compare_with),
          .steps = first(options.record_steps, variables.steps),
          .stops = on_difference != "warn"};
}

// Of options that have no effect without a folder, which an option or the environment names.
void warn_of_unused(const ModelOptions& options, const ValueRecordOptions& chosen) {
  if (!options.record_steps.empty() && !chosen.is_on()) {
    log_warning("record_steps has no effect without record_values, compare_values");
  }
  if (!options.on_difference.empty() && chosen.compare_with.empty()) {
    log_warning("on_difference has no effect without compare_values");
  }
}

}  // namespace

ValueRecording::ValueRecording(ModelCore& core) : core_(core) {
  if (core.cells.optimizer == nullptr) return;
  const auto chosen = chosen_records(core.options);
  if (core.context.rank() == 0) warn_of_unused(core.options, chosen);
  begin(chosen);
}

void ValueRecording::begin(const ValueRecordOptions& options) {
  const RecordedSteps steps(options.steps);
  std::vector<int64_t> reference_steps;
  if (!options.compare_with.empty()) {
    if (!core_.mode->steps_together()) {
      throw InvalidArgument(
          "compare_values: workers that do not wait for each other have no step in common; record both trainings and "
          "compare them by tessera bisect");
    }
    reference_steps = session::recorded_steps(core_.context.file_system(), options.compare_with);
    if (reference_steps.empty()) {
      throw InvalidArgument("compare_values: {} has no recorded steps; record them by record_values",
                            options.compare_with);
    }
  }
  options_ = options;
  steps_ = steps;
  reference_steps_ = std::move(reference_steps);
  is_cleared_ = has_differed_ = false;
  lock_.reset();
}

// Each rank keeps others out of what it writes itself: its folder may be one of its host's own.
void ValueRecording::lock_directory() {
  cluster::Context& context = core_.context;
  std::string job = context.job_id();
  int64_t generation = 0;
  if (cluster::Recovery* const recovery = context.recovery(); recovery != nullptr) {
    generation = static_cast<int64_t>(recovery->generation());
    if (const auto lasting = find_lasting_job_id(*recovery); !lasting.empty()) job = lasting;
  }
  const checkpoint::DirectoryUse use{.file_name = fmt::format(".tessera-lock.records.rank-{}", context.rank()),
                                     .does = "records its values",
                                     .is_shared = false};
  lock_.reset();
  lock_ = std::make_unique<checkpoint::DirectoryLock>(context.file_system(), options_.directory, job, generation, use);
}

session::RecordHeader ValueRecording::header(int64_t step) const {
  return {.step = step,
          .rank = core_.context.rank(),
          .num_ranks = core_.context.size(),
          .are_own = core_.context.size() > 1 && (!core_.mode->is_shared() || core_.mode->ranks_of_loss()),
          .mode = std::string(to_string(core_.options.parallel_mode)),
          .precision = std::string(to_string(precision_of(core_.options).compute)),
          .num_missing = core_.values->session().value_watch().num_missing};
}

void ValueRecording::begin_run(int64_t step) {
  if (!options_.directory.empty() && !std::exchange(is_cleared_, true)) {
    FileSystem& files = core_.context.file_system();
    lock_directory();
    session::remove_later_records(files, options_.directory, step - 1, core_.context.rank(), core_.context.size());
  }
  if (!is_recorded(step)) return;
  auto& watch = core_.session().value_watch();
  if (step_ != step) {
    watch.begin();
    step_ = step;
    add_values(session::ValueMoment::kBefore);
  }
  watch.is_on = true;
}

void ValueRecording::end_run() { core_.session().value_watch().is_on = false; }

void ValueRecording::add_values(session::ValueMoment moment) {
  session::Session& session = core_.session();
  const int rank = core_.context.rank();
  int64_t number = 0;
  for (const auto& name : session.names()) {
    const session::ValueName of_value{.moment = moment, .source = name};
    const Type& type = session.global_type(name);
    const mesh::Layout* split = session.layout(name);
    const mesh::Layout layout = split != nullptr ? *split
                                                 : mesh::Layout{mesh::Mesh({{"data", 1}}, {rank}),
                                                                mesh::Sharding::replicated(type.shape.ndim())};
    ++number;
    if (std::ranges::find(layout.mesh.ranks(), rank) == layout.mesh.ranks().end()) continue;
    auto entry = session::entry_of(of_value, number, type, layout, rank);
    // Values that ranks have of their own, as the statistics of their rows, are no copies of each other.
    if (split == nullptr && !core_.values->is_copy(name)) entry.reduction = session::kOwnOfRank;
    describe_piece(entry, session.values().read(name));
    session.value_watch().entries.push_back(std::move(entry));
  }
}

void ValueRecording::end_step(int64_t step) {
  if (step_ != step || step == 0) return;
  step_ = 0;
  add_values(session::ValueMoment::kAfter);
  write(step);
  compare(step);
}

void ValueRecording::fail_step(int64_t step) noexcept {
  try {
    end_run();
    if (step_ != step || step == 0) return;
    step_ = 0;
    write(step);
  } catch (const std::exception& error) {
    log_warning("the values of step {}, which has failed, could not be recorded: {}", step, error.what());
  }
}

void ValueRecording::write(int64_t step) {
  if (options_.directory.empty()) return;
  const int rank = core_.context.rank();
  if (lock_ != nullptr) lock_->keep();
  const auto text = session::print_record(header(step), core_.session().value_watch().entries);
  core_.context.file_system().write_atomically(join_path(options_.directory, session::record_file_name(step, rank)),
                                               text);
}

void ValueRecording::compare(int64_t step) {
  if (options_.compare_with.empty() || has_differed_) return;
  if (!std::ranges::binary_search(reference_steps_, step)) return;
  cluster::Context& context = core_.context;
  std::vector<session::RankRecord> records;
  const auto mine = session::print_record(header(step), core_.session().value_watch().entries);
  const bool are_together = core_.mode->is_shared() && context.size() > 1;
  for (const auto& text :
       are_together ? session::gather_texts(context.world(), mine, "comparing recorded values") : std::vector{mine}) {
    records.push_back(session::parse_record(text));
  }
  const auto now = session::merge_records(std::move(records));
  // Rank 0 reads for all: what it finds, or what fails, all have.
  std::string found;
  if (!are_together || context.rank() == 0) {
    try {
      const auto reference = session::read_step(context.file_system(), options_.compare_with, step);
      const auto comparison = session::compare_steps(reference, now);
      if (comparison.first) {
        found = fmt::format("the values are not those of {}: {}", options_.compare_with,
                            session::describe(step, *comparison.first));
      }
    } catch (const std::exception& error) {
      found = fmt::format("the values of step {} cannot be compared with those of {}: {}", step, options_.compare_with,
                          error.what());
    }
  }
  if (are_together) found = session::gather_texts(context.world(), found, "what recorded values differ in").front();
  if (found.empty()) return;
  has_differed_ = true;
  if (options_.stops) throw ValuesDiffer(found);
  if (context.rank() == 0 || !are_together) log_warning("{}", found);
}

}  // namespace tessera::train
