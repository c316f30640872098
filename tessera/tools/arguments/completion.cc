#include "tessera/tools/arguments/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "tessera/tessera.h"

namespace tessera::tools {
namespace {

// An option as a shell sees it: "--transport" and "-t", whether a value follows, and which values there are. A
// positional argument has no name.
struct OptionWords {
  std::vector<std::string> names;
  std::string description;
  bool has_value = false;
  std::vector<std::string> values;  // none: any
};

// A command with all its words, "tessera cluster status".
struct CommandWords {
  std::string path;
  std::string description;
  std::vector<OptionWords> options;
  std::vector<const CLI::App*> subcommands;
  bool starts_program = false;  // what follows the first word that is no option belongs to a program
};

// The choices of an option, which the library writes into the name of its type: "TEXT:{shm,tls}".
std::vector<std::string> values_of(const std::string& type) {
  const size_t begin = type.find('{');
  const size_t end = type.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

OptionWords option_of(const CLI::Option& option) {
  OptionWords found;
  for (const auto& name : option.get_lnames()) found.names.push_back("--" + name);
  for (const auto& name : option.get_snames()) found.names.push_back("-" + name);
  found.description = option.get_description();
  found.has_value = option.get_items_expected_max() > 0;
  if (found.has_value) found.values = values_of(option.get_type_name());
  return found;
}

void add_commands(const CLI::App& app, const std::string& path, std::vector<CommandWords>& commands) {
  CommandWords command{path, app.get_description(), {}, {}, app.get_prefix_command()};
  for (const CLI::Option* option : app.get_options()) {
    command.options.push_back(option_of(*option));
  }
  for (const CLI::App* part : app.get_subcommands(nullptr)) command.subcommands.push_back(part);
  commands.push_back(command);
  for (const CLI::App* part : command.subcommands) add_commands(*part, path + " " + part->get_name(), commands);
}

// A branch of bash's `case`: the patterns, each between quotes, and what is done.
std::string branch(const std::vector<std::string>& patterns, const std::string& action) {
  return patterns.empty() ? "" : fmt::format("      \"{}\") {} ;;\n", fmt::join(patterns, "\" | \""), action);
}

std::string bash_text(const std::vector<CommandWords>& commands) {
  std::vector<std::string> paths;
  std::vector<std::string> with_value;
  std::string programs;
  std::string values;
  std::string words;
  for (const CommandWords& command : commands) {
    std::vector<std::string> known;
    for (const CLI::App* part : command.subcommands) {
      paths.push_back(command.path + " " + part->get_name());
      known.push_back(part->get_name());
    }
    for (const OptionWords& option : command.options) {
      if (option.names.empty()) known.insert(known.end(), option.values.begin(), option.values.end());
      std::vector<std::string> patterns;
      for (const auto& name : option.names) {
        known.push_back(name);
        if (!option.has_value) continue;
        patterns.push_back(command.path + " " + name);
        with_value.push_back(patterns.back());
      }
      if (!option.values.empty() && !patterns.empty())
        values += branch(patterns, fmt::format("words=\"{}\"", fmt::join(option.values, " ")));
    }
    if (command.starts_program) programs += fmt::format("      \"{} \"[!-]*) return ;;\n", command.path);
    words += branch({command.path}, fmt::format("words=\"{}\"", fmt::join(known, " ")));
  }
  return fmt::format(
      R"(# What bash completes behind `tessera`, as `tessera completion bash` prints it.
_tessera() {{
  local path=tessera words='' word previous=${{COMP_WORDS[COMP_CWORD - 1]}} i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    case "$path $word" in
{}{}{}    esac
  done
  if [ "$previous" = "=" ]; then previous=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
  case "$path $previous" in
{}{}    *)
      case "$path" in
{}      esac ;;
  esac
  word=${{COMP_WORDS[COMP_CWORD]}}
  if [ "$word" = "=" ]; then word=''; fi
  # shellcheck disable=SC2207  # no word has a space
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o bashdefault -o default -F _tessera tessera
)",
      branch(paths, "path=\"$path $word\""),
      branch(with_value, "i=$((i + 1)); if [ \"${COMP_WORDS[i]}\" = \"=\" ]; then i=$((i + 1)); fi"), programs, values,
      branch(with_value, "return"), words);
}

// In single quotes, for fish.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, text.find('\n'))) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return "'" + out + "'";
}

std::string fish_text(const std::vector<CommandWords>& commands) {
  std::string text = "# What fish completes behind `tessera`, as `tessera completion fish` prints it.\n";
  for (const CommandWords& command : commands) {
    std::string condition;
    const auto seen = CLI::detail::split(command.path, ' ');
    for (size_t i = 1; i < seen.size(); ++i) {
      condition += fmt::format("{}__fish_seen_subcommand_from {}", i == 1 ? "" : "; and ", seen[i]);
    }
    if (condition.empty()) condition = "__fish_use_subcommand";
    for (const CLI::App* part : command.subcommands) {
      text += fmt::format("complete -c tessera -n '{}' -f -a {} -d {}\n", condition, part->get_name(),
                          quoted(part->get_description()));
    }
    for (const OptionWords& option : command.options) {
      if (option.names.empty() && option.values.empty()) continue;
      text += fmt::format("complete -c tessera -n '{}'", condition);
      for (const auto& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.values.empty()) {
        text += fmt::format(" -x -a '{}'", fmt::join(option.values, " "));
      } else if (option.has_value) {
        text += " -r";
      }
      text += fmt::format(" -d {}\n", quoted(option.description));
    }
  }
  return text;
}

}  // namespace

std::string completion_text(const CLI::App& app, const std::string& shell) {
  std::vector<CommandWords> commands;
  add_commands(app, "tessera", commands);
  if (shell == "fish") return fish_text(commands);
  // zsh reads what bash reads.
  if (shell == "zsh") return "#compdef tessera\nautoload -U +X bashcompinit && bashcompinit\n" + bash_text(commands);
  check(shell == "bash", "a shell that is not known");
  return bash_text(commands);
}

}  // namespace tessera::tools
