#include "tessera/train/model.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/checkpoint/match.h"
#include "tessera/nn/dropout.h"
#include "tessera/nn/gradient_accumulation.h"
#include "tessera/train/rank_barrier.h"

namespace tessera::train {
namespace {

// Moving statistics of another number of parts: each part starts with the mean of all.
Tensor regroup(const Tensor& stored, const Type& wanted) {
  const bool had_groups = stored.ndim() == wanted.shape.ndim() && wanted.shape.ndim() == 2;
  const int64_t channels = stored.shape().back();
  const int64_t rows = stored.num_elements() / std::max<int64_t>(channels, 1);
  const auto values = stored.to_doubles();
  std::vector<double> mean(static_cast<size_t>(channels));
  for (size_t i = 0; i < values.size(); ++i) mean[i % mean.size()] += values[i] / static_cast<double>(rows);
  std::vector<double> result;
  const int64_t wanted_rows = had_groups || wanted.shape.ndim() == 2 ? wanted.shape[0] : 1;
  for (int64_t r = 0; r < wanted_rows; ++r) result.insert(result.end(), mean.begin(), mean.end());
  return Tensor::of(wanted.shape, std::span<const double>(result)).cast(wanted.dtype);
}

// States that a checkpoint leaves out while they are zero.
bool may_be_missing(const std::string& name) { return name == nn::kRandomStep || nn::is_accumulation_state(name); }

}  // namespace

std::string Model::save_checkpoint(const std::string& path, const std::vector<checkpoint::Entry>& append_info,
                                   bool integrated) {
  if (!integrated) throw InvalidArgument("integrated_save=false is not available yet");
  std::vector<checkpoint::Entry> entries;
  for (const auto& name : session_->names()) {
    if (says_nothing(name)) continue;
    entries.emplace_back(name, session_->value(name));
  }
  const checkpoint::CheckpointInfo info{.epoch = epoch_,
                                        .step_in_epoch = step_in_epoch_,
                                        .step = step_,
                                        .saved_at_ms = context_.clock().wall_ms(),
                                        .world_size = context_.size(),
                                        .seed = options_.seed,
                                        .data_position = position_.to_string()};
  checkpoint::SaveOptions options{.path = path, .append_info = append_info};
  if (!is_parallel()) return checkpoint::save(context_.file_system(), options, entries, info);
  RankBarrier barrier(context_.world());
  const int writer = checkpoint::find_writer(context_.file_system(), barrier, parent_path(path), "tessera");
  if (is_hybrid()) return save_own(options, entries, info, writer);
  options.barrier = &barrier;
  options.writer = writer;
  return checkpoint::save(context_.file_system(), options, entries, info);
}

// Whether a state has not been used yet, or not since the last step was done.
bool Model::says_nothing(const std::string& name) {
  if (name == nn::kRandomStep) return session_->value(name).item() == 0;
  return nn::is_accumulation_state(name) && accumulated_batches() == 0;
}

// Each rank writes its own values into a directory of its own.
std::string Model::save_own(const checkpoint::SaveOptions& options, const std::vector<checkpoint::Entry>& entries,
                            const checkpoint::CheckpointInfo& info, int first_in_directory) {
  RankBarrier barrier(context_.world());
  const bool is_shared = first_in_directory != context_.rank();
  const auto shared = barrier.exchange(is_shared ? parent_path(options.path) : "");
  for (size_t rank = 0; rank < shared.size(); ++rank) {
    if (shared[rank].empty()) continue;
    throw InvalidArgument(
        "in hybrid_parallel each rank saves its own slices: rank {} shares directory \"{}\" with a lower rank; name "
        "one "
        "for each rank",
        rank, shared[rank]);
  }
  std::string path;
  std::string failure;
  try {
    path = checkpoint::save(context_.file_system(), options, entries, info);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  checkpoint::require_success(barrier, failure);
  return path;
}

// First into tensors: either everything fits, or nothing changes.
void Model::take_values(const checkpoint::Checkpoint& loaded, const std::vector<std::string>& names,
                        bool allow_unexpected) {
  std::vector<std::pair<std::string, Tensor>> values;
  std::vector<checkpoint::Destination> destinations;
  for (const auto& name : names) {
    const auto* entry = loaded.find(name);
    if (may_be_missing(name) && entry == nullptr) continue;
    const Type& type = session_->global_type(name);
    const bool regrouped = entry != nullptr && !entry->is_text && entry->shape.ndim() > 0 && type.shape.ndim() > 0 &&
                           (name.ends_with("moving_mean") || name.ends_with("moving_variance")) &&
                           entry->shape.back() == type.shape.back() && entry->shape.ndim() <= 2;
    values.emplace_back(name, Tensor(regrouped ? Type{type.dtype, entry->shape} : type));
    destinations.push_back({name, values.back().second.view()});
  }
  checkpoint::load_into(loaded, destinations, {.allow_unexpected = allow_unexpected});
  for (const auto& [name, value] : values) {
    const Type& type = session_->global_type(name);
    session_->set_value(name, value.type() == type ? value : regroup(value, type));
  }
}

checkpoint::CheckpointInfo Model::load_checkpoint(const std::string& path) {
  const auto loaded = checkpoint::load(context_.file_system(), path);
  take_values(loaded, session_->names(), /*allow_unexpected=*/false);
  for (const auto& name : session_->names()) {
    if (may_be_missing(name) && loaded.find(name) == nullptr) {
      session_->set_value(name, Tensor::zeros(session_->global_type(name)));
    }
  }
  loss_sum_ = 0;
  checkpoint::CheckpointInfo info;
  if (loaded.manifest()) info = loaded.manifest()->info;
  step_ = info.step;
  epoch_ = info.epoch;
  step_in_epoch_ = info.step_in_epoch;
  position_ = info.data_position.empty() ? data::Position{} : data::parse_position(info.data_position);
  replicas_checked_ = false;
  return info;
}

void Model::load_parameters(const std::string& path) {
  const auto loaded = checkpoint::load(context_.file_system(), path);
  std::vector<std::string> names;
  for (const nn::Parameter* parameter : network_.parameters()) names.push_back(parameter->full_name());
  take_values(loaded, names, /*allow_unexpected=*/true);
  replicas_checked_ = false;
}

}  // namespace tessera::train
