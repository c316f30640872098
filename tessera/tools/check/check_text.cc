#include "tessera/tools/check/check_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/base/json/bounded_json.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::tools {
namespace {

using Row = std::vector<std::string>;

// Columns as wide as their widest cell.
std::string table(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// "0-3" of ranks that follow each other, else all of them.
std::string ranks_text(const std::vector<int>& ranks) {
  const bool follow = ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  if (follow && ranks.size() > 1) return fmt::format("{}-{}", ranks.front(), ranks.back());
  std::string text;
  for (const int rank : ranks) text += fmt::format("{}{}", text.empty() ? "" : ",", rank);
  return text;
}

std::string speed_text(int64_t mbits) {
  if (mbits <= 0) return "-";
  return mbits % 1000 == 0 ? fmt::format("{} Gb/s", mbits / 1000) : fmt::format("{} Mb/s", mbits);
}

std::string clock_text(double offset_s) {
  if (std::abs(offset_s) < 1e-3) return "0";  // clocks are read to a millisecond
  return fmt::format("{}{}", offset_s > 0 ? "+" : "-", format_seconds(offset_s > 0 ? offset_s : -offset_s));
}

// What stands in place of figures.
constexpr const char* kUnreachable = "UNREACHABLE";

Row pair_row(const std::string& name, const PairFacts& pair, bool has_path) {
  Row row{name, format_seconds(pair.latency_s), format_bytes(static_cast<int64_t>(pair.bytes_per_second)) + "/s"};
  if (!pair.is_measured) row = {name, pair.unreachable.empty() ? "-" : kUnreachable, "-"};
  if (has_path) row.push_back(pair.path_mtu > 0 ? std::to_string(pair.path_mtu) : "-");
  return row;
}

Row host_row(const HostFacts& host) {
  const auto* interface = interface_of(host);
  return {printable(host.name),
          ranks_text(host.ranks),
          host.address,
          interface == nullptr ? "-" : interface->name,
          interface == nullptr ? "-" : std::to_string(interface->mtu),
          speed_text(interface == nullptr ? 0 : interface->speed_mbits),
          fmt::format("{}", host.cores),
          format_bytes(host.memory_bytes),
          clock_text(host.clock_offset_s),
          printable(host.cpu)};
}

std::string pair_name(const ClusterFacts& facts, const PairFacts& pair) {
  if (facts.hosts.size() == 1) return "ranks 0 and 1";
  return fmt::format("{} and {}", printable(facts.hosts[pair.first].name), printable(facts.hosts[pair.second].name));
}

// Those who are there, and those who are not.
std::string pair_with_missing(const ClusterFacts& facts) {
  return fmt::format("{} and who has not come", printable(facts.hosts.front().name));
}

std::string count_text(size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

std::string check_text(const ClusterFacts& facts, const std::vector<Finding>& findings) {
  const int num_ranks = facts.num_ranks();
  std::string text = fmt::format("{} on {}{}\n\n", count_text(static_cast<size_t>(num_ranks), "rank"),
                                 count_text(facts.hosts.size(), "host"),
                                 num_ranks == 1 || !facts.missing.empty() ? "" : ", by " + facts.transport);
  std::vector<Row> hosts{{"host", "ranks", "address", "interface", "MTU", "link", "cores", "memory", "clock", "CPU"}};
  for (const HostFacts& host : facts.hosts) hosts.push_back(host_row(host));
  text += table(hosts);
  if (!facts.pairs.empty() || !facts.missing.empty()) {
    const bool has_path = facts.hosts.size() > 1 || !facts.missing.empty();
    std::vector<Row> pairs{{"between", "latency", "bandwidth"}};
    if (has_path) pairs.front().emplace_back("path MTU");
    for (const PairFacts& pair : facts.pairs) pairs.push_back(pair_row(pair_name(facts, pair), pair, has_path));
    if (!facts.missing.empty()) pairs.push_back({pair_with_missing(facts), kUnreachable, "-", "-"});
    text += "\n" + table(pairs);
  }
  text += "\n";
  for (const Finding& finding : findings) {
    text += fmt::format("{}: {}\n  {}\n", to_string(finding.severity), finding.what, finding.remedy);
  }
  const auto faults = static_cast<size_t>(std::ranges::count(findings, Severity::kFault, &Finding::severity));
  text += faults > 0
              ? fmt::format("{} to be mended before these hosts train together\n", count_text(faults, "fault"))
              : fmt::format("nothing keeps {} from training\n", facts.hosts.size() == 1 ? "this host" : "these hosts");
  return text;
}

std::string check_json(const ClusterFacts& facts, const std::vector<Finding>& findings) {
  nlohmann::ordered_json json{{"transport", facts.transport}, {"hosts", nlohmann::ordered_json::array()}};
  for (const HostFacts& host : facts.hosts) {
    json["hosts"].push_back(
        parse_bounded_json<nlohmann::ordered_json>(print_host(host), host.name, {.name = "set of a host's facts"}));
  }
  json["pairs"] = nlohmann::ordered_json::array();
  for (const PairFacts& pair : facts.pairs) {
    json["pairs"].push_back({{"between", pair_name(facts, pair)},
                             {"is_reachable", pair.unreachable.empty()},
                             {"latency_s", pair.latency_s},
                             {"bytes_per_second", pair.bytes_per_second},
                             {"path_mtu", pair.path_mtu}});
    if (!pair.is_measured) {
      for (const char* figure : {"latency_s", "bytes_per_second", "path_mtu"}) json["pairs"].back()[figure] = nullptr;
    }
    if (!pair.unreachable.empty()) json["pairs"].back()["why"] = printable(pair.unreachable);
  }
  if (!facts.missing.empty()) {
    json["pairs"].push_back({{"between", pair_with_missing(facts)},
                             {"is_reachable", false},
                             {"latency_s", nullptr},
                             {"bytes_per_second", nullptr},
                             {"path_mtu", nullptr},
                             {"why", printable(facts.missing)}});
  }
  json["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    json["findings"].push_back(
        {{"severity", to_string(finding.severity)}, {"what", finding.what}, {"remedy", finding.remedy}});
  }
  return json.dump(2) + "\n";
}

}  // namespace tessera::tools
