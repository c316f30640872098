#include "tessera/session/session.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/limits.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/launch.h"
#include "tessera/compiler/schedule/memory_report.h"
#include "tessera/kernels/backend.h"
#include "tessera/kernels/cuda/cuda_backend.h"
#include "tessera/kernels/machine.h"
#include "tessera/kernels/registry.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/session/agree/agree_on_kernels.h"
#include "tessera/session/agree/compare_collectives.h"
#include "tessera/session/agree/gather_texts.h"
#include "tessera/session/agree/rank_programs.h"
#include "tessera/session/scheduled_step.h"

namespace tessera::session {
namespace {

// ThreadSanitizer does not see into oneDNN and takes what that guards by itself for races.
#ifdef __SANITIZE_THREAD__
constexpr bool kOnlyReference = true;
#else
constexpr bool kOnlyReference = false;
#endif

// What a session computes on.
kernels::Backend backend_of(const SessionOptions& options) {
  if (options.backend != nullptr && options.backend->device != nullptr) {
    if (options.reference_kernels) {
      throw InvalidArgument("reference kernels compute on the CPU; without them, backend {} can be used",
                            options.backend->name);
    }
    return *options.backend;
  }
  if (options.reference_kernels || kOnlyReference) return kernels::reference_backend();
  return options.backend != nullptr ? *options.backend : kernels::cpu_backend();
}

// The number of this rank among its host's, where each of them has a GPU of its own.
int gpu_of_rank(const cluster::Context& context) {
  const auto count = std::ssize(cuda::cuda_devices());
  // All ranks of the host refuse, those that would have one among them.
  if (context.local_size() > count) {
    throw InvalidArgument(
        "device \"cuda\": this host has {} ranks and {} GPU{}, of which each rank takes one: start {} rank{} here at "
        "most, or name the GPU that several use, as \"cuda:0\"",
        context.local_size(), count, count == 1 ? "" : "s", count, count == 1 ? "" : "s");
  }
  return context.local_rank();
}

// With the backend that `device` names, and what the environment says of devices.
SessionOptions with_backend(const cluster::Context& context, SessionOptions options) {
  if (options.deterministic && options.kernel_choice == KernelChoice::kMeasured) {
    throw InvalidArgument(
        "a session is deterministic or measures its kernels, of which other ones may be the fastest in another run: "
        "leave deterministic out, or kernel_choice");
  }
  options.cpu_fallback = options.cpu_fallback || cluster::cpu_fallback_from_environment();
  const std::string& device = options.device;
  if (device.empty()) return options;
  if (device == "cpu") {
    options.backend = nullptr;
    return options;
  }
  int index = 0;
  if (device == "cuda") {
    index = gpu_of_rank(context);
  } else {
    if (!device.starts_with("cuda:")) {
      throw InvalidArgument("device \"{}\" is not known: it is \"cpu\", \"cuda\" or \"cuda:0\", \"cuda:1\" and so on",
                            device);
    }
    const int64_t number = parse_int(device.substr(5), "the number of a device in \"" + device + "\"");
    if (number < 0) throw InvalidArgument("device \"{}\": devices are numbered from 0", device);
    if (number > std::numeric_limits<int>::max()) throw InvalidArgument("device \"{}\": there is none", device);
    index = static_cast<int>(number);
  }
  options.backend = &cuda::cuda_backend(index, options.deterministic);
  return options;
}

// The job's state of that name.
constexpr const char* kKernelTable = "kernel table";

std::unique_ptr<executor::KernelTable> make_kernel_table(cluster::Context& context, const SessionOptions& options) {
  const bool measured = options.kernel_choice == KernelChoice::kMeasured;
  if (!measured || options.debug) return nullptr;
  const auto backend = backend_of(options);
  // The libraries of a device measure their kernels themselves.
  if (backend.device != nullptr || backend.machine == nullptr) return nullptr;
  auto table = std::make_unique<executor::KernelTable>(backend.machine());
  if (context.rank() != 0) return table;
  if (!options.kernel_cache.empty()) table->load(context.file_system(), options.kernel_cache);
  // What the job's kernels were chosen by goes before what this machine remembers.
  if (context.recovery() != nullptr) {
    if (const auto known = context.recovery()->find_state(kKernelTable)) table->merge_json(*known);
  }
  return table;
}

// The kernels of the host, behind them those of the program's own operators.
std::vector<const KernelRegistry*> with_own_kernels(const kernels::Backend& of_host) {
  auto registries = of_host.registries;
  registries.push_back(&ops::OpRegistry::instance().own_kernels());
  return registries;
}

executor::KernelSelection make_selection(cluster::Context& context, const SessionOptions& options,
                                         executor::KernelTable* table) {
  const int num_threads = options.num_threads > 0 ? options.num_threads : context.num_compute_threads();
  const auto backend = backend_of(options);
  if (table == nullptr) {
    if (backend.device == nullptr) return {with_own_kernels(backend), num_threads};
    executor::KernelSelection selection(backend.registries, num_threads);
    std::vector<const KernelRegistry*> of_host;
    if (options.cpu_fallback) {
      of_host = with_own_kernels(kOnlyReference ? kernels::reference_backend() : kernels::cpu_backend());
    }
    selection.beside_device(backend.device->name(), std::move(of_host));
    return selection;
  }
  using Unknown = executor::KernelSelection::Unknown;
  return {with_own_kernels(backend), num_threads, *table, context.size() > 1 ? Unknown::kNote : Unknown::kMeasure,
          context.clock()};
}

// What is reserved where the system gives less than was asked for.
constexpr int64_t kLeastCapacity = int64_t{64} << 20;
constexpr int64_t kHugePage = int64_t{2} << 20;

// An arena of as many bytes as are asked for, or of less where address space is limited. The ranks of this host have
// their arenas in one another's address space; half of what is free stays for everything else.
executor::Arena reserve_arena(cluster::Context& context, const SessionOptions& options) {
  int64_t capacity = options.arena_capacity_bytes;
  if (Device* device = backend_of(options).device) {
    if (options.values_limit_bytes > 0) {
      throw InvalidArgument("values spill from the host's memory, not from that of {}: use the CPU, or set no limit",
                            device->name());
    }
    return executor::Arena(capacity, *device);
  }
  if (const AddressSpace space = address_space(); space.is_limited()) {
    const int64_t share = space.free() / 2 / context.local_size() / kHugePage * kHugePage;
    capacity = std::min(capacity, std::max(share, kLeastCapacity));
  }
  while (true) {
    try {
      // Other ranks could not reach what lies in a file: what this one sends is copied.
      if (options.values_limit_bytes > 0) return executor::Arena(capacity, executor::Arena::MaySpill());
      return executor::Arena(capacity, context.reserve_shared_memory(static_cast<size_t>(capacity)));
    } catch (const IoError&) {
      if (capacity / 2 < kLeastCapacity) throw;
      capacity /= 2;
    }
  }
}

// Whether each rank has the same of a value by both.
bool lie_alike(const Shape& shape, const std::vector<mesh::Layout>& a, const std::vector<mesh::Layout>& b) {
  return std::ranges::equal(a, b, [&](const mesh::Layout& x, const mesh::Layout& y) {
    return x.mesh.ranks() == y.mesh.ranks() && !x.sharding.is_partial() && !y.sharding.is_partial() &&
           mesh::all_slices(shape, x.mesh, x.sharding) == mesh::all_slices(shape, y.mesh, y.sharding);
  });
}

// Strategies say how ranks share the work, and a graph of one rank's own is not shared.
compiler::CompileOptions for_one_rank(compiler::CompileOptions options) {
  options.plan.strategies = false;
  return options;
}

// Copies elements of a value, a few rows at a time, and calls `after_piece` after each.
void copy_in_pieces(const TensorView& from, const TensorView& to, const std::function<void()>& after_piece) {
  constexpr int64_t kPieceBytes = int64_t{64} << 20;
  const int64_t rows = to.shape.ndim() == 0 ? 1 : to.shape[0];
  if (to.size_bytes() <= kPieceBytes || rows == 1) {
    copy_elements(from, to);
    return after_piece();
  }
  std::vector<mesh::Range> part;
  for (int dim = 0; dim < to.shape.ndim(); ++dim) part.push_back({0, to.shape[dim]});
  const int64_t most = std::max<int64_t>(1, kPieceBytes / (to.size_bytes() / rows));
  for (int64_t row = 0; row < rows; row += most) {
    part[0] = {row, std::min(most, rows - row)};
    copy_elements(mesh::piece_of(from, part), mesh::piece_of(to, part));
    after_piece();
  }
}

}  // namespace

Session::Session(cluster::Context& context, const SessionOptions& options)
    : context_(context),
      options_(with_backend(context, options)),
      kernel_table_(make_kernel_table(context, options_)),
      kernels_(make_selection(context, options_, kernel_table_.get())),
      arena_(reserve_arena(context, options_)),
      device_ranks_(context, backend_of(options_).communicators, backend_of(options_).within_device) {
  if (kernels_.num_threads() > 1 && !waiting_is_chosen()) core_watch_ = std::make_unique<CoreWatch>(context.clock());
  if (context.size() > 1) {
    lanes_ = std::make_unique<executor::CommLanes>(context.rank());
    context.world().set_driver(comm::Communicator::Driver::kMain);
  }
}

Session::~Session() {
  gathers_.clear();
  lanes_.reset();  // their threads use the groups
  device_groups_.clear();
  for (const auto& name : made_groups_) {
    try {
      context_.destroy_group(name);
    } catch (const Error& error) {
      log_warning("group \"{}\" could not be ended: {}", name, error.what());
    }
  }
}

std::string Session::device_name() const { return arena_.device() == nullptr ? "cpu" : arena_.device()->name(); }

void Session::spill(std::span<const Values::Spilled> values) {
  check(names_.empty() && options_.values_limit_bytes > 0, "values spill where they have a limit, before all others");
  if (values.empty()) return;
  const ScratchFile file = scratch_file(fmt::format("the tables that rank {} keeps", context_.rank()));
  if (const auto directory = directory_of(file); is_in_memory(directory)) {
    log_warning("{} lie in \"{}\", which is memory (tmpfs) itself: name a directory of a disk, spill_directory",
                file.what, directory);
  }
  values_.spill(values, file);
}

std::optional<ScratchFile> Session::file_beside(const std::string& what) const {
  if (values_.spilled_bytes() == 0) return std::nullopt;
  return scratch_file(what);
}

ScratchFile Session::scratch_file(const std::string& what) const {
  return {.directory = options_.spill_directory,
          .what = what,
          .remedy = "name a directory of a larger disk, spill_directory, or raise server_memory_limit"};
}

void Session::declare(const std::string& name, const Type& global_type, const mesh::Sharding* sharding,
                      const mesh::Mesh* mesh) {
  declare_split(name, global_type,
                sharding == nullptr ? std::vector<mesh::Layout>() : std::vector<mesh::Layout>{{*mesh, *sharding}});
}

void Session::declare_on(const std::string& name, const Type& global_type, const mesh::Layout& layout) {
  if (layout.mesh.size() < context_.size()) apart_.insert(name);
  declare_split(name, global_type, {layout});
}

void Session::declare_split(const std::string& name, const Type& global_type,
                            const std::vector<mesh::Layout>& layouts) {
  Type local = global_type;
  if (!layouts.empty() && (!layouts.front().sharding.is_replicated() || apart_.contains(name))) {
    splits_[name] = layouts;
    const auto& [mesh, sharding] = layout_here(layouts);
    const bool is_held = is_here({mesh, sharding});
    local.shape = is_held ? mesh::local_shape(global_type.shape, sharding, mesh, context_.rank()) : Shape{0};
  }
  values_.add(name, local);
  globals_.emplace(name, global_type);
  names_.push_back(name);
}

const Type& Session::global_type(const std::string& name) const {
  const auto it = globals_.find(name);
  if (it == globals_.end()) values_.throw_unknown(name);
  return it->second;
}

const mesh::Layout* Session::layout(const std::string& name) const {
  const auto split = splits_.find(name);
  return split == splits_.end() ? nullptr : &layout_here(split->second);
}

std::span<const mesh::Layout> Session::layouts(const std::string& name) const {
  const auto split = splits_.find(name);
  return split == splits_.end() ? std::span<const mesh::Layout>() : split->second;
}

const mesh::Layout& Session::layout_here(const std::vector<mesh::Layout>& layouts) const {
  const auto it = std::find_if(layouts.begin(), layouts.end(), [&](const auto& layout) { return is_here(layout); });
  return it == layouts.end() ? layouts.front() : *it;
}

bool Session::is_here(const mesh::Layout& layout) const {
  const auto& ranks = layout.mesh.ranks();
  return std::find(ranks.begin(), ranks.end(), context_.rank()) != ranks.end();
}

bool Session::keeps_piece(const std::string& name, const std::vector<mesh::Layout>& layouts) const {
  const mesh::Layout* now = layout(name);
  const mesh::Layout& then = layout_here(layouts);
  if (now == nullptr || !is_here(*now) || !is_here(then)) return false;
  if (now->sharding.is_partial() || then.sharding.is_partial()) return false;
  const Shape& shape = globals_.at(name).shape;
  return mesh::slice_of(shape, now->sharding, now->mesh, context_.rank()) ==
         mesh::slice_of(shape, then.sharding, then.mesh, context_.rank());
}

Tensor Session::value(const std::string& name) {
  if (!is_split(name)) return values_.read(name);
  const mesh::Layout& split = splits_.at(name).front();
  if (apart_.contains(name)) return value_from(name, split);
  Executable& gather = *gather_of(name);
  gather.run();
  return Tensor::copy_of(gather.output("whole"));
}

// The ranks that have it put it together, the first of them tells all.
Tensor Session::value_from(const std::string& name, const mesh::Layout& split) {
  Tensor whole;
  if (split.sharding.is_replicated()) {
    whole = is_here(split) ? values_.read(name) : Tensor(global_type(name));
  } else {
    Executable* gather = gather_of(name);
    if (gather != nullptr) gather->run();
    whole = gather != nullptr ? Tensor::copy_of(gather->output("whole")) : Tensor(global_type(name));
  }
  const TensorView view = whole.view();
  context_.world().broadcast(view.data, view.num_elements(), view.dtype, split.mesh.ranks()[0], "value of " + name);
  return whole;
}

Executable* Session::gather_of(const std::string& name) {
  if (!gathers_.contains(name)) gathers_[name] = compile_gather(name);
  return gathers_.at(name).get();
}

// A graph: the redistribution that any use of the whole value would make. Null on a rank that has none of it.
std::unique_ptr<Executable> Session::compile_gather(const std::string& name) {
  const mesh::Layout& split = splits_.at(name).front();
  ir::Graph graph("gather_" + name);
  const auto input = graph.add_input(ir::InputKind::kParameter, name, global_type(name));
  graph.add_output("whole", input);
  auto options = compile_options();
  options.plan.whole_results = true;
  auto compiled = compiler::plan_ranks(graph, split.mesh, {{name, split}}, options);
  if (!is_here(split)) {
    compiler::partition(compiled.logical, compiled.plan, split.mesh.ranks()[0], options.partition, &compiled.groups);
    make_groups(compiled.groups);
    return nullptr;
  }
  compiler::compile_rank(compiled, context_.rank(), values_.layout(), kernels_, options);
  make_groups(compiled.groups);
  return finish(std::move(compiled));
}

void Session::write(const std::string& name, const TensorView& elements, const std::function<void()>& after_piece) {
  const auto here = values_.in_place(name);
  if (!after_piece || !here) return values_.write(name, elements);
  copy_in_pieces(elements, *here, after_piece);
}

void Session::set_value(const std::string& name, const Tensor& whole, const std::function<void()>& after_piece) {
  const Type& type = global_type(name);
  if (!(whole.type() == type)) {
    throw InvalidArgument("\"{}\" is {}, it cannot be set to {}", name, type, whole.type());
  }
  const auto split = splits_.find(name);
  if (split == splits_.end()) {
    write(name, whole.view(), after_piece);
    return;
  }
  const auto& [mesh, sharding] = layout_here(split->second);
  if (!is_here({mesh, sharding})) return;
  const auto slice = mesh::slice_of(type.shape, sharding, mesh, context_.rank());
  set_piece(name, mesh::piece_of(whole.view(), slice), after_piece);
}

void Session::set_piece(const std::string& name, const TensorView& piece, const std::function<void()>& after_piece) {
  const auto split = splits_.find(name);
  if (split == splits_.end()) return write(name, piece, after_piece);
  const auto& [mesh, sharding] = layout_here(split->second);
  if (!is_here({mesh, sharding})) return;
  // Of a sum the first ranks hold all, the others nothing.
  const auto at = mesh.coordinates(context_.rank());
  const bool contributes = std::all_of(sharding.partial.begin(), sharding.partial.end(),
                                       [&](const auto& p) { return at[static_cast<size_t>(p.axis)] == 0; });
  if (contributes) {
    write(name, piece, after_piece);
  } else {
    values_.set_zero(name);
  }
}

void Session::initialize(std::span<const nn::Parameter> parameters, uint64_t seed,
                         const std::function<void()>& after_piece) {
  // What all ranks have, and what some of them have: on the mesh of those. Each rank draws the numbers of its own
  // elements.
  struct Initial {
    std::optional<mesh::Mesh> mesh = std::nullopt;  // absent: all ranks
    ir::Graph graph{"initialize"};
    compiler::ShardingHints layouts = {};
  };
  std::deque<Initial> all;
  for (const nn::Parameter& parameter : parameters) {
    const auto name = parameter.full_name();
    const Type& type = global_type(name);
    if (parameter.data) {
      set_value(name, *parameter.data, after_piece);
      continue;
    }
    check(static_cast<bool>(parameter.init), "a parameter needs an initializer or data");
    std::optional<mesh::Mesh> mesh;
    if (apart_.contains(name)) {
      if (!is_here(*layout(name))) continue;
      mesh = layout(name)->mesh;
    }
    auto initial = std::ranges::find_if(all, [&](const Initial& one) { return one.mesh == mesh; });
    if (initial == all.end()) initial = all.insert(all.end(), Initial{.mesh = mesh});
    ir::Graph& graph = initial->graph;
    graph.add_input(parameter.kind, name, type);
    const ir::SourceScope scope(graph, name);
    // Slices that the ranks hold of one tensor start with numbers of their own.
    const bool is_own = parameter.layerwise_parallel && context_.rank() > 0;
    const auto drawn_as = is_own ? fmt::format("{} of rank {}", name, context_.rank()) : name;
    const auto value = parameter.init({graph, type, drawn_as, seed});
    check_equal(value.type(), type, "type of an initial value");
    graph.assign(name, value);
    if (mesh) initial->layouts[name] = *layout(name);
  }
  for (auto& [mesh, graph, layouts] : all) {
    graph.finish_assignments();
    if (mesh) {
      run_initial(graph, *mesh, layouts, after_piece);
      continue;
    }
    const auto split = std::ranges::find_if(splits_, [&](const auto& entry) { return !apart_.contains(entry.first); });
    const auto ranks = split != splits_.end() ? split->second.front().mesh : mesh::Mesh({{"data", context_.size()}});
    run_initial(graph, ranks, with_layouts({}, ranks), after_piece);
  }
}

void Session::run_initial(const ir::Graph& graph, const mesh::Mesh& mesh, const compiler::ShardingHints& layouts,
                          const std::function<void()>& after_piece) {
  auto options = compile_options();
  options.plan.makes_in_pieces = true;
  finish(compiler::compile(graph, mesh, layouts, context_.rank(), values_.layout(), kernels_, options), after_piece)
      ->run();
}

compiler::CompileOptions Session::compile_options() const {
  compiler::CompileOptions options;
  const bool plain = options_.debug || options_.reference_kernels;
  const auto backend = backend_of(options_);
  options.fusions = plain ? compiler::Fusions::none() : options_.fusions.both(compiler::parse_fusions(backend.fusions));
  options.schedule.channels_last = backend.likes_channels_last;
  options.schedule.host_copies = backend.device != nullptr;
  if (backend.communicators != nullptr || backend.within_device != nullptr) {
    options.schedule.communicates_there = [this](const Ints& ranks) {
      return device_ranks_.connecting(ranks) != nullptr;
    };
  }
  options.schedule.num_ranks = context_.size();
  options.schedule.idle_steps = backend.idle_steps;
  options.verification = options_.debug ? compiler::Verification::kAllRanks : options_.verification;
  options.schedule.share_memory = !options_.debug;
  options.memory_limit_bytes = options_.debug ? 0 : options_.memory_limit_bytes;
  options.schedule.spilled_bytes = values_.spilled_bytes();
  options.schedule.overlap = options_.overlap;
  options.partition = options_.partition;
  return options;
}

// What the user said, else what suits the links.
void Session::size_buckets(compiler::PartitionOptions& options) {
  if (options.bucket_bytes == 0) options.bucket_bytes = comm::choose_bucket_bytes(context_.speed());
}

void Session::place(const compiler::StageLayouts& wanted) {
  auto layouts = wanted;
  std::vector<Tensor> values;
  std::set<std::string> stays;
  for (const auto& name : names_) {
    const auto split = splits_.find(name);
    const auto moves = layouts.find(name);
    const bool is_moved = split != splits_.end() && moves != layouts.end();
    if (is_moved && lie_alike(globals_.at(name).shape, split->second, moves->second)) layouts.erase(moves);
    const bool is_whole = is_moved && layouts.contains(name);
    // What lies in a file stays there, and is in no memory meanwhile. The ranks that have none of it yet are told.
    if (values_.is_spilled(name) && (!layouts.contains(name) || keeps_piece(name, layouts.at(name)))) {
      if (is_whole) value(name);
      stays.insert(name);
      values.emplace_back();
    } else {
      values.push_back(is_whole ? value(name) : values_.read(name));
    }
  }
  const auto globals = std::move(globals_);
  const auto names = std::move(names_);
  auto splits = std::move(splits_);
  for (const auto& [name, of_stages] : layouts) {
    splits[name] = of_stages;
    apart_.erase(name);
    if (of_stages.front().mesh.size() < context_.size()) apart_.insert(name);
  }
  values_.clear();
  globals_.clear();
  names_.clear();
  splits_.clear();
  gathers_.clear();
  for (const auto& name : names) {
    const auto at = splits.find(name);
    declare_split(name, globals.at(name), at == splits.end() ? std::vector<mesh::Layout>() : at->second);
  }
  arena_.shrink_to(values_.layout().bytes);
  for (size_t i = 0; i < names.size(); ++i) {
    if (stays.contains(names[i])) continue;
    // What was split already is this rank's piece.
    if (layouts.contains(names[i])) {
      set_value(names[i], values[i]);
    } else {
      values_.write(names[i], values[i].view());
    }
  }
}

compiler::ShardingHints Session::with_splits(compiler::ShardingHints hints) const {
  for (const auto& [name, split] : splits_) hints[name] = split.front();
  return hints;
}

compiler::ShardingHints Session::with_layouts(compiler::ShardingHints hints, const mesh::Mesh& mesh) const {
  for (const auto& name : names_) hints[name] = {mesh, mesh::Sharding::replicated(globals_.at(name).shape.ndim())};
  return with_splits(std::move(hints));
}

compiler::CompileOptions Session::compile_options(size_t num_ranks, const compiler::PlanOptions& plan) {
  auto options = compile_options();
  options.plan = plan;
  if (num_ranks > 1) size_buckets(options.partition);
  return options;
}

compiler::Compiled Session::plan(const ir::Graph& graph, const mesh::Mesh& mesh,
                                 const compiler::ShardingHints& input_hints, const compiler::PlanOptions& options) {
  auto hints = with_splits(input_hints);
  // What the graph has in the type of this rank's piece is that piece, as if all ranks had the same.
  for (const auto& input : graph.inputs()) {
    if (input.kind == ir::InputKind::kInput || !is_split(input.name)) continue;
    const Type& type = graph.info(input.value).type;
    if (type == global_type(input.name) || type != values_.type(input.name)) continue;
    hints[input.name] = {mesh, mesh::Sharding::replicated(type.shape.ndim())};
  }
  return compiler::plan_ranks(graph, mesh, hints, compile_options(mesh.ranks().size(), options));
}

compiler::StageLayouts Session::new_layouts(const compiler::Compiled& planned) const {
  compiler::StageLayouts layouts;
  for (const auto& input : planned.logical.inputs()) {
    const auto layout = planned.plan.layout(input.value);
    const bool moves = input.kind != ir::InputKind::kInput && !layout.sharding.is_replicated() && !is_split(input.name);
    if (moves) layouts[input.name] = {layout};
  }
  return layouts;
}

std::unique_ptr<Executable> Session::compile(compiler::Compiled planned) {
  const auto num_ranks = planned.plan.ranks().size();
  const auto options = compile_options(num_ranks, {});
  if (num_ranks == 1) {
    compiler::compile_rank(planned, context_.rank(), values_.layout(), kernels_, options);
    return finish(std::move(planned));
  }
  compile_with_agreed_kernels(planned, options, values_.layout());
  make_groups(planned.groups);
  compare_collectives(context_, planned.local);
  warn_of_different_graphs(context_, planned.logical);
  return finish(std::move(planned));
}

std::unique_ptr<Executable> Session::compile(const ir::Graph& graph, const mesh::Mesh& mesh,
                                             const compiler::ShardingHints& input_hints,
                                             const compiler::PlanOptions& plan) {
  return compile(this->plan(graph, mesh, with_layouts(input_hints, mesh), plan));
}

std::unique_ptr<Executable> Session::compile_own(const ir::Graph& graph, comm::Communicator& members) {
  const mesh::Mesh alone({{"data", 1}}, {context_.rank()});
  auto compiled =
      compiler::compile(graph, alone, {}, context_.rank(), values_.layout(), kernels_, for_one_rank(compile_options()));
  if (members.size() == 1) return finish(std::move(compiled));
  const auto own = to_text(communications(compiled.local));
  const auto key = fmt::format("[{}]\n{}", fmt::join(members.ranks(), ","), own);
  if (compared_.contains(key)) return finish(std::move(compiled));
  std::vector<std::vector<Communication>> by_rank(static_cast<size_t>(context_.size()));
  const auto texts = gather_texts(members, own, "comparing the collectives of a group's ranks");
  for (size_t i = 0; i < texts.size(); ++i) {
    by_rank[static_cast<size_t>(members.ranks()[i])] = parse_communications(texts[i]);
  }
  require_matching(graph.name(), by_rank);
  compared_.insert(key);
  return finish(std::move(compiled));
}

std::unique_ptr<Executable> Session::compile_own(const ir::Graph& graph) {
  const mesh::Mesh alone({{"data", 1}}, {context_.rank()});
  auto options = for_one_rank(compile_options());
  if (context_.size() > 1) size_buckets(options.partition);
  auto compiled = compiler::plan_ranks(graph, alone, {}, options);
  if (context_.size() == 1) {
    compile_with_agreed_kernels(compiled, options, values_.layout());
    return finish(std::move(compiled));
  }
  // What this rank has come to, another one may have come to long ago, for batches of another shape: then that one is
  // not here to compare anything.
  if (kernel_table_ != nullptr) kernels_.take_noted();  // those of graphs that no other rank compiles
  compiler::compile_rank(compiled, context_.rank(), values_.layout(), kernels_, options);
  const auto own = to_text(communications(compiled.local));
  if (compared_.contains(own)) return finish(std::move(compiled));
  if (learns_kernels()) compiler::compile_rank(compiled, context_.rank(), values_.layout(), kernels_, options);
  std::vector<std::vector<Communication>> by_rank;
  for (const auto& text :
       gather_texts(context_.world(), own, fmt::format("comparing the collectives of {}", graph.name()))) {
    by_rank.push_back(parse_communications(text));
  }
  require_matching(graph.name(), by_rank);
  make_groups(groups_of(by_rank));
  compared_.insert(own);
  return finish(std::move(compiled));
}

void Session::compile_with_agreed_kernels(compiler::Compiled& planned, const compiler::CompileOptions& options,
                                          const ir::PersistentLayout& layout) {
  const auto compile = [&] { compiler::compile_rank(planned, context_.rank(), layout, kernels_, options); };
  if (kernel_table_ != nullptr) kernels_.take_noted();  // those of graphs that no other rank compiles
  compile();
  if (learns_kernels()) compile();
}

bool Session::learns_kernels() {
  const bool agrees = kernel_table_ != nullptr && context_.size() > 1;
  if (!agrees || !agree_on_kernels(context_, kernels_, *kernel_table_)) return false;
  // Another process, on another machine perhaps, may be rank 0 when a rank has been lost.
  if (context_.recovery() != nullptr && context_.rank() == 0) {
    context_.recovery()->set_state(kKernelTable, kernel_table_->to_json());
  }
  return true;
}

std::unique_ptr<Executable> Session::compile_local(const ir::Graph& graph) {
  const mesh::Mesh alone({{"data", 1}}, {context_.rank()});
  auto options = for_one_rank(compile_options());
  auto compiled = compiler::compile(graph, alone, {}, context_.rank(), values_.layout(), kernels_, options);
  return finish(std::move(compiled));
}

std::unique_ptr<Executable> Session::compile_on(const ir::Graph& graph, const mesh::Mesh& mesh,
                                                const compiler::ShardingHints& input_hints) {
  const auto options = compile_options(mesh.ranks().size(), {.strategies = false});
  auto compiled = compiler::plan_ranks(graph, mesh, with_splits(input_hints), options);
  if (!is_here({mesh, {}})) {
    compiler::partition(compiled.logical, compiled.plan, mesh.ranks()[0], options.partition, &compiled.groups);
    make_groups(compiled.groups);
    return nullptr;
  }
  compiler::compile_rank(compiled, context_.rank(), values_.layout(), kernels_, options);
  make_groups(compiled.groups);
  return finish(std::move(compiled));
}

std::unique_ptr<Executable> Session::finish(compiler::Compiled compiled, const std::function<void()>& after_piece) {
  ++num_compiled_;
  auto executor = make_executor(compiled.local, compiled.schedule);
  executor->set_after_piece(after_piece);
  keep_measured_kernels();
  return std::make_unique<ScheduledStep>(std::move(compiled), std::move(executor), context_, core_watch_.get(),
                                         value_watch_);
}

void Session::keep_measured_kernels() {
  if (kernel_table_ == nullptr || !kernels_.finish_measuring()) return;
  if (!options_.kernel_cache.empty()) kernel_table_->save(context_.file_system(), options_.kernel_cache);
}

std::unique_ptr<executor::Executor> Session::make_executor(const ir::Graph& local, const ir::Schedule& schedule) {
  // A network may have collectives of its own on one rank, too.
  const auto& steps = schedule.steps;
  const bool communicates =
      std::any_of(steps.begin(), steps.end(), [](const ir::Step& step) { return step.kind == ir::StepKind::kStart; });
  if (lanes_ == nullptr && communicates) lanes_ = std::make_unique<executor::CommLanes>(context_.rank());
  std::unique_ptr<executor::Executor> executor;
  try {
    executor = std::make_unique<executor::Executor>(
        schedule, arena_, kernels_, lanes_.get(), [this](const Attributes& a) -> auto& { return group_of(a); },
        context_.size(), [this](const Attributes& a) -> auto& { return device_group_of(a); });
  } catch (const NoRoom& error) {
    throw NoRoom("{}\ngraph {} needs {}: {}", error.what(), local.name(), format_bytes(schedule.arena_bytes),
                 compiler::describe_peak(local, schedule));
  }
  if (feed_ == nullptr && arena_.device() != nullptr) {
    feed_ = std::make_unique<executor::InputFeed>(*arena_.device(), arena_.queue());
  }
  executor->set_feed(feed_.get());
  executor->set_fill_with_nan(options_.debug);
  executor->set_clock(context_.clock());
  executor->set_progress(context_.progress());
  executor->set_recorder(context_.recorder());
  return executor;
}

// Every rank makes every group, in one order, whichever of them it is in.
void Session::make_groups(const compiler::GroupLists& lists) {
  for (const auto& ranks : lists) {
    const std::vector<int64_t> key(ranks.begin(), ranks.end());
    if (ranks.size() < 2) continue;
    // Not the world's own communicator: that one belongs to the rank's main thread, these to its communication lanes.
    for (size_t lane = 0; lane < groups_.size(); ++lane) {
      if (groups_[lane].contains(key)) continue;
      auto* group = make_group(fmt::format("lane {} of {}", lane, fmt::join(ranks, "-")), ranks);
      if (group != nullptr && lane == ir::kGradientLane) group->share_core();
      groups_[lane][key] = group;
    }
    comm::Communicator* on_host = groups_[0].at(key);
    if (on_host == nullptr || device_groups_.contains(key)) continue;
    auto* const devices = device_ranks_.connecting(key);
    if (devices != nullptr) device_groups_[key] = std::make_unique<comm::DeviceGroup>(*on_host, *devices);
  }
}

// Other sessions of this context may be alive: each has groups of its own.
comm::Communicator* Session::make_group(const std::string& name, const std::vector<int>& ranks) {
  const auto own = context_.new_group_name(name);
  comm::Communicator* made = context_.create_group(own, ranks);
  made_groups_.push_back(own);  // what was not made is not to be ended
  if (made != nullptr) made->set_driver(comm::Communicator::Driver::kDriven);
  return made;
}

comm::Communicator& Session::group_of(const Attributes& attributes) {
  const auto& ranks = attributes.get_ints("ranks");
  auto& groups = groups_[static_cast<size_t>(ir::lane_of(attributes))];
  const auto it = groups.find(ranks);
  if (it != groups.end() && it->second != nullptr) return *it->second;
  // A collective that the user wrote: its group exists under its name, or is made now by all its ranks.
  const auto& name = attributes.get_string("group");
  if (context_.has_group(name) && context_.group(name).ranks() == std::vector<int>(ranks.begin(), ranks.end())) {
    return context_.group(name);
  }
  const std::vector<int> members(ranks.begin(), ranks.end());
  auto* made = make_group(fmt::format("lane {} {}", name, fmt::join(members, "-")), members);
  if (made == nullptr) throw InvalidArgument("rank {} is not in the group \"{}\"", context_.rank(), name);
  groups[ranks] = made;
  return *made;
}

comm::DeviceGroup& Session::device_group_of(const Attributes& attributes) {
  const Ints& ranks = attributes.get_ints("ranks");
  auto& group = device_groups_[ranks];
  if (group == nullptr) {
    auto* const devices = device_ranks_.connecting(ranks);
    check(devices != nullptr, "a collective is done by devices that nothing connects");
    group = std::make_unique<comm::DeviceGroup>(group_of(attributes), *devices);
  }
  return *group;
}

std::map<std::string, Tensor> evaluate(const ir::Graph& graph, const std::map<std::string, Tensor>& inputs,
                                       const SessionOptions& options) {
  const auto context = cluster::single_context(options.num_threads > 0 ? options.num_threads : 1);
  Session session(*context, options);
  for (const auto& input : graph.inputs()) {
    if (input.kind != ir::InputKind::kInput) session.declare(input.name, graph.type(input.value));
  }
  const auto executable = session.compile_local(graph);
  for (const auto& input : executable->compiled().logical.inputs()) {
    const auto it = inputs.find(input.name);
    if (it == inputs.end()) throw InvalidArgument("input \"{}\" is not given", input.name);
    if (input.kind == ir::InputKind::kInput) {
      check_equal(it->second.type(), graph.type(graph.find_input(input.name)->value), "type of an input");
      copy_elements(it->second.view(), executable->input(input.name));
    } else {
      session.set_value(input.name, it->second);
    }
  }
  executable->run();
  std::map<std::string, Tensor> results;
  for (const auto& output : graph.outputs()) {
    const ir::Input* input = graph.find_input(output.name);
    results[output.name] = input != nullptr && input->kind != ir::InputKind::kInput
                               ? session.value(output.name)
                               : Tensor::copy_of(executable->output(output.name));
  }
  return results;
}

}  // namespace tessera::session
