#include "tessera/cluster/ranks/slurm_step.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"

namespace tessera::cluster {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
// From here on numbers of steps have a meaning of their own: the batch script's shell, an interactive one, and others.
constexpr int64_t kFirstReservedStep = 0xfffffff0;
constexpr size_t kMaxDigits = 9;
// Of a list: all names with a comma after each.
constexpr size_t kMaxListBytes = kMaxSlurmNameBytes + kMaxSlurmNodes;

// As much of a text as a message takes.
std::string shown(std::string_view text) {
  constexpr size_t kMost = 80;
  return text.size() <= kMost ? printable(text) : printable(text.substr(0, kMost)) + "...";
}

[[noreturn]] void refuse(std::string_view what, std::string_view text, std::string_view why) {
  throw InvalidArgument("{}: \"{}\": {}", what, shown(text), why);
}

void check_length(std::string_view text, std::string_view what) {
  if (text.size() <= kMaxListBytes) return;
  refuse(what, text, fmt::format("it has {} bytes, a list has at most {}", text.size(), kMaxListBytes));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_of_name(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
}

// From `least` on, of at most kMaxDigits digits.
int64_t read_digits(std::string_view digits, int64_t least, std::string_view what, std::string_view text) {
  if (digits.empty() || digits.size() > kMaxDigits || !std::all_of(digits.begin(), digits.end(), is_digit)) {
    refuse(what, text, fmt::format("expected a number of 1 to {} digits, got \"{}\"", kMaxDigits, shown(digits)));
  }
  const int64_t value = parse_int(digits, what);
  if (value < least) refuse(what, text, fmt::format("expected a number from {} on, got {}", least, value));
  return value;
}

// What stands between separators, without those within brackets. An item may be empty.
std::vector<std::string_view> split_outside_brackets(std::string_view text) {
  std::vector<std::string_view> items;
  size_t begin = 0;
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') ++depth;
    if (text[at] == ']') --depth;
    if (text[at] != ',' || depth > 0) continue;
    items.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  items.push_back(text.substr(begin));
  return items;
}

// Numbers as a bracket has them, those below 10^width with leading zeros.
struct Range {
  int64_t first = 0;
  int64_t last = 0;
  size_t width = 0;
};

class NodeListReader {
 public:
  NodeListReader(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  std::vector<std::string> read() {
    if (text_.empty()) refuse(what_, text_, "it names no node");
    check_length(text_, what_);
    for (const std::string_view item : split_outside_brackets(text_)) {
      if (item.empty()) refuse(what_, text_, "a name is empty");
      expand(item, "");
    }
    return std::move(nodes_);
  }

 private:
  // `done`: what stands before the rest of the item.
  void expand(std::string_view rest, const std::string& done) {
    const size_t open = std::min(rest.find('['), rest.size());
    const std::string_view plain = rest.substr(0, open);
    if (const auto other = std::find_if_not(plain.begin(), plain.end(), is_of_name); other != plain.end()) {
      refuse(what_, text_,
             *other == ']'
                 ? "\"]\" has no \"[\""
                 : fmt::format("a node's name has letters, digits, '-', '_' and '.', not \"{}\"", shown({other, 1})));
    }
    const std::string begin = done + std::string(plain);
    if (begin.size() > kMaxNameBytes) {
      refuse(what_, text_, fmt::format("a node's name has at most {} characters", kMaxNameBytes));
    }
    if (open == rest.size()) return add(begin);
    const size_t close = rest.find(']', open);
    if (close == std::string_view::npos) refuse(what_, text_, "\"[\" has no \"]\"");
    const std::string_view after = rest.substr(close + 1);
    for (const std::string_view piece : split(rest.substr(open + 1, close - open - 1), ',')) {
      const Range range = read_range(piece);
      for (int64_t number = range.first; number <= range.last; ++number) {
        std::string digits = std::to_string(number);
        if (digits.size() < range.width) digits.insert(0, range.width - digits.size(), '0');
        expand(after, begin + digits);
      }
    }
  }

  Range read_range(std::string_view piece) const {
    const size_t dash = piece.find('-');
    const std::string_view first = piece.substr(0, dash);
    Range range;
    range.first = range.last = read_digits(first, 0, what_, text_);
    range.width = first.size();
    if (dash != std::string_view::npos) range.last = read_digits(piece.substr(dash + 1), 0, what_, text_);
    if (range.last < range.first) {
      refuse(what_, text_, fmt::format("the range \"{}\" ends before it begins", shown(piece)));
    }
    // Also of one in whose item a later fault would be found at each number.
    if (range.last - range.first >= static_cast<int64_t>(kMaxSlurmNodes)) refuse_size();
    return range;
  }

  void add(const std::string& name) {
    if (name.empty()) refuse(what_, text_, "a name is empty");
    num_bytes_ += name.size();
    if (nodes_.size() == kMaxSlurmNodes || num_bytes_ > kMaxSlurmNameBytes) refuse_size();
    nodes_.push_back(name);
  }

  [[noreturn]] void refuse_size() const {
    refuse(what_, text_,
           fmt::format("it stands for more than {} nodes, or names of more than {} bytes", kMaxSlurmNodes,
                       kMaxSlurmNameBytes));
  }

  static constexpr size_t kMaxNameBytes = 255;

  std::string_view text_;
  std::string_view what_;
  std::vector<std::string> nodes_;
  size_t num_bytes_ = 0;
};

// A number that a message can name by its variable.
int read_variable(const char* name, const std::string& text, int64_t at_least, int64_t at_most) {
  if (text.empty()) throw InvalidArgument("{} is not set, but srun sets it for each task", name);
  const int64_t value = parse_int(text, name);
  if (value < at_least || value > at_most) {
    throw InvalidArgument("{} must be from {} to {}, got {}", name, at_least, at_most, value);
  }
  return static_cast<int>(value);
}

// Whether a step is one of srun's, rather than none, or the shell of sbatch or salloc.
bool is_step_of_srun(const std::string& step_id) {
  if (step_id.empty()) return false;
  const int64_t number = parse_int(step_id, "SLURM_STEP_ID");
  return number >= 0 && number < kFirstReservedStep;
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view text, std::string_view what) {
  return NodeListReader(text, what).read();
}

std::vector<int> expand_task_counts(std::string_view text, std::string_view what) {
  if (text.empty()) refuse(what, text, "it names no node's tasks");
  check_length(text, what);
  std::vector<int> counts;
  for (const std::string_view item : split(text, ',')) {
    const size_t open = item.find('(');
    const auto tasks = static_cast<int>(read_digits(item.substr(0, open), 1, what, text));
    int64_t times = 1;
    if (open != std::string_view::npos) {
      const std::string_view repeat = item.substr(open);
      if (!repeat.starts_with("(x") || !repeat.ends_with(")")) {
        refuse(what, text, fmt::format("expected TASKS or TASKS(xNODES), got \"{}\"", shown(item)));
      }
      times = read_digits(repeat.substr(2, repeat.size() - 3), 1, what, text);
    }
    if (times > static_cast<int64_t>(kMaxSlurmNodes - counts.size())) {
      refuse(what, text, fmt::format("it stands for more than {} nodes", kMaxSlurmNodes));
    }
    counts.insert(counts.end(), static_cast<size_t>(times), tasks);
  }
  return counts;
}

int tasks_of_shell(const SlurmVariables& variables) {
  try {
    if (variables.job_id.empty() || variables.num_tasks.empty() || is_step_of_srun(variables.step_id)) return 0;
    return read_variable("SLURM_NTASKS", variables.num_tasks, 1, kMaxInt);
  } catch (const InvalidArgument&) {
    return 0;
  }
}

std::optional<SlurmStep> parse_slurm_step(const SlurmVariables& variables) {
  if (!is_step_of_srun(variables.step_id) || variables.procid.empty()) return std::nullopt;
  SlurmStep step;
  step.size = read_variable("SLURM_STEP_NUM_TASKS", variables.num_tasks, 1, kMaxInt);
  if (step.size == 1) return std::nullopt;
  step.rank = read_variable("SLURM_PROCID", variables.procid, 0, step.size - 1);
  step.nodes = expand_node_list(variables.node_list, "SLURM_STEP_NODELIST");
  const std::vector<int> counts = expand_task_counts(variables.tasks_per_node, "SLURM_STEP_TASKS_PER_NODE");
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (sum != step.size || counts.size() != step.nodes.size()) {
    throw InvalidArgument(
        "SLURM_STEP_TASKS_PER_NODE={} is {} on {}, but SLURM_STEP_NUM_TASKS is {} and "
        "SLURM_STEP_NODELIST={} "
        "has {}: the ranks of a job are the tasks of one srun; those of several (--het-group, or srun within "
        "srun) "
        "meet at a scheduler, tessera run --join",
        shown(variables.tasks_per_node), plural(sum, "task"), plural(std::ssize(counts), "node"), step.size,
        shown(variables.node_list), plural(std::ssize(step.nodes), "node"));
  }
  step.local_rank =
      read_variable("SLURM_LOCALID", variables.localid, 0, *std::max_element(counts.begin(), counts.end()) - 1);
  step.own_node = variables.own_node;
  step.name =
      fmt::format("{} {}.{} {}", printable(variables.cluster_name), parse_int(variables.job_id, "SLURM_JOB_ID"),
                  parse_int(variables.step_id, "SLURM_STEP_ID"),
                  variables.restart_count.empty() ? 0 : parse_int(variables.restart_count, "SLURM_RESTART_COUNT"));
  return step;
}

}  // namespace tessera::cluster
