// Chart: a number over the steps as a drawing (SVG) with axes, which also stands in a page without scripts; and the
// points of its lines for the page's script, which says their values. Beside it bars, drawn alike.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/tools/report/curve.h"

namespace tessera::tools {

// A ChartLine is one line of a chart, points in the order of steps; where a value is not finite it has a gap.
struct ChartLine {
  std::string name;
  std::string style;  // "first", "second", "third" or "pale": a colour of all pages
  std::vector<CurvePoint> points;
};

struct Chart {
  std::string title;
  // "rows/s"; "": there is none. The axis says it once, above its numbers, which are all of it: of "bytes" in KiB, MiB,
  // ..., at powers of two, and where numbers are large or small with a power of ten, "×10⁶ rows/s".
  std::string unit;
  std::vector<ChartLine> lines;
  bool may_be_logarithmic = false;  // where all values are above 0 and far apart
  // Steps at which the value was not finite, which are marked.
  std::vector<int64_t> bad_steps = {};
  std::string axis = "step";  // what the points' steps are, in the singular
};

// A bar of a chart of bars: how long something takes, and beside it how long it would take at best.
struct TimeBar {
  std::string name;
  double seconds = 0;
  std::optional<double> limit_seconds;
  std::string text;  // behind the bar
};

// The points of a curve: of each bucket the least and the greatest value, so that no peak is lost.
std::vector<CurvePoint> extremes_of(const Curve& curve);
// The first steps of the buckets that have values that are not finite.
std::vector<int64_t> bad_steps_of(const Curve& curve);

// A <figure> with its caption. In words where no line has a point.
std::string chart_figure(const Chart& chart);

// Draws a <figure> with a bar for each, one below the other, over an axis of seconds. There is one at least.
std::string bars_figure(const std::string& title, const std::vector<TimeBar>& bars);

}  // namespace tessera::tools
