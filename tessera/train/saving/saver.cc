#include "tessera/train/saving/saver.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/checkpoint/format/ckpt_path.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/checkpoint/write/save_slices.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/session/agree/gather_texts.h"
#include "tessera/session/values/device_snapshot.h"
#include "tessera/session/values/sliced_read.h"
#include "tessera/train/core/averages.h"
#include "tessera/train/saving/checkpoint_values.h"
#include "tessera/train/saving/data_states.h"
#include "tessera/train/saving/rank_barrier.h"

namespace tessera::train {

Saver::~Saver() {
  try {
    finish();
  } catch (const std::exception& error) {
    log_error("a checkpoint was not saved: {}", error.what());
  }
  if (group_.empty()) return;
  try {
    core_.context.destroy_group(group_);
  } catch (const std::exception& error) {
    log_warning("group \"{}\" could not be ended: {}", group_, error.what());
  }
}

// Whether a state has not been used yet, or not since the last step was done.
bool Saver::says_nothing(const std::string& name) {
  if (name == nn::kRandomStep) return core_.session().value(name).item() == 0;
  return nn::is_accumulation_state(name) && core_.values->accumulated_batches() == 0;
}

std::vector<std::pair<std::string, std::string>> Saver::names_to_save(bool averages) {
  std::vector<std::pair<std::string, std::string>> names;
  if (!averages) {
    for (const auto& name : core_.session().names()) {
      if (!says_nothing(name)) names.emplace_back(name, name);
    }
    return names;
  }
  std::map<std::string, std::string> averaged;
  for (const auto& [name, average] : averages_of(core_, "save_checkpoint")) averaged[name] = average;
  for (const nn::Parameter* parameter : core_.cells.parameters()) {
    const auto name = parameter->full_name();
    const auto average = averaged.find(name);
    names.emplace_back(name, average == averaged.end() ? name : average->second);
  }
  return names;
}

// What this rank holds, where it lies. Collective for values that are sums.
std::vector<CheckpointJob::Value> Saver::held_values(bool averages) {
  session::Session& session = core_.session();
  const int rank = core_.context.rank();
  std::vector<CheckpointJob::Value> values;
  for (const auto& [saved_as, name] : names_to_save(averages)) {
    auto& value = values.emplace_back();
    value.held = {.name = saved_as, .type = session.global_type(saved_as)};
    if (const auto layouts = session.layouts(name); !layouts.empty()) {
      value.held.layout = layouts.front();
      value.held.copies.assign(layouts.begin() + 1, layouts.end());
    }
    const bool is_sum = value.held.layout && value.held.layout->sharding.is_partial();
    if (const auto here = session.values().in_place(name)) {
      value.piece = *here;
    } else if (!is_sum && session.values().type(name).dtype == value.held.type.dtype) {
      const Type& type = session.values().type(name);
      value.streamed =
          checkpoint::StreamedRegion{session.values().sliced_read(name), checkpoint::Region::whole(type.shape)};
      value.piece = TensorView(nullptr, type);
    } else {
      value.copy = session.values().read(name);
      value.piece = value.copy.view();
    }
    if (is_sum) {
      auto& [mesh, sharding] = *value.held.layout;
      sharding.partial.clear();
      const auto slice = mesh::slice_of(value.held.type.shape, sharding, mesh, rank);
      value.copy = Tensor::copy_of(mesh::piece_of(session.value(name).view(), slice));
      value.piece = value.copy.view();
    }
    if (value.piece.dtype != value.held.type.dtype) {
      value.copy = Tensor::copy_of(value.piece).cast(value.held.type.dtype);
      value.piece = value.copy.view();
    }
    value.region = checkpoint::held_region(value.held, rank);
    value.is_spilled = session.values().is_spilled(name);
    value.is_row_of_rank = core_.values->has_row_per_rank(name);
  }
  return values;
}

// Each rank writes its own values into a directory of its own.
void Saver::require_own_directory(const std::string& directory, bool is_shared) {
  const auto shared = RankBarrier(core_.context.world()).exchange(is_shared ? directory : "");
  for (size_t rank = 0; rank < shared.size(); ++rank) {
    if (shared[rank].empty()) continue;
    throw InvalidArgument(
        "in {} each rank saves its own slices: rank {} shares directory \"{}\" with a lower rank; name "
        "one for each rank",
        to_string(core_.options.parallel_mode), rank, shared[rank]);
  }
}

// Saves of threads have a group of their own: training goes on using the world's.
comm::Communicator& Saver::group() {
  auto& context = core_.context;
  if (group_.empty()) {
    const auto name = context.new_group_name("checkpoints");
    context.create_group(name, context.world().ranks())->share_core();
    group_ = name;
  }
  return context.group(group_);
}

CheckpointJob Saver::make_job(const std::string& path, const SaveCheckpointOptions& options) {
  auto& context = core_.context;
  checkpoint::check_encryption_to_write(options.encryption);
  CheckpointJob job;
  job.form = core_.mode->form_of_save(options.integrated);
  job.files = &context.file_system();
  job.path = path;
  job.append_info = options.append_info;
  job.encryption = options.encryption;
  job.before_write = options.before_write;
  job.after_commit = options.after_commit;
  job.info = {.saved_at_ms = context.clock().wall_ms(),
              .job_id = context.job_id(),
              .job_name = core_.options.job_name,
              .training_id = identity_.id(),
              .world_size = context.size(),
              .network_hash = identity_.network().hash,
              .network_operators = identity_.network().operators,
              .optimizer = identity_.optimizer(),
              .seed = core_.options.seed};
  progress_.write_to(job.info);
  if (progress_.tells_state) {
    const bool are_several = core_.mode->is_shared() && context.size() > 1;
    job.info.random_state = print_data_states(
        are_several ? session::gather_texts(context.world(), progress_.data_state, "saving the states of data sets")
                    : std::vector{progress_.data_state});
  }
  if (job.form == SaveForm::kAlone) {
    checkpoint::ckpt_to_write(*job.files, path);
  } else {
    RankBarrier barrier(context.world());
    checkpoint::run_together(barrier, "cannot save", [&] { return checkpoint::ckpt_to_write(*job.files, path); });
    const auto directory = parent_path(path);
    job.together = checkpoint::ranks_of_directory(*job.files, barrier, directory);
    if (job.form == SaveForm::kOwn) require_own_directory(directory, job.together.front() != context.rank());
    job.group = options.async ? &group() : &context.world();
  }
  job.values = held_values(options.averages);
  job.scratch = core_.session().file_beside("a table that is put together to be saved whole");
  return job;
}

std::string Saver::save(const std::string& path, const SaveCheckpointOptions& options,
                        std::span<const TensorView> updated) {
  const comm::RankProgress::Phase phase(core_.context.progress(), comm::RankProgress::kSave);
  const timeline::ScopedSpan span(core_.context.recorder(), timeline::SpanKind::kSave);
  finish();
  core_.mode->refresh_copies(core_.session());
  ++num_saves_;
  CheckpointJob job = make_job(path, options);
  const int64_t step = progress_.step;
  if (!options.async) {
    newest_path_ = job.run();
    newest_step_ = step;
    return newest_path_;
  }
  job.take_snapshot(snapshot(), updated);
  background_.start([job = std::move(job), work = &timed_saves_]() mutable { work->run([&] { job.run(); }); });
  newest_path_ = checkpoint::with_ckpt_suffix(path);
  newest_step_ = step;
  return newest_path_;
}

void Saver::reserve_snapshot(const std::string& path, const SaveCheckpointOptions& options) {
  finish();
  make_job(path, options).reserve_snapshot(snapshot());
}

// A copy of what lies in a file lies in a file, too, and one of what lies on a device there.
Snapshot& Saver::snapshot() {
  if (!snapshot_.lies_on_device()) snapshot_.lie_on(core_.session().values().make_snapshot());
  if (const auto file = core_.session().file_beside("the copies of values that a save in the background makes")) {
    snapshot_.lie_in(*file);
  }
  return snapshot_;
}

void Saver::finish() {
  if (background_.leave_to_parent()) snapshot_.forget();
  snapshot_.finish();
  background_.finish();
}

}  // namespace tessera::train
