#include "tessera/tools/report/run_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "tessera/base/json/bounded_json.h"
#include "tessera/tools/report/record_members.h"

namespace tessera::tools {
namespace {

using FactsJson = nlohmann::ordered_json;

// 0 of what the record does not say.
int64_t fact_count(const FactsJson& record, const char* name) { return count_in(record, name).value_or(0); }

std::string command_line(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

// Whether a run may say that variable: of what another program reads, as the system's loader, it says nothing, and what
// may be a secret stays out of sight.
bool may_be_said(const std::string& name) {
  constexpr std::array kOfScripts = {"DEVICE_ID", "GRAPH_OP_RUN", "RANK_ID", "RANK_SIZE"};
  const bool is_known = name.starts_with("TESSERA_") || std::ranges::find(kOfScripts, name) != kOfScripts.end();
  if (!is_known || shell_word(name) != name) return false;
  constexpr std::array kSecret = {"SECRET", "PASSWORD", "TOKEN"};
  return std::ranges::none_of(kSecret, [&](const char* part) { return name.find(part) != std::string::npos; });
}

// Which rank a process is a launcher says anew.
bool is_place(std::string_view name) { return name == "DEVICE_ID" || name.starts_with("RANK_"); }

}  // namespace

std::string shell_word(const std::string& word) {
  const bool is_plain = !word.empty() && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_@%+=:,./-").find(c) != std::string_view::npos;
  });
  if (is_plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::optional<RunFacts> parse_run_facts(std::string_view line) {
  // A record nests four deep. What lies further below is of somebody else, and says nothing here.
  const auto json =
      parse_json_or_discard<FactsJson>(line, {.name = "record", .max_levels = 8, .leaves_out_deeper = true});
  if (!json.is_object() || text_in(json, "kind") != "run") return std::nullopt;
  RunFacts facts;
  facts.time = text_in(json, "time");
  facts.step = fact_count(json, "step");
  facts.num_epochs = fact_count(json, "epochs");
  facts.num_ranks = fact_count(json, "ranks");
  facts.ranks_of_host = fact_count(json, "ranks_of_host");
  facts.num_servers = fact_count(json, "servers");
  facts.num_threads = fact_count(json, "num_threads");
  facts.directory = text_in(json, "directory");
  facts.transport = text_in(json, "transport");
  facts.job = text_in(json, "job");
  facts.host = text_in(json, "host");
  if (const auto command = json.find("command"); command != json.end() && command->is_array()) {
    for (const auto& word : *command) {
      if (word.is_string()) facts.command.push_back(word.get<std::string>());
    }
  }
  const auto add = [&](const std::string& name, const std::string& text) {
    if (!text.empty()) facts.settings.emplace_back(name, text);
  };
  const auto add_count = [&](const char* name, const char* member) {
    const auto found = json.find(member);
    if (found != json.end() && found->is_number_integer()) add(name, found->dump());
  };
  add("command", command_line(facts.command));
  add("program", text_in(json, "program"));
  add("directory", facts.directory);
  add("version", text_in(json, "version"));
  add_count("ranks", "ranks");
  add_count("ranks of the host", "ranks_of_host");
  add_count("servers", "servers");
  add("transport", facts.transport);
  add("mode", text_in(json, "mode"));
  add_count("seed", "seed");
  add_count("epochs", "epochs");
  add_count("steps of an epoch", "steps_per_epoch");
  add_count("threads of a rank", "num_threads");
  add("host", facts.host);
  add("CPU", text_in(json, "cpu"));
  add_count("cores", "cores");
  if (const auto options = json.find("options"); options != json.end() && options->is_object()) {
    for (const auto& [name, value] : options->items()) {
      add("option " + name, value.is_string() ? value.get<std::string>()
                                              : value.dump(-1, ' ', false, FactsJson::error_handler_t::replace));
    }
  }
  if (const auto variables = json.find("variables"); variables != json.end() && variables->is_object()) {
    for (const auto& [name, value] : variables->items()) {
      if (!value.is_string()) continue;
      facts.variables.emplace_back(name, value.get<std::string>());
      add(name, facts.variables.back().second);
    }
  }
  facts.plan = plan_facts_of(json);
  facts.memory = memory_facts_of(json);
  return facts;
}

std::string repeat_command(const RunFacts& facts) {
  if (facts.command.empty()) return "";
  std::string launcher;
  std::string variables;
  const std::string threads = facts.num_threads > 0 ? fmt::format(" --num_threads {}", facts.num_threads) : "";
  const int64_t num_trained = std::max<int64_t>(facts.num_ranks - facts.num_servers, 1);
  const std::string servers = facts.num_servers > 0 ? fmt::format(" --servers {}", facts.num_servers) : "";
  if (facts.transport == "mpi") {
    launcher = fmt::format("mpirun -n {} ", facts.num_ranks);
  } else if (facts.transport == "threads") {
    launcher = fmt::format("tessera run --threads {}{}{} ", num_trained, servers, threads);
  } else if (facts.num_ranks > 1 && facts.ranks_of_host < facts.num_ranks) {
    // Which scheduler the hosts shared, the record does not say.
    launcher = fmt::format("tessera run --join HOST:PORT -n {}{} ", std::max<int64_t>(facts.ranks_of_host, 1), threads);
  } else if (facts.num_ranks > 1) {
    launcher = fmt::format("tessera run -n {}{}{} ", num_trained, servers, threads);
  }
  const bool is_told_threads = facts.num_threads > 0 && !launcher.starts_with("tessera run");
  if (is_told_threads) variables = fmt::format("TESSERA_NUM_THREADS={} ", facts.num_threads);
  for (const auto& [name, value] : facts.variables) {
    const bool is_said_already = name == "TESSERA_NUM_THREADS" || (is_place(name) && !launcher.empty());
    if (may_be_said(name) && !is_said_already) variables += name + "=" + shell_word(value) + " ";
  }
  const std::string directory = facts.directory.empty() ? "" : fmt::format("cd {}\n", shell_word(facts.directory));
  return directory + variables + launcher + command_line(facts.command);
}

}  // namespace tessera::tools
