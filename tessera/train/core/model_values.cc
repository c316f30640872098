#include "tessera/train/core/model_values.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/session/agree/gather_texts.h"
#include "tessera/session/agree/work_apart.h"
#include "tessera/train/core/spilled_values.h"
#include "tessera/train/options/precision.h"

namespace tessera::train {
namespace {

// Goes on with `crc`; nothing is copied that the host reaches.
uint32_t crc_of(const session::Values& values, const std::string& name, uint32_t crc) {
  const auto here = values.in_place(name);
  const Tensor copy = here ? Tensor() : values.read(name);
  const TensorView view = here ? *here : copy.view();
  return crc32c({static_cast<const std::byte*>(view.data), static_cast<size_t>(view.size_bytes())}, crc);
}

struct DescribedValue {
  std::string crc;
  std::string number;  // of a value without dims
};

// By name, of lines "name, crc, number".
std::map<std::string, DescribedValue> described_values(std::string_view text) {
  std::map<std::string, DescribedValue> values;
  for (const auto line : split(text, '\n')) {
    const auto fields = split(line, '\t');
    if (fields.size() == 3) values[std::string(fields[0])] = {std::string(fields[1]), std::string(fields[2])};
  }
  return values;
}

}  // namespace

ModelValues::ModelValues(cluster::Context& context, const TrainedCells& cells, ModelOptions& options, const Mode& mode)
    : context_(context), cells_(cells), options_(options), mode_(mode), session_(context, options.session) {
  declare();
  take_initial_states();
  initialize_together();
  if (mode_.agrees_on_values()) agree();
  if (mode_.is_shared() && options_.parameter_broadcast) broadcast();
}

void ModelValues::make_states() {
  std::vector<nn::Parameter*> trainable;
  for (nn::Parameter* parameter : cells_.parameters()) {
    mode_.check_parameter(*parameter);
    if (parameter->requires_grad) trainable.push_back(parameter);
  }
  if (cells_.optimizer == nullptr) return;
  states_ = cells_.optimizer->states(trainable);
  const auto add = [this](std::vector<nn::Parameter> states) {
    for (auto& state : states) states_.push_back(std::move(state));
  };
  if (options_.accumulates()) {
    add(nn::gradient_accumulators(trainable));
    add(nn::lookup_accumulators(trainable, *cells_.optimizer));
  }
  const auto loss_scale = loss_scale_of(options_);
  if (!loss_scale) return;
  add(nn::loss_scale_states(*loss_scale));
  if (options_.accumulates()) states_.push_back(nn::accumulated_overflow_state());
}

void ModelValues::declare() {
  // What grows a dim when the batch is cut into groups is one row per rank.
  std::map<std::string, int> plain_ndim;
  cells_.network.apply_settings({});
  for (const nn::Parameter* p : cells_.network.parameters()) plain_ndim[p->full_name()] = p->type.shape.ndim();
  cells_.network.apply_settings(mode_.settings(true));
  if (cells_.loss != nullptr) cells_.loss->apply_settings(mode_.settings(true));

  make_states();
  spill();
  const mesh::Mesh ranks = mode_.mesh();
  for (const nn::Parameter* parameter : cells_.parameters()) {
    const auto name = parameter->full_name();
    if (parameter->layerwise_parallel || (mode_.has_own_statistics() && !parameter->requires_grad)) own_.insert(name);
    const auto plain = plain_ndim.find(name);
    if (const auto first = mode_.first_layout(*parameter)) {
      session_.declare_on(name, parameter->type, *first);
      continue;
    }
    mesh::Sharding sharding = mesh::Sharding::replicated(parameter->type.shape.ndim());
    if (plain != plain_ndim.end() && plain->second != parameter->type.shape.ndim()) {
      sharding.dims[0] = {0};
      rows_.insert(name);
    }
    session_.declare(name, parameter->type, &sharding, &ranks);
  }
  for (const auto& state : states_) {
    if (state.layerwise_parallel) own_.insert(state.full_name());
    if (const auto first = mode_.first_layout(state)) {
      session_.declare_on(state.full_name(), state.type, *first);
    } else {
      session_.declare(state.full_name(), state.type);
    }
  }
  for (const auto& counter : counters()) session_.declare(counter, {DType::kI64, {}});
  if (rows_.empty()) return;
  // The rows are those of this session: the network has them in its traces only.
  auto plain_settings = mode_.settings(true);
  plain_settings.batch_norm_groups = 0;
  cells_.network.apply_settings(plain_settings);
  if (cells_.loss != nullptr) cells_.loss->apply_settings(plain_settings);
}

Type ModelValues::type_of_row(const std::string& name) const {
  const Type& rows = session_.global_type(name);
  return {rows.dtype, Shape(std::span(rows.shape.begin() + 1, rows.shape.end()))};
}

Tensor ModelValues::own_value(const std::string& name) {
  if (!has_row_per_rank(name)) return session().value(name);
  const Tensor piece = session().values().read(name);
  return Tensor::copy_of(TensorView(piece.view().data, type_of_row(name)));
}

void ModelValues::set_own_value(const std::string& name, const Tensor& value) {
  draw();
  if (!has_row_per_rank(name)) return session_.set_value(name, value);
  if (!(value.type() == type_of_row(name))) {
    throw InvalidArgument("\"{}\" is {} on each rank, it cannot be set to {}", name, type_of_row(name), value.type());
  }
  session_.set_piece(name, TensorView(value.view().data, session_.values().type(name)));
}

// Of a server that may not have all its tables in memory.
void ModelValues::spill() {
  const int64_t limit = options_.session.values_limit_bytes;
  if (limit == 0) return;
  std::vector<ServedValue> held;
  const auto add = [&](const nn::Parameter& value, bool is_state) {
    const auto first = mode_.first_layout(value);
    if (!first) return;
    const Shape rows = mesh::local_shape(value.type.shape, first->sharding, first->mesh, context_.rank());
    held.push_back({value.full_name(), {value.type.dtype, rows}, is_state});
  };
  for (const nn::Parameter* parameter : cells_.parameters()) add(*parameter, /*is_state=*/false);
  for (const auto& state : states_) add(state, /*is_state=*/true);
  const auto spilled = choose_spilled(held, limit);
  session_.spill(spilled);
  if (context_.rank() != 0) return;
  int64_t all = 0;
  int64_t in_file = 0;
  std::vector<std::string> names;
  for (const auto& value : held) all += value.type.size_bytes();
  for (const auto& value : spilled) {
    in_file += value.type.size_bytes();
    names.push_back(value.name);
  }
  log_info("the rows that server 0 keeps take {}: {} in memory, of {} that they may, and {} in a file{}{}",
           format_bytes(all), format_bytes(all - in_file), format_bytes(limit), format_bytes(in_file),
           names.empty() ? "" : ": ", fmt::join(names, ", "));
}

void ModelValues::take_initial_states() {
  for (auto& state : states_) {
    const auto given = options_.initial_states.extract(state.full_name());
    if (given.empty()) continue;
    if (!(given.mapped().type() == state.type)) {
      throw InvalidArgument("initial_states: \"{}\" is {}, it cannot start as {}", state.full_name(), state.type,
                            given.mapped().type());
    }
    state.data = given.mapped();
  }
  options_.initial_states.clear();
}

std::vector<std::string> ModelValues::counters() const {
  std::vector<std::string> names{std::string(nn::kRandomStep)};
  if (options_.accumulates()) names.emplace_back(nn::kAccumulatedSteps);
  return names;
}

int64_t ModelValues::accumulated_batches() const {
  const auto& values = session_.values();
  if (const auto here = values.in_place(nn::kAccumulatedSteps)) return *here->as<int64_t>();
  return values.read(nn::kAccumulatedSteps).values<int64_t>()[0];
}

void ModelValues::set_accumulated_batches(int64_t done) {
  session_.values().write(nn::kAccumulatedSteps, {&done, {DType::kI64, {}}});
}

// One rank may have more to make than others, as a server of large tables has: where the ranks compare values then,
// they wait for each other as long as each comes further.
void ModelValues::initialize_together() {
  const bool are_compared = mode_.agrees_on_values() || (mode_.is_shared() && options_.parameter_broadcast);
  if (!are_compared) return initialize();
  session::WorkApart work(context_.world(), "making initial values", context_.progress(), context_.clock());
  initialize([&work] { work.after_piece(); });
  work.finish();
}

void ModelValues::initialize(const std::function<void()>& after_piece) {
  for (const auto& counter : counters()) session_.set_value(counter, Tensor::zeros({DType::kI64, {}}));
  std::vector<nn::Parameter> copies;
  for (const nn::Parameter* parameter : cells_.parameters()) {
    if (has_row_per_rank(parameter->full_name()) && parameter->data) {
      set_own_value(parameter->full_name(), *parameter->data);
    } else {
      copies.push_back(*parameter);
    }
  }
  undrawn_.clear();
  const bool is_late = draws_late();
  for (const std::span<const nn::Parameter> values : {std::span<const nn::Parameter>(copies), states()}) {
    if (!is_late) {
      session_.initialize(values, options_.seed, after_piece);
      continue;
    }
    std::vector<nn::Parameter> given;
    for (const nn::Parameter& value : values) (value.data ? given : undrawn_).push_back(value);
    session_.initialize(given, options_.seed, after_piece);
  }
  are_initial_ = true;
}

// Where the ranks compare what they start with, and take rank 0's, they make it at once: initializers may differ
// between ranks, and what one of them was given as data others may make. Of a table that lies in a file each rank makes
// its part by pieces while others wait.
bool ModelValues::draws_late() const {
  const cluster::Recovery* recovery = context_.recovery();
  const bool are_compared = mode_.agrees_on_values() || options_.parameter_broadcast;
  return recovery != nullptr && recovery->generation() > 1 && mode_.is_shared() && !are_compared &&
         options_.session.values_limit_bytes == 0;
}

void ModelValues::draw() {
  if (undrawn_.empty()) return;
  session_.initialize(undrawn_, options_.seed);
  undrawn_.clear();  // an initializer that throws does so again
}

void ModelValues::set_taken(std::span<const std::string> names) {
  const std::set<std::string> taken(names.begin(), names.end());
  std::erase_if(undrawn_, [&](const nn::Parameter& value) { return taken.contains(value.full_name()); });
}

// Initial values that the user made may differ between ranks: all take rank 0's.
void ModelValues::agree() {
  std::string differing;
  for (const auto& name : session_.names()) {
    // What lies on some ranks only: what the user gave for it, where that is so.
    const bool is_split = session_.is_split(name);
    const Tensor* const given = is_split ? given_value(name) : nullptr;
    const int64_t own = given != nullptr ? crc32c(given->bytes()) : is_split ? -1 : crc_of(session_.values(), name, 0);
    int64_t sums[2] = {own, -own};
    context_.world().all_reduce(sums, 2, DType::kI64, comm::ReduceOp::kMax, "comparing initial values");
    if (sums[0] == -sums[1]) continue;
    if (differing.empty()) differing = name;
    if (is_split) {
      take_given_of_first(name, given);
    } else {
      take_from_first(name, "taking rank 0's initial values");
    }
  }
  if (differing.empty() || context_.rank() != 0) return;
  log_warning("the initial values of \"{}\" (and perhaps others) differ between ranks: all take rank 0's", differing);
}

// Of a parameter or state; nullptr where it is made by an initializer.
const Tensor* ModelValues::given_value(const std::string& name) const {
  const auto data_of = [&](const nn::Parameter& value) -> const Tensor* {
    return value.full_name() == name && value.data ? &*value.data : nullptr;
  };
  for (const nn::Parameter* parameter : cells_.parameters()) {
    if (const Tensor* data = data_of(*parameter)) return data;
  }
  for (const auto& state : states_) {
    if (const Tensor* data = data_of(state)) return data;
  }
  return nullptr;
}

// Ranks that were given nothing take part, too.
void ModelValues::take_given_of_first(const std::string& name, const Tensor* given) {
  int64_t has_any = given != nullptr ? 1 : 0;
  context_.world().broadcast(&has_any, 1, DType::kI64, 0, "taking rank 0's initial values");
  if (has_any == 0) {
    throw InvalidArgument(
        "the initial value of \"{}\", which servers keep, was set on some ranks and not on rank 0: set it on all ranks",
        name);
  }
  const Tensor whole = given != nullptr && context_.rank() == 0 ? *given : Tensor(session_.global_type(name));
  const TensorView view = whole.view();
  context_.world().broadcast(view.data, view.num_elements(), view.dtype, 0, "taking rank 0's initial values");
  session_.set_value(name, whole);
}

void ModelValues::broadcast() {
  for (const auto& name : session_.names()) {
    const bool has_same_shape = !session_.is_split(name) || has_row_per_rank(name);
    if (!has_same_shape || own_.contains(name)) continue;
    take_from_first(name, "parameter_broadcast");
  }
}

// All ranks get rank 0's piece. Collective.
void ModelValues::take_from_first(const std::string& name, const std::string& who) {
  auto& values = session_.values();
  const auto here = values.in_place(name);
  const Tensor copy = here ? Tensor() : values.read(name);
  const TensorView view = here ? *here : copy.view();
  context_.world().broadcast(view.data, view.num_elements(), view.dtype, 0, who);
  if (!here) values.write(name, view);
}

void ModelValues::set_assigned(const ir::Graph& graph) {
  for (const auto& output : graph.outputs()) {
    if (!session_.holds(output.name)) continue;
    assigned_.insert(output.name);
    set_changed();
  }
}

void ModelValues::compare_new() {
  if (!mode_.is_shared()) return;
  // One rank alone may have set values: all compare.
  int64_t are_new = is_compared_ && !has_new_ ? 0 : 1;
  context_.world().all_reduce(&are_new, 1, DType::kI64, comm::ReduceOp::kMax, "comparing whether values are new");
  if (are_new != 0) compare_again();
  compare_replicas();
}

void ModelValues::compare_replicas() {
  draw();
  if (is_compared_ || !mode_.is_shared()) return;
  is_compared_ = true;
  has_new_ = false;
  uint32_t crc = 0;
  for (const auto& name : replicated_names()) crc = crc_of(session_.values(), name, crc);
  const int64_t own = crc;
  std::vector<int64_t> all(static_cast<size_t>(context_.size()));
  const std::vector<int64_t> counts(all.size(), 1);
  context_.world().all_gather(&own, all.data(), counts, DType::kI64, "comparing the values of parameters");
  const auto odd = std::ranges::find_if(all, [&](int64_t other) { return other != all[0]; });
  if (odd != all.end()) warn_of_other_values(static_cast<size_t>(odd - all.begin()));
}

// Each rank says what it has of every value; rank 0 says what differs.
void ModelValues::warn_of_other_values(size_t odd_rank) {
  std::string own;
  for (const auto& name : replicated_names()) {
    const bool is_number = session_.global_type(name).shape.ndim() == 0;
    own += fmt::format("{}\t{}\t{}\n", name, crc_of(session_.values(), name, 0), is_number ? number_text(name) : "");
  }
  const auto texts = session::gather_texts(context_.world(), own, "saying which values differ");
  if (context_.rank() != 0) return;
  const auto there = described_values(texts[odd_rank]);
  std::vector<std::string> numbers;
  std::vector<std::string> others;
  bool is_of_training = true;  // all of them are states
  for (const auto& [name, value] : described_values(own)) {
    const auto other = there.find(name);
    if (other != there.end() && other->second.crc == value.crc) continue;
    is_of_training = is_of_training && is_state(name);
    if (other == there.end() || value.number.empty()) {
      others.push_back(name);
    } else {
      numbers.push_back(fmt::format("{} {}, not {}", name, other->second.number, value.number));
    }
  }
  const bool is_of_optimizer = is_of_training && others.empty();  // numbers that the user has given it
  numbers.insert(numbers.end(), others.begin(), others.end());
  constexpr size_t kNamed = 4;
  const size_t named = std::min(numbers.size(), kNamed);
  auto list = fmt::format("{}", fmt::join(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(named), "; "));
  if (named < numbers.size()) list += fmt::format(" and {} more", numbers.size() - named);
  log_warning("rank {} has other {} than rank 0 ({}): the replicas will differ; {}", odd_rank,
              is_of_optimizer  ? "numbers of the optimizer"
              : is_of_training ? "values of the optimizer's states"
                               : "parameter values",
              list,
              is_of_optimizer ? "give the optimizers of all ranks the same, or use parameter_broadcast"
                              : "use one seed or parameter_broadcast, and load or set the same values on all ranks");
}

std::string ModelValues::number_text(const std::string& name) {
  const Tensor value = session().value(name);
  const double number = value.item();
  return value.dtype() == DType::kF32 ? fmt::format("{}", static_cast<float>(number)) : fmt::format("{}", number);
}

bool ModelValues::is_state(const std::string& name) const {
  return std::ranges::any_of(states_, [&](const nn::Parameter& state) { return state.full_name() == name; });
}

// What micro-batches have added up so far is a part of a sum.
std::vector<std::string> ModelValues::replicated_names() const {
  std::vector<std::string> names;
  for (const auto& name : session_.names()) {
    if (is_copy(name) && !nn::is_accumulation_state(name)) names.push_back(name);
  }
  return names;
}

}  // namespace tessera::train
