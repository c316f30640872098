#include "tessera/cluster/ranks/training_figures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tessera/base/json/bounded_json.h"

namespace tessera::cluster {
namespace {

constexpr size_t kMaxPath = 512;
constexpr size_t kMaxWords = 160;
constexpr size_t kMaxWord = 32;
constexpr JsonKind kFiguresJson{.name = "set of figures", .max_levels = 1, .max_bytes = kMaxFiguresBytes};

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == '\x7f'; }

// The members of figures by name, in the order of the text, for a printer and for a reader.
template <typename Visit, typename Figures>
void visit_figures(Visit& visit, Figures& figures) {
  visit.count("epoch", figures.epoch);
  visit.count("epochs", figures.num_epochs);
  visit.count("step", figures.step);
  visit.count("steps_per_epoch", figures.steps_per_epoch);
  visit.number("loss", figures.loss);
  visit.number("learning_rate", figures.learning_rate);
  visit.number("rows_per_second", figures.rows_per_second);
  visit.count("resident_bytes", figures.resident_bytes);
  visit.count("arena_bytes", figures.arena_bytes);
  visit.text("mode", figures.mode, kMaxWord);
  visit.text("plan", figures.plan, kMaxWords);
  visit.text("checkpoint", figures.checkpoint, kMaxPath);
  visit.count("checkpoint_step", figures.checkpoint_step);
  visit.text("ended", figures.ended, kMaxWord);
  visit.text("doing", figures.doing, kMaxWords);
  visit.rank("waits_for", figures.waits_for);
  visit.text("waits_in", figures.waits_in, kMaxWords);
  visit.rank("slow_rank", figures.slow_rank);
  visit.percent("slow_percent", figures.slow_percent);
}

// What has its default value is left out.
class FiguresPrinter {
 public:
  void count(const char* name, int64_t value) {
    if (value > 0) json_[name] = value;
  }
  void rank(const char* name, int value) {
    if (value >= 0) json_[name] = value;
  }
  void percent(const char* name, int value) {
    if (value > 0) json_[name] = std::min(value, 100);
  }
  // JSON has no numbers that are not finite.
  void number(const char* name, const std::optional<double>& value) {
    if (!value) return;
    if (std::isfinite(*value)) {
      json_[name] = *value;
    } else {
      json_[name] = std::isnan(*value) ? "NaN" : *value > 0 ? "Infinity" : "-Infinity";
    }
  }
  void text(const char* name, const std::string& value, size_t max_bytes) {
    if (value.empty()) return;
    size_t size = std::min(value.size(), max_bytes);
    // Not within a character.
    while (size > 0 && size < value.size() && (static_cast<unsigned char>(value[size]) & 0xC0U) == 0x80U) --size;
    std::string cut = value.substr(0, size);
    std::ranges::replace_if(cut, is_control, ' ');
    // What is no UTF-8 would be printed as a character of three bytes for each.
    const std::string printed = nlohmann::json(cut).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
    cut = parse_bounded_json<nlohmann::json>(printed, "", {.name = "text"}).get<std::string>();
    if (!cut.empty()) json_[name] = cut;
  }
  std::string printed() const { return json_.is_null() ? "{}" : json_.dump(); }

 private:
  nlohmann::ordered_json json_;
};

class FiguresReader {
 public:
  explicit FiguresReader(const nlohmann::json& json) : json_(json) {}

  void count(const char* name, int64_t& value) { whole_number(name, value, std::numeric_limits<int64_t>::max()); }
  void rank(const char* name, int& value) { whole_number(name, value, std::numeric_limits<int>::max()); }
  void percent(const char* name, int& value) { whole_number(name, value, 100); }
  void number(const char* name, std::optional<double>& value) {
    const nlohmann::json* found = find(name);
    if (found == nullptr) return;
    if (found->is_number()) {
      value = found->get<double>();
      has_failed_ = has_failed_ || !std::isfinite(*value);
      return;
    }
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (*found == "NaN") {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (*found == "Infinity" || *found == "-Infinity") {
      value = *found == "Infinity" ? kInfinity : -kInfinity;
    } else {
      has_failed_ = true;
    }
  }
  void text(const char* name, std::string& value, size_t max_bytes) {
    const nlohmann::json* found = find(name);
    if (found == nullptr) return;
    if (!found->is_string()) return fail();
    value = found->get<std::string>();
    if (value.size() > max_bytes || std::ranges::any_of(value, is_control)) fail();
  }
  // Whether all that is there has been read, and was right.
  bool is_whole() const { return !has_failed_ && num_found_ == json_.size(); }

 private:
  template <typename Number>
  void whole_number(const char* name, Number& value, uint64_t at_most) {
    const nlohmann::json* found = find(name);
    if (found == nullptr) return;
    if (!found->is_number_unsigned() || found->template get<uint64_t>() > at_most) return fail();
    value = static_cast<Number>(found->template get<uint64_t>());
  }
  const nlohmann::json* find(const char* name) {
    const auto found = json_.find(name);
    if (found == json_.end()) return nullptr;
    ++num_found_;
    return &*found;
  }
  void fail() { has_failed_ = true; }

  const nlohmann::json& json_;
  size_t num_found_ = 0;
  bool has_failed_ = false;
};

}  // namespace

std::string print_figures(const TrainingFigures& figures) {
  FiguresPrinter printer;
  visit_figures(printer, figures);
  return printer.printed();
}

std::optional<TrainingFigures> parse_figures(std::string_view text) {
  if (std::ranges::any_of(text, is_control)) return std::nullopt;
  const auto json = parse_json_or_discard<nlohmann::json>(text, kFiguresJson);
  if (!json.is_object()) return std::nullopt;
  TrainingFigures figures;
  FiguresReader reader(json);
  visit_figures(reader, figures);
  if (!reader.is_whole()) return std::nullopt;
  return figures;
}

}  // namespace tessera::cluster
