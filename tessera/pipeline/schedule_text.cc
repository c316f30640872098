#include "tessera/pipeline/schedule_text.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::pipeline {
namespace {

constexpr std::string_view kTitle = "pipeline_schedule ";
constexpr std::string_view kStages = " stages";
constexpr std::string_view kStage = "stage ";
constexpr std::string_view kTransfers = "transfers";
// A text names each of its stages, so a larger number is none of ours.
constexpr int64_t kMostStages = 1 << 20;

class Parser {
 public:
  PipelineSchedule run(std::string_view text) {
    enum class Part { kTitle, kStages, kTransfers } part = Part::kTitle;
    int64_t stages = 0;
    PipelineSchedule schedule;
    if (text.ends_with('\n')) text.remove_suffix(1);
    for (const auto line : split(text, '\n')) {
      ++line_;
      if (part == Part::kTitle) {
        stages = number_of_stages(line);
        part = Part::kStages;
      } else if (line == kTransfers) {
        if (part == Part::kTransfers) fail("transfers stand in one place");
        part = Part::kTransfers;
      } else if (line.starts_with(kStage) && part == Part::kStages) {
        if (number(line.substr(kStage.size())) != static_cast<int64_t>(schedule.stages.size())) {
          fail(fmt::format("expected stage {}", schedule.stages.size()));
        }
        schedule.stages.emplace_back();
      } else {
        const auto timed = timed_phase(line);
        if (part == Part::kTransfers) {
          schedule.transfers.push_back({timed.phase, timed.start_ns, timed.end_ns});
        } else if (schedule.stages.empty()) {
          fail("expected stage 0");
        } else {
          schedule.stages.back().push_back(timed);
        }
      }
    }
    if (part != Part::kTransfers) fail("the transfers are missing at the end");
    if (stages != static_cast<int64_t>(schedule.stages.size())) {
      fail(fmt::format("{} stages are announced, {} are there", stages, schedule.stages.size()));
    }
    return schedule;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InvalidArgument("pipeline schedule, line {}: {}", line_, what);
  }

  int64_t number_of_stages(std::string_view line) const {
    if (!line.starts_with(kTitle) || !line.ends_with(kStages) || line.size() <= kTitle.size() + kStages.size()) {
      fail(fmt::format("expected \"{}N{}\"", kTitle, kStages));
    }
    const auto count = number(line.substr(kTitle.size(), line.size() - kTitle.size() - kStages.size()));
    if (count < 1 || count > kMostStages) fail(fmt::format("a schedule has 1 to {} stages", kMostStages));
    return count;
  }

  int64_t number(std::string_view text) const {
    return parse_int(text, fmt::format("pipeline schedule, line {}", line_));
  }

  // "c3": 3.
  int index(std::string_view word, char letter) const {
    if (word.size() < 2 || word[0] != letter) fail(fmt::format("expected {} and a number, found \"{}\"", letter, word));
    const auto value = number(word.substr(1));
    if (value < 0 || value > std::numeric_limits<int>::max()) fail(fmt::format("\"{}\" is out of range", word));
    return static_cast<int>(value);
  }

  TimedPhase timed_phase(std::string_view line) const {
    if (!line.starts_with("  ")) fail(fmt::format("expected \"  START..END PHASE\", found \"{}\"", line));
    const auto words = split(line.substr(2), ' ');
    const auto dots = words[0].find("..");
    if (dots == std::string_view::npos || words.size() < 2) {
      fail(fmt::format("expected \"  START..END PHASE\", found \"{}\"", line));
    }
    TimedPhase timed{
        .phase = {}, .start_ns = number(words[0].substr(0, dots)), .end_ns = number(words[0].substr(dots + 2))};
    for (const auto kind :
         {PhaseKind::kForward, PhaseKind::kBackward, PhaseKind::kWeightGradient, PhaseKind::kUpdate}) {
      if (words[1] != to_string(kind)) continue;
      const bool is_update = kind == PhaseKind::kUpdate;
      if (words.size() != (is_update ? 2 : 4))
        fail(fmt::format("{} needs {}", words[1], is_update ? "nothing" : "c and m"));
      timed.phase = {kind, is_update ? -1 : index(words[2], 'c'), is_update ? -1 : index(words[3], 'm')};
      return timed;
    }
    fail(fmt::format("no phase is called \"{}\"; there are forward, backward, weight_gradient and update", words[1]));
  }

  int line_ = 0;
};

char letter_of(PhaseKind kind) { return "FBWU"[static_cast<int>(kind)]; }

bool has_several_chunks(const PipelineSchedule& schedule) {
  for (const auto& stage : schedule.stages) {
    std::set<int> chunks;
    for (const auto& timed : stage) {
      if (timed.phase.kind != PhaseKind::kUpdate) chunks.insert(timed.phase.chunk);
    }
    if (chunks.size() > 1) return true;
  }
  return false;
}

std::string label_of(const Phase& phase, bool with_chunk) {
  if (phase.kind == PhaseKind::kUpdate) return "U";
  return with_chunk ? fmt::format("{}{}.{}", letter_of(phase.kind), phase.chunk, phase.micro_batch)
                    : fmt::format("{}{}", letter_of(phase.kind), phase.micro_batch);
}

std::string printable_kind(PhaseKind kind) {
  return kind == PhaseKind::kWeightGradient ? "weight gradient" : std::string(to_string(kind));
}

// What a picture is made of.
struct Layout {
  Layout(const PipelineSchedule& schedule, const PictureOptions& options)
      : with_chunk(has_several_chunks(schedule)), digits(std::to_string(schedule.stages.size() - 1).size()) {
    int64_t common_ns = options.column_ns;
    for (const auto& stage : schedule.stages) {
      for (const auto& timed : stage) {
        width = std::max(width, label_of(timed.phase, with_chunk).size());
        if (options.column_ns <= 0) common_ns = std::gcd(common_ns, std::gcd(timed.start_ns, timed.end_ns));
      }
    }
    // "stage 0 |", and each column with a space or bar behind it.
    int64_t most = std::max(options.max_columns, 1);
    if (options.max_width > 0) {
      const auto room = options.max_width - static_cast<int64_t>(digits + 8);
      most = std::clamp<int64_t>(room / static_cast<int64_t>(width + 1), 1, most);
    }
    const int64_t makespan = schedule.makespan_ns();
    column_ns = std::max({common_ns, (makespan + most - 1) / most, int64_t{1}});
    num_columns = static_cast<size_t>((makespan + column_ns - 1) / column_ns);
  }
  size_t column_of(const TimedPhase& timed) const { return static_cast<size_t>(timed.start_ns / column_ns); }

  bool with_chunk;
  size_t digits;     // of the largest stage
  size_t width = 2;  // of a cell
  int64_t column_ns = 1;
  size_t num_columns = 0;
};

}  // namespace

std::string to_string(const Phase& phase) {
  if (phase.kind == PhaseKind::kUpdate) return "update";
  return fmt::format("{} c{} m{}", to_string(phase.kind), phase.chunk, phase.micro_batch);
}

std::string print(const PipelineSchedule& schedule) {
  std::string text = fmt::format("{}{}{}\n", kTitle, schedule.stages.size(), kStages);
  for (size_t s = 0; s < schedule.stages.size(); ++s) {
    text += fmt::format("{}{}\n", kStage, s);
    for (const auto& timed : schedule.stages[s]) {
      text += fmt::format("  {}..{} {}\n", timed.start_ns, timed.end_ns, to_string(timed.phase));
    }
  }
  text += fmt::format("{}\n", kTransfers);
  for (const auto& transfer : schedule.transfers) {
    text += fmt::format("  {}..{} {}\n", transfer.start_ns, transfer.arrival_ns, to_string(transfer.sender));
  }
  return text;
}

PipelineSchedule parse_pipeline_schedule(std::string_view text) { return Parser().run(text); }

std::string picture(const PipelineSchedule& schedule, const PictureOptions& options) {
  const Layout layout(schedule, options);
  std::string text;
  for (size_t s = 0; s < schedule.stages.size(); ++s) {
    std::vector<std::string> cells(layout.num_columns, std::string(layout.width, '.'));
    // From the last to the first: where several phases begin in a column, the first one's label stays.
    for (auto timed = schedule.stages[s].rbegin(); timed != schedule.stages[s].rend(); ++timed) {
      if (timed->start_ns == timed->end_ns) continue;
      const auto begin = layout.column_of(*timed);
      const auto end = static_cast<size_t>((timed->end_ns + layout.column_ns - 1) / layout.column_ns);
      for (size_t i = begin + 1; i < end; ++i) {
        if (cells[i][0] == '.') cells[i] = std::string(layout.width, '-');
      }
      const auto label = label_of(timed->phase, layout.with_chunk);
      cells[begin] = label + std::string(layout.width - label.size(), end - begin > 1 ? '-' : ' ');
    }
    text += fmt::format("stage {:>{}} |{}|\n", s, layout.digits, fmt::join(cells, " "));
  }
  return text;
}

std::string legend(const PipelineSchedule& schedule, const PictureOptions& options) {
  const Layout layout(schedule, options);
  std::set<PhaseKind> kinds;
  int64_t num_hidden = 0;
  for (const auto& stage : schedule.stages) {
    std::set<size_t> taken;
    for (const auto& timed : stage) {
      kinds.insert(timed.phase.kind);
      if (timed.start_ns == timed.end_ns || !taken.insert(layout.column_of(timed)).second) ++num_hidden;
    }
  }
  std::string text;
  for (const auto kind : kinds) text += fmt::format("{} {}, ", letter_of(kind), printable_kind(kind));
  text +=
      fmt::format("{}; {} goes on, {} idle; a column is {}",
                  layout.with_chunk ? "chunk and micro-batch" : "and the micro-batch", std::string(layout.width, '-'),
                  std::string(layout.width, '.'), format_seconds(1e-9 * static_cast<double>(layout.column_ns)));
  if (num_hidden > 0) {
    text +=
        fmt::format("; {} shorter than a column {} not seen",
                    num_hidden == 1 ? "1 phase" : fmt::format("{} phases", num_hidden), num_hidden == 1 ? "is" : "are");
  }
  return text + "\n";
}

}  // namespace tessera::pipeline
