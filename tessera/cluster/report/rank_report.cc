#include "tessera/cluster/report/rank_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/json/bounded_json.h"
#include "tessera/base/printable.h"

namespace tessera::cluster {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kRankFormat = "tessera rank report";
constexpr std::string_view kLauncherFormat = "tessera launcher report";
constexpr int64_t kFormatVersion = 1;

constexpr std::array<std::string_view, 9> kEvents = {"goes on",     "waits",   "stands still", "stopped", "failed",
                                                     "told to end", "crashed", "ended",        "left"};

// The most that is kept of a text, of one that may have several lines, and of a list.
constexpr size_t kMaxText = 1000;
constexpr size_t kMaxError = 8000;
constexpr size_t kMaxItems = 32;
constexpr size_t kMaxWaits = 8;
constexpr size_t kMaxRanksOfWait = 1024;
constexpr JsonKind kReportJson{.name = "report", .max_levels = 8};

// Fit for JSON, which takes only UTF-8, and for a reader.
std::string kept(const std::string& text, size_t max_bytes = kMaxText) {
  const std::string shown = printable(std::string_view(text).substr(0, max_bytes));
  if (text.size() <= max_bytes && shown.size() <= max_bytes) return shown;
  size_t end = std::min(shown.size(), max_bytes);
  while (end < shown.size() && (static_cast<unsigned char>(shown[end]) & 0xC0U) == 0x80U) --end;
  return shown.substr(0, end) + " ...";
}

template <typename Items, typename Print>
Json list_of(const Items& items, size_t most, const Print& print) {
  Json list = Json::array();
  // The latest come last.
  const size_t first = items.size() > most ? items.size() - most : 0;
  for (size_t i = first; i < items.size(); ++i) list.push_back(print(items[i]));
  return list;
}

Json texts_of(const std::vector<std::string>& texts) {
  return list_of(texts, kMaxItems, [](const std::string& text) { return Json(kept(text)); });
}

Json json_of(const ReportedWait& wait) {
  Json json;
  json["call"] = kept(wait.call);
  json["line"] = kept(wait.line);
  json["waits_for"] = wait.waits_for;
  json["ranks"] = list_of(wait.ranks, kMaxRanksOfWait, [](int rank) { return Json(rank); });
  json["waited_ms"] = wait.waited_ms;
  json["is_mismatch"] = wait.is_mismatch;
  return json;
}

Json json_of(const RankEnding& ending) {
  Json json;
  json["rank"] = ending.rank;
  json["pid"] = ending.pid;
  json["time_ms"] = ending.time_ms;
  json["signal"] = kept(ending.signal);
  json["exit_code"] = ending.exit_code;
  json["words"] = kept(ending.words);
  json["is_told"] = ending.is_told;
  json["went_on"] = ending.went_on;
  json["is_last"] = ending.is_last;
  json["generation"] = ending.generation;
  json["doing"] = kept(ending.doing);
  json["last_lines"] = texts_of(ending.last_lines);
  return json;
}

// The fields of an object, which may be anything.
class FieldsOf {
 public:
  explicit FieldsOf(const Json& json) : json_(json) {
    if (!json.is_object()) throw InvalidArgument("an object is expected, this is {}", json.type_name());
  }

  std::string text(const char* name, size_t max_bytes = kMaxError + 100) const {
    const Json& value = at(name);
    if (!value.is_string()) throw InvalidArgument("\"{}\" must be a text, it is {}", name, value.type_name());
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() > 4 * max_bytes) throw InvalidArgument("\"{}\" has {} bytes", name, text.size());
    return text;
  }
  int64_t number(const char* name, int64_t least, int64_t most) const {
    const Json& value = at(name);
    const bool is_large = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    if (!value.is_number_integer() || is_large) {
      throw InvalidArgument("\"{}\" must be a whole number, it is {}", name, value.type_name());
    }
    const auto number = value.get<int64_t>();
    if (number < least || number > most) {
      throw InvalidArgument("\"{}\" must be from {} to {}, it is {}", name, least, most, number);
    }
    return number;
  }
  int64_t count(const char* name) const { return number(name, 0, INT64_MAX); }
  int rank(const char* name, int least) const { return static_cast<int>(number(name, least, kMaxReportedRanks - 1)); }
  bool flag(const char* name) const {
    const Json& value = at(name);
    if (!value.is_boolean()) throw InvalidArgument("\"{}\" must be true or false, it is {}", name, value.type_name());
    return value.get<bool>();
  }
  const Json& list(const char* name, size_t most) const {
    const Json& value = at(name);
    if (!value.is_array()) throw InvalidArgument("\"{}\" must be a list, it is {}", name, value.type_name());
    if (value.size() > most)
      throw InvalidArgument("\"{}\" has {} items, at most {} are read", name, value.size(), most);
    return value;
  }
  std::vector<std::string> texts(const char* name) const {
    std::vector<std::string> found;
    for (const Json& item : list(name, kMaxItems)) {
      if (!item.is_string()) throw InvalidArgument("\"{}\" must have texts, one is {}", name, item.type_name());
      found.push_back(item.get<std::string>());
    }
    return found;
  }
  bool has(const char* name) const { return json_.contains(name); }
  const Json& at(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) throw InvalidArgument("\"{}\" is missing", name);
    return *found;
  }

 private:
  const Json& json_;
};

Json parse_json(std::string_view text, std::string_view format) {
  if (text.empty()) throw InvalidArgument("it is empty");
  Json json = parse_bounded_json<Json>(text, "", kReportJson);
  const FieldsOf fields(json);
  if (fields.text("format") != format) throw InvalidArgument("it is no {}", format);
  if (const int64_t version = fields.count("version"); version != kFormatVersion) {
    throw InvalidArgument("it has version {}, this Tessera reads {}", version, kFormatVersion);
  }
  return json;
}

ReportedWait parse_wait(const Json& json) {
  const FieldsOf fields(json);
  ReportedWait wait{.call = fields.text("call"),
                    .line = fields.text("line"),
                    .waits_for = fields.rank("waits_for", -1),
                    .ranks = {},
                    .waited_ms = fields.count("waited_ms"),
                    .is_mismatch = fields.flag("is_mismatch")};
  for (const Json& rank : fields.list("ranks", kMaxRanksOfWait)) {
    if (!rank.is_number_unsigned() || rank.get<uint64_t>() >= kMaxReportedRanks) {
      throw InvalidArgument("\"ranks\" must have ranks, one is {}", rank.type_name());
    }
    wait.ranks.push_back(rank.get<int>());
  }
  return wait;
}

RankEnding parse_ending(const Json& json) {
  const FieldsOf fields(json);
  return {.rank = fields.rank("rank", 0),
          .pid = fields.count("pid"),
          .time_ms = fields.count("time_ms"),
          .signal = fields.text("signal"),
          .exit_code = static_cast<int>(fields.number("exit_code", 0, 255)),
          .words = fields.text("words"),
          .is_told = fields.flag("is_told"),
          .went_on = fields.flag("went_on"),
          .is_last = fields.has("is_last") && fields.flag("is_last"),
          .generation = static_cast<uint64_t>(fields.count("generation")),
          .doing = fields.text("doing"),
          .last_lines = fields.texts("last_lines")};
}

}  // namespace

std::string_view name_of(ReportEvent event) { return kEvents[static_cast<size_t>(event)]; }

std::string print_report(const RankReport& report) {
  Json json;
  json["format"] = kRankFormat;
  json["version"] = kFormatVersion;
  json["rank"] = report.rank;
  json["size"] = report.size;
  json["host"] = kept(report.host);
  json["pid"] = report.pid;
  json["job"] = kept(report.job);
  json["generation"] = report.generation;
  json["time_ms"] = report.time_ms;
  json["event"] = name_of(report.event);
  json["cause"] = report.cause;
  json["error"] = kept(report.error, kMaxError);
  json["signal"] = kept(report.signal);
  json["step"] = report.step;
  json["doing"] = kept(report.doing);
  json["line"] = kept(report.line);
  json["doing_ms"] = report.doing_ms;
  json["script"] = kept(report.script);
  json["thread"] = kept(report.thread);
  json["waits"] = list_of(report.waits, kMaxWaits, [](const ReportedWait& wait) { return json_of(wait); });
  json["non_finite"] = nullptr;
  if (report.non_finite) {
    json["non_finite"] = Json::object();
    json["non_finite"]["operator"] = kept(report.non_finite->piece.what);
    json["non_finite"]["line"] = kept(report.non_finite->piece.line);
    json["non_finite"]["number"] = report.non_finite->number;
  }
  json["warnings"] = texts_of(report.warnings);
  json["log"] = texts_of(report.log);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string print_report(const LauncherReport& report) {
  Json json;
  json["format"] = kLauncherFormat;
  json["version"] = kFormatVersion;
  json["host"] = kept(report.host);
  json["pid"] = report.pid;
  json["began_ms"] = report.began_ms;
  json["time_ms"] = report.time_ms;
  json["first_failed"] = report.first_failed;
  json["signal"] = kept(report.signal);
  json["endings"] = list_of(report.endings, kMaxReportedRanks, [](const RankEnding& one) { return json_of(one); });
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RankReport parse_rank_report(std::string_view text) {
  const Json json = parse_json(text, kRankFormat);
  const FieldsOf fields(json);
  RankReport report{.rank = fields.rank("rank", 0),
                    .size = static_cast<int>(fields.number("size", 1, kMaxReportedRanks)),
                    .host = fields.text("host"),
                    .pid = fields.count("pid"),
                    .job = fields.text("job"),
                    .generation = static_cast<uint64_t>(fields.count("generation")),
                    .time_ms = fields.count("time_ms"),
                    .cause = fields.rank("cause", -1),
                    .error = fields.text("error"),
                    .signal = fields.text("signal"),
                    .step = fields.count("step"),
                    .doing = fields.text("doing"),
                    .line = fields.text("line"),
                    .doing_ms = fields.count("doing_ms"),
                    .script = fields.text("script"),
                    .thread = fields.text("thread"),
                    .waits = {},
                    .non_finite = {},
                    .warnings = fields.texts("warnings"),
                    .log = fields.texts("log")};
  const std::string event = fields.text("event");
  const auto found = std::ranges::find(kEvents, event);
  if (found == kEvents.end()) throw InvalidArgument("\"event\" is none that a report has");
  report.event = static_cast<ReportEvent>(found - kEvents.begin());
  if (report.rank >= report.size) throw InvalidArgument("rank {} of {}", report.rank, report.size);
  for (const Json& wait : fields.list("waits", kMaxItems)) report.waits.push_back(parse_wait(wait));
  if (const Json& found_first = fields.at("non_finite"); !found_first.is_null()) {
    const FieldsOf of(found_first);
    report.non_finite = {.piece = {.what = of.text("operator"), .line = of.text("line")},
                         .number = static_cast<int>(of.number("number", 0, INT32_MAX))};
  }
  return report;
}

LauncherReport parse_launcher_report(std::string_view text) {
  const Json json = parse_json(text, kLauncherFormat);
  const FieldsOf fields(json);
  LauncherReport report{.host = fields.text("host"),
                        .pid = fields.count("pid"),
                        .began_ms = fields.count("began_ms"),
                        .time_ms = fields.count("time_ms"),
                        .first_failed = fields.rank("first_failed", -1),
                        .signal = fields.text("signal"),
                        .endings = {}};
  for (const Json& ending : fields.list("endings", kMaxReportedRanks)) report.endings.push_back(parse_ending(ending));
  return report;
}

std::string rank_report_name(int rank) { return fmt::format("rank.{}.json", rank); }

std::string last_report_name(int rank) { return fmt::format("rank.{}.last.json", rank); }

std::string launcher_report_name(const std::string& host, int64_t pid) {
  std::string name = host.substr(0, 100);
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.' && c != '_'; },
      '_');
  return fmt::format("launcher.{}.{}.json", name, pid);
}

}  // namespace tessera::cluster
