#include "tessera/checkpoint/convert/conversion.h"

#include <algorithm>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/checkpoint/format/protobuf_wire.h"
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
    if (check_replicas_) require_equal_replicas(name, *found);
  }
  return known_.emplace(key, std::move(found)).first->second;
}

// nullopt when no file of the stage has it.
std::optional<Conversion::Known> Conversion::find_out(const std::string& name, int64_t stage) const {
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
                                            : slicing_for(*parameter, like->shape.ndim(), from_.path());
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
  if (parameter != nullptr && !parameter->layout.tensor_shape.empty()) {
    return Known{slicing, Shape(parameter->layout.tensor_shape), like};
  }
  const auto inferred = slicing.global_shape(held);
  check(inferred.has_value(), "a rank that holds the tensor is known");
  const auto* wanted = to_.find(name);
  if (!inferred->is_certain && wanted != nullptr && std::ssize(wanted->layout.tensor_shape) == slicing.ndim()) {
    return Known{slicing, Shape(wanted->layout.tensor_shape), like};
  }
  return Known{slicing, inferred->shape, like};
}

void Conversion::require_held(const std::string& name, int64_t stage, const Known& known) const {
  for (int64_t position = 0; position < from_.num_ranks_of(stage); ++position) {
    const int64_t rank = from_.first_rank_of(stage) + position;
    const auto* file = source(rank);
    if (file == nullptr) continue;
    const auto* tensor = file->find(name);
    const Box box = known.slicing.box(known.global, position);
    const auto fail = [&](const std::string& what) {
      throw InvalidArgument("{}: {} {}; by {} rank {} holds {} of {}{}{}", file->path(), quoted_name(name), what,
                            from_.has_layouts() ? from_.path() : "no strategy file", rank, box.to_string(),
                            to_string(known.like->dtype), known.global,
                            from_.has_layouts() ? "; give the strategy file of the run that saved it" : "");
    };
    if (tensor == nullptr) {
      if (!box.is_empty()) fail("is missing");
      continue;
    }
    if (tensor->is_text != known.like->is_text || (!tensor->is_text && tensor->dtype != known.like->dtype)) {
      fail(fmt::format("is {}", tensor->type_text()));
    }
    if (tensor->part && (!(tensor->part->box == box) || tensor->part->global != known.global)) {
      fail(fmt::format("is {} of {} by its manifest", tensor->part->box.to_string(), tensor->part->global));
    }
    const bool both_empty = box.is_empty() && tensor->shape.num_elements() == 0;
    if (tensor->shape != box.shape && !both_empty) fail(fmt::format("is {}", tensor->type_text()));
  }
}

// Ranks that hold the same must hold the same bits, in whichever stages; manifests tell without reading them.
void Conversion::require_equal_replicas(const std::string& name, const Known& known) const {
  const auto* parameter = from_.find(name);
  const auto stages = parameter == nullptr ? std::vector<int64_t>{0} : parameter->stages;
  std::map<int64_t, std::pair<int64_t, const SourceTensor*>> first;  // by slice, with its rank
  for (const int64_t stage : stages) {
    const int64_t begin = from_.first_rank_of(stage);
    for (int64_t rank = begin; rank < begin + from_.num_ranks_of(stage); ++rank) {
      const auto* file = source(rank);
      const auto* tensor = file == nullptr ? nullptr : file->find(name);
      if (tensor == nullptr || !tensor->crc32c) continue;
      const int64_t slice = known.slicing.slice_index(rank - begin);
      const auto [it, is_first] = first.emplace(slice, std::pair(rank, tensor));
      if (is_first || have_equal_values(*it->second.second, *tensor)) continue;
      throw InvalidArgument(
          "{}: ranks {} and {} hold the same part of {}, but not the same values; take away the checkpoint of the one "
          "that is wrong, or accept any replica",
          file->path(), it->second.first, rank, quoted_name(name));
    }
  }
}

// nullopt for a parameter of other stages.
std::optional<Box> Conversion::destination_box(const std::string& name, const Shape& global, int64_t rank) const {
  const auto* parameter = to_.find(name);
  if (parameter == nullptr) return Box::whole(global);
  if (!parameter->is_in(to_.stage_of(rank))) return std::nullopt;
  const auto& shape = parameter->layout.tensor_shape;
  if (!shape.empty() && Shape(shape) != global) {
    throw InvalidArgument("{}: {} has shape {} there, {} in the checkpoint", to_.path(), quoted_name(name),
                          Shape(shape), global);
  }
  return slicing_for(*parameter, global.ndim(), to_.path()).box(global, to_.position_of(rank));
}

std::vector<SourcePart> Conversion::parts_in(const std::string& name, int64_t stage, const Known& known,
                                             const Box& wanted, int64_t rank) const {
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
                     known.slicing.box(known.global, source_rank - first)});
  }
  return parts;
}

void Conversion::cut_anew(int64_t rank, const std::vector<int64_t>& stages, Made& made) {
  const auto cut = [&](const std::string& name, int64_t stage) {
    const auto& source = known(name, stage);
    if (!source || source->like->is_text) return false;
    const auto box = destination_box(name, source->global, rank);
    if (!box) return false;
    OutputTensor tensor{.like = source->like, .global = source->global, .box = *box};
    if (!box->is_empty()) tensor.sources = parts_in(name, stage, *source, *box, rank);
    made.emplace(name, std::move(tensor));
    return true;
  };
  if (!from_.has_layouts()) {
    for (const auto& tensor : needed_source(0, rank).tensors()) cut(tensor.name, 0);
    return;
  }
  for (const auto& [name, parameter] : from_.parameters()) {
    if (to_.has_layouts() && to_.find(name) == nullptr) continue;
    for (const int64_t stage : stages) {
      if (parameter.is_in(stage) && cut(name, stage)) break;
    }
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
    parts.push_back({source_rank, tensor, tensor->box()});
  }
  if (!is_split && to_.find(name) == nullptr) return std::nullopt;
  const Shape& global = like->global();
  for (const auto& part : parts) {
    if (!part.tensor->is_text && part.tensor->dtype == like->dtype && part.tensor->global() == global) continue;
    throw InvalidArgument("{}: {} is {} of {}{}, another rank's is of {}{}", sources_.at(part.rank).path(),
                          quoted_name(name), part.tensor->type_text(), to_string(part.tensor->dtype),
                          part.tensor->global(), to_string(like->dtype), global);
  }
  const auto box = destination_box(name, global, rank);
  if (!box) return std::nullopt;
  OutputTensor output{.like = like, .global = global, .box = *box};
  const int64_t home = rank % num_source_ranks();
  std::stable_partition(parts.begin(), parts.end(), [&](const SourcePart& part) { return part.rank == home; });
  int64_t covered = 0;
  for (auto& part : parts) {
    const auto common = intersection(part.box, *box);
    if (!common) continue;
    bool is_replica = false;
    for (const auto& other : output.sources) {
      if (other.box == part.box) {
        is_replica = true;
        if (check_replicas_ && !have_equal_values(*other.tensor, *part.tensor)) {
          throw InvalidArgument("{}: ranks {} and {} hold the same part of {}, but not the same values",
                                sources_.at(part.rank).path(), other.rank, part.rank, quoted_name(name));
        }
      } else if (intersection(other.box, *common)) {
        throw InvalidArgument("{}: {} of rank {} overlaps that of rank {}", sources_.at(part.rank).path(),
                              quoted_name(name), part.rank, other.rank);
      }
    }
    if (is_replica) continue;
    covered += common->shape.num_elements();
    output.sources.push_back(part);
  }
  if (covered != box->shape.num_elements()) {
    throw InvalidArgument("the source files do not hold all of {} {}{}: a rank's checkpoint is missing",
                          quoted_name(name), to_string(like->dtype), global);
  }
  return output;
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
    if (is_elsewhere || made.contains(tensor.name)) continue;
    if (source != nullptr && !to_.has_layouts() && !tensor.is_text) continue;
    const auto splits = [](const auto* parameter) { return parameter != nullptr && !parameter->slicing.is_whole(); };
    // A slice that is known to be one stays with as many ranks. On others it would be taken for the whole. What the
    // destination alone leaves out, as a prediction's strategies do with an optimizer's states, nobody will read there.
    const bool is_slice = tensor.part && !(tensor.part->box == Box::whole(tensor.part->global));
    if (is_slice && source == nullptr && from_.has_layouts() && from_.num_ranks() != to_.num_ranks()) {
      throw InvalidArgument(
          "{}: does not list {}, of which {} holds {} of {} by its manifest; slices are copied to as many ranks only, "
          "here {} become {}: a strategy file with all split values is needed",
          from_.path(), quoted_name(tensor.name), from.path(), tensor.part->box.to_string(), tensor.part->global,
          from_.num_ranks(), to_.num_ranks());
    }
    if (splits(source) || splits(target) || tensor.part) copied_slices_.insert(tensor.name);
    const Box box = tensor.box();
    OutputTensor output{.like = &tensor, .global = tensor.global(), .box = box};
    if (!tensor.is_text && !box.is_empty()) output.sources.push_back({from_rank, &tensor, box});
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
                           : it->second.box.shape.num_elements() * static_cast<int64_t>(size_bytes(like.dtype));
    file.tensors.push_back(std::move(it->second));
  }
  return file;
}

}  // namespace tessera::checkpoint
