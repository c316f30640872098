#include "tessera/train/modes/mode_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <any>
#include <type_traits>

#include "tessera/base/error.h"

namespace tessera::train {
namespace {

template <typename T>
bool differs(const T& value, const T& usual) {
  if constexpr (requires { is_set(value); }) return is_set(value);
  if constexpr (requires { value == usual; }) return !(value == usual);
  return false;  // no mode looks at it
}

struct GivenOption {
  OptionInfo info;
  std::string_view group;  // in Python the dict whose key it is; "": it is a keyword
  bool is_set = false;

  // What the user calls it who made these options.
  std::string word(const ModelOptions& options) const {
    if (!options.are_of_python) return std::string(info.name_in_cpp());
    return group.empty() ? std::string(info.name) : fmt::format("{}[\"{}\"]", group, info.name);
  }
};

// Calls take(info, group, member) for all options, those of a group behind the group.
template <typename Take>
struct ForAll {
  const Take& take;
  std::string_view group = "";
  template <typename T>
  void operator()(const OptionInfo& info, T& member) const {
    take(info, group, member);
    const ForAll inner{take, info.name};
    if constexpr (requires { for_each_option(member, inner); }) for_each_option(member, inner);
  }
};

std::vector<GivenOption> given_options(const ModelOptions& options) {
  std::vector<std::any> usual;
  const auto note = [&](const OptionInfo&, std::string_view, auto& member) { usual.emplace_back(member); };
  ModelOptions defaults;
  for_each_option(defaults, ForAll<decltype(note)>{note});
  std::vector<GivenOption> found;
  const auto compare = [&](const OptionInfo& info, std::string_view group, auto& member) {
    using T = std::remove_cvref_t<decltype(member)>;
    found.push_back({info, group, differs<T>(member, std::any_cast<const T&>(usual[found.size()]))});
  };
  ModelOptions given = options;
  for_each_option(given, ForAll<decltype(compare)>{compare});
  return found;
}

// The options of these names in C++.
std::vector<const GivenOption*> options_named(const std::vector<std::string_view>& names,
                                              const std::vector<GivenOption>& given) {
  std::vector<const GivenOption*> found;
  for (const auto name : names) {
    const auto it = std::ranges::find(given, name, [](const GivenOption& other) { return other.info.name_in_cpp(); });
    check(it != given.end(), "an option names one that there is not");
    found.push_back(&*it);
  }
  return found;
}

// Why an option that its mode reads has no effect beside the others; "" where it has one.
std::string why_unused(const GivenOption& option, const std::vector<GivenOption>& given, const ModelOptions& options) {
  const auto needed = options_named(option.info.needs, given);
  if (!needed.empty() && std::ranges::none_of(needed, &GivenOption::is_set)) {
    std::vector<std::string> words;
    for (const GivenOption* other : needed) words.push_back(other->word(options));
    return fmt::format("without {}", fmt::join(words, ", "));
  }
  for (const GivenOption* other : options_named(option.info.unless, given)) {
    if (other->is_set) return fmt::format("beside {}", other->word(options));
  }
  return "";
}

std::string modes_that_read(const OptionInfo& option) {
  std::vector<std::string_view> modes;
  for (size_t i = 0; i < kNumParallelModes; ++i) {
    const auto mode = static_cast<ParallelMode>(i);
    if (option.uses->in(mode) == OptionUse::kRead) modes.push_back(to_string(mode));
  }
  return fmt::format("{}", fmt::join(modes, ", "));
}

}  // namespace

ParallelMode working_mode(const ModelOptions& options) {
  const bool is_cut = num_stages(options.pipeline) != 0 || options.pipeline.stages.is_automatic();
  const bool has_stages = options.parallel_mode == ParallelMode::kAutomatic && is_cut;
  const bool has_servers = options.parallel_mode == ParallelMode::kDataParallel && options.servers > 0;
  return has_stages || has_servers ? ParallelMode::kPipeline : options.parallel_mode;
}

std::vector<OptionInfo> mode_options() {
  std::vector<OptionInfo> infos;
  for (const auto& option : given_options({})) {
    if (option.info.uses) infos.push_back(option.info);
  }
  return infos;
}

bool is_set(const ModelOptions& options, std::string_view name_in_cpp) {
  for (const auto& option : given_options(options)) {
    if (option.info.uses && option.info.name_in_cpp() == name_in_cpp) return option.is_set;
  }
  throw InvalidArgument("no mode looks at an option \"{}\"", name_in_cpp);
}

std::vector<std::string> unused_options(const ModelOptions& options, int num_ranks) {
  std::vector<std::string> lines;
  const ParallelMode mode = working_mode(options);
  const auto given = given_options(options);
  for (const auto& option : given) {
    if (!option.is_set) continue;
    const OptionInfo& info = option.info;
    const OptionUse use = info.uses ? info.uses->in(mode) : OptionUse::kRead;
    const std::string name = option.word(options);
    const bool is_alone = num_ranks == 1;
    if (use == OptionUse::kUnused || (use == OptionUse::kRefused && is_alone)) {
      lines.push_back(fmt::format("{} has no effect in {}: only in {}", name, to_string(mode), modes_that_read(info)));
    } else if (use == OptionUse::kRead && is_alone && info.names_file) {
      lines.push_back(fmt::format("{} has no effect on one rank, which splits nothing", name));
    } else if (use == OptionUse::kRead && is_alone && info.needs_ranks) {
      lines.push_back(fmt::format("{} has no effect on one rank: `tessera run -n` starts more", name));
    } else if (use == OptionUse::kRead) {
      if (const auto why = why_unused(option, given, options); !why.empty()) {
        lines.push_back(fmt::format("{} has no effect {}", name, why));
      }
    }
  }
  return lines;
}

int64_t rows_of_micro_batch(int64_t rows, int64_t micro_batches) {
  if (rows % micro_batches == 0) return rows / micro_batches;
  throw InvalidArgument(
      "a batch of {} rows cannot be cut into {} micro-batches of equally many: batches of a multiple of {} rows can "
      "(drop_remainder leaves out a last one that is smaller)",
      rows, micro_batches, micro_batches);
}

void require_no_refused(const ModelOptions& options, int num_ranks) {
  const ParallelMode mode = working_mode(options);
  const auto given = given_options(options);
  for (const auto& option : given) {
    if (!option.is_set) continue;
    for (const GivenOption* other : options_named(option.info.without, given)) {
      if (!other->is_set) continue;
      throw InvalidArgument("{} is not available beside {}: {}", option.word(options), other->word(options),
                            option.info.way_out);
    }
  }
  if (num_ranks == 1) return;
  for (const auto& option : given) {
    const OptionInfo& info = option.info;
    if (!option.is_set || !info.uses || info.uses->in(mode) != OptionUse::kRefused) continue;
    const std::string way_out = info.way_out.empty()
                                    ? fmt::format("leave it out, or train in one of {}", modes_that_read(info))
                                    : std::string(info.way_out);
    throw InvalidArgument("{} is not available in {}: {}", option.word(options), to_string(mode), way_out);
  }
}

}  // namespace tessera::train
