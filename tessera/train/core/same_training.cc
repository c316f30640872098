#include "tessera/train/core/same_training.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/recovery/recovery.h"
#include "tessera/session/agree/gather_texts.h"

namespace tessera::train {
namespace {

constexpr const char* kWho = "comparing the trainings of the ranks";
constexpr char kHasTrained = 't';
constexpr char kIsNew = 'n';

// A line for each, its name and its value.
std::string text_of(const TrainingSettings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) {
    std::string line = value;
    std::ranges::replace_if(
        line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
    text += fmt::format("{}\t{}\n", name, line);
  }
  return text;
}

// Whether what a process has kept of a training is this process's: whoever has come later has nothing.
bool has_trained(cluster::Recovery& recovery) {
  try {
    return !recovery.memory().versions().empty();
  } catch (const IoError&) {
    return false;
  }
}

// The text that most of these are; of several the first.
std::string most_of(const std::vector<std::string>& texts) {
  std::map<std::string, int> counts;
  for (const std::string& text : texts) ++counts[text];
  return *std::ranges::max_element(texts, {}, [&](const std::string& text) { return counts.at(text); });
}

TrainingSettings settings_in(std::string_view text) {
  TrainingSettings settings;
  for (const auto line : split(text, '\n')) {
    const size_t tab = line.find('\t');
    if (tab != std::string_view::npos) settings.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  return settings;
}

// "batch_size: 8 here, 16 in the job; epochs: 2 here, 8 in the job".
std::string difference_of(std::string_view own_text, std::string_view in_job, std::string_view where) {
  const TrainingSettings own = settings_in(own_text);
  std::vector<std::string> found;
  for (const auto& [name, value] : settings_in(in_job)) {
    const auto it = std::ranges::find_if(own, [&](const auto& one) { return one.first == name; });
    const std::string mine = it == own.end() ? "nothing" : it->second;
    if (mine != value) found.push_back(fmt::format("{}: {} {}, {} in the job", name, mine, where, value));
  }
  // Ranks that are at another place of their programs have other settings altogether.
  if (found.empty()) return "the program is at another place than the job's";
  constexpr size_t kMostNamed = 3;  // the first to be compared say most
  const size_t more = found.size() - std::min(found.size(), kMostNamed);
  found.resize(found.size() - more);
  return fmt::format("{}{}", fmt::join(found, "; "), more == 0 ? "" : fmt::format("; and {} more", more));
}

}  // namespace

bool is_compared_with_job(cluster::Context& context) {
  return context.size() > 1 && context.recovery() != nullptr && context.recovery()->is_elastic();
}

void require_same_as_job(cluster::Context& context, const TrainingSettings& own) {
  if (!is_compared_with_job(context)) return;
  cluster::Recovery& recovery = *context.recovery();
  const std::string mine = (has_trained(recovery) ? kHasTrained : kIsNew) + text_of(own);
  const std::vector<std::string> all = session::gather_texts(context.world(), mine, kWho);
  std::vector<std::string> texts, of_trained;
  for (const std::string& told : all) {
    texts.push_back(told.substr(1));
    if (told.front() == kHasTrained) of_trained.push_back(texts.back());
  }
  const std::string of_job = most_of(of_trained.empty() ? texts : of_trained);
  const auto is_other = [&](const std::string& text) { return text != of_job; };
  const auto other = std::ranges::find_if(texts, is_other);
  if (other == texts.end()) return;
  if (is_other(texts[static_cast<size_t>(context.rank())])) {
    recovery.leave_for_good();
    throw cluster::Misfit(
        "train: this rank does not fit its job: {}; it leaves the job, which goes on without it: start it as the job's "
        "ranks were started",
        difference_of(texts[static_cast<size_t>(context.rank())], of_job, "here"));
  }
  const auto count = std::ranges::count_if(texts, is_other);
  const std::string what = difference_of(*other, of_job, "there");
  throw cluster::Resizing(
      count == 1 ? fmt::format("rank {} does not fit the job and leaves it: {}", other - texts.begin(), what)
                 : fmt::format("{} ranks do not fit the job and leave it: {}", count, what));
}

}  // namespace tessera::train
