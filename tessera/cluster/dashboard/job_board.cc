#include "tessera/cluster/dashboard/job_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/printable.h"
#include "tessera/base/strings.h"

namespace tessera::cluster {
namespace {

using Json = nlohmann::ordered_json;

// A rank whose watch says nothing for so long does not run.
constexpr int64_t kSilentMs = 15000;
// Of ranks each of which waits for the next. What is longer is taken for a circle.
constexpr int kLongestChain = 256;
constexpr size_t kLeastPoints = 16;
constexpr size_t kMostPointsOfOne = 1024;

std::string utc_text(int64_t wall_ms) {
  const std::time_t seconds = wall_ms / 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

// Of a float the number with its shortest decimals, as the logs write it: 0.01 of 0.01F, not 0.009999999776482582.
double with_shortest_decimals(double value) {
  const auto narrow = static_cast<float>(value);
  const bool is_float = std::isfinite(value) && static_cast<double>(narrow) == value;
  return is_float ? parse_double(shortest(narrow), "a number") : value;
}

std::optional<double> with_shortest_decimals(const std::optional<double>& value) {
  return value ? std::optional(with_shortest_decimals(*value)) : std::nullopt;
}

// JSON has no numbers that are not finite.
Json json_of(double value) {
  if (std::isfinite(value)) return with_shortest_decimals(value);
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}
Json json_of(const std::optional<double>& value) { return value ? json_of(*value) : Json(nullptr); }
Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
Json rank_or_null(int rank) { return rank < 0 ? Json(nullptr) : Json(rank); }

Json json_of(const FigureCurve& curve) {
  Json points = Json::array();
  for (const auto& [step, value] : curve.points()) points.push_back(Json::array({step, json_of(value)}));
  return points;
}

// As OpenMetrics writes a number.
std::string metric_number(double value) {
  if (std::isfinite(value)) return shortest(value);
  return std::isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
}

// Of a label: what would end it is escaped, and what is no UTF-8 is shown as \xNN.
std::string label_text(const std::string& text) {
  std::string result;
  for (const char c : printable(text)) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

// Adds families of metrics to a text.
class MetricsPrinter {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help, std::string_view unit = "") {
    name_ = name;
    text_ += fmt::format("# TYPE {} {}\n", name, type);
    if (!unit.empty()) text_ += fmt::format("# UNIT {} {}\n", name, unit);
    text_ += fmt::format("# HELP {} {}\n", name, help);
  }
  // `labels`: `rank="0"`; "" where there are none.
  void sample(const std::string& labels, double value, std::string_view suffix = "") {
    text_ += fmt::format("{}{}{}{}{} {}\n", name_, suffix, labels.empty() ? "" : "{", labels, labels.empty() ? "" : "}",
                         metric_number(value));
  }
  std::string end() { return text_ + "# EOF\n"; }

 private:
  std::string name_;
  std::string text_;
};

}  // namespace

struct JobBoard::BoardSummary {
  const TrainingFigures* first = nullptr;  // of the first rank that trains; null where none does
  int64_t step = 0;                        // the furthest of any rank
  int64_t epoch = 0;
  int64_t num_epochs = 0;
  int64_t resident_bytes = 0;  // of all ranks together
  int64_t arena_bytes = 0;
  int slow_rank = -1;
  std::optional<int> slow_percent;  // of its time that another rank has waited for it lately, as far as that is known
  int num_waiting = 0;              // ranks that wait long for it now
};

JobBoard::JobBoard(std::string program, Clock& clock)
    : clock_(clock), program_(std::move(program)), started_ms_(now_ms()), started_wall_ms_(clock.wall_ms()) {}

void JobBoard::set_num_ranks(int num_ranks) {
  const std::lock_guard lock(mutex_);
  ranks_.resize(static_cast<size_t>(std::max(num_ranks, 0)));
  // The room that a curve has depends on how many there are.
  for (auto* curves : {&losses_, &speeds_, &rates_}) {
    std::erase_if(*curves, [&](const auto& entry) { return entry.first >= num_ranks; });
  }
}

void JobBoard::set_job(BoardJobState state, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  reason_ = reason;
  const bool is_over = state != BoardJobState::kWaiting && state != BoardJobState::kRunning;
  if (is_over && ended_ms_ < 0) ended_ms_ = now_ms();
}

void JobBoard::set_rank(int rank, BoardRankState state, const std::string& detail, const std::string& host) {
  const std::lock_guard lock(mutex_);
  if (rank < 0 || static_cast<size_t>(rank) >= ranks_.size()) return;
  BoardRank& of_rank = ranks_[static_cast<size_t>(rank)];
  if (state == BoardRankState::kStarting && of_rank.state != BoardRankState::kStarting) {
    ++of_rank.num_starts;
    of_rank.heard_ms = now_ms();
  }
  of_rank.state = state;
  of_rank.detail = detail;
  if (!host.empty()) of_rank.host = host;
}

void JobBoard::take(int rank, const TrainingFigures& figures) {
  const std::lock_guard lock(mutex_);
  if (rank < 0 || static_cast<size_t>(rank) >= ranks_.size()) return;
  BoardRank& of_rank = ranks_[static_cast<size_t>(rank)];
  if (of_rank.state == BoardRankState::kExpected || of_rank.state == BoardRankState::kStarting) {
    of_rank.state = BoardRankState::kRunning;
  }
  const bool is_new_step = !of_rank.figures || of_rank.figures->step != figures.step;
  of_rank.figures = figures;
  of_rank.heard_ms = now_ms();
  if (is_new_step && figures.step > 0) {
    add_curve(losses_, rank, figures.step, figures.loss);
    const auto trains = [](const BoardRank& one) { return one.figures && one.figures->step > 0; };
    const auto first = std::ranges::find_if(ranks_, trains) - ranks_.begin();
    if (first == rank) {
      add_curve(speeds_, 0, figures.step, figures.rows_per_second);
      add_curve(rates_, 0, figures.step, figures.learning_rate);
    }
  }
  if (figures.checkpoint.empty()) return;
  const auto is_same = [&](const BoardCheckpoint& one) {
    return one.step == figures.checkpoint_step && one.path == figures.checkpoint;
  };
  if (std::ranges::any_of(checkpoints_, is_same)) return;
  checkpoints_.push_back({figures.checkpoint_step, figures.checkpoint, clock_.wall_ms()});
  if (checkpoints_.size() > kMostCheckpoints) checkpoints_.pop_front();
}

void JobBoard::add_line(int rank, std::string_view line) {
  const std::lock_guard lock(mutex_);
  lines_.push_back({rank, printable(line.substr(0, kMaxLine))});
  if (lines_.size() > kMostLines) lines_.pop_front();
}

void JobBoard::add_curve(std::map<int, FigureCurve>& curves, int rank, int64_t step,
                         const std::optional<double>& value) {
  if (!value || rank >= kMostCurves) return;
  const size_t num_curves = std::clamp<size_t>(ranks_.size(), 1, kMostCurves);
  const size_t room = std::clamp(kMostPoints / num_curves, kLeastPoints, kMostPointsOfOne);
  curves.try_emplace(rank, room).first->second.add(step, *value);
}

JobBoard::BoardSummary JobBoard::summary() const {
  BoardSummary sum;
  for (const BoardRank& rank : ranks_) {
    if (!rank.figures) continue;
    const TrainingFigures& figures = *rank.figures;
    if (sum.first == nullptr && figures.step > 0) sum.first = &figures;
    sum.step = std::max(sum.step, figures.step);
    sum.epoch = std::max(sum.epoch, figures.epoch);
    sum.num_epochs = std::max(sum.num_epochs, figures.num_epochs);
    const bool is_there = rank.state == BoardRankState::kRunning;
    if (is_there) sum.resident_bytes += figures.resident_bytes;
    if (is_there) sum.arena_bytes += figures.arena_bytes;
    if (!is_there || figures.slow_rank < 0 || figures.slow_percent <= sum.slow_percent.value_or(0)) continue;
    sum.slow_rank = figures.slow_rank;
    sum.slow_percent = figures.slow_percent;
  }
  if (ended_ms_ < 0) name_who_is_waited_for(sum);
  return sum;
}

// Shares of time are told where a wait is over. Where one goes on, it says more of the job than they do.
void JobBoard::name_who_is_waited_for(BoardSummary& sum) const {
  const int64_t now = now_ms();
  const auto awaited_by = [&](size_t rank) {
    const int awaited = word_of(ranks_[rank], now) == "waiting" ? ranks_[rank].figures->waits_for : -1;
    return awaited < std::ssize(ranks_) ? awaited : -1;
  };
  // Who is waited for may wait itself: then it is for the one at the end of the chain. A circle has none.
  std::vector<int> num_waiting(ranks_.size());
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    size_t last = rank;
    int awaited = awaited_by(last);
    if (awaited < 0) continue;
    for (int i = 0; i < kLongestChain && awaited >= 0; ++i) {
      last = static_cast<size_t>(awaited);
      awaited = awaited_by(last);
    }
    if (awaited < 0) ++num_waiting[last];
  }
  const auto most = std::ranges::max_element(num_waiting);
  if (most == num_waiting.end() || *most == 0) return;
  sum.num_waiting = *most;
  const int rank = static_cast<int>(most - num_waiting.begin());
  if (sum.slow_rank != rank) sum.slow_percent = std::nullopt;
  sum.slow_rank = rank;
}

std::string_view JobBoard::word_of(const BoardRank& rank, int64_t now_ms) const {
  if (rank.state != BoardRankState::kRunning || !rank.figures) return name_of(rank.state);
  if (ended_ms_ < 0 && now_ms - rank.heard_ms > kSilentMs) return "silent";
  if (rank.figures->waits_for >= 0) return "waiting";
  if (!rank.figures->ended.empty()) return "trained";
  return rank.figures->epoch > 0 ? "training" : "running";
}

std::string JobBoard::state_json() const {
  std::unique_lock lock(mutex_);
  const int64_t now = now_ms();
  const BoardSummary sum = summary();
  const TrainingFigures none;
  const TrainingFigures& first = sum.first != nullptr ? *sum.first : none;
  const int64_t end = ended_ms_ < 0 ? now : ended_ms_;
  Json json = {{"version", 1},
               {"program", printable(program_)},
               {"state", name_of(state_)},
               {"reason", text_or_null(printable(reason_))},
               {"time", utc_text(clock_.wall_ms())},
               {"started", utc_text(started_wall_ms_)},
               {"seconds", static_cast<double>(end - started_ms_) / 1000},
               {"num_ranks", ranks_.size()},
               {"epoch", sum.epoch},
               {"epochs", sum.num_epochs},
               {"step", sum.step},
               {"steps_per_epoch", first.steps_per_epoch},
               {"loss", json_of(first.loss)},
               {"learning_rate", json_of(first.learning_rate)},
               {"rows_per_second", json_of(first.rows_per_second)},
               {"resident_bytes", sum.resident_bytes},
               {"arena_bytes", sum.arena_bytes},
               {"mode", text_or_null(first.mode)},
               {"plan", text_or_null(first.plan)}};
  json["slowest"] = sum.slow_rank < 0 ? Json(nullptr)
                                      : Json{{"rank", sum.slow_rank},
                                             {"percent", sum.slow_percent ? Json(*sum.slow_percent) : Json(nullptr)},
                                             {"waiting", sum.num_waiting}};
  std::map<std::string_view, int> counts;
  Json ranks = Json::array();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const BoardRank& rank = ranks_[i];
    const std::string_view word = word_of(rank, now);
    ++counts[word];
    if (i >= static_cast<size_t>(kMostRanks)) continue;
    const TrainingFigures& figures = rank.figures ? *rank.figures : none;
    // What it did last is not what it does.
    const bool is_running = rank.state == BoardRankState::kRunning && ended_ms_ < 0;
    const TrainingFigures& now_seen = is_running ? figures : none;
    ranks.push_back({{"rank", i},
                     {"state", word},
                     {"detail", text_or_null(printable(rank.detail))},
                     {"host", text_or_null(printable(rank.host))},
                     {"epoch", figures.epoch},
                     {"step", figures.step},
                     {"loss", json_of(figures.loss)},
                     {"learning_rate", json_of(figures.learning_rate)},
                     {"rows_per_second", json_of(figures.rows_per_second)},
                     {"resident_bytes", figures.resident_bytes},
                     {"arena_bytes", figures.arena_bytes},
                     {"doing", text_or_null(printable(now_seen.doing))},
                     {"waits_for", rank_or_null(now_seen.waits_for)},
                     {"waits_in", text_or_null(printable(now_seen.waits_in))},
                     {"heard_s", rank.figures ? Json(static_cast<double>(now - rank.heard_ms) / 1000) : Json(nullptr)},
                     {"restarts", std::max<int64_t>(rank.num_starts - 1, 0)}});
  }
  json["states"] = Json::object();
  for (const auto& [word, count] : counts) json["states"][std::string(word)] = count;
  json["ranks"] = std::move(ranks);
  json["ranks_left_out"] = ranks_.size() - std::min(ranks_.size(), static_cast<size_t>(kMostRanks));
  Json losses = Json::array();
  for (const auto& [rank, curve] : losses_) losses.push_back({{"rank", rank}, {"points", json_of(curve)}});
  json["losses"] = std::move(losses);
  json["speeds"] = speeds_.empty() ? Json::array() : json_of(speeds_.begin()->second);
  json["learning_rates"] = rates_.empty() ? Json::array() : json_of(rates_.begin()->second);
  Json checkpoints = Json::array();
  for (const BoardCheckpoint& one : checkpoints_) {
    checkpoints.push_back({{"step", one.step}, {"path", printable(one.path)}, {"time", utc_text(one.wall_ms)}});
  }
  json["checkpoints"] = std::move(checkpoints);
  Json lines = Json::array();
  for (const BoardLine& line : lines_) lines.push_back({{"rank", rank_or_null(line.rank)}, {"text", line.text}});
  json["log"] = std::move(lines);
  lock.unlock();  // who writes on the board does not wait for the text
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string JobBoard::metrics_text() const {
  const std::lock_guard lock(mutex_);
  const int64_t now = now_ms();
  const BoardSummary sum = summary();
  MetricsPrinter printer;
  printer.family("tessera_job", "info", "The job, its program and its parallel mode.");
  printer.sample(fmt::format("program=\"{}\",mode=\"{}\"", label_text(program_),
                             label_text(sum.first != nullptr ? sum.first->mode : "")),
                 1, "_info");
  printer.family("tessera_job_state", "gauge", "1 for the state that the job is in, 0 for the others.");
  for (const auto state : {BoardJobState::kWaiting, BoardJobState::kRunning, BoardJobState::kCompleted,
                           BoardJobState::kFailed, BoardJobState::kEndedBySignal}) {
    printer.sample(fmt::format("state=\"{}\"", name_of(state)), state == state_ ? 1 : 0);
  }
  printer.family("tessera_job_seconds", "gauge", "Since the job was started, up to its end.", "seconds");
  printer.sample("", static_cast<double>((ended_ms_ < 0 ? now : ended_ms_) - started_ms_) / 1000);
  printer.family("tessera_job_ranks", "gauge", "Ranks of the job by what they do.");
  std::map<std::string_view, int> counts;
  for (const BoardRank& rank : ranks_) ++counts[word_of(rank, now)];
  for (const auto& [word, count] : counts) printer.sample(fmt::format("state=\"{}\"", word), count);
  const auto of_each = [&](std::string_view name, std::string_view help, std::string_view unit, const auto& read) {
    printer.family(name, "gauge", help, unit);
    for (size_t i = 0; i < std::min(ranks_.size(), static_cast<size_t>(kMostRanks)); ++i) {
      if (!ranks_[i].figures) continue;
      const std::optional<double> value = read(*ranks_[i].figures);
      if (value) printer.sample(fmt::format("rank=\"{}\"", i), *value);
    }
  };
  using Value = std::optional<double>;
  of_each("tessera_epoch", "The epoch that the rank is in, from 1.", "",
          [](const TrainingFigures& f) { return Value(static_cast<double>(f.epoch)); });
  of_each("tessera_step", "Training steps that the rank has finished, those before a resumption included.", "",
          [](const TrainingFigures& f) { return Value(static_cast<double>(f.step)); });
  of_each("tessera_loss", "The loss of the newest step.", "",
          [](const TrainingFigures& f) { return with_shortest_decimals(f.loss); });
  of_each("tessera_learning_rate", "The learning rate of the newest step.", "",
          [](const TrainingFigures& f) { return with_shortest_decimals(f.learning_rate); });
  of_each("tessera_rows_per_second", "Rows of all ranks, in hybrid parallel of this one, that were trained a second.",
          "", [](const TrainingFigures& f) { return f.rows_per_second; });
  of_each("tessera_resident_bytes", "Memory of the rank's process on its host.", "bytes",
          [](const TrainingFigures& f) { return f.resident_bytes > 0 ? Value(f.resident_bytes) : Value(); });
  of_each("tessera_arena_bytes", "Memory of the rank on its device.", "bytes",
          [](const TrainingFigures& f) { return f.arena_bytes > 0 ? Value(f.arena_bytes) : Value(); });
  of_each("tessera_checkpoint_step", "The step of the newest checkpoint that was begun.", "",
          [](const TrainingFigures& f) { return f.checkpoint.empty() ? Value() : Value(f.checkpoint_step); });
  printer.family("tessera_rank_restarts", "gauge", "How often the rank's process was started again.");
  for (size_t i = 0; i < std::min(ranks_.size(), static_cast<size_t>(kMostRanks)); ++i) {
    printer.sample(fmt::format("rank=\"{}\"", i), static_cast<double>(std::max<int64_t>(ranks_[i].num_starts - 1, 0)));
  }
  printer.family("tessera_ranks_left_out", "gauge", "Ranks beyond those that have samples of their own.");
  printer.sample("", static_cast<double>(ranks_.size() - std::min(ranks_.size(), static_cast<size_t>(kMostRanks))));
  return printer.end();
}

std::string_view name_of(BoardRankState state) {
  constexpr std::string_view kNames[] = {"expected", "starting", "running", "lost", "left", "ended", "failed"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view name_of(BoardJobState state) {
  constexpr std::string_view kNames[] = {"waiting", "running", "completed", "failed", "ended by a signal"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace tessera::cluster
