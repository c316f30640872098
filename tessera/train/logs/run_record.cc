#include "tessera/train/logs/run_record.h"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <concepts>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "tessera/base/strings.h"
#include "tessera/cluster/launch.h"
#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/kernels/machine.h"
#include "tessera/mesh/strategy.h"
#include "tessera/session/session.h"
#include "tessera/train/logs/training_record.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

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

}  // namespace

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
  return {.wall_ms = context.clock().wall_ms(),
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
}

std::string json_line(const RunRecord& record) {
  const nlohmann::ordered_json json = {{"kind", "run"},
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
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tessera::train
