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
  bool is_set = false;
};

// Calls take(info, member) for all options, those of a group behind the group.
template <typename Take>
struct ForAll {
  const Take& take;
  template <typename T>
  void operator()(const OptionInfo& info, T& member) const {
    take(info, member);
    if constexpr (requires { for_each_option(member, *this); }) for_each_option(member, *this);
  }
};

std::vector<GivenOption> given_options(const ModelOptions& options) {
  std::vector<std::any> usual;
  const auto note = [&](const OptionInfo&, auto& member) { usual.emplace_back(member); };
  ModelOptions defaults;
  for_each_option(defaults, ForAll<decltype(note)>{note});
  std::vector<GivenOption> found;
  const auto compare = [&](const OptionInfo& info, auto& member) {
    using T = std::remove_cvref_t<decltype(member)>;
    found.push_back({info, differs<T>(member, std::any_cast<const T&>(usual[found.size()]))});
  };
  ModelOptions given = options;
  for_each_option(given, ForAll<decltype(compare)>{compare});
  return found;
}

// Whether one of those that the option needs is set.
bool has_needed(const OptionInfo& info, const std::vector<GivenOption>& given) {
  if (info.needs.empty()) return true;
  return std::ranges::any_of(info.needs, [&](std::string_view needed) {
    return std::ranges::any_of(
        given, [&](const GivenOption& other) { return other.is_set && other.info.name_in_cpp() == needed; });
  });
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
  for (const auto& [info, is_set] : given_options({})) {
    if (info.uses) infos.push_back(info);
  }
  return infos;
}

bool is_set(const ModelOptions& options, std::string_view name_in_cpp) {
  for (const auto& [info, is_set] : given_options(options)) {
    if (info.uses && info.name_in_cpp() == name_in_cpp) return is_set;
  }
  throw InvalidArgument("no mode looks at an option \"{}\"", name_in_cpp);
}

std::vector<std::string> unused_options(const ModelOptions& options, int num_ranks) {
  std::vector<std::string> lines;
  const ParallelMode mode = working_mode(options);
  const auto given = given_options(options);
  for (const auto& [info, is_set] : given) {
    if (!is_set || !info.uses) continue;
    const OptionUse use = info.uses->in(mode);
    const auto name = info.name_in_cpp();
    const bool is_alone = num_ranks == 1;
    if (use == OptionUse::kUnused || (use == OptionUse::kRefused && is_alone)) {
      lines.push_back(fmt::format("{} has no effect in {}: only in {}", name, to_string(mode), modes_that_read(info)));
    } else if (use == OptionUse::kRead && is_alone && info.names_file) {
      lines.push_back(fmt::format("{} has no effect on one rank, which splits nothing", name));
    } else if (use == OptionUse::kRead && !has_needed(info, given)) {
      lines.push_back(fmt::format("{} has no effect without {}", name, fmt::join(info.needs, ", ")));
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
  if (num_ranks == 1) return;
  const ParallelMode mode = working_mode(options);
  for (const auto& [info, is_set] : given_options(options)) {
    if (!is_set || !info.uses || info.uses->in(mode) != OptionUse::kRefused) continue;
    throw InvalidArgument("{} is not available in {}", info.name_in_cpp(), to_string(mode));
  }
}

}  // namespace tessera::train
