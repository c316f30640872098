#include "tessera/checkpoint/read/match.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tessera/base/error.h"

namespace tessera::checkpoint {
namespace {

bool is_information(const StoredEntry& entry) {
  if (entry.appended || entry.is_text) return true;
  // Without a manifest nothing says what was appended; these two names are the reference's.
  return entry.shape.ndim() == 0 && (entry.name == "epoch_num" || entry.name == "step_num");
}

bool same_family(DType a, DType b) { return (is_floating(a) && is_floating(b)) || (is_integer(a) && is_integer(b)); }

bool fits(const StoredEntry& entry, const TensorView& value, const MatchOptions& options) {
  if (entry.is_text || entry.shape != value.shape) return false;
  return entry.dtype == value.dtype || (options.convert_dtypes && same_family(entry.dtype, value.dtype));
}

// The prefix that turns every name of `shorter` into one of `longer`, such as "network."; "" when there is none.
std::string common_prefix(const std::vector<std::string>& longer, const std::vector<std::string>& shorter) {
  if (longer.empty() || longer.size() != shorter.size()) return "";
  const auto& name = shorter.front();
  const std::unordered_set<std::string> names(longer.begin(), longer.end());
  for (const auto& candidate : longer) {
    if (candidate.size() <= name.size() || !candidate.ends_with("." + name)) continue;
    auto prefix = candidate.substr(0, candidate.size() - name.size());
    if (std::all_of(shorter.begin(), shorter.end(), [&](const auto& s) { return names.contains(prefix + s); })) {
      return prefix;
    }
  }
  return "";
}

std::string list(std::string_view title, const std::vector<std::string>& items, size_t max_names) {
  if (items.empty()) return "";
  std::string text = fmt::format("\n  {} ({}):", title, items.size());
  for (size_t i = 0; i < std::min(items.size(), max_names); ++i) text += "\n    " + items[i];
  if (items.size() > max_names) text += fmt::format("\n    and {} more", items.size() - max_names);
  return text;
}

}  // namespace

bool Match::fits(const MatchOptions& options) const {
  return differences.empty() && (missing.empty() || options.allow_missing) &&
         (unexpected.empty() || options.allow_unexpected);
}

std::string Match::describe(const MatchOptions& options, size_t max_names) const {
  std::vector<std::string> different;
  for (const auto& d : differences) {
    different.push_back(
        fmt::format("{}: {} in the checkpoint, {} in the network", d.name, d.in_checkpoint, d.in_network));
  }
  const std::vector<std::string> none;
  return list("missing in the checkpoint", options.allow_missing ? none : missing, max_names) +
         list("unexpected in the checkpoint", options.allow_unexpected ? none : unexpected, max_names) +
         list("different", different, max_names) + (hint.empty() ? "" : "\n  " + hint);
}

Match compare(const Checkpoint& checkpoint, std::span<const Destination> network, const MatchOptions& options) {
  return compare(checkpoint.entries(), network, options);
}

Match compare(std::span<const StoredEntry> entries, std::span<const Destination> network, const MatchOptions& options) {
  Match match;
  std::unordered_map<std::string_view, const StoredEntry*> stored;
  for (const auto& entry : entries) stored.emplace(entry.name, &entry);
  std::unordered_set<std::string_view> expected;
  std::vector<std::string> missing_names;
  std::vector<std::string> unexpected_names;
  for (const auto& destination : network) {
    if (!expected.insert(destination.name).second) {
      throw InvalidArgument("the network has two parameters named \"{}\"", destination.name);
    }
    const auto it = stored.find(destination.name);
    const auto* entry = it == stored.end() ? nullptr : it->second;
    const auto type = destination.value.type().to_string();
    if (entry == nullptr) {
      if (destination.value.num_elements() == 0) continue;
      match.missing.push_back(destination.name + " " + type);
      missing_names.push_back(destination.name);
    } else if (!checkpoint::fits(*entry, destination.value, options)) {
      match.differences.push_back({destination.name, entry->type_text(), type});
    }
  }
  for (const auto& entry : entries) {
    if (expected.contains(entry.name) || is_information(entry)) continue;
    match.unexpected.push_back(entry.name + " " + entry.type_text());
    unexpected_names.push_back(entry.name);
  }
  if (const auto prefix = common_prefix(missing_names, unexpected_names); !prefix.empty()) {
    match.hint = fmt::format("the network's names begin with \"{}\", the checkpoint's do not", prefix);
  } else if (const auto other = common_prefix(unexpected_names, missing_names); !other.empty()) {
    match.hint = fmt::format("the checkpoint's names begin with \"{}\", the network's do not", other);
  }
  return match;
}

void require_fit(const std::string& path, const Match& match, const MatchOptions& options) {
  if (match.fits(options)) return;
  throw InvalidArgument("{}: is of another network or optimizer; nothing was loaded{}", path, match.describe(options));
}

Match load_into(const Checkpoint& checkpoint, std::span<const Destination> network, const MatchOptions& options) {
  auto match = compare(checkpoint, network, options);
  require_fit(checkpoint.path(), match, options);
  for (const auto& destination : network) {
    const auto* entry = checkpoint.find(destination.name);
    if (entry != nullptr && destination.value.num_elements() > 0) entry->read_into(destination.value);
  }
  return match;
}

}  // namespace tessera::checkpoint
