// JSON that others have written: the reader that all parsers of it share, against the library's own, and the reports of
// ranks and launchers.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/json/bounded_json.h"
#include "tessera/cluster/report/rank_report.h"
#include "tests/fuzz/mutators.h"
#include "tests/fuzz/round_trip.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {
namespace {

using Json = nlohmann::ordered_json;

constexpr JsonKind kKinds[] = {{.name = "note"},
                               {.name = "card", .max_levels = 3, .max_bytes = 400, .refuses_repeated = true},
                               {.name = "log", .max_levels = 2, .leaves_out_deeper = true}};

// Of lists and objects within each other; `text` is JSON.
int64_t levels_of(const std::string& text) {
  int64_t open = 0;
  int64_t most = 0;
  bool is_in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_text && c == '\\') {
      ++i;
    } else if (c == '"') {
      is_in_text = !is_in_text;
    } else if (!is_in_text && (c == '[' || c == '{')) {
      most = std::max(most, ++open);
    } else if (!is_in_text && (c == ']' || c == '}')) {
      --open;
    }
  }
  return most;
}

int64_t levels_of(const Json& value) {
  int64_t most = 0;
  for (const auto& inner : value) {
    if (inner.is_structured()) most = std::max(most, levels_of(inner));
  }
  return most + (value.is_structured() ? 1 : 0);
}

// Whether an object has a member twice, as the library tells whoever parses with it.
bool has_repeated(const std::string& text) {
  std::vector<std::set<std::string>> open;
  bool found = false;
  const auto look = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key) found = !open.back().insert(parsed.get<std::string>()).second || found;
    return true;
  };
  [[maybe_unused]] const Json parsed = Json::parse(text, look);
  return found;
}

bool is_of_kind(const std::string& text, const JsonKind& kind) {
  if (static_cast<int64_t>(text.size()) > kind.max_bytes || !Json::accept(text)) return false;
  if (!kind.leaves_out_deeper && levels_of(text) > kind.max_levels) return false;
  return !kind.refuses_repeated || !has_repeated(text);
}

bool parses_as(const std::string& text, const JsonKind& kind) {
  const auto parse = [&](const std::string& bytes) { return parse_bounded_json<Json>(bytes, "f", kind); };
  const auto value = parse_or_refuse(parse, text);
  const Json same = parse_json_or_discard<Json>(text, kind);
  if (same.is_discarded() == value.has_value()) throw Broken("one reader refuses what the other one takes");
  if (value.has_value() != is_of_kind(text, kind)) {
    throw Broken(value ? "what is none of its kind is read" : "what is of its kind is refused");
  }
  if (!value) return false;
  if (same != *value) throw Broken("two readers read differently");
  if (levels_of(*value) > kind.max_levels) throw Broken("what is read has more levels than its kind");
  if (!kind.leaves_out_deeper && *value != Json::parse(text)) throw Broken("it is read as the library does not");
  // It may be longer than the text, which had no escapes.
  JsonKind any_size = kind;
  any_size.max_bytes = JsonKind{}.max_bytes;
  if (parse_bounded_json<Json>(value->dump(), "f", any_size) != *value) {
    throw Broken("what was parsed and printed parses differently");
  }
  return true;
}

bool bounded_parses(const std::string& text) {
  bool is_any = false;
  for (const JsonKind& kind : kKinds) is_any = parses_as(text, kind) || is_any;
  return is_any;
}

// Texts and lists that are too long are cut when they are printed.
template <typename Parse>
bool report_parses(const std::string& text, Parse&& parse) {
  const auto print_read = [&](const std::string& bytes) { return cluster::print_report(parse(bytes)); };
  return comes_back(
      text, print_read, [](const std::string& printed) { return printed; }, std::equal_to<>());
}

std::string rank_report_example() {
  cluster::RankReport report{.rank = 2, .size = 4, .host = "node1", .pid = 4711, .job = "job-1", .generation = 3};
  report.time_ms = 1'700'000'000'000;
  report.event = cluster::ReportEvent::kFailed;
  report.cause = 1;
  report.error = "matmul \"fc\": gr\xc3\xbc\xc3\x9f dich";
  report.signal = "SIGSEGV";
  report.step = 17;
  report.doing = "matmul \"fc\"";
  report.line = "train.py:80";
  report.doing_ms = 1500;
  report.thread = "it computes";
  report.waits = {{.call = "all_reduce \"fc\" #12", .line = "train.py:81", .waits_for = 1, .ranks = {0, 1, 2}}};
  report.non_finite = comm::NonFiniteResult{.piece = {.what = "log", .line = "train.py:82"}, .number = 1};
  report.warnings = {"rank 1 is slow"};
  report.log = {"epoch: 1", ""};
  return cluster::print_report(report);
}

std::string launcher_report_example() {
  cluster::LauncherReport report{.host = "node1", .pid = 4710, .began_ms = 1, .time_ms = 2, .first_failed = 0};
  report.endings = {{.rank = 0, .pid = 4711, .time_ms = 2, .signal = "SIGKILL", .words = "killed by signal SIGKILL"},
                    {.rank = 1, .pid = 4712, .exit_code = 1, .is_told = true, .last_lines = {"a", "b"}}};
  return cluster::print_report(report);
}

}  // namespace

std::vector<Target> json_targets() {
  const std::vector<std::string> values = {
      R"({"b":[1,-2.5e-3,"\u00fc \" \\ [{"],"a":{"x":true,"y":null},"":18446744073709551615})",
      R"({"a":1,"b":2,"a":[3]})", R"([[[1,"]"],{}],[{"a":{"b":[]}}]])", R"("text")"};
  return {{"bounded_json", values, mutate_json, bounded_parses},
          {"rank_report",
           {rank_report_example()},
           mutate_json,
           [](const std::string& text) { return report_parses(text, cluster::parse_rank_report); }},
          {"launcher_report", {launcher_report_example()}, mutate_json, [](const std::string& text) {
             return report_parses(text, cluster::parse_launcher_report);
           }}};
}

}  // namespace tessera::fuzz
