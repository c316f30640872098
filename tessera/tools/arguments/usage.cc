#include "tessera/tools/arguments/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <functional>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::tools {
namespace {

// A command and its names: "tessera ckpt ls".
struct Command {
  const CLI::App* app;
  std::string name;
};

Command named(const CLI::App& app) {
  if (app.get_parent() == nullptr) return {&app, "tessera"};
  return {&app, named(*app.get_parent()).name + " " + app.get_name()};
}

// The command that the command line is about.
Command innermost(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  return named(*command);
}

// "; did you mean X?", or "" where nothing is near. A word that begins a name is near it, one letter is near nothing.
std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  if (word.size() - std::min(word.find_first_not_of('-'), word.size()) < 2) return "";
  const auto begun =
      std::ranges::find_if(known, [&](const std::string& name) { return word.size() > 3 && name.starts_with(word); });
  const std::string near = begun != known.end() ? *begun : closest(word, known);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

// What `tessera run` has in the place of an option that other launchers or programs have: "; the number of ranks is
// -n", or "".
std::string instead_of(const Command& command, const std::string& option) {
  if (command.name != "tessera run") return "";
  for (const char* name : {"-np", "--np", "--n", "--nprocs", "--nproc_per_node", "--nproc-per-node", "--ntasks"}) {
    if (option == name) return "; the number of ranks is -n";
  }
  for (const char* name : {"-H", "--host", "--hosts", "--hostfile", "--machinefile", "--nodes", "--nnodes"}) {
    if (option == name) return "; on several hosts tessera run --join HOST:PORT on each, and one tessera scheduler";
  }
  if (option == "--log_format") {
    return "; what a script prints is its own: ProgressBar(log_format=\"json\") prints lines of JSON";
  }
  return "";
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    for (const auto& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::string usage_of(const Command& command) {
  const CLI::Formatter formatter;
  std::string usage = formatter.make_usage(command.app, command.name);
  usage = trim(usage);
  return usage.starts_with("Usage:") ? "usage:" + usage.substr(6) : usage;
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// Of "--name=value" the name.
std::string name_in(const std::string& word) { return word.substr(0, word.find('=')); }

// Of a word that no command and no option takes.
std::string unknown_word(const Command& command, const std::vector<std::string>& words) {
  const auto commands = command_names(*command.app);
  if (const std::string& first = words.front(); !commands.empty() && !is_option(first)) {
    return fmt::format("unknown command {}{}", first, suggestion(first, commands));
  }
  // Where an option is not known, its value is left over, too.
  const auto option = std::find_if(words.begin(), words.end(), is_option);
  if (option != words.end()) {
    const std::string name = name_in(*option);
    const auto names = option_names(*command.app);
    if (std::ranges::find(names, name) != names.end()) {
      return fmt::format("{} stands before the command that takes it; write it behind \"{}\"", name, command.name);
    }
    const std::string other = instead_of(command, name);
    return fmt::format("unknown option {}{}", name, other.empty() ? suggestion(name, names) : other);
  }
  return fmt::format("{} takes no argument \"{}\" here", command.name, words.front());
}

// Of an option that takes one value and was given more: "--ranks is given twice; --ranks and --devices are one option",
// or "" where there is none.
std::string given_twice(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() != 1 || option->count() < 2) continue;
    std::vector<std::string> names;
    for (const auto& name : option->get_snames()) names.push_back("-" + name);
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    if (names.empty()) continue;
    const std::string alike =
        names.size() < 2 ? "give it once" : fmt::format("{} are one option", fmt::join(names, " and "));
    return fmt::format("{} is given {} times: {}", names.back(), option->count(), alike);
  }
  return "";
}

// Of an argument without an option's name that takes so many words and was given more: "runs: at most 2 can be given,
// got 3", or "" where there is none.
std::string too_many(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const int most = option->get_items_expected_max();
    if (!option->get_positional() || option->count() <= static_cast<size_t>(std::max(most, 0))) continue;
    return fmt::format("{}: at most {} can be given, got {}", option->get_name(/*positional=*/true), most,
                       option->count());
  }
  return "";
}

// The library calls an option by its first name. The message with the name that the command line has, of `words`.
std::string by_given_name(const CLI::App& app, const std::string& message, const std::vector<std::string>& words) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string first = option->get_name() + ":";
    if (!message.starts_with(first)) continue;
    for (const std::string& word : words) {
      const std::string name = name_in(word);
      const bool is_it = is_option(name) && option->check_name(name);
      if (is_it) return name + message.substr(first.size() - 1);
    }
  }
  return message;
}

int refuse(const Command& command, const std::string& message) {
  fmt::print(stderr, "error: {}\n{}\n{} --help lists {}\n", message, usage_of(command), command.name,
             command_names(*command.app).empty() ? "the options" : "the commands");
  return cluster::kExitUsage;
}

// Of a number in a text: "" or what is wrong.
CLI::Validator number_that(const std::function<bool(double)>& is_good, const std::string& wish) {
  const auto check = [is_good, wish](const std::string& text) -> std::string {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    return is_number && is_good(number) ? "" : fmt::format("must be {}, got {}", wish, text);
  };
  return {check, ""};
}

// The largest number that counts anything here.
constexpr int64_t kMaxCount = int64_t{1} << 30;

// By a function that returns what is wrong, or throws it.
CLI::Validator read_by(const std::function<std::string(const std::string&)>& wrong_with) {
  const auto check = [wrong_with](const std::string& text) -> std::string {
    try {
      return wrong_with(text);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  };
  return {check, ""};
}

}  // namespace

CLI::Validator positive_seconds(double at_most) {
  const std::string limit = std::isfinite(at_most) ? fmt::format(", up to {}", at_most) : "";
  return number_that([at_most](double x) { return x > 0 && x <= at_most && std::isfinite(x); },
                     "a number of seconds above 0" + limit);
}

CLI::Validator seconds_to_wait() { return positive_seconds(static_cast<double>(cluster::kMaxTimeoutMs) / 1000); }

CLI::Validator count_from(int64_t least) {
  return read_by([least](const std::string& text) -> std::string {
    const int64_t number = parse_int(text, "a number");
    return number >= least && number <= kMaxCount
               ? ""
               : fmt::format("must be from {} to {}, got {}", least, kMaxCount, number);
  });
}

CLI::Validator bytes() {
  return read_by([](const std::string& text) -> std::string {
    parse_bytes(text, "the value");
    return "";
  });
}

CLI::Validator file_ending_in(const std::string& suffix) {
  return read_by([suffix](const std::string& text) {
    return text.ends_with(suffix) ? "" : fmt::format("the name of the file must end in {}, got \"{}\"", suffix, text);
  });
}

CLI::Validator file_prefix() {
  return read_by([](const std::string& text) {
    return text.find('/') == std::string::npos ? "" : fmt::format("must not contain /, got \"{}\"", text);
  });
}

CLI::Validator scheduler_address() {
  return read_by([](const std::string& text) -> std::string {
    const auto place = cluster::rendezvous::parse_host_port(text, "a scheduler's address");
    return place.port > 0 ? "" : fmt::format("a scheduler's port is from 1 to 65535, got {}", text);
  });
}

CLI::Validator dashboard_place() {
  return read_by([](const std::string& text) -> std::string {
    cluster::parse_dashboard_place(text);
    return "";
  });
}

CLI::Validator node_ids() {
  return read_by([](const std::string& text) -> std::string {
    cluster::rendezvous::check_node_id(text, "a node id", cluster::rendezvous::kMaxNodeIdOfLauncher);
    return "";
  });
}

void require_writable(const char* option, const std::string& file) {
  if (file.empty()) return;
  FileSystem& files = FileSystem::local();
  if (files.is_directory(file)) throw IoError("{} {}: it is a directory; name a file", option, file);
  const std::string probe = fmt::format("{}.tmp.{}", file, ::getpid());  // as it will be written
  try {
    files.create(probe, 0600)->close();
    files.remove(probe);
  } catch (const IoError& error) {
    throw IoError("{} {}: no file can be written there: {}", option, file, error.what());
  }
}

int64_t milliseconds_of(double seconds) {
  // A decimal fraction may be a little more in binary.
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(seconds * 1000 - 1e-6)), 1, cluster::kMaxTimeoutMs);
}

CLI::Validator fraction() {
  return number_that([](double x) { return x >= 0 && x <= 1; }, "from 0 to 1");
}

std::optional<int> refuse_option_before_program(const CLI::App& run, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size() && is_option(words[i]) && words[i] != "--"; ++i) {
    const std::string& word = words[i];
    if (word == "-np") return refuse(named(run), unknown_word(named(run), {word}));  // and not a number "p" of -n
    // "-n4"
    if (word[1] != '-' && word.size() > 2 && run.get_option_no_throw(word.substr(0, 2)) != nullptr) continue;
    const CLI::Option* option = run.get_option_no_throw(name_in(word));
    if (option == nullptr) return refuse(named(run), unknown_word(named(run), {word}));
    const bool has_value = word.find('=') != std::string::npos;
    if (!has_value && option->get_items_expected_max() > 0) ++i;
  }
  return std::nullopt;
}

int exit_for(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments) {
  // The library prints what was asked for.
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
  const Command command = innermost(app);
  const auto words = app.remaining(/*recurse=*/true);
  const bool is_missing = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError);
  const bool lacks_command = is_missing && !command_names(*command.app).empty();
  if (lacks_command && words.empty()) {
    const CLI::App* parent = command.app->get_parent();
    std::fputs(command.app->help(parent == nullptr ? "" : named(*parent).name).c_str(), stderr);
    return cluster::kExitUsage;
  }
  // What is not known is told before what is missing: it may be the same thing.
  const bool is_unknown = lacks_command || error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) ||
                          (is_missing && std::any_of(words.begin(), words.end(), is_option));
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch)) {
    for (const std::string& fault : {given_twice(*command.app), too_many(*command.app)}) {
      if (!fault.empty()) return refuse(command, fault);
    }
  }
  return refuse(command, is_unknown && !words.empty() ? unknown_word(command, words)
                                                      : by_given_name(*command.app, error.what(), arguments));
}

}  // namespace tessera::tools
