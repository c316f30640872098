#include "tessera/train/logs/run_record.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>

#include "tessera/base/strings.h"
#include "tessera/cluster/launch.h"
#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/compiler/schedule/memory_report.h"
#include "tessera/compiler/search/plan_record.h"
#include "tessera/kernels/machine.h"
#include "tessera/mesh/strategy.h"
#include "tessera/session/executable.h"
#include "tessera/session/session.h"
#include "tessera/train/logs/training_record.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

// A record is a line of the log, and is read by people, too: so many values and points say enough.
constexpr size_t kMostValues = 24;
constexpr size_t kMostAtPeak = 12;
constexpr size_t kMostPoints = 200;

// An option's value as text; nothing of an optional one that is not given. A type that has no text does not compile.
template <typename T>
std::optional<std::string> option_text(const T& value) {
  if constexpr (std::same_as<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::integral<T>) {
    return std::to_string(value);
  } else if constexpr (std::floating_point<T>) {
    return shortest_number(static_cast<double>(value));
  } else if constexpr (std::same_as<T, std::string>) {
    return value;
  } else if constexpr (std::same_as<T, mesh::Strategy>) {
    return mesh::to_string(value);
  } else if constexpr (std::same_as<T, std::vector<int>>) {
    return fmt::format("[{}]", fmt::join(value, ", "));
  } else if constexpr (std::same_as<T, compiler::MachineProfile>) {
    return value.name;
  } else if constexpr (requires { std::string(to_string(value)); }) {
    return std::string(to_string(value));
  } else if constexpr (requires { std::string(value.to_string()); }) {
    return value.to_string();
  } else if constexpr (requires {
                         value.has_value();
                         typename T::value_type;
                       }) {
    return value.has_value() ? option_text(*value) : std::nullopt;
  } else {
    static_assert(std::same_as<T, void>, "this type of option has no text");
  }
}

// Notes the options of a group; those of a group within it as GROUP.NAME.
struct NoteOptions {
  std::map<std::string, std::string>& texts;
  std::string prefix = {};

  template <typename T>
  void operator()(const OptionInfo& info, T& member) const {
    const std::string name = prefix + std::string(info.name);
    if constexpr (requires { for_each_option(member, *this); }) {
      for_each_option(member, NoteOptions{texts, name + "."});
    } else if (const auto text = option_text(std::as_const(member))) {
      texts[name] = *text;
    }
  }
};

std::map<std::string, std::string> texts_of(ModelOptions options) {
  std::map<std::string, std::string> texts;
  for_each_option(options, NoteOptions{texts});
  return texts;
}

std::map<std::string, std::string> changed_options(const ModelOptions& options) {
  auto texts = texts_of(options);
  for (const auto& [name, usual] : texts_of({})) {
    const auto found = texts.find(name);
    if (found != texts.end() && found->second == usual) texts.erase(found);
  }
  // They have members of their own.
  texts.erase("parallel_mode");
  texts.erase("seed");
  return texts;
}

std::map<std::string, std::string> variables_of_run() {
  const auto records = cluster::value_records_from_environment();
  std::map<std::string, std::string> variables = {{"TESSERA_RECORD_VALUES", records.directory},
                                                  {"TESSERA_RECORD_STEPS", records.steps},
                                                  {"TESSERA_COMPARE_VALUES", records.compare_with},
                                                  {"TESSERA_ON_DIFFERENCE", records.on_difference}};
  std::erase_if(variables, [](const auto& variable) { return variable.second.empty(); });
  variables.merge(cluster::result_variables_from_environment());
  return variables;
}

std::vector<std::string> command_of_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<std::string> words;
  for (const auto word : split(bytes, '\0')) words.emplace_back(word);
  if (!words.empty()) words.pop_back();  // each word ends with a zero byte
  return words;
}

int64_t cores_of_process() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : ::sysconf(_SC_NPROCESSORS_ONLN);
}

std::optional<double> known_seconds(double seconds) {
  return std::isfinite(seconds) && seconds > 0 ? std::optional(seconds) : std::nullopt;
}

// The parameters and states that the step computes with, and how they lie.
void add_persistent(const ir::Graph& graph, const session::Session& session, StepPlan& plan) {
  const auto& types = session.values().layout().types;
  for (const ir::Input& input : graph.inputs()) {
    if (input.kind == ir::InputKind::kInput || !session.holds(input.name)) continue;
    const Type& whole = session.global_type(input.name);
    const auto piece = types.find(input.name);
    const mesh::Layout* const layout = session.layout(input.name);
    PlannedValue value{.name = input.name,
                       .kind = ir::to_string(input.kind),
                       .type = whole.to_string(),
                       .split = layout == nullptr ? "" : layout->sharding.to_string(layout->mesh),
                       .bytes = whole.size_bytes(),
                       .rank_bytes = piece == types.end() ? 0 : piece->second.size_bytes()};
    const bool is_parameter = input.kind == ir::InputKind::kParameter;
    (is_parameter ? plan.parameter_bytes : plan.state_bytes) += value.bytes;
    (is_parameter ? plan.rank_parameter_bytes : plan.rank_state_bytes) += value.rank_bytes;
    plan.values.push_back(std::move(value));
  }
}

// The columns of a batch, where the step is one graph for all ranks.
void add_columns(const compiler::Compiled& compiled, int rank, StepPlan& plan) {
  for (const ir::Input& input : compiled.logical.inputs()) {
    if (input.kind != ir::InputKind::kInput) continue;
    const mesh::Layout layout = compiled.plan.layout(input.value);
    const Type& whole = compiled.logical.type(input.value);
    const bool is_here = std::ranges::find(layout.mesh.ranks(), rank) != layout.mesh.ranks().end();
    Type piece = whole;
    if (is_here) piece.shape = mesh::local_shape(whole.shape, layout.sharding, layout.mesh, rank);
    plan.values.push_back({.name = input.name,
                           .kind = ir::to_string(input.kind),
                           .type = whole.to_string(),
                           .split = layout.sharding.to_string(layout.mesh),
                           .bytes = whole.size_bytes(),
                           .rank_bytes = is_here ? piece.size_bytes() : 0});
  }
}

StepPlan plan_of_step(const compiler::Compiled& compiled, const Model& model, int rank) {
  StepPlan plan;
  const compiler::Plan& how = compiled.plan;
  for (const mesh::Mesh& mesh : how.meshes) plan.mesh += (plan.mesh.empty() ? "" : ", ") + mesh.to_string();
  plan.num_operators = compiled.logical.num_nodes();
  plan.num_split_operators =
      std::ranges::count_if(how.factors, [](const compiler::FactorAxes& factors) { return !factors.empty(); });
  if (const compiler::PlanRecord* const found = model.plan()) {
    plan.predicted_seconds = known_seconds(found->seconds);
    plan.searched_seconds = known_seconds(found->searched_seconds);
    plan.bound_seconds = known_seconds(found->bound);
  }
  add_persistent(compiled.logical, model.bare_session(), plan);
  const bool is_whole_graph = !compiled.schedule.steps.empty() && !how.meshes.empty() &&
                              std::cmp_equal(how.values.size(), compiled.logical.num_values());
  if (is_whole_graph) add_columns(compiled, rank, plan);
  std::ranges::stable_sort(plan.values, std::greater{}, &PlannedValue::bytes);
  if (plan.values.size() > kMostValues) plan.values.resize(kMostValues);
  return plan;
}

StepMemory memory_of_step(const compiler::Compiled& compiled) {
  const auto report = compiler::report_memory(compiled.local, compiled.schedule);
  StepMemory memory{.arena_bytes = report.arena_bytes,
                    .parameter_bytes = report.parameter_bytes,
                    .state_bytes = report.state_bytes,
                    .planned_bytes = report.planned_bytes,
                    .num_operations = std::ssize(report.alive_bytes),
                    .peak_bytes = report.peak_bytes,
                    .peak_operation = report.peak_step,
                    .peak_name = report.peak_name,
                    .alive_bytes = sampled_peaks(report.alive_bytes, kMostPoints)};
  for (const auto& value : std::span(report.at_peak).first(std::min(report.at_peak.size(), kMostAtPeak))) {
    memory.at_peak.push_back({value.name, value.type, value.bytes, value.made_by, value.last_read_by});
  }
  return memory;
}

using RecordJson = nlohmann::ordered_json;

RecordJson plan_json(const StepPlan& plan) {
  RecordJson json = {{"mesh", plan.mesh},
                     {"operators", plan.num_operators},
                     {"split_operators", plan.num_split_operators},
                     {"parameter_bytes", plan.parameter_bytes},
                     {"rank_parameter_bytes", plan.rank_parameter_bytes},
                     {"state_bytes", plan.state_bytes},
                     {"rank_state_bytes", plan.rank_state_bytes}};
  if (plan.predicted_seconds) json["predicted_seconds"] = *plan.predicted_seconds;
  if (plan.searched_seconds) json["searched_seconds"] = *plan.searched_seconds;
  if (plan.bound_seconds) json["bound_seconds"] = *plan.bound_seconds;
  json["values"] = RecordJson::array();
  for (const PlannedValue& value : plan.values) {
    json["values"].push_back({{"name", value.name},
                              {"kind", value.kind},
                              {"type", value.type},
                              {"split", value.split},
                              {"bytes", value.bytes},
                              {"rank_bytes", value.rank_bytes}});
  }
  return json;
}

RecordJson memory_json(const StepMemory& memory) {
  RecordJson json = {{"arena_bytes", memory.arena_bytes},       {"parameter_bytes", memory.parameter_bytes},
                     {"state_bytes", memory.state_bytes},       {"planned_bytes", memory.planned_bytes},
                     {"operations", memory.num_operations},     {"peak_bytes", memory.peak_bytes},
                     {"peak_operation", memory.peak_operation}, {"peak_name", memory.peak_name}};
  json["at_peak"] = RecordJson::array();
  for (const PeakValue& value : memory.at_peak) {
    json["at_peak"].push_back({{"name", value.name},
                               {"type", value.type},
                               {"bytes", value.bytes},
                               {"made_by", value.made_by},
                               {"last_read_by", value.last_read_by}});
  }
  json["alive_bytes"] = RecordJson::array();
  for (const auto& [operation, bytes] : memory.alive_bytes) {
    json["alive_bytes"].push_back(RecordJson::array({operation, bytes}));
  }
  return json;
}

}  // namespace

std::vector<std::pair<int64_t, int64_t>> sampled_peaks(std::span<const int64_t> alive_bytes, size_t num_parts) {
  std::vector<std::pair<int64_t, int64_t>> points;
  const size_t parts = std::min(num_parts, alive_bytes.size());
  for (size_t part = 0; part < parts; ++part) {
    const auto begin = static_cast<std::ptrdiff_t>(part * alive_bytes.size() / parts);
    const auto end = static_cast<std::ptrdiff_t>((part + 1) * alive_bytes.size() / parts);
    const auto most = std::max_element(alive_bytes.begin() + begin, alive_bytes.begin() + end);
    points.emplace_back(most - alive_bytes.begin(), *most);
  }
  return points;
}

std::string host_of_process() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

RunRecord run_record_of(const RunContext& run) {
  cluster::Context& context = run.model.context();
  const ModelOptions& options = run.model.options();
  std::error_code unknown;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const auto directory = std::filesystem::current_path(unknown);
  RunRecord record{.wall_ms = context.clock().wall_ms(),
                   .epoch = run.epoch,
                   .step = run.step,
                   .num_epochs = run.num_epochs,
                   .steps_per_epoch = run.steps_per_epoch,
                   .command = command_of_process(),
                   .program = program.string(),
                   .directory = directory.string(),
                   .version = TESSERA_VERSION,
                   .num_ranks = context.size(),
                   .ranks_of_host = context.local_size(),
                   .num_servers = context.num_servers(),
                   .transport = context.transport(),
                   .job = context.job_id(),
                   .num_threads = context.num_compute_threads(),
                   .host = host_of_process(),
                   .cpu = kernels::cpu_model(),
                   .num_cores = cores_of_process(),
                   .mode = std::string(to_string(options.parallel_mode)),
                   .seed = options.seed,
                   .options = changed_options(options),
                   .variables = variables_of_run()};
  if (const session::Executable* const step = run.model.train_executable()) {
    const compiler::Compiled& compiled = step->compiled();
    record.plan = plan_of_step(compiled, run.model, context.rank());
    if (!compiled.schedule.steps.empty()) record.memory = memory_of_step(compiled);
  }
  return record;
}

std::string json_line(const RunRecord& record) {
  nlohmann::ordered_json json = {{"kind", "run"},
                                 {"time", utc_time(record.wall_ms)},
                                 {"epoch", record.epoch},
                                 {"step", record.step},
                                 {"epochs", record.num_epochs},
                                 {"steps_per_epoch", record.steps_per_epoch},
                                 {"command", record.command},
                                 {"program", record.program},
                                 {"directory", record.directory},
                                 {"version", record.version},
                                 {"ranks", record.num_ranks},
                                 {"ranks_of_host", record.ranks_of_host},
                                 {"servers", record.num_servers},
                                 {"transport", record.transport},
                                 {"job", record.job},
                                 {"num_threads", record.num_threads},
                                 {"host", record.host},
                                 {"cpu", record.cpu},
                                 {"cores", record.num_cores},
                                 {"mode", record.mode},
                                 {"seed", record.seed},
                                 {"options", record.options},
                                 {"variables", record.variables}};
  if (record.plan) json["plan"] = plan_json(*record.plan);
  if (record.memory) json["memory"] = memory_json(*record.memory);
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tessera::train
