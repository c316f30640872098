#include "tessera/tools/report/run_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace tessera::tools {
namespace {

using FactsJson = nlohmann::ordered_json;

std::string fact_text(const FactsJson& record, const char* name) {
  const auto found = record.find(name);
  return found != record.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t fact_count(const FactsJson& record, const char* name) {
  const auto found = record.find(name);
  if (found == record.end() || !found->is_number_integer()) return 0;
  if (found->is_number_unsigned() &&
      found->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return 0;
  }
  return std::max<int64_t>(found->get<int64_t>(), 0);
}

std::string command_line(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

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
  const auto json = FactsJson::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || fact_text(json, "kind") != "run") return std::nullopt;
  RunFacts facts;
  facts.time = fact_text(json, "time");
  facts.step = fact_count(json, "step");
  facts.num_epochs = fact_count(json, "epochs");
  facts.num_ranks = fact_count(json, "ranks");
  facts.ranks_of_host = fact_count(json, "ranks_of_host");
  facts.num_servers = fact_count(json, "servers");
  facts.directory = fact_text(json, "directory");
  facts.transport = fact_text(json, "transport");
  facts.job = fact_text(json, "job");
  facts.host = fact_text(json, "host");
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
  add("program", fact_text(json, "program"));
  add("directory", facts.directory);
  add("version", fact_text(json, "version"));
  add_count("ranks", "ranks");
  add_count("ranks of the host", "ranks_of_host");
  add_count("servers", "servers");
  add("transport", facts.transport);
  add("mode", fact_text(json, "mode"));
  add_count("seed", "seed");
  add_count("epochs", "epochs");
  add_count("steps of an epoch", "steps_per_epoch");
  add_count("threads of a rank", "num_threads");
  add("host", facts.host);
  add("CPU", fact_text(json, "cpu"));
  add_count("cores", "cores");
  if (const auto options = json.find("options"); options != json.end() && options->is_object()) {
    for (const auto& [name, value] : options->items()) {
      add("option " + name, value.is_string() ? value.get<std::string>()
                                              : value.dump(-1, ' ', false, FactsJson::error_handler_t::replace));
    }
  }
  return facts;
}

std::string repeat_command(const RunFacts& facts) {
  if (facts.command.empty()) return "";
  std::string launcher;
  const int64_t num_trained = std::max<int64_t>(facts.num_ranks - facts.num_servers, 1);
  const std::string servers = facts.num_servers > 0 ? fmt::format(" --servers {}", facts.num_servers) : "";
  if (facts.transport == "mpi") {
    launcher = fmt::format("mpirun -n {} ", facts.num_ranks);
  } else if (facts.transport == "threads") {
    launcher = fmt::format("tessera run --threads {}{} ", num_trained, servers);
  } else if (facts.num_ranks > 1 && facts.ranks_of_host < facts.num_ranks) {
    // Which scheduler the hosts shared, the record does not say.
    launcher = fmt::format("tessera run --join HOST:PORT -n {} ", std::max<int64_t>(facts.ranks_of_host, 1));
  } else if (facts.num_ranks > 1) {
    launcher = fmt::format("tessera run -n {}{} ", num_trained, servers);
  }
  const std::string directory = facts.directory.empty() ? "" : fmt::format("cd {}\n", shell_word(facts.directory));
  return directory + launcher + command_line(facts.command);
}

}  // namespace tessera::tools
