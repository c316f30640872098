#include "python/src/model_options.h"

#include <fmt/ranges.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "python/src/tracing.h"

namespace tessera::python {
namespace {

using train::OptionInfo;

std::string text_of(nb::handle value) { return nb::cast<std::string>(nb::repr(value)); }

// How an option of C++'s type T looks in Python: its type there, its default there, and read(), false for a value that
// is none of that type. In a dict of options a number is no truth, and its range is looked at.
template <typename T>
struct Form;

template <>
struct Form<bool> {
  static constexpr const char* kKind = "bool";
  static constexpr const char* kWords = "True or False";
  static std::string shown(bool value) { return value ? "True" : "False"; }
  static bool read(nb::handle value, const OptionInfo&, bool, bool& to) { return nb::try_cast(value, to, false); }
};

// A number of bytes, or a text like "2GiB"; None: 0.
int64_t to_bytes(nb::handle object, const char* what) {
  if (object.is_none()) return 0;
  if (nb::isinstance<nb::str>(object)) return parse_bytes(nb::cast<std::string>(object), what);
  if (is_bool(object) || !PyIndex_Check(object.ptr())) {
    throw nb::type_error(
        fmt::format("{} is a number of bytes, or a text such as \"300MiB\", got {}", what, text_of(object)).c_str());
  }
  return nb::cast<int64_t>(nb::int_(object));
}

template <typename T>
requires(std::is_same_v<T, int> || std::is_same_v<T, int64_t>) struct Form<T> {
  static constexpr const char* kKind = "int";
  static constexpr const char* kWords = "a whole number";
  static std::string shown(T value) { return fmt::format("{}", value); }
  static bool read(nb::handle value, const OptionInfo& info, bool in_dict, T& to) {
    if constexpr (std::is_same_v<T, int64_t>) {
      if (info.is_bytes) {
        to = to_bytes(value, std::string(info.name).c_str());
        return true;
      }
    }
    return nb::try_cast(value, to, !in_dict) && to >= info.least && to <= info.most;
  }
};

template <>
struct Form<double> {
  static constexpr const char* kKind = "float";
  static constexpr const char* kWords = "a number of seconds above 0";
  static std::string shown(double value) { return value == 0 ? "None" : fmt::format("{}", value); }
  static bool read(nb::handle value, const OptionInfo&, bool, double& to) {
    if (is_bool(value) || !is_number(value)) return false;
    to = nb::cast<double>(nb::float_(value));
    return to > 0;
  }
};

template <>
struct Form<std::string> {
  static constexpr const char* kKind = "str";
  static constexpr const char* kWords = "a text";
  static std::string shown(const std::string& value) { return fmt::format("'{}'", value); }
  static bool read(nb::handle value, const OptionInfo&, bool, std::string& to) {
    return nb::try_cast(value, to, false);
  }
};

// A value that Python names by a text.
template <typename T, T (*parse)(const std::string&), std::string (*name)(T)>
struct NamedForm {
  static constexpr const char* kKind = "str";
  static constexpr const char* kWords = "a text";
  static std::string shown(T value) { return fmt::format("'{}'", name(value)); }
  static bool read(nb::handle value, const OptionInfo&, bool, T& to) {
    std::string text;
    if (!nb::try_cast(value, text, false)) return false;
    to = parse(text);
    return true;
  }
};

constexpr std::array<std::pair<const char*, train::BatchNormStatistics>, 2> kStatistics = {
    {{"global", train::BatchNormStatistics::kGlobal}, {"local", train::BatchNormStatistics::kLocal}}};
train::BatchNormStatistics parse_statistics(const std::string& text) {
  for (const auto& [name, value] : kStatistics) {
    if (text == name) return value;
  }
  throw InvalidArgument("unknown batch_norm_statistics \"{}\"; the known ones are global, local", text);
}
std::string name_of(train::BatchNormStatistics value) {
  for (const auto& [name, other] : kStatistics) {
    if (other == value) return name;
  }
  return "";
}
std::string name_of(train::ParallelMode mode) { return std::string(train::to_string(mode)); }
session::KernelChoice parse_kernels(const std::string& text) { return session::parse_kernel_choice(text); }
std::string name_of(session::KernelChoice choice) { return std::string(session::to_string(choice)); }
std::string name_of(compiler::SearchAlgorithm algorithm) { return std::string(compiler::to_string(algorithm)); }

template <>
struct Form<train::ParallelMode> : NamedForm<train::ParallelMode, train::parse_parallel_mode, name_of> {};
template <>
struct Form<train::BatchNormStatistics> : NamedForm<train::BatchNormStatistics, parse_statistics, name_of> {};
template <>
struct Form<session::KernelChoice> : NamedForm<session::KernelChoice, parse_kernels, name_of> {};
template <>
struct Form<compiler::SearchAlgorithm>
    : NamedForm<compiler::SearchAlgorithm, compiler::parse_search_algorithm, name_of> {};

// None where a script says nothing: set_seed()'s.
template <>
struct Form<uint64_t> {
  static constexpr const char* kKind = "int | None";
  static std::string shown(uint64_t) { return "None"; }
  static bool read(nb::handle value, const OptionInfo&, bool, uint64_t& to) {
    std::optional<Seed> seed;
    if (!nb::try_cast(value, seed)) return false;
    to = or_global(seed);
    return true;
  }
};

template <>
struct Form<mesh::Strategy> {
  static constexpr const char* kKind = "collections.abc.Sequence[collections.abc.Sequence[int]]";
  static std::string shown(const mesh::Strategy&) { return "()"; }
  static bool read(nb::handle value, const OptionInfo&, bool, mesh::Strategy& to) { return nb::try_cast(value, to); }
};

template <>
struct Form<train::StageCount> {
  static constexpr const char* kKind = "int | str";
  static constexpr const char* kWords = "a whole number above 0, or \"auto\"";
  static std::string shown(const train::StageCount& value) { return fmt::format("{}", value.count()); }
  static bool read(nb::handle value, const OptionInfo& info, bool in_dict, train::StageCount& to) {
    std::string text;
    if (nb::try_cast(value, text, false)) {
      to = train::StageCount::automatic();
      return text == "auto";
    }
    int count = 0;
    if (!Form<int>::read(value, info, in_dict, count)) return false;
    to = count;
    return true;
  }
};

template <>
struct Form<train::ServerStaleness> {
  static constexpr const char* kKind = "int | str | None";
  static constexpr const char* kWords = "a whole number, \"asynchronous\" or None";
  static std::string shown(const train::ServerStaleness&) { return "None"; }
  static bool read(nb::handle value, const OptionInfo& info, bool in_dict, train::ServerStaleness& to) {
    if (value.is_none()) return true;
    std::string text;
    if (nb::try_cast(value, text, false)) {
      to = train::ServerStaleness::asynchronous();
      return text == "asynchronous";
    }
    int steps = 0;
    if (!Form<int>::read(value, info, in_dict, steps) || steps < 0) return false;
    to = train::ServerStaleness::steps(steps);
    return true;
  }
};

template <>
struct Form<std::vector<int>> {
  static constexpr const char* kKind = "collections.abc.Sequence[int]";
  static constexpr const char* kWords = "a list of whole numbers";
  static std::string shown(const std::vector<int>&) { return "[]"; }
  static bool read(nb::handle value, const OptionInfo& info, bool, std::vector<int>& to) {
    return nb::try_cast(value, to) &&
           std::ranges::all_of(to, [&](int number) { return number >= info.least && number <= info.most; });
  }
};

template <>
struct Form<std::optional<DType>> {
  static constexpr const char* kKind = "object | None";
  static std::string shown(const std::optional<DType>&) { return "None"; }
  // What other libraries' name of a dtype is here; "" of what is none.
  static std::string name_here(nb::handle value) {
    static const std::map<std::string, const char*> names = {
        {"fp16", "float16"}, {"half", "float16"}, {"fp32", "float32"}, {"single", "float32"}};
    std::string text;
    const auto found = nb::try_cast(value, text, false) ? names.find(text) : names.end();
    return found == names.end() ? "" : fmt::format("; that is called {} here", found->second);
  }
  static bool read(nb::handle value, const OptionInfo& info, bool, std::optional<DType>& to) {
    if (value.is_none()) return true;
    try {
      to = to_dtype(value);
    } catch (const InvalidArgument&) {
      throw InvalidArgument("{} must be float32, bfloat16 or float16, got {}{}", info.name, text_of(value),
                            name_here(value));
    }
    return true;
  }
};

template <>
struct Form<std::optional<bool>> {
  static constexpr const char* kKind = "bool | None";
  static std::string shown(const std::optional<bool>&) { return "None"; }
  static bool read(nb::handle value, const OptionInfo&, bool, std::optional<bool>& to) {
    return nb::try_cast(value, to);
  }
};

template <>
struct Form<std::optional<nn::LossScale>> {
  static constexpr const char* kKind = "tessera._tessera.nn.LossScale | None";
  static std::string shown(const std::optional<nn::LossScale>&) { return "None"; }
  static bool read(nb::handle value, const OptionInfo&, bool, std::optional<nn::LossScale>& to) {
    return nb::try_cast(value, to);
  }
};

template <>
struct Form<compiler::Fusions> {
  static constexpr const char* kKind = "bool";
  static std::string shown(const compiler::Fusions&) { return "True"; }
  static bool read(nb::handle value, const OptionInfo&, bool, compiler::Fusions& to) {
    bool fuses = true;
    if (!nb::try_cast(value, fuses, false)) return false;
    if (!fuses) to = compiler::Fusions::none();
    return true;
  }
};

template <>
struct Form<std::optional<compiler::MachineProfile>> {
  static constexpr const char* kWords = "a text";
  static std::string shown(const std::optional<compiler::MachineProfile>&) { return "None"; }
  static bool read(nb::handle value, const OptionInfo&, bool, std::optional<compiler::MachineProfile>& to) {
    std::string path;
    if (!nb::try_cast(value, path, false)) return false;
    to = compiler::read_machine(FileSystem::local(), path);
    return true;
  }
};

// Options that are keys of a dict.
template <typename Options>
concept Group = requires(Options& options) {
  train::for_each_option(options, [](const OptionInfo&, auto&) {});
};

// Not valid where it is not given.
nb::object value_of(const nb::dict& given, const OptionInfo& info) {
  const nb::str key(info.name.data(), info.name.size());
  return given.contains(key) ? nb::object(given[key]) : nb::object();
}

template <Group Options>
Options options_of(const std::string& group, const nb::dict& given) {
  Options options;
  std::vector<std::string_view> known;
  train::for_each_option(options, [&]<typename T>(const OptionInfo& info, T& member) {
    known.push_back(info.name);
    const nb::object value = value_of(given, info);
    if (!value.is_valid() || Form<T>::read(value, info, true, member)) return;
    std::string wanted = Form<T>::kWords;
    if constexpr (std::is_same_v<T, int> || std::is_same_v<T, int64_t>) {
      wanted += fmt::format(" from {} to {}", info.least, info.most);
    }
    throw InvalidArgument("{}: {} must be {}, got {}", group, info.name, wanted, text_of(value));
  });
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(nb::str(key));
    if (std::ranges::find(known, name) != known.end()) continue;
    throw InvalidArgument("{} has no key \"{}\"; there are: {}", group, name, fmt::join(known, ", "));
  }
  return options;
}

template <Group Options>
struct Form<Options> {
  static constexpr const char* kKind = "dict";
  static std::string shown(const Options&) { return "{}"; }
  static bool read(nb::handle value, const OptionInfo& info, bool, Options& to) {
    nb::dict given;
    if (!nb::try_cast(value, given, false)) return false;
    to = options_of<Options>(std::string(info.name), given);
    return true;
  }
};

// Where servers keep parameters, the others train together. A script that says no mode means that; one that says
// stand_alone means something else.
void refuse_servers_beside_stand_alone(const train::ModelOptions& options) {
  if (!belongs_to_job()) return;
  const int of_job = context().num_servers();
  const int num_servers = of_job > 0 ? of_job : options.servers;
  if (num_servers == 0 || context().size() == 1) return;
  throw InvalidArgument(
      "parallel_mode is stand_alone, where each rank trains by itself, but {} of the job's {} ranks keep{} parameters "
      "for the others ({}): leave it out or say data_parallel, or have no servers",
      num_servers, context().size(), num_servers == 1 ? "s" : "",
      of_job > 0 ? "tessera run --servers" : fmt::format("servers={}", num_servers));
}

[[noreturn]] void throw_type_error(const nb::object& text) {
  throw nb::type_error(nb::cast<std::string>(text).c_str());
}

nb::object keywords_module() { return nb::module_::import_("tessera._keywords"); }

}  // namespace

train::ModelOptions model_options(const nb::dict& given) {
  train::ModelOptions options{.seed = global_seed(), .are_of_python = true};
  std::vector<std::string> known = {"network", "loss", "optimizer", "metrics", "sliced_parameters", "states"};
  bool says_mode = false;
  train::for_each_option(options, [&]<typename T>(const OptionInfo& info, T& member) {
    known.emplace_back(info.name);
    const nb::object value = value_of(given, info);
    if (!value.is_valid()) return;
    if (Form<T>::read(value, info, false, member)) {
      if constexpr (std::is_same_v<T, train::ParallelMode>) says_mode = true;
      return;
    }
    if constexpr (std::is_same_v<T, int> || std::is_same_v<T, int64_t>) {
      // The type may be right, and the number out of range.
      if (!is_bool(value) && PyIndex_Check(value.ptr())) {
        const int64_t least = std::max<int64_t>(info.least, std::numeric_limits<T>::min());
        const int64_t most = std::min<int64_t>(info.most, std::numeric_limits<T>::max());
        throw InvalidArgument("Model(): {} must be from {} to {}, got {}", info.name, least, most, text_of(value));
      }
    }
    if constexpr (std::is_same_v<T, train::ServerStaleness>) {
      // The type may be right, and the word or the number no such one.
      const auto shown = nb::cast<std::string>(nb::repr(value));
      throw InvalidArgument("Model(): {} must be {}, got {}", info.name, Form<T>::kWords, shown);
    }
    throw_type_error(keywords_module().attr("misfit")("Model()", known.back(), Form<T>::kKind, value));
  });
  std::ranges::sort(known);
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    if (std::ranges::find(known, name) != known.end()) continue;
    throw_type_error(keywords_module().attr("unexpected")("Model()", name, known));
  }
  if (says_mode && options.parallel_mode == train::ParallelMode::kStandAlone) {
    refuse_servers_beside_stand_alone(options);
  }
  return options;
}

train::AutomaticPlanOptions search_options(const nb::dict& given) {
  return options_of<train::AutomaticPlanOptions>("search", given);
}

std::string option_signature() {
  std::vector<std::string> parts;
  train::ModelOptions defaults;
  train::for_each_option(defaults, [&]<typename T>(const OptionInfo& info, T& member) {
    const bool is_size = info.is_bytes;
    parts.push_back(fmt::format("{}: {} = {}", info.name, is_size ? "int | str | None" : Form<T>::kKind,
                                is_size ? "None" : Form<T>::shown(member)));
  });
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string option_help() {
  std::string text;
  train::ModelOptions defaults;
  train::for_each_option(defaults, [&]<typename T>(const OptionInfo& info, T& member) {
    text += fmt::format("{}: {}\n", info.name, info.doc);
    if constexpr (Group<T>) {
      train::for_each_option(member, [&]<typename Part>(const OptionInfo& key, Part& part) {
        text += fmt::format("    \"{}\" ({}): {}\n", key.name, Form<Part>::shown(part), key.doc);
      });
    }
  });
  return text;
}

nb::dict options_as_dict() {
  nb::dict all;
  train::ModelOptions defaults;
  train::for_each_option(defaults, [&](const OptionInfo& info, auto&) {
    nb::list modes;
    for (size_t i = 0; i < train::kNumParallelModes && info.uses; ++i) {
      const auto mode = static_cast<train::ParallelMode>(i);
      if (info.uses->in(mode) == train::OptionUse::kRead) modes.append(name_of(mode));
    }
    nb::dict said;
    said["doc"] = std::string(info.doc);
    said["modes"] = modes;
    all[nb::str(info.name.data(), info.name.size())] = said;
  });
  return all;
}

}  // namespace tessera::python
