#include "tessera/train/model.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/random_id.h"
#include "tessera/checkpoint/candidates.h"
#include "tessera/checkpoint/decrypt_checkpoint.h"
#include "tessera/checkpoint/match.h"
#include "tessera/checkpoint/save_slices.h"
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

// Moving statistics, which have a row for each part that a batch is normalised in.
bool is_statistic(const std::string& name) {
  return name.ends_with("moving_mean") || name.ends_with("moving_variance");
}

// Whether they are of another number of parts than this model's.
bool is_regrouped(const checkpoint::StoredEntry& entry, const std::string& name, const Type& type) {
  return is_statistic(name) && !entry.is_text && entry.shape != type.shape && entry.shape.ndim() > 0 &&
         entry.shape.ndim() <= 2 && type.shape.ndim() > 0 && entry.shape.back() == type.shape.back();
}

bool is_learning_rate(const std::string& name) {
  return name == "learning_rate" || name.starts_with("learning_rate_group_");
}

// Whether a learning rate stays as this model has it: where one of both is a table, or none at all because the rate is
// computed of the step. A fixed one goes on as it was saved.
bool keeps_own_rate(const std::string& name, const checkpoint::StoredEntry* stored, const Type* own) {
  if (!is_learning_rate(name)) return false;
  const auto is_fixed = [](const Shape& shape) { return shape.ndim() == 0; };
  const bool both_fixed = stored != nullptr && own != nullptr && is_fixed(stored->shape) && is_fixed(own->shape);
  return !both_fixed;
}

// States that a checkpoint leaves out while they are zero.
bool may_be_missing(const std::string& name) { return name == nn::kRandomStep || nn::is_accumulation_state(name); }

}  // namespace

// Whether a state has not been used yet, or not since the last step was done.
bool Model::says_nothing(const std::string& name) {
  if (name == nn::kRandomStep) return session_->value(name).item() == 0;
  return nn::is_accumulation_state(name) && accumulated_batches() == 0;
}

// What this rank holds, where it lies. Collective for values that are sums.
std::vector<CheckpointJob::Value> Model::held_values() {
  std::vector<CheckpointJob::Value> values;
  for (const auto& name : session_->names()) {
    if (says_nothing(name)) continue;
    auto& value = values.emplace_back();
    value.held = {.name = name, .type = session_->global_type(name)};
    if (const auto* layout = session_->layout(name)) value.held.layout = *layout;
    value.piece = session_->view(name);
    if (value.held.layout && value.held.layout->sharding.is_partial()) {
      auto& [mesh, sharding] = *value.held.layout;
      sharding.partial.clear();
      const auto slice = mesh::slice_of(value.held.type.shape, sharding, mesh, context_.rank());
      value.copy = Tensor::copy_of(mesh::piece_of(session_->value(name).view(), slice));
      value.piece = value.copy.view();
    }
    value.box = checkpoint::held_box(value.held, context_.rank());
    value.is_row_of_rank = value.held.layout && is_statistic(name) && mode_->batch_norm_groups() > 0;
  }
  return values;
}

// Each rank writes its own values into a directory of its own.
void Model::require_own_directory(const std::string& directory, bool is_shared) {
  const auto shared = RankBarrier(context_.world()).exchange(is_shared ? directory : "");
  for (size_t rank = 0; rank < shared.size(); ++rank) {
    if (shared[rank].empty()) continue;
    throw InvalidArgument(
        "in hybrid_parallel each rank saves its own slices: rank {} shares directory \"{}\" with a lower rank; name "
        "one for each rank",
        rank, shared[rank]);
  }
}

// Saves of threads have a group of their own: training goes on using the world's.
comm::Communicator& Model::save_group() {
  if (save_group_.empty()) {
    save_group_ = "checkpoints";
    for (int number = 2; context_.has_group(save_group_); ++number)
      save_group_ = fmt::format("checkpoints #{}", number);
    context_.create_group(save_group_, context_.world().ranks())->share_core();
  }
  return context_.group(save_group_);
}

CheckpointJob Model::make_save(const std::string& path, const SaveCheckpointOptions& options) {
  checkpoint::check_encryption_to_write(options.encryption);
  CheckpointJob job;
  job.form = mode_->form_of_save(options.integrated);
  job.files = &context_.file_system();
  job.path = path;
  job.append_info = options.append_info;
  job.encryption = options.encryption;
  job.after_commit = options.after_commit;
  job.info = {.saved_at_ms = context_.clock().wall_ms(),
              .job_id = context_.job_id(),
              .job_name = options_.job_name,
              .training_id = training_id(),
              .world_size = context_.size(),
              .network_hash = network_identity_.hash,
              .network_operators = network_identity_.operators,
              .optimizer = cells_.optimizer != nullptr ? cells_.optimizer->name() : std::string(),
              .seed = options_.seed};
  place_.write_to(job.info);
  if (mode_->is_shared()) {
    RankBarrier barrier(context_.world());
    const auto directory = parent_path(path);
    job.together = checkpoint::ranks_of_directory(*job.files, barrier, directory);
    if (job.form == SaveForm::kOwn) require_own_directory(directory, job.together.front() != context_.rank());
    job.group = options.async ? &save_group() : &context_.world();
  }
  job.values = held_values();
  return job;
}

std::string Model::save_checkpoint(const std::string& path, const SaveCheckpointOptions& options) {
  finish_saves();
  CheckpointJob job = make_save(path, options);
  if (!options.async) return job.run();
  job.take_snapshot(snapshot_, train_ != nullptr ? train_->executor().updated() : std::vector<TensorView>());
  background_save_.start([job = std::move(job)]() mutable { job.run(); });
  return checkpoint::with_ckpt_suffix(path);
}

void Model::reserve_snapshot(const std::string& path, const SaveCheckpointOptions& options) {
  finish_saves();
  make_save(path, options).reserve_snapshot(snapshot_);
}

void Model::finish_saves() {
  snapshot_.finish();
  background_save_.finish();
}

const std::string& Model::training_id() {
  if (!training_id_.empty()) return training_id_;
  training_id_ = random_id();
  if (mode_->is_shared()) training_id_ = RankBarrier(context_.world()).exchange(training_id_)[0];
  return training_id_;
}

void Model::note_network(const ir::Graph& train_step) {
  // Where each rank normalises its own rows, the graph depends on the number of ranks.
  if (mode_->batch_norm_groups() > 0) return;
  if (network_identity_.hash.empty()) network_identity_ = identity_of(train_step);
  if (network_to_compare_) require_same_network(loaded_path_, *network_to_compare_);
  network_to_compare_.reset();
}

namespace {

[[noreturn]] void refuse_other_training(const std::string& path, const std::string& difference) {
  throw InvalidArgument(
      "{}: is of another training: {}; to go on with it nevertheless accept other jobs, to start a new training from "
      "its weights load the parameters only",
      path, difference);
}

}  // namespace

void Model::require_same_network(const std::string& path, const NetworkIdentity& there) const {
  const auto& here = network_identity_;
  const auto making = [](const std::string& hash) { return hash.substr(0, hash.find('-')); };
  if (there.hash == here.hash || there.hash.empty() || here.hash.empty() || making(there.hash) != making(here.hash)) {
    return;
  }
  refuse_other_training(path, "its network computes something else, " + difference_of(there, here));
}

void Model::require_same_training(const std::string& path, const checkpoint::CheckpointInfo& info) const {
  const auto own = cells_.optimizer != nullptr ? cells_.optimizer->name() : std::string();
  if (!own.empty() && !info.optimizer.empty() && own != info.optimizer) {
    refuse_other_training(path, fmt::format("its optimizer is {}, here it is {}", info.optimizer, own));
  }
  require_same_network(path, {info.network_hash, info.network_operators});
}

// Whether all values can be made again as they were before anyone has trained or set them, by each rank for itself.
// Ranks agree on it: they read the same way.
bool Model::can_begin_anew(RankBarrier* others) {
  const bool own = values_are_initial_ && !mode_->agrees_on_values() && !options_.parameter_broadcast;
  if (others == nullptr) return own;
  const auto all = others->exchange(own ? "yes" : "no");
  return std::all_of(all.begin(), all.end(), [](const auto& one) { return one == "yes"; });
}

// Of a directory the newest that can be used, else the one that the path names. Either all that is wanted of it is
// whole and fits, or nothing changes. What is read is compared with its checksums; where the values that are there
// could not be made again, once more before, so that nothing is overwritten by what is damaged.
Model::OpenedCheckpoint Model::load(const std::string& path, const Loading& loading) {
  finish_saves();
  // Those who go on together find the same step, all or none.
  std::optional<RankBarrier> barrier;
  if (mode_->is_shared() && (!has_own_checkpoints() || loading.is_resumed)) barrier.emplace(context_.world());
  auto* others = barrier ? &*barrier : nullptr;
  const bool reads_once = can_begin_anew(others);
  try {
    auto opened = load_first_usable(path, loading, others, reads_once);
    values_are_initial_ = false;
    return opened;
  } catch (const Error&) {
    if (reads_once && !values_are_initial_) initialize_values();
    throw;
  }
}

namespace {

// What ranks that go on together must agree on.
std::string described(const std::optional<checkpoint::CheckpointInfo>& info) {
  if (!info) return "no step, without a manifest";
  auto text = fmt::format("step {} of {} ranks of job \"{}\"", info->step, info->world_size, info->job_id);
  if (!info->training_id.empty()) text += fmt::format(", training \"{}\"", info->training_id);
  return text;
}

}  // namespace

Model::OpenedCheckpoint Model::load_first_usable(const std::string& path, const Loading& loading, RankBarrier* others,
                                                 bool reads_once) {
  const auto run = [&](FunctionRef<std::string()> part) {
    return others == nullptr ? std::vector{part()} : checkpoint::run_together(*others, "cannot load", part);
  };
  auto* together = has_own_checkpoints() ? nullptr : others;
  std::optional<checkpoint::Candidates> candidates;
  std::optional<OpenedCheckpoint> opened;
  Destinations destinations;
  const auto open = [&] {
    if (!candidates) candidates.emplace(context_.file_system(), path);
    opened = open_checkpoint(candidates->path(), loading);
    if (candidates->is_of_directory()) opened->checkpoint.require_all_files();
    destinations = destinations_in(opened->checkpoint, loading);
    return described(opened->checkpoint.info());
  };
  const auto read = [&] {
    if (!reads_once && opened->checkpoint.info()) opened->checkpoint.verify(destinations.wanted, together);
    values_are_initial_ = false;
    load_report_ = opened->checkpoint.read(destinations.wanted, together);
    return std::string();
  };
  // Every rank throws, so all go on together, or none does. Where one is lost, the exchange says so. To be called while
  // the error is handled.
  const auto pass_over = [&](const Error& error) {
    bool go_on = candidates && candidates->has_next();
    if (others != nullptr) {
      const auto all = others->exchange(go_on ? "next" : "");
      go_on = std::none_of(all.begin(), all.end(), [](const auto& one) { return one.empty(); });
    }
    if (!go_on && candidates && candidates->is_of_directory()) candidates->give_up(error.what());
    if (!go_on) throw;
    candidates->pass_over(error.what());
  };
  while (true) {
    std::vector<std::string> found;
    try {
      found = run(open);
    } catch (const Error& error) {
      pass_over(error);
      continue;
    }
    // Ranks with disks of their own may not see the same checkpoint.
    for (size_t rank = 1; rank < found.size(); ++rank) {
      if (found[rank] == found[0]) continue;
      throw InvalidArgument("{}: rank 0 finds {} there, rank {} {}", path, found[0], rank, found[rank]);
    }
    try {
      if (together != nullptr) {
        read();  // the ranks meet in it
      } else {
        run(read);
      }
    } catch (const Error& error) {
      pass_over(error);
      continue;
    }
    candidates->warn();
    take_elsewhere(opened->checkpoint, destinations);
    return std::move(*opened);
  }
}

Model::OpenedCheckpoint Model::open_checkpoint(const std::string& path, const Loading& loading) {
  auto& files = context_.file_system();
  auto plain = loading.decryption.is_on() ? checkpoint::decrypt_checkpoint(files, path, loading.decryption) : nullptr;
  auto opened = checkpoint::GlobalCheckpoint::open(plain ? *plain : files, path, loading.job_name);
  return {std::move(plain), std::move(opened)};
}

// Throws InvalidArgument where a value does not fit, or the checkpoint is of another training.
Model::Destinations Model::destinations_in(const checkpoint::GlobalCheckpoint& loaded, const Loading& loading) {
  Destinations result;
  std::vector<checkpoint::Destination> destinations;
  std::vector<checkpoint::StoredEntry> entries = loaded.entries();
  // A table of learning rates is not part of what was learnt: this model's own stays.
  std::erase_if(entries, [&](const auto& entry) {
    return loading.is_resumed &&
           keeps_own_rate(entry.name, &entry,
                          session_->holds(entry.name) ? &session_->global_type(entry.name) : nullptr);
  });
  for (const auto& name : loading.names) {
    const auto* entry = loaded.find(name);
    if (may_be_missing(name) && entry == nullptr) continue;
    checkpoint::HeldValue held{.name = name, .type = session_->global_type(name)};
    if (loading.is_resumed && keeps_own_rate(name, entry, &held.type)) continue;
    const bool regrouped = entry != nullptr && is_regrouped(*entry, name, held.type);
    if (regrouped) {
      held.type.shape = entry->shape;
    } else if (const auto* layout = session_->layout(name)) {
      held.layout = *layout;
    }
    destinations.push_back({name, TensorView(nullptr, held.type)});
    const auto box = checkpoint::held_box(held, context_.rank());
    if (!box) continue;
    auto to = session_->view(name);
    const bool is_sum = held.layout && held.layout->sharding.is_partial();
    if (regrouped || is_sum || to.shape != box->shape) {
      to = result.elsewhere.emplace_back(name, Tensor(Type{held.type.dtype, box->shape})).second.view();
    }
    result.wanted.push_back({name, *box, to, is_first_holder(held, context_.rank())});
  }
  const checkpoint::MatchOptions options{.allow_unexpected = !loading.is_resumed};
  checkpoint::require_fit(loaded.path(), checkpoint::compare(entries, destinations, options), options);
  if (loading.is_resumed && !loading.accepts_other_trainings && loaded.info()) {
    require_same_training(loaded.path(), *loaded.info());
  }
  return result;
}

// To where they lie, what was not read to there.
void Model::take_elsewhere(const checkpoint::GlobalCheckpoint& loaded, const Destinations& destinations) {
  for (const auto& [name, piece] : destinations.elsewhere) {
    const Type& type = session_->global_type(name);
    if (is_regrouped(*loaded.find(name), name, type)) {
      session_->set_value(name, piece.type() == type ? piece : regroup(piece, type));
    } else {
      session_->set_piece(name, piece.view());
    }
  }
}

// Fixed learning rates, by name.
std::map<std::string, double> Model::fixed_rates() {
  std::map<std::string, double> rates;
  for (const auto& name : session_->names()) {
    if (is_learning_rate(name) && session_->global_type(name).shape.ndim() == 0) {
      rates[name] = session_->value(name).item();
    }
  }
  return rates;
}

checkpoint::CheckpointInfo Model::load_checkpoint(const std::string& path, const LoadCheckpointOptions& options) {
  const auto own_rates = fixed_rates();
  const auto opened = load(path, {.decryption = options.decryption,
                                  .job_name = options.accept_other_jobs ? std::string() : options_.job_name,
                                  .names = session_->names(),
                                  .is_resumed = true,
                                  .accepts_other_trainings = options.accept_other_jobs});
  const auto& loaded = opened.checkpoint;
  for (const auto& name : session_->names()) {
    if (may_be_missing(name) && loaded.find(name) == nullptr) {
      session_->set_value(name, Tensor::zeros(session_->global_type(name)));
    }
  }
  for (const auto& [name, rate] : fixed_rates()) {
    if (rate == own_rates.at(name) || context_.rank() != 0) continue;
    log_warning(
        "{}: training goes on with {} {}, as it was saved, not with this model's {}; set the value to change it",
        loaded.path(), name, rate, own_rates.at(name));
  }
  loss_sum_ = 0;
  const auto info = loaded.info().value_or(checkpoint::CheckpointInfo{});
  place_ = TrainingPlace::of(info);
  replicas_checked_ = false;
  training_id_ = info.training_id;
  network_to_compare_.reset();
  if (network_identity_.hash.empty() && !options.accept_other_jobs) {
    network_to_compare_ = NetworkIdentity{info.network_hash, info.network_operators};
    loaded_path_ = loaded.path();
  }
  return info;
}

void Model::load_parameters(const std::string& path, const checkpoint::Encryption& decryption) {
  std::vector<std::string> names;
  for (const nn::Parameter* parameter : cells_.network.parameters()) names.push_back(parameter->full_name());
  load(path, {.decryption = decryption, .job_name = {}, .names = std::move(names)});
  replicas_checked_ = false;
}

}  // namespace tessera::train
