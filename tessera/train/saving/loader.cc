#include "tessera/train/saving/loader.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/read/candidates.h"
#include "tessera/checkpoint/read/decrypt_checkpoint.h"
#include "tessera/checkpoint/read/match.h"
#include "tessera/checkpoint/write/sharing.h"
#include "tessera/comm/job_state.h"
#include "tessera/nn/gradients/loss_scale.h"
#include "tessera/nn/tuning/parameter_patterns.h"
#include "tessera/session/values/sliced_write.h"
#include "tessera/train/options/precision.h"
#include "tessera/train/saving/checkpoint_values.h"

namespace tessera::train {

// Whether all values can be made again as they were before anyone has trained or set them, by each rank for itself.
// Ranks agree on it: they read the same way.
bool Loader::can_begin_anew(RankBarrier* others) {
  const bool own = core_.values->are_initial() && !core_.mode->agrees_on_values() && !core_.options.parameter_broadcast;
  if (others == nullptr) return own;
  const auto all = others->exchange(own ? "yes" : "no");
  return std::all_of(all.begin(), all.end(), [](const auto& one) { return one == "yes"; });
}

// Of a directory the newest that can be used, else the one that the path names. Either all that is wanted of it is
// whole and fits, or nothing changes. What is read is compared with its checksums; where the values that are there
// could not be made again, once more before, so that nothing is overwritten by what is damaged.
Loader::Opened Loader::load(const std::string& path, const Loading& loading) {
  // Those who go on together find the same step, all or none.
  std::optional<RankBarrier> barrier;
  if (core_.mode->is_shared()) barrier.emplace(core_.context.world());
  auto* others = barrier ? &*barrier : nullptr;
  const bool reads_once = can_begin_anew(others);
  try {
    auto opened = load_first_usable(path, loading, others, reads_once);
    core_.values->set_changed();
    return opened;
  } catch (const Error&) {
    if (reads_once && !core_.values->are_initial()) {
      core_.values->initialize();
      core_.session();  // has all made: a step or a prediction that is compiled already asks for no session
    }
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

Loader::Opened Loader::load_first_usable(const std::string& path, const Loading& loading, RankBarrier* others,
                                         bool reads_once) {
  const auto run = [&](FunctionRef<std::string()> part) {
    return others == nullptr ? std::vector{part()} : checkpoint::run_together(*others, "cannot load", part);
  };
  auto* together = are_of_each_rank() ? nullptr : others;
  const bool verifies_others = loading.is_resumed && (together == nullptr || core_.context.rank() == 0);
  std::optional<checkpoint::Candidates> candidates;
  std::optional<Opened> opened;
  Destinations destinations;
  run([&] {
    candidates.emplace(core_.context.file_system(), path, loading.prefix);
    if (!candidates->empty()) return std::string();
    throw InvalidArgument(
        "{}: holds no checkpoint: neither rank_N/*.ckpt nor *.ckpt that has a manifest or names its step; one without "
        "both is loaded by its name",
        path);
  });
  const auto read = [&] {
    if (!reads_once && opened->checkpoint.info()) {
      opened->checkpoint.verify(destinations.wanted, together, checkpoint::Unverified::kRefused);
    }
    core_.values->set_changed();
    // Together the ranks take whole values, so that each slice has been read as a whole by now.
    report_ = opened->checkpoint.read(destinations.wanted, together, checkpoint::Unverified::kRefused);
    for (const auto& write : destinations.there) write->finish();
    return std::string();
  };
  std::string disagreement;  // ranks with disks of their own may not see the same checkpoint
  const auto use = [&](const checkpoint::DirectoryEntry& entry) {
    const auto found = run([&] {
      opened = open_checkpoint(entry.path, loading);
      if (candidates->is_of_directory()) opened->checkpoint.require_all_files();
      try {
        destinations = destinations_in(opened->checkpoint, loading);
      } catch (const InvalidArgument&) {
        opened->checkpoint.require_all_files();  // what is not there may lie in a file that is missing
        throw;
      }
      if (verifies_others) opened->checkpoint.verify_others(destinations.names);
      return described(opened->checkpoint.info());
    });
    for (size_t rank = 1; rank < found.size() && disagreement.empty(); ++rank) {
      if (found[rank] == found[0]) continue;
      disagreement = fmt::format("{}: rank 0 finds {} there, rank {} {}", path, found[0], rank, found[rank]);
    }
    if (!disagreement.empty()) return;
    if (together != nullptr) {
      read();  // the ranks meet in it
    } else {
      run(read);
    }
  };
  // Every rank throws, so all go on together, or none does, and all say the same of it: what another rank has met, that
  // one knows. Where one is lost, the exchange says so.
  const auto judge = [&](const Error& error, bool has_next) {
    auto verdict = checkpoint::Candidates::verdict_of(error, has_next);
    if (others == nullptr) return verdict;
    if (dynamic_cast<const comm::PeerFailure*>(&error) != nullptr) verdict.is_of_disk = false;
    const auto all =
        others->exchange(fmt::format("{}{}", verdict.goes_on ? "next" : "last", verdict.is_of_disk ? "!" : ""));
    verdict.goes_on = std::all_of(all.begin(), all.end(), [](const auto& one) { return one.starts_with("next"); });
    verdict.is_of_disk = std::any_of(all.begin(), all.end(), [](const auto& one) { return one.ends_with("!"); });
    return verdict;
  };
  if (!candidates->choose(use, judge)) candidates->give_up();
  if (!disagreement.empty()) throw InvalidArgument(disagreement);
  candidates->warn();
  take_elsewhere(opened->checkpoint, destinations);
  loaded_ = std::move(destinations.report);
  return std::move(*opened);
}

Loader::Opened Loader::open_checkpoint(const std::string& path, const Loading& loading) {
  auto& files = core_.context.file_system();
  checkpoint::check_encryption(loading.decryption);
  auto plain = loading.decryption.is_on() ? checkpoint::decrypt_checkpoint(files, path, loading.decryption) : nullptr;
  auto opened = checkpoint::GlobalCheckpoint::open(plain ? *plain : files, path, loading.job_name);
  return {std::move(plain), std::move(opened)};
}

namespace {

// Throws InvalidArgument for a name, of a value or of a cell above it, of which the checkpoint has none.
void require_renamed(const std::vector<std::string>& names, const std::string& path,
                     const std::vector<checkpoint::StoredEntry>& entries) {
  std::set<std::string> known;  // values and the cells above them
  for (const auto& entry : entries) {
    if (entry.appended || entry.is_text) continue;
    known.insert("");
    for (size_t end = entry.name.find('.'); end != std::string::npos; end = entry.name.find('.', end + 1)) {
      known.insert(entry.name.substr(0, end));
    }
    known.insert(entry.name);
  }
  for (const auto& name : names) {
    if (known.contains(name)) continue;
    const std::string near = closest(name, {known.begin(), known.end()});
    throw InvalidArgument("{}: rename names \"{}\", of which the checkpoint has no value{}; nothing was loaded", path,
                          name, near.empty() ? "" : fmt::format(", did you mean {}?", near));
  }
}

}  // namespace

void Loader::rename_entries(const Loading& loading, const std::string& path,
                            std::vector<checkpoint::StoredEntry>& entries, Destinations& destinations) {
  if (!loading.rename) return;
  require_renamed(loading.renamed, path, entries);
  std::erase_if(entries, [&](auto& entry) {
    if (entry.appended || entry.is_text) return false;
    const std::string name = loading.rename(entry.name);
    if (name.empty()) return true;
    const auto [known, is_new] = destinations.renamed.emplace(name, entry.name);
    if (!is_new) {
      throw InvalidArgument("{}: \"{}\" and \"{}\" are both renamed \"{}\"; nothing was loaded", path, known->second,
                            entry.name, name);
    }
    entry.name = name;
    return false;
  });
}

std::set<std::string> Loader::take_rows_of_ranks(const std::set<std::string>& statistics,
                                                 std::vector<checkpoint::StoredEntry>& entries,
                                                 Destinations& destinations) {
  std::set<std::string> stored_names;
  std::map<std::string, checkpoint::StoredEntry> rows;
  std::erase_if(entries, [&](const auto& entry) {
    const auto statistic = statistic_of_rows(entry.name);
    if (entry.is_text || !statistics.contains(statistic)) return false;
    stored_names.insert(destinations.stored_name(entry.name));
    rows.emplace(statistic, entry);
    return true;
  });
  for (auto& entry : entries) {
    const auto found = rows.find(entry.name);
    if (found == rows.end() || !core_.values->has_row_per_rank(entry.name)) continue;
    if (found->second.shape != core_.session().global_type(entry.name).shape) continue;
    stored_names.insert(destinations.stored_name(entry.name));
    destinations.renamed[entry.name] = destinations.stored_name(found->second.name);
    const std::string name = entry.name;
    entry = found->second;
    entry.name = name;
  }
  return stored_names;
}

namespace {

// Of a checkpoint's tensors those that are called by none of these names there.
std::vector<std::string> tensors_without(const checkpoint::GlobalCheckpoint& loaded,
                                         const std::set<std::string>& names) {
  std::vector<std::string> others;
  for (const auto& entry : loaded.entries()) {
    if (!entry.appended && !entry.is_text && !names.contains(entry.name)) others.push_back(entry.name);
  }
  return others;
}

}  // namespace

// Throws InvalidArgument where a value does not fit, or the checkpoint is of another training.
Loader::Destinations Loader::destinations_in(const checkpoint::GlobalCheckpoint& loaded, const Loading& loading) {
  session::Session& session = core_.session();
  Destinations result;
  std::vector<checkpoint::Destination> destinations;
  std::vector<checkpoint::StoredEntry> entries = loaded.entries();
  // A table of learning rates is not part of what was learnt: this model's own stays.
  std::erase_if(entries, [&](const auto& entry) {
    return loading.is_resumed &&
           keeps_own_rate(entry.name, &entry, session.holds(entry.name) ? &session.global_type(entry.name) : nullptr);
  });
  rename_entries(loading, loaded.path(), entries, result);
  const auto statistics = statistics_of(core_.cells.parameters());
  std::set<std::string> stored_names = take_rows_of_ranks(statistics, entries, result);
  for (const auto& name : loading.names) {
    // Where names are changed, only what has got one has a place.
    const bool is_stored = !loading.rename || result.renamed.contains(name);
    const auto* entry = is_stored ? loaded.find(result.stored_name(name)) : nullptr;
    if (may_be_missing(name) && entry == nullptr) continue;
    checkpoint::HeldValue held{.name = name, .type = session.global_type(name)};
    if (loading.is_resumed && keeps_own_rate(name, entry, &held.type)) continue;
    const bool regrouped = entry != nullptr && statistics.contains(name) && is_regrouped(*entry, held.type);
    if (regrouped) {
      held.type.shape = entry->shape;
    } else if (const auto layouts = session.layouts(name); !layouts.empty()) {
      held.layout = layouts.front();
      held.copies.assign(layouts.begin() + 1, layouts.end());
    }
    destinations.push_back({name, TensorView(nullptr, held.type)});
    (entry != nullptr ? result.report.loaded : result.report.missing).push_back(name);
    if (entry == nullptr && loading.allows_missing) continue;
    if (entry != nullptr) stored_names.insert(entry->name);
    result.names.push_back(name);
    const auto region = checkpoint::held_region(held, core_.context.rank());
    if (!region) continue;
    auto to = session.values().in_place(name);
    const bool is_sum = held.layout && held.layout->sharding.is_partial();
    const Type& type = session.values().type(name);
    checkpoint::ElementTarget* target = nullptr;
    if (!to && !regrouped && !is_sum && type.shape == region->shape) {
      target = result.there.emplace_back(session.values().sliced_write(name)).get();
      to = TensorView(nullptr, type);
    } else if (regrouped || is_sum || !to || to->shape != region->shape) {
      to = result.elsewhere.emplace_back(name, Tensor(Type{held.type.dtype, region->shape})).second.view();
    }
    result.wanted.push_back(
        {result.stored_name(name), *region, *to, is_first_holder(held, core_.context.rank()), target});
  }
  const checkpoint::MatchOptions options{.allow_missing = loading.allows_missing,
                                         .allow_unexpected = !loading.is_resumed};
  const auto match = checkpoint::compare(entries, destinations, options);
  checkpoint::require_fit(loaded.path(), match, options);
  if (loading.allows_missing && result.report.loaded.empty()) {
    throw InvalidArgument("{}: has none of the {} parameters that were to be loaded; nothing was loaded{}",
                          loaded.path(), result.report.missing.size(), match.describe());
  }
  result.report.left_out = tensors_without(loaded, stored_names);
  if (loading.is_resumed && !loading.accepts_other_trainings && loaded.info()) {
    identity_.require_same(loaded.path(), *loaded.info());
  }
  return result;
}

// To where they lie, what was not read to there.
void Loader::take_elsewhere(const checkpoint::GlobalCheckpoint& loaded, const Destinations& destinations) {
  session::Session& session = core_.session();
  const auto statistics = statistics_of(core_.cells.parameters());
  for (const auto& [name, piece] : destinations.elsewhere) {
    const Type& type = session.global_type(name);
    if (statistics.contains(name) && is_regrouped(*loaded.find(destinations.stored_name(name)), type)) {
      session.set_value(name, piece.type() == type ? piece : regroup(piece, type));
    } else {
      session.set_piece(name, piece.view());
    }
  }
}

namespace {

// Whether it is what an optimizer or an accumulator keeps of one parameter, as "moments.weight" is.
bool belongs_to_parameter(const std::string& state, const std::vector<nn::Parameter*>& parameters) {
  return std::ranges::any_of(parameters, [&](const nn::Parameter* p) { return state.ends_with("." + p->full_name()); });
}

// What the user gave the optimizer, or as a fixed loss scale, and training only reads: learning rates, momentum. What
// is no state (weight decay, betas) a checkpoint does not hold: those stay this model's.
std::map<std::string, std::string> fixed_numbers(ModelCore& core) {
  const auto loss_scale = loss_scale_of(core.options);
  const auto parameters = core.cells.trainable_parameters();
  std::map<std::string, std::string> numbers;
  for (const auto& state : core.values->states()) {
    if (state.type.shape.ndim() != 0 || !is_floating(state.type.dtype)) continue;
    const auto name = state.full_name();
    if (name == nn::kLossScale && loss_scale && loss_scale->is_dynamic()) continue;
    if (belongs_to_parameter(name, parameters)) continue;
    numbers[name] = core.values->number_text(name);
  }
  return numbers;
}

}  // namespace

checkpoint::CheckpointInfo Loader::load_training(const std::string& path, const LoadCheckpointOptions& options) {
  session::Session& session = core_.session();
  const auto own_numbers = fixed_numbers(core_);
  const auto opened = load(path, {.decryption = options.decryption,
                                  .job_name = options.accept_other_jobs ? std::string() : core_.options.job_name,
                                  .prefix = options.prefix,
                                  .names = session.names(),
                                  .is_resumed = true,
                                  .accepts_other_trainings = options.accept_other_jobs});
  const auto& loaded = opened.checkpoint;
  for (const auto& name : session.names()) {
    if (may_be_missing(name) && loaded.find(name) == nullptr) {
      session.set_value(name, Tensor::zeros(session.global_type(name)));
    }
  }
  for (const auto& [name, number] : fixed_numbers(core_)) {
    if (number == own_numbers.at(name) || core_.context.rank() != 0) continue;
    log_warning(
        "{}: training goes on with {} {}, as it was saved, not with this model's {}; set the value to change it",
        loaded.path(), name, number, own_numbers.at(name));
  }
  core_.values->compare_again();
  if (!loaded.info() && core_.context.rank() == 0) {
    log_warning(
        "{}: its place in the training (step, epoch, position in the data) is not known, because it has no manifest: "
        "training begins at step 0 of epoch 1 with its values",
        loaded.path());
  }
  const auto info = loaded.info().value_or(checkpoint::CheckpointInfo{});
  identity_.take(loaded.path(), info, options.accept_other_jobs);
  return info;
}

LoadedParameters Loader::load_parameters(const std::string& path, const LoadParametersOptions& options) {
  std::set<const nn::Parameter*> chosen;
  for (const auto& pattern : options.only) {
    const auto matching = nn::matching_parameters(core_.cells.network, pattern);
    chosen.insert(matching.begin(), matching.end());
  }
  std::vector<std::string> names;
  for (const nn::Parameter* parameter : core_.cells.network.parameters()) {
    if (options.only.empty() || chosen.contains(parameter)) names.push_back(parameter->full_name());
  }
  load(path, {.decryption = options.decryption,
              .job_name = {},
              .names = std::move(names),
              .allows_missing = !options.strict,
              .rename = options.rename,
              .renamed = options.renamed});
  core_.values->compare_again();
  return loaded_;
}

}  // namespace tessera::train
