#include "tessera/tools/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/engine.h"
#include "tessera/tessera.h"
#include "tessera/tools/page/page.h"

namespace tessera::tools {
namespace {

// Units of the drawing, which is as wide as its figure.
constexpr double kWidth = 740;
constexpr double kHeight = 240;
constexpr double kLeft = 78;
constexpr double kRight = kWidth - 12;
constexpr double kTop = 24;
constexpr double kBottom = kHeight - 34;
// From so many times the least value on, the greatest leaves no room to see small ones.
constexpr double kLogarithmicFrom = 1000;
constexpr int kMostTicks = 12;

// The smallest of 1, 2 and 5 times a power of ten that goes at most `most` times into the whole.
double tick_width(double whole, int most) {
  const double least = whole / most;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= least) return times * power;
  }
  return 10 * power;
}

// From where to where an axis goes.
struct AxisRange {
  double low = 0;
  double high = 1;
  bool is_logarithmic = false;

  double share_of(double value) const {
    if (is_logarithmic) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
    // Halves, as the range of two large numbers may be none.
    return (value / 2 - low / 2) / (high / 2 - low / 2);
  }

  std::vector<double> ticks() const {
    std::vector<double> found;
    if (is_logarithmic) {
      const double first = std::ceil(std::log10(low));
      const double last = std::floor(std::log10(high));
      const double stride = std::max(1.0, std::ceil((last - first) / 6));
      for (double power = first; power <= last; power += stride) found.push_back(std::pow(10, power));
      return found;
    }
    const double width = tick_width(high / 2 - low / 2, 6) * 2;
    if (!(width > 0) || !std::isfinite(width)) return {low, high};
    const double begin = std::floor(low / width);
    for (int i = 0; i <= kMostTicks; ++i) {
      const double value = (begin + i) * width;
      if (value >= low && value <= high && (found.empty() || value > found.back())) found.push_back(value);
    }
    return found;
  }
};

AxisRange range_of(double low, double high, bool may_be_logarithmic) {
  constexpr double most = std::numeric_limits<double>::max();
  // One value, or several so little apart that their halves are the same.
  if (!(high / 2 - low / 2 > 0)) {
    const double margin = low == 0 ? 1 : std::max(std::abs(low) / 20, std::numeric_limits<double>::min());
    return {std::max(low - margin, -most), std::min(high + margin, most)};
  }
  if (may_be_logarithmic && low > 0 && high / low >= kLogarithmicFrom) return {low, high, true};
  const double margin = (high / 2 - low / 2) / 12;
  return {std::max(low - margin, -most), std::min(high + margin, most)};
}

std::string axis_text(double value, const std::string& unit) {
  if (unit == "bytes" && value >= 0 && value < 0x1p62) return format_bytes(static_cast<int64_t>(value));
  if (unit == "seconds") return format_seconds(value);
  return fmt::format("{:.5g}", value == 0 ? 0 : value);
}

class ChartDrawing {
 public:
  explicit ChartDrawing(const Chart& chart) : chart_(chart) {
    double left = std::numeric_limits<double>::infinity();
    double right = -left;
    double low = left;
    double high = right;
    for (const auto& line : chart.lines) {
      for (const auto& point : line.points) {
        if (!std::isfinite(point.value)) continue;
        left = std::min(left, static_cast<double>(point.step));
        right = std::max(right, static_cast<double>(point.step));
        low = std::min(low, point.value);
        high = std::max(high, point.value);
      }
    }
    is_empty_ = left > right;
    if (is_empty_) return;
    steps_ = left == right ? range_of(left, right, false) : AxisRange{left, right};
    values_ = range_of(low, high, chart.may_be_logarithmic);
  }

  std::string run() {
    const std::string title = escaped_html(chart_.title);
    if (is_empty_) {
      return fmt::format(
          "<figure><figcaption><b>{}</b></figcaption>\n<p>No record has a finite value of it.</p></figure>\n", title);
    }
    std::string text = fmt::format(
        "<figure tabindex=\"0\" aria-label=\"{0}, a curve over the {3}s; arrow keys say its values\">"
        "<figcaption><b>{0}</b>{1}{2} <output></output></figcaption>\n",
        title, legend(), values_.is_logarithmic ? " (logarithmic)" : "", escaped_html(chart_.axis));
    text += fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n", kWidth, kHeight, title);
    draw_axes(text);
    for (const auto& line : chart_.lines) draw_line(text, line);
    for (const int64_t step : chart_.bad_steps) {
      const double at = std::clamp(x(static_cast<double>(step)), kLeft, kRight);
      text += fmt::format(
          "<path class=\"bad\" d=\"M{0:.1f} {1:.0f}V{2:.0f}\"><title>not finite at step {3}</title></path>\n", at, kTop,
          kTop + 10, step);
    }
    return text + "</svg>\n<script type=\"application/json\">" + json_in_page(data()) + "</script></figure>\n";
  }

 private:
  double x(double step) const { return kLeft + (kRight - kLeft) * steps_.share_of(step); }
  double y(double value) const { return kBottom - (kBottom - kTop) * values_.share_of(value); }

  std::string legend() const {
    if (chart_.lines.size() == 1 && chart_.lines[0].name == chart_.title) return "";
    std::string text;
    for (const auto& line : chart_.lines) {
      text += fmt::format("<span class=\"key {}\"></span>{}", line.style, escaped_html(line.name));
    }
    return text;
  }

  void draw_axes(std::string& text) const {
    for (const double value : values_.ticks()) {
      text += fmt::format(
          "<path class=\"grid\" d=\"M{0:.0f} {1:.1f}H{2:.0f}\"/><text x=\"{3:.0f}\" y=\"{4:.1f}\" "
          "text-anchor=\"end\">{5}</text>\n",
          kLeft, y(value), kRight, kLeft - 6, y(value) + 4, axis_text(value, chart_.unit));
    }
    for (const double step : steps_.ticks()) {
      if (step != std::floor(step)) continue;
      const double at = x(step);
      const char* const anchor = at > kRight - 30 ? "end" : at < kLeft + 10 ? "start" : "middle";
      text += fmt::format(
          "<path class=\"grid\" d=\"M{0:.1f} {1:.0f}V{2:.0f}\"/><text x=\"{0:.1f}\" y=\"{3:.0f}\" "
          "text-anchor=\"{4}\">{5:.0f}</text>\n",
          at, kTop, kBottom, kBottom + 14, anchor, step);
    }
    text += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n", kRight, kHeight - 6,
                        escaped_html(chart_.axis));
    if (!chart_.unit.empty()) text += fmt::format("<text x=\"4\" y=\"14\">{}</text>\n", escaped_html(chart_.unit));
  }

  void draw_line(std::string& text, const ChartLine& line) const {
    std::string path;
    int64_t num_joined = 0;
    const auto end_stroke = [&] {
      if (num_joined == 1) path += "h0.1";  // a point by itself, which a round end makes a dot
      num_joined = 0;
    };
    for (const auto& point : line.points) {
      if (!std::isfinite(point.value)) {
        end_stroke();
        continue;
      }
      path += fmt::format("{}{:.1f} {:.1f}", num_joined == 0 ? "M" : "L", x(static_cast<double>(point.step)),
                          y(point.value));
      ++num_joined;
    }
    end_stroke();
    text += fmt::format("<path class=\"line {}\" d=\"{}\"/>\n", line.style, path);
  }

  // Where the drawing has what, and the points that it is of.
  std::string data() const {
    nlohmann::ordered_json lines = nlohmann::ordered_json::array();
    for (const auto& line : chart_.lines) {
      nlohmann::ordered_json points = nlohmann::ordered_json::array();
      for (const auto& point : line.points) {
        if (!std::isfinite(point.value)) continue;
        nlohmann::ordered_json pair = nlohmann::ordered_json::array();
        pair.push_back(point.step);
        pair.push_back(point.value);
        points.push_back(std::move(pair));
      }
      lines.push_back({{"name", line.name}, {"points", points}});
    }
    const nlohmann::ordered_json json = {{"left", kLeft},       {"right", kRight},     {"top", kTop},
                                         {"bottom", kBottom},   {"low", steps_.low},   {"high", steps_.high},
                                         {"unit", chart_.unit}, {"axis", chart_.axis}, {"lines", lines}};
    return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }

  const Chart& chart_;
  bool is_empty_ = false;
  AxisRange steps_;
  AxisRange values_;
};

}  // namespace

std::vector<CurvePoint> extremes_of(const Curve& curve) {
  std::vector<CurvePoint> points;
  for (const auto& bucket : curve.buckets()) {
    if (bucket.num_finite == 0) {
      points.push_back(bucket.last);
      continue;
    }
    const bool falls = bucket.greatest.step < bucket.least.step;
    points.push_back(falls ? bucket.greatest : bucket.least);
    if (bucket.greatest.step != bucket.least.step) points.push_back(falls ? bucket.least : bucket.greatest);
  }
  return points;
}

std::vector<int64_t> bad_steps_of(const Curve& curve) {
  std::vector<int64_t> steps;
  for (const auto& bucket : curve.buckets()) {
    if (bucket.first_non_finite) steps.push_back(*bucket.first_non_finite);
  }
  return steps;
}

std::string bars_figure(const std::string& title, const std::vector<TimeBar>& bars) {
  constexpr double bars_left = 150;
  constexpr double bars_right = kWidth - 190;  // texts stand behind
  constexpr double stride = 20;
  double most = 0;
  bool has_limits = false;
  for (const TimeBar& bar : bars) {
    most = std::max({most, bar.seconds, bar.limit_seconds.value_or(0)});
    has_limits = has_limits || bar.limit_seconds;
  }
  const AxisRange range{0, most > 0 ? most : 1};
  const auto x = [&](double seconds) { return bars_left + (bars_right - bars_left) * range.share_of(seconds); };
  const double bottom = kTop + stride * static_cast<double>(bars.size());
  std::string text =
      fmt::format("<figure><figcaption><b>{}</b><span class=\"key pale\"></span>measured{}</figcaption>\n",
                  escaped_html(title), has_limits ? "<span class=\"key first\"></span>at its limit" : "");
  text += fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n", kWidth, bottom + 34,
                      escaped_html(title));
  for (const double seconds : range.ticks()) {
    text += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1:.0f}V{2:.0f}\"/><text x=\"{0:.1f}\" y=\"{3:.0f}\" "
        "text-anchor=\"middle\">{4}</text>\n",
        x(seconds), kTop, bottom, bottom + 14, axis_text(seconds, "seconds"));
  }
  for (size_t i = 0; i < bars.size(); ++i) {
    const TimeBar& bar = bars[i];
    const double top = kTop + stride * static_cast<double>(i);
    text += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n", bars_left - 6, top + 14,
                        escaped_html(bar.name));
    text += fmt::format("<rect class=\"pale\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"14\"/>\n", bars_left,
                        top + 3, x(bar.seconds) - bars_left);
    if (bar.limit_seconds) {
      text += fmt::format("<rect class=\"first\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"6\"/>\n",
                          bars_left, top + 7, x(*bar.limit_seconds) - bars_left);
    }
    const double behind = x(std::max(bar.seconds, bar.limit_seconds.value_or(0))) + 6;
    text += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\">{}</text>\n", behind, top + 14, escaped_html(bar.text));
  }
  return text + "</svg></figure>\n";
}

std::string chart_figure(const Chart& chart) { return ChartDrawing(chart).run(); }

}  // namespace tessera::tools
