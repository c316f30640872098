#include "tessera/checkpoint/convert/conversion.h"

#include <algorithm>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/base/logging.h"
#include "tessera/checkpoint/convert/tilings.h"
#include "tessera/checkpoint/strategy/needed_ranks.h"

namespace tessera::checkpoint {
namespace {

// The names of `more` among those of `names`, each list in its own order: what only `more` has comes right before what
// follows it there and is in both.
std::vector<std::string> merged_order(const std::vector<std::string>& names, const std::vector<std::string>& more) {
  std::unordered_map<std::string_view, size_t> place;
  for (size_t i = 0; i < names.size(); ++i) place.emplace(names[i], i);
  std::vector<std::vector<std::string>> before(names.size() + 1);
  std::vector<std::string> waiting;
  const auto put_before = [&](size_t index) {
    before[index].insert(before[index].end(), waiting.begin(), waiting.end());
    waiting.clear();
  };
  for (const auto& name : more) {
    const auto it = place.find(name);
    if (it == place.end()) {
      waiting.push_back(name);
    } else {
      put_before(it->second);
    }
  }
  put_before(names.size());
  std::vector<std::string> merged;
  for (size_t i = 0; i <= names.size(); ++i) {
    merged.insert(merged.end(), before[i].begin(), before[i].end());
    if (i < names.size()) merged.push_back(names[i]);
  }
  return merged;
}

std::vector<std::string> names_of(const SourceFile& file) {
  std::vector<std::string> names;
  for (const auto& tensor : file.tensors()) names.push_back(tensor.name);
  return names;
}

// Whether the files, taken together, are more than any one of them: parts of tensors, or tensors of several stages.
bool describe_themselves(const SourceFiles& sources) {
  const auto names = names_of(sources.begin()->second);
  return std::all_of(sources.begin(), sources.end(), [](const auto& it) { return it.second.info().has_value(); }) &&
         std::any_of(sources.begin(), sources.end(),
                     [&](const auto& it) { return it.second.holds_parts() || names_of(it.second) != names; });
}

// By their manifests.
bool have_equal_values(const SourceTensor& a, const SourceTensor& b) {
  return a.crc32c == b.crc32c && (!a.hash || !b.hash || *a.hash == *b.hash);
}

const ParameterPlacement& no_strategy() {
  static const ParameterPlacement none;
  return none;
}

// "rank_0, rank_2".
std::string folders_of(const SourceFiles& sources) {
  constexpr size_t kMaxNamed = 8;
  std::string text;
  size_t named = 0;
  for (const auto& [rank, file] : sources) {
    if (named == kMaxNamed) return text + fmt::format(" and {} more", sources.size() - named);
    text += fmt::format("{}rank_{}", named++ == 0 ? "" : ", ", rank);
  }
  return text;
}

// `strategy` says of how many ranks, where no manifest does.
InvalidArgument one_ranks_part(const std::string& path, int64_t num_ranks, const std::string& strategy) {
  return InvalidArgument(
      "{}: is one rank's part of a checkpoint of {} ranks{}; give the directory that holds all folders rank_N", path,
      num_ranks, strategy.empty() ? "" : fmt::format(" by {}", strategy));
}

}  // namespace

Conversion::Conversion(const ParameterPlacement& from, const ParameterPlacement& to, const SourceFiles& sources,
                       bool check_replicas)
    : sources_(sources),
      is_saved_together_(are_saved_together(sources)),
      from_(is_saved_together_ ? no_strategy() : from),
      to_(to),
      check_replicas_(check_replicas) {
  if (sources.empty()) throw InvalidArgument("a conversion needs source files");
  if (is_saved_together_ && from.has_layouts()) {
    log_warning("{} is not needed: {} says which slices each file holds", from.path(),
                manifest_path(sources.begin()->second.path()));
  }
  if (!from_.has_layouts()) {
    by_manifest_ = is_saved_together_ || describe_themselves(sources);
    if (by_manifest_ && !is_saved_together_) require_all_ranks();
    return;
  }
  const auto& [last, file] = *sources.rbegin();
  if (last >= from.num_ranks()) {
    throw InvalidArgument("{}: is of rank {}, but {} is of ranks 0 to {}", file.path(), last, from.path(),
                          from.num_ranks() - 1);
  }
}

// By their manifests. Of files that were saved together each says where its values lie, and a rank may have had nothing
// to write.
void Conversion::require_all_ranks() const {
  const auto& first = sources_.begin()->second;
  const auto num_ranks = first.info()->world_size;
  const auto num_files = std::ssize(sources_);
  if (num_ranks == num_files) return;
  if (sources_.in_folders && num_files < num_ranks) {
    throw InvalidArgument("{}: of {} ranks only the {}", sources_.path, num_ranks,
                          num_files == 1 ? fmt::format("folder {} has a checkpoint", folders_of(sources_))
                                         : fmt::format("folders {} have checkpoints", folders_of(sources_)));
  }
  if (num_files == 1 && !sources_.path.empty()) throw one_ranks_part(sources_.path, num_ranks, "");
  throw InvalidArgument("{}: is of {} ranks by its manifest, the checkpoints of {} are there", first.path(), num_ranks,
                        num_files);
}

int64_t Conversion::num_source_ranks() const { return by_manifest_ ? std::ssize(sources_) : from_.num_ranks(); }

const SourceFile* Conversion::source(int64_t rank) const {
  const auto it = sources_.find(rank);
  return it == sources_.end() ? nullptr : &it->second;
}

const SourceFile& Conversion::needed_source(int64_t rank, int64_t for_rank) const {
  const auto* file = source(rank);
  if (file != nullptr) return *file;
  if (!sources_.path.empty() && !sources_.in_folders)
    throw one_ranks_part(sources_.path, num_source_ranks(), from_.path());
  throw InvalidArgument("the checkpoint of rank {} is needed for rank {}'s, but it is missing{}", rank, for_rank,
                        sources_.in_folders ? fmt::format(": none in {}/rank_{}", sources_.path, rank) : "");
}

const std::optional<Conversion::Known>& Conversion::known(const std::string& name, int64_t stage) {
  const auto key = std::pair(name, stage);
  const auto it = known_.find(key);
  if (it != known_.end()) return it->second;
  auto found = find_out(name, stage);
  if (found) {
    require_held(name, stage, *found);
    if (check_replicas_) {
      require_equal_replicas(name, *found);
      require_equal_stages(name);
    }
  }
  return known_.emplace(key, std::move(found)).first->second;
}

// nullopt when no file of the stage has it. What the stage's files do not say of the shape, another stage's may.
std::optional<Conversion::Known> Conversion::find_out(const std::string& name, int64_t stage) const {
  auto found = find_in(name, stage);
  const auto* parameter = from_.find(name);
  if (!found || found->is_certain || parameter == nullptr) return found;
  for (const auto& [other, in_stage] : parameter->stages) {
    const auto known = find_in(name, other);
    if (!known || !known->is_certain || known->global.ndim() != found->global.ndim()) continue;
    found->global = known->global;
    found->is_certain = true;
    break;
  }
  return found;
}

std::optional<Conversion::Known> Conversion::find_in(const std::string& name, int64_t stage) const {
  const int64_t first = from_.first_rank_of(stage);
  const int64_t num_ranks = from_.num_ranks_of(stage);
  std::vector<const SourceTensor*> tensors(static_cast<size_t>(num_ranks));
  const SourceTensor* like = nullptr;
  for (int64_t position = 0; position < num_ranks; ++position) {
    const auto* file = source(first + position);
    const auto* tensor = file == nullptr ? nullptr : file->find(name);
    tensors[static_cast<size_t>(position)] = tensor;
    if (tensor != nullptr && (like == nullptr || like->size_bytes == 0)) like = tensor;
  }
  if (like == nullptr) return std::nullopt;
  const auto* parameter = from_.find(name);
  const auto slicing = parameter == nullptr ? Slicing::whole(like->shape.ndim(), num_ranks)
                                            : slicing_for(parameter->in(stage), like->shape.ndim(), from_.path());
  std::vector<std::optional<Shape>> held(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto* file = source(first + static_cast<int64_t>(i));
    if (tensors[i] != nullptr) {
      if (tensors[i]->shape.ndim() != like->shape.ndim()) {
        throw InvalidArgument("{}: {} is {}, another rank's is {}", file->path(), quoted_name(name),
                              tensors[i]->type_text(), like->type_text());
      }
      if (tensors[i]->part) return Known{slicing, tensors[i]->part->global, like};
      held[i] = tensors[i]->shape;
    } else if (file != nullptr && like->shape.ndim() > 0) {
      held[i] = Shape(std::vector<int64_t>(static_cast<size_t>(like->shape.ndim()), 0));
    }
  }
  if (parameter != nullptr && !parameter->shape().empty()) return Known{slicing, Shape(parameter->shape()), like};
  const auto inferred = slicing.global_shape(held);
  check(inferred.has_value(), "a rank that holds the tensor is known");
  const auto* wanted = to_.find(name);
  if (!inferred->is_certain && wanted != nullptr && std::ssize(wanted->shape()) == slicing.ndim()) {
    return Known{slicing, Shape(wanted->shape()), like};
  }
  return Known{slicing, inferred->shape, like, inferred->is_certain};
}

void Conversion::require_held(const std::string& name, int64_t stage, const Known& known) const {
  for (int64_t position = 0; position < from_.num_ranks_of(stage); ++position) {
    const int64_t rank = from_.first_rank_of(stage) + position;
    const auto* file = source(rank);
    if (file == nullptr) continue;
    const auto* tensor = file->find(name);
    const Region region = known.slicing.region(known.global, position);
    const auto fail = [&](const std::string& what) {
      throw InvalidArgument("{}: {} {}; by {} rank {} holds {} of {}{}{}", file->path(), quoted_name(name), what,
                            from_.has_layouts() ? from_.path() : "no strategy file", rank, region.to_string(),
                            to_string(known.like->dtype), known.global,
                            from_.has_layouts() ? "; give the strategy file of the run that saved it" : "");
    };
    if (tensor == nullptr) {
      if (!region.is_empty()) fail("is missing");
      continue;
    }
    if (tensor->is_text != known.like->is_text || (!tensor->is_text && tensor->dtype != known.like->dtype)) {
      fail(fmt::format("is {}", tensor->type_text()));
    }
    if (tensor->part && (!(tensor->part->region == region) || tensor->part->global != known.global)) {
      fail(fmt::format("is {} of {} by its manifest", tensor->part->region.to_string(), tensor->part->global));
    }
    const bool both_empty = region.is_empty() && tensor->shape.num_elements() == 0;
    if (tensor->shape != region.shape && !both_empty) fail(fmt::format("is {}", tensor->type_text()));
  }
}

// Ranks of a stage that hold the same must hold the same bits, and so must ranks of other stages; manifests tell
// without reading them.
void Conversion::require_equal_replicas(const std::string& name, const Known& known) const {
  const auto* parameter = from_.find(name);
  std::map<int64_t, Slicing> slicings;  // by stage
  if (parameter == nullptr) slicings.emplace(0, known.slicing);
  if (parameter != nullptr) {
    for (const auto& [stage, in_stage] : parameter->stages) {
      slicings.emplace(stage, slicing_for(in_stage, known.global.ndim(), from_.path()));
    }
  }
  std::map<std::string, std::pair<int64_t, const SourceTensor*>> first;  // by region, with its rank
  for (const auto& [stage, slicing] : slicings) {
    const int64_t begin = from_.first_rank_of(stage);
    for (int64_t rank = begin; rank < begin + from_.num_ranks_of(stage); ++rank) {
      const auto* file = source(rank);
      const auto* tensor = file == nullptr ? nullptr : file->find(name);
      if (tensor == nullptr || !tensor->crc32c) continue;
      const Region region = slicing.region(known.global, rank - begin);
      const auto [it, is_first] = first.emplace(region.to_string(), std::pair(rank, tensor));
      if (is_first || have_equal_values(*it->second.second, *tensor)) continue;
      throw InvalidArgument(
          "{}: ranks {} and {} hold the same part of {}, but not the same values; take away the checkpoint of the one "
          "that is wrong, or accept any replica",
          file->path(), it->second.first, rank, quoted_name(name));
    }
  }
}

// The hash of the whole tensor that a stage holds, by its manifests; nullopt where these do not say it.
std::optional<uint64_t> Conversion::hash_in(const std::string& name, int64_t stage, const Known& known) const {
  std::map<int64_t, uint64_t> slices;
  int64_t covered = 0;
  for (int64_t position = 0; position < from_.num_ranks_of(stage); ++position) {
    const auto* file = source(from_.first_rank_of(stage) + position);
    const auto* tensor = file == nullptr ? nullptr : file->find(name);
    const Region region = known.slicing.region(known.global, position);
    if (tensor == nullptr || region.is_empty()) continue;
    // A slice whose manifest takes it for a tensor has a hash by places within the slice.
    const bool knows_place = tensor->part || region == Region::whole(known.global);
    if (!tensor->hash || !knows_place) return std::nullopt;
    if (slices.emplace(known.slicing.slice_index(position), *tensor->hash).second)
      covered += region.shape.num_elements();
  }
  if (covered != known.global.num_elements()) return std::nullopt;
  uint64_t sum = 0;
  for (const auto& [slice, hash] : slices) sum += hash;
  return sum;
}

// Stages that share a parameter hold the same values, however each cuts it.
void Conversion::require_equal_stages(const std::string& name) const {
  const auto* parameter = from_.find(name);
  if (parameter == nullptr || parameter->stages.size() < 2) return;
  std::optional<std::pair<int64_t, Known>> first;  // of these stages
  std::optional<std::pair<int64_t, uint64_t>> hash;
  for (const auto& [stage, in_stage] : parameter->stages) {
    const auto known = find_out(name, stage);
    if (!known || known->like->is_text) continue;
    if (!first) first.emplace(stage, *known);
    const auto& [other, theirs] = *first;
    const bool have_one_shape = theirs.global == known->global || !theirs.is_certain || !known->is_certain;
    if (!have_one_shape || theirs.like->dtype != known->like->dtype) {
      throw InvalidArgument("{}: {} is {}{} in stage {} and {}{} in stage {}; the checkpoints must be of one run",
                            from_.path(), quoted_name(name), to_string(theirs.like->dtype), theirs.global, other,
                            to_string(known->like->dtype), known->global, stage);
    }
    const auto own = hash_in(name, stage, *known);
    if (!own) continue;
    if (!hash) hash.emplace(stage, *own);
    if (hash->second == *own) continue;
    throw InvalidArgument(
        "{}: stages {} and {} both have {}, but not the same values; take away the checkpoints of the one that is "
        "wrong, or accept any replica",
        from_.path(), hash->first, stage, quoted_name(name));
  }
}

// nullopt for a parameter of other stages.
std::optional<Region> Conversion::destination_region(const std::string& name, const Shape& global, int64_t rank) const {
  const auto* parameter = to_.find(name);
  if (parameter == nullptr) return Region::whole(global);
  const int64_t stage = to_.stage_of(rank);
  if (!parameter->is_in(stage)) return std::nullopt;
  const auto shape = parameter->shape();
  if (!shape.empty() && Shape(shape) != global) {
    throw InvalidArgument("{}: {} has shape {} there, {} in the checkpoint", to_.path(), quoted_name(name),
                          Shape(shape), global);
  }
  return slicing_for(parameter->in(stage), global.ndim(), to_.path()).region(global, to_.position_of(rank));
}

// Whether the files of a stage that are there hold all of the region.
bool Conversion::has_all_parts(int64_t stage, const Known& known, const Region& wanted) const {
  const int64_t first = from_.first_rank_of(stage);
  const auto is_there = [&](int64_t position) { return source(first + position) != nullptr; };
  const auto held = choose_holders(known.slicing, known.global, wanted, /*home=*/0, is_there);
  const auto all = choose_holders(known.slicing, known.global, wanted, /*home=*/0, [](int64_t) { return true; });
  return held.size() == all.size();
}

std::vector<SourcePart> Conversion::parts_in(const std::string& name, int64_t stage, const Known& known,
                                             const Region& wanted, int64_t rank) const {
  const int64_t first = from_.first_rank_of(stage);
  const auto is_there = [&](int64_t position) { return source(first + position) != nullptr; };
  const int64_t home = home_rank(from_, to_, stage, rank) - first;
  const auto holders = choose_holders(known.slicing, known.global, wanted, home, is_there);
  const auto all = choose_holders(known.slicing, known.global, wanted, home, [](int64_t) { return true; });
  std::vector<SourcePart> parts;
  for (const auto& [slice, position] : all) {
    const auto it = holders.find(slice);
    const int64_t source_rank = first + (it == holders.end() ? position : it->second);
    parts.push_back({source_rank, needed_source(source_rank, rank).find(name),
                     known.slicing.region(known.global, source_rank - first)});
  }
  return parts;
}

void Conversion::cut_anew(int64_t rank, const std::vector<int64_t>& stages, Made& made) {
  const auto cut = [&](const std::string& name, int64_t stage) {
    const auto& source = known(name, stage);
    if (!source || source->like->is_text) return false;
    const auto region = destination_region(name, source->global, rank);
    if (!region) return false;
    OutputTensor tensor{.like = source->like, .global = source->global, .region = *region};
    if (!region->is_empty()) tensor.sources = parts_in(name, stage, *source, *region, rank);
    made.emplace(name, std::move(tensor));
    return true;
  };
  if (!from_.has_layouts()) {
    for (const auto& tensor : needed_source(0, rank).tensors()) cut(tensor.name, 0);
    return;
  }
  for (const auto& [name, parameter] : from_.parameters()) {
    if (to_.has_layouts() && to_.find(name) == nullptr) continue;
    // From the first stage whose files have it all. Where none has, the first one's say which is missing.
    std::optional<int64_t> chosen;
    for (const int64_t stage : stages) {
      if (!parameter.is_in(stage)) continue;
      const auto& source = known(name, stage);
      if (!source || source->like->is_text) continue;
      const auto region = destination_region(name, source->global, rank);
      if (!region) break;
      const bool has_all = has_all_parts(stage, *source, *region);
      if (has_all || !chosen) chosen = stage;
      if (has_all) break;
    }
    if (chosen) cut(name, *chosen);
  }
}

// The parts of a tensor that the manifests describe; nullopt for one that is not wanted, or of which there are no
// parts.
std::optional<OutputTensor> Conversion::joined_by_manifest(const std::string& name, int64_t rank) const {
  std::vector<SourcePart> parts;
  const SourceTensor* like = nullptr;
  bool is_split = false;
  for (const auto& [source_rank, file] : sources_) {
    const auto* tensor = file.find(name);
    if (tensor == nullptr) continue;
    if (like == nullptr) like = tensor;
    is_split = is_split || tensor->part;
    parts.push_back({source_rank, tensor, tensor->region()});
  }
  if (!is_split && to_.find(name) == nullptr) return std::nullopt;
  const Shape& global = like->global();
  for (const auto& part : parts) {
    if (!part.tensor->is_text && part.tensor->dtype == like->dtype && part.tensor->global() == global) continue;
    throw InvalidArgument("{}: {} is {} of {}{}, another rank's is of {}{}", sources_.at(part.rank).path(),
                          quoted_name(name), part.tensor->type_text(), to_string(part.tensor->dtype),
                          part.tensor->global(), to_string(like->dtype), global);
  }
  const auto region = destination_region(name, global, rank);
  if (!region) return std::nullopt;
  OutputTensor output{.like = like, .global = global, .region = *region};
  if (!region->is_empty()) output.sources = tiling_parts(name, parts, *region, rank % num_source_ranks());
  return output;
}

// Of the parts of all ranks those that tile the region, once each; those of rank `home` are preferred.
std::vector<SourcePart> Conversion::tiling_parts(const std::string& name, const std::vector<SourcePart>& parts,
                                                 const Region& wanted, int64_t home) const {
  std::vector<SourcePart> unlike;  // each region once
  for (const auto& part : parts) {
    if (!intersection(part.region, wanted)) continue;
    const auto same =
        std::find_if(unlike.begin(), unlike.end(), [&](const auto& other) { return other.region == part.region; });
    if (same == unlike.end()) {
      unlike.push_back(part);
      continue;
    }
    if (check_replicas_ && !have_equal_values(*same->tensor, *part.tensor)) {
      throw InvalidArgument("{}: ranks {} and {} hold the same part of {}, but not the same values",
                            sources_.at(part.rank).path(), same->rank, part.rank, quoted_name(name));
    }
    if (part.rank == home) *same = part;
  }
  std::vector<Region> regions;
  for (const auto& part : unlike) regions.push_back(part.region);
  const auto tilings = tilings_of(regions, wanted);
  if (tilings.empty()) fail_to_tile(name, unlike);
  const auto hash_of = [&](const std::vector<size_t>& tiling) -> std::optional<uint64_t> {
    uint64_t sum = 0;
    for (const size_t i : tiling) {
      const bool is_inside = intersection(unlike[i].region, wanted) == unlike[i].region;
      if (!is_inside || !unlike[i].tensor->hash) return std::nullopt;
      sum += *unlike[i].tensor->hash;
    }
    return sum;
  };
  const auto first_hash = hash_of(tilings[0]);
  size_t chosen = 0;
  for (size_t i = tilings.size(); i-- > 0;) {
    const auto hash = hash_of(tilings[i]);
    if (check_replicas_ && first_hash && hash && *hash != *first_hash) {
      const auto& own = unlike[tilings[i][0]];
      throw InvalidArgument(
          "{}: {} of rank {}, and of others that cut it in its way, has other values than that of rank {}",
          sources_.at(own.rank).path(), quoted_name(name), own.rank, unlike[tilings[0][0]].rank);
    }
    const auto is_home = [&](size_t part) { return unlike[part].rank == home; };
    if (std::any_of(tilings[i].begin(), tilings[i].end(), is_home)) chosen = i;
  }
  std::vector<SourcePart> tiling;
  for (const size_t part : tilings[chosen]) tiling.push_back(unlike[part]);
  return tiling;
}

// Parts that leave a gap, or overlap with each other and are not of stages that each hold the whole.
void Conversion::fail_to_tile(const std::string& name, const std::vector<SourcePart>& parts) const {
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t other = 0; other < i; ++other) {
      if (!intersection(parts[i].region, parts[other].region)) continue;
      throw InvalidArgument("{}: {} of rank {} overlaps that of rank {}, and neither is part of a whole",
                            sources_.at(parts[i].rank).path(), quoted_name(name), parts[i].rank, parts[other].rank);
    }
  }
  throw InvalidArgument("the source files do not hold all of {}: a rank's checkpoint is missing", quoted_name(name));
}

void Conversion::join_by_manifest(int64_t rank, Made& made) const {
  for (const auto& [source_rank, file] : sources_) {
    for (const auto& tensor : file.tensors()) {
      const bool is_unlisted = to_.has_layouts() && to_.find(tensor.name) == nullptr;
      if (made.contains(tensor.name) || (is_unlisted && !is_saved_together_)) continue;
      if (auto joined = joined_by_manifest(tensor.name, rank)) made.emplace(tensor.name, std::move(*joined));
    }
  }
}

void Conversion::copy_unchanged(int64_t rank, const SourceFile& from, Made& made) {
  const int64_t stage = to_.stage_of(rank);
  int64_t from_rank = 0;
  for (const auto& [source_rank, file] : sources_) {
    if (&file == &from) from_rank = source_rank;
  }
  for (const auto& tensor : from.tensors()) {
    const auto* source = from_.find(tensor.name);
    const auto* target = to_.find(tensor.name);
    const bool is_elsewhere = target != nullptr && !target->is_in(stage);
    if (is_elsewhere) continue;
    const auto taken = made.find(tensor.name);
    if (taken != made.end()) {
      // Of several stages the first one's is copied, which must be what any of them has.
      if (source != nullptr && target == nullptr && to_.has_layouts() && !source->is_cut_alike()) {
        throw InvalidArgument(
            "{}: does not list {}, which the stages of {} cut in different ways: a slice that is copied as it is could "
            "be that of either; give a strategy file of the destination that lists it",
            to_.path(), quoted_name(tensor.name), from_.path());
      }
      continue;
    }
    if (source != nullptr && !to_.has_layouts() && !tensor.is_text) continue;
    const auto splits = [](const auto* parameter) { return parameter != nullptr && !parameter->is_whole(); };
    // A slice that is known to be one stays with as many ranks. On others it would be taken for the whole. What the
    // destination alone leaves out, as a prediction's strategies do with an optimizer's states, nobody will read there.
    const bool is_slice = tensor.part && !(tensor.part->region == Region::whole(tensor.part->global));
    if (is_slice && source == nullptr && from_.has_layouts() && from_.num_ranks() != to_.num_ranks()) {
      throw InvalidArgument(
          "{}: does not list {}, of which {} holds {} of {} by its manifest; slices are copied to as many ranks only, "
          "here {} become {}: a strategy file with all split values is needed",
          from_.path(), quoted_name(tensor.name), from.path(), tensor.part->region.to_string(), tensor.part->global,
          from_.num_ranks(), to_.num_ranks());
    }
    if (splits(source) || splits(target) || tensor.part) copied_slices_.insert(tensor.name);
    const Region region = tensor.region();
    OutputTensor output{.like = &tensor, .global = tensor.global(), .region = region};
    if (!tensor.is_text && !region.is_empty()) output.sources.push_back({from_rank, &tensor, region});
    if (tensor.is_text) output.sources.push_back({from_rank, &tensor, {}});
    made.emplace(tensor.name, std::move(output));
  }
}

OutputFile Conversion::output(int64_t rank) {
  Made made;
  std::vector<const SourceFile*> homes;
  if (by_manifest_) {
    join_by_manifest(rank, made);
    const auto home = std::next(sources_.begin(), rank % num_source_ranks());
    homes.push_back(&home->second);
    for (const auto& [source_rank, file] : sources_) {
      if (source_rank != home->first) homes.push_back(&file);
    }
  } else {
    const auto stages = needed_stages(from_, to_, to_.stage_of(rank));
    for (const int64_t stage : stages) homes.push_back(&needed_source(home_rank(from_, to_, stage, rank), rank));
    cut_anew(rank, stages, made);
  }
  for (const auto* file : homes) copy_unchanged(rank, *file, made);

  std::set<int64_t> used;
  for (const auto& [name, tensor] : made) {
    for (const auto& part : tensor.sources) used.insert(part.rank);
  }
  std::vector<std::string> order;
  for (const auto* file : homes) order = merged_order(order, names_of(*file));
  for (const int64_t source_rank : used) order = merged_order(order, names_of(sources_.at(source_rank)));

  OutputFile file{.rank = rank, .info = homes[0]->info()};
  for (const auto& [name, tensor] : made) {  // what no file has a record of, since this rank's part is empty
    if (tensor.sources.empty()) order.push_back(name);
  }
  std::set<std::string> added;
  for (const auto& name : order) {
    const auto it = made.find(name);
    if (it == made.end() || !added.insert(name).second) continue;
    const auto& like = *it->second.like;
    file.size_bytes += like.is_text
                           ? like.size_bytes
                           : it->second.region.shape.num_elements() * static_cast<int64_t>(size_bytes(like.dtype));
    file.tensors.push_back(std::move(it->second));
  }
  return file;
}

}  // namespace tessera::checkpoint
