#include "tessera/tools/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
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
// Letters grow in it where the figure is narrow: there is room for lines of 22.
constexpr double kHeight = 264;
constexpr double kLeft = 92;
constexpr double kRight = kWidth - 12;
constexpr double kTop = 36;
constexpr double kBottom = kHeight - 50;
constexpr double kTextBelow = 18;  // from a line to the text below it
// From so many times the least value on, the greatest leaves no room to see small ones.
constexpr double kLogarithmicFrom = 1000;
constexpr int kMostTicks = 12;
// So many intervals between ticks an axis has at most; fewer where it is one of steps, whose numbers stand beside each
// other and may have many digits.
constexpr int kTickIntervals = 6;
constexpr int kStepIntervals = 5;

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

  // The multiples of a width in it, in order.
  std::vector<double> multiples_of(double width) const {
    std::vector<double> found;
    if (!(width > 0) || !std::isfinite(width)) return found;
    const double begin = std::floor(low / width);
    for (int i = 0; i <= kMostTicks; ++i) {
      const double value = (begin + i) * width;
      if (value >= low && value <= high && (found.empty() || value > found.back())) found.push_back(value);
    }
    return found;
  }
};

// The ticks of an axis: where they are, what is written at them, and the unit that all of these have.
struct AxisTicks {
  std::vector<double> values;
  std::vector<std::string> texts;
  std::string unit;
};

// 3 of 0.005: so many decimals tell multiples of the width apart.
int decimals_of(double width) { return std::max(0, static_cast<int>(-std::floor(std::log10(width) + 1e-9))); }

std::string fixed_text(double value, int decimals) { return fmt::format("{:.{}f}", value == 0 ? 0 : value, decimals); }

// "10⁻³"
std::string power_text(int exponent) {
  constexpr const char* digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = exponent < 0 ? "10⁻" : "10";
  for (const char digit : std::to_string(std::abs(exponent))) text += digits[digit - '0'];
  return text;
}

// All numbers without a power of ten, or all with the same, which is said with the unit.
AxisTicks decimal_ticks(const AxisRange& range, const std::string& unit) {
  constexpr size_t most_characters = 7;
  constexpr int least_power = -300;
  const double width = tick_width(range.high / 2 - range.low / 2, kTickIntervals) * 2;
  AxisTicks ticks{.values = range.multiples_of(width), .texts = {}, .unit = unit};
  if (ticks.values.empty()) return ticks;
  const double most = std::max(std::abs(ticks.values.front()), std::abs(ticks.values.back()));
  int power = 0;
  if (most >= 1e6 || (most > 0 && most < 1e-3)) {
    power = std::max(static_cast<int>(std::floor(std::log10(most) / 3)) * 3, least_power);
  }
  const auto write = [&](double from) {
    const double scale = std::pow(10, power);
    ticks.texts.clear();
    for (const double value : ticks.values) {
      ticks.texts.push_back(fixed_text((value - from) / scale, decimals_of(width / scale)));
    }
    if (power != 0) ticks.unit = fmt::format("×{}{}{}", power_text(power), unit.empty() ? "" : " ", unit);
  };
  write(0);
  if (std::ranges::max(ticks.texts, {}, &std::string::size).size() <= most_characters) return ticks;
  // They differ in their last digits alone: what they have in common is said once.
  const double from = ticks.values.front();
  power = std::max(static_cast<int>(std::floor(std::log10(width) + 1e-9)), least_power);
  if (power >= -2 && power <= 2) power = 0;
  ticks.unit = unit;
  write(from);
  const std::string base = std::abs(from) < 1e17 ? fixed_text(from, decimals_of(width)) : fmt::format("{:.17g}", from);
  ticks.unit = fmt::format("{} + …{}{}", base, ticks.unit.empty() ? "" : " ", ticks.unit);
  return ticks;
}

// At powers of two, in the largest unit of which they are an eighth or more.
AxisTicks byte_ticks(const AxisRange& range) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  const double width = std::max(1.0, std::exp2(std::ceil(std::log2((range.high - range.low) / kTickIntervals))));
  double scale = 1;
  size_t unit = 0;
  while (unit + 1 < std::size(units) && 8 * width >= 1024 * scale) {
    scale *= 1024;
    ++unit;
  }
  AxisTicks ticks{.values = range.multiples_of(width), .texts = {}, .unit = units[unit]};
  // An eighth has three decimals, a half has one.
  const int decimals = width >= scale ? 0 : static_cast<int>(std::log2(scale / width));
  for (const double value : ticks.values) ticks.texts.push_back(fixed_text(value / scale, decimals));
  return ticks;
}

AxisTicks second_ticks(const AxisRange& range) {
  AxisTicks ticks;
  const double width = tick_width(range.high - range.low, kTickIntervals);
  const auto [scale, unit] = width >= 0.1    ? std::pair(1.0, "s")
                             : width >= 1e-4 ? std::pair(1e-3, "ms")
                             : width >= 1e-7 ? std::pair(1e-6, "us")
                                             : std::pair(1e-9, "ns");
  ticks.values = range.multiples_of(width);
  ticks.unit = unit;
  for (const double value : ticks.values) ticks.texts.push_back(fixed_text(value / scale, decimals_of(width / scale)));
  return ticks;
}

// At powers of ten.
AxisTicks logarithmic_ticks(const AxisRange& range, const std::string& unit) {
  AxisTicks ticks{.values = {}, .texts = {}, .unit = unit};
  const int first = static_cast<int>(std::ceil(std::log10(range.low)));
  const int last = static_cast<int>(std::floor(std::log10(range.high)));
  const bool is_plain = first >= -4 && last <= 5;
  const int stride = std::max(1, (last - first + kTickIntervals - 1) / kTickIntervals);
  for (int power = first; power <= last; power += stride) {
    ticks.values.push_back(std::pow(10, power));
    ticks.texts.push_back(is_plain ? fixed_text(ticks.values.back(), std::max(0, -power)) : power_text(power));
  }
  return ticks;
}

AxisTicks ticks_of(const AxisRange& range, const std::string& unit) {
  if (range.is_logarithmic) return logarithmic_ticks(range, unit);
  // Numbers that a log has in place of bytes are shown as numbers.
  if (unit == "bytes" && range.low >= 0 && range.high < 0x1p62) return byte_ticks(range);
  return decimal_ticks(range, unit);
}

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
    if (chart.unit == "bytes" && low >= 0) values_.low = std::max(values_.low, 0.0);  // none is below
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
    const AxisTicks ticks = ticks_of(values_, chart_.unit);
    for (size_t i = 0; i < ticks.values.size(); ++i) {
      const double at = y(ticks.values[i]);
      text += fmt::format(
          "<path class=\"grid\" d=\"M{0:.0f} {1:.1f}H{2:.0f}\"/><text class=\"tick\" x=\"{3:.0f}\" y=\"{4:.1f}\" "
          "text-anchor=\"end\">{5}</text>\n",
          kLeft, at, kRight, kLeft - 6, at + 4, ticks.texts[i]);
    }
    for (const double step : steps_.multiples_of(tick_width(steps_.high / 2 - steps_.low / 2, kStepIntervals) * 2)) {
      if (step != std::floor(step)) continue;
      const double at = x(step);
      const char* const anchor = at > kRight - 30 ? "end" : at < kLeft + 36 ? "start" : "middle";
      text += fmt::format(
          "<path class=\"grid\" d=\"M{0:.1f} {1:.0f}V{2:.0f}\"/><text x=\"{0:.1f}\" y=\"{3:.0f}\" "
          "text-anchor=\"{4}\">{5:.0f}</text>\n",
          at, kTop, kBottom, kBottom + kTextBelow, anchor, step);
    }
    text += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n", kRight, kHeight - 6,
                        escaped_html(chart_.axis));
    if (ticks.unit.empty()) return;
    text += fmt::format("<text class=\"unit\" x=\"4\" y=\"18\">{}</text>\n", escaped_html(ticks.unit));
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
  constexpr double bars_left = 4;
  constexpr double bars_right = kWidth - 30;  // half a tick's text stands behind
  // What is written of a bar stands above it, so that letters have room in a narrow window, where they are larger.
  constexpr double text_height = 22;
  constexpr double bar_height = 12;
  constexpr double stride = text_height + bar_height + 6;
  constexpr double top_of_all = 4;
  double most = 0;
  bool has_limits = false;
  for (const TimeBar& bar : bars) {
    most = std::max({most, bar.seconds, bar.limit_seconds.value_or(0)});
    has_limits = has_limits || bar.limit_seconds;
  }
  const AxisRange range{0, most > 0 ? most : 1};
  const auto x = [&](double seconds) { return bars_left + (bars_right - bars_left) * range.share_of(seconds); };
  const double bottom = top_of_all + stride * static_cast<double>(bars.size());
  std::string text =
      fmt::format("<figure><figcaption><b>{}</b><span class=\"key pale\"></span>measured{}</figcaption>\n",
                  escaped_html(title), has_limits ? "<span class=\"key second\"></span>at its limit" : "");
  text += fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n", kWidth, bottom + 50,
                      escaped_html(title));
  const AxisTicks ticks = second_ticks(range);
  for (size_t i = 0; i < ticks.values.size(); ++i) {
    text += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1:.0f}V{2:.0f}\"/><text class=\"tick\" x=\"{0:.1f}\" y=\"{3:.0f}\" "
        "text-anchor=\"{4}\">{5}</text>\n",
        x(ticks.values[i]), top_of_all, bottom, bottom + kTextBelow, i == 0 ? "start" : "middle", ticks.texts[i]);
  }
  text += fmt::format("<text class=\"unit\" x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n", bars_right,
                      bottom + 44, ticks.unit);
  for (size_t i = 0; i < bars.size(); ++i) {
    const TimeBar& bar = bars[i];
    const double top = top_of_all + stride * static_cast<double>(i);
    text += fmt::format(
        "<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text><text x=\"{:.0f}\" y=\"{:.0f}\" "
        "text-anchor=\"end\">{}</text>\n",
        bars_left, top + text_height - 5, escaped_html(bar.name), bars_right, top + text_height - 5,
        escaped_html(bar.text));
    text += fmt::format("<rect class=\"pale\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{:.0f}\"/>\n",
                        bars_left, top + text_height, x(bar.seconds) - bars_left, bar_height);
    if (bar.limit_seconds) {
      text += fmt::format("<rect class=\"second\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"4\"/>\n",
                          bars_left, top + text_height + 4, x(*bar.limit_seconds) - bars_left);
    }
  }
  return text + "</svg></figure>\n";
}

std::string chart_figure(const Chart& chart) { return ChartDrawing(chart).run(); }

}  // namespace tessera::tools
