#include "tessera/tools/plan/stages_page.h"

#include <algorithm>
#include <cmath>

#include "tessera/tools/page/page.h"
#include "tessera/tools/plan/stages_text.h"

namespace tessera::tools {

namespace {

using pipeline::PhaseKind;
using pipeline::TimedPhase;

// Pixels.
constexpr double kLeft = 90;
constexpr double kWidth = 1240;
constexpr double kPhaseHeight = 26;
constexpr double kMemoryHeight = 44;
constexpr double kStageHeight = kPhaseHeight + kMemoryHeight + 20;
constexpr double kAxisHeight = 24;
// A label needs so many.
constexpr double kLabelWidth = 22;

// Behind the style of all pages.
constexpr const char* kOwnStyle = R"(  svg text { font: 11px system-ui, sans-serif; fill: var(--text); }
  svg text.on { fill: #fff; }
  svg rect:hover { stroke: var(--text); }
)";

const char* color_of(PhaseKind kind) {
  switch (kind) {
    case PhaseKind::kForward: return "#4e79a7";
    case PhaseKind::kBackward: return "#f28e2b";
    case PhaseKind::kWeightGradient: return "#59a14f";
    case PhaseKind::kUpdate: return "#b07aa1";
  }
  return "";
}

std::string name_of(PhaseKind kind) {
  return kind == PhaseKind::kWeightGradient ? "weight gradient" : std::string(to_string(kind));
}

// `segment`: what is said of it, where there are several.
std::string phase_text(const TimedPhase& timed, const std::string& segment) {
  const auto& phase = timed.phase;
  const auto what = phase.kind == PhaseKind::kUpdate
                        ? std::string("update")
                        : fmt::format("{} of micro-batch {}{}", name_of(phase.kind), phase.micro_batch, segment);
  return fmt::format("{}: from {} to {}", what, format_seconds(static_cast<double>(timed.start_ns) * 1e-9),
                     format_seconds(static_cast<double>(timed.end_ns) * 1e-9));
}

// The largest of 1, 2 and 5 times a power of ten that goes at least `least` times into the whole.
double tick_of(double whole, int least) {
  const double widest = whole / least;
  const double power = std::pow(10, std::floor(std::log10(widest)));
  for (const double times : {5.0, 2.0}) {
    if (times * power <= widest) return times * power;
  }
  return power;
}

class Drawing {
 public:
  explicit Drawing(const compiler::PlannedStages& planned) : planned_(planned) {
    makespan_ = static_cast<double>(std::max<int64_t>(planned.simulated.found.makespan_ns, 1));
    for (const auto& stage : planned.simulated.stages) most_ = std::max(most_, stage.memory_bytes());
  }

  std::string run() {
    svg_ = fmt::format("<svg width=\"{:.0f}\" height=\"{:.0f}\">\n", kLeft + kWidth + 40, bottom() + kAxisHeight);
    draw_time();
    for (int stage = 0; stage < planned_.num_stages; ++stage) {
      draw_phases(stage);
      draw_memory(stage);
    }
    return svg_ + "</svg>\n";
  }

 private:
  const std::vector<TimedPhase>& phases(int stage) const {
    return planned_.simulated.found.schedule.stages[static_cast<size_t>(stage)];
  }
  double x(int64_t ns) const { return kLeft + kWidth * static_cast<double>(ns) / makespan_; }
  std::string segment_of(int chunk) const {
    if (chunk < 0 || planned_.num_segments() == 1) return "";
    return fmt::format(" in segment {}", planned_.simulated.chunks[static_cast<size_t>(chunk)].segment);
  }
  static double top(int stage) { return 8 + kStageHeight * stage; }
  double bottom() const { return top(planned_.num_stages); }

  void draw_time() {
    const double tick = tick_of(makespan_, 6);
    for (int i = 0; i * tick <= makespan_; ++i) {
      const double at = kLeft + kWidth * i * tick / makespan_;
      svg_ += fmt::format(
          "<path d=\"M {0:.2f} 0 V {1:.0f}\" stroke=\"var(--edge)\"/>\n<text x=\"{0:.2f}\" y=\"{2:.0f}\" "
          "text-anchor=\"middle\">{3}</text>\n",
          at, bottom(), bottom() + 14, format_seconds(i * tick * 1e-9));
    }
  }

  void draw_phases(int stage) {
    svg_ += fmt::format("<text x=\"4\" y=\"{:.0f}\">stage {}</text>\n", top(stage) + 17, stage);
    for (const auto& timed : phases(stage)) {
      const double width = std::max(x(timed.end_ns) - x(timed.start_ns), 0.5);
      svg_ += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\"><title>stage {}, "
          "{}</title></rect>\n",
          x(timed.start_ns), top(stage), width, kPhaseHeight, color_of(timed.phase.kind), stage,
          phase_text(timed, segment_of(timed.phase.chunk)));
      if (width < kLabelWidth || timed.phase.micro_batch < 0) continue;
      svg_ += fmt::format("<text class=\"on\" x=\"{:.2f}\" y=\"{:.0f}\" pointer-events=\"none\">{}</text>\n",
                          x(timed.start_ns) + 3, top(stage) + 17, timed.phase.micro_batch);
    }
  }

  // What lasts, and the slots of micro-batches that have begun and not ended.
  void draw_memory(int stage) {
    const auto& at = planned_.simulated.stages[static_cast<size_t>(stage)];
    const auto last = planned_.simulated.split_backward() ? PhaseKind::kWeightGradient : PhaseKind::kBackward;
    const double bottom = top(stage) + kPhaseHeight + 6 + kMemoryHeight;
    const auto y = [&](int64_t bytes) {
      return bottom - kMemoryHeight * static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(most_, 1));
    };
    int64_t bytes = at.persistent_bytes + at.arena_bytes;
    std::string path = fmt::format("M {:.2f} {:.2f} L {:.2f} {:.2f}", kLeft, bottom, kLeft, y(bytes));
    for (const auto& timed : phases(stage)) {
      if (timed.phase.kind == PhaseKind::kUpdate) continue;
      const int64_t slot_bytes = planned_.simulated.chunks[static_cast<size_t>(timed.phase.chunk)].slot_bytes;
      if (timed.phase.kind == PhaseKind::kForward) {
        path += fmt::format(" L {:.2f} {:.2f}", x(timed.start_ns), y(bytes));
        bytes += slot_bytes;
        path += fmt::format(" L {:.2f} {:.2f}", x(timed.start_ns), y(bytes));
      }
      if (timed.phase.kind == last) {
        path += fmt::format(" L {:.2f} {:.2f}", x(timed.end_ns), y(bytes));
        bytes -= slot_bytes;
        path += fmt::format(" L {:.2f} {:.2f}", x(timed.end_ns), y(bytes));
      }
    }
    path += fmt::format(" L {:.2f} {:.2f} L {:.2f} {:.2f} Z", kLeft + kWidth, y(bytes), kLeft + kWidth, bottom);
    svg_ += fmt::format(
        "<path d=\"{}\" fill=\"#c3cad4\"><title>stage {}: {} a rank, of which {} last, computing takes "
        "{} and micro-batches {}</title></path>\n",
        path, stage, format_bytes(at.memory_bytes()), format_bytes(at.persistent_bytes), format_bytes(at.arena_bytes),
        format_bytes(at.slots_bytes));
    svg_ += fmt::format("<text x=\"4\" y=\"{:.0f}\">{}</text>\n", bottom - 4, format_bytes(at.memory_bytes()));
  }

  const compiler::PlannedStages& planned_;
  double makespan_ = 1;
  int64_t most_ = 0;
  std::string svg_;
};

}  // namespace

std::string stages_page(const StagesStep& step, const std::string& model) {
  std::string page = page_head("Tessera pipeline", kOwnStyle);
  page += fmt::format("<h1>{}</h1>\n<pre>{}</pre>\n", escaped_html(model), escaped_html(stages_text(step, model)));
  page +=
      "<h2>Stage by time</h2>\n<p>Numbers are those of micro-batches; what is empty is idle. Below each stage is the "
      "memory of one of its ranks.";
  for (const auto kind : {PhaseKind::kForward, PhaseKind::kBackward, PhaseKind::kWeightGradient, PhaseKind::kUpdate}) {
    if (kind == PhaseKind::kWeightGradient && !step.taken->simulated.split_backward()) continue;
    page += fmt::format("<span class=\"key\" style=\"background: {}\"></span>{}", color_of(kind), name_of(kind));
  }
  return page + "</p>\n<div class=\"frame\">\n" + Drawing(*step.taken).run() + "</div>\n</body>\n</html>\n";
}

}  // namespace tessera::tools
