#include "tessera/tools/check/findings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/json/bounded_json.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::tools {
namespace {

// Clocks that differ by more make logs and timestamps of files hard to compare; by more than the second figure, the
// times in certificates and in states of a job mean other things on each host.
constexpr double kClockWarning = 0.1;
constexpr double kClockFault = 60;
// A pair is slow that has less than this part of the median pair's bandwidth, or more than so many times its latency.
constexpr double kSlowShare = 0.5;
constexpr double kLateTimes = 5;
constexpr int64_t kFewFiles = 1024;

// Without commas behind the last item of a list or object, which the tutorials print.
std::string without_last_commas(const std::string& text) {
  std::string kept;
  bool is_quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) is_quoted = !is_quoted;
    if (text[i] == ',' && !is_quoted) {
      const size_t next = text.find_first_not_of(" \t\r\n", i + 1);
      if (next != std::string::npos && (text[next] == ']' || text[next] == '}')) {
        kept += ' ';  // what follows keeps its place
        continue;
      }
    }
    kept += text[i];
  }
  return kept;
}

class Findings {
 public:
  explicit Findings(const ClusterFacts& facts) : facts_(facts) {}

  void add(Severity severity, std::string what, std::string remedy) {
    found_.push_back({severity, printable(what), std::move(remedy)});
  }

  // Says which hosts have what, where not all have the same.
  void compare(Severity severity, const char* what, const std::function<std::string(const HostFacts&)>& of_host,
               const char* remedy) {
    std::map<std::string, std::vector<std::string>> hosts;
    for (const HostFacts& host : facts_.hosts) hosts[of_host(host)].push_back(host.name);
    if (hosts.size() < 2) return;
    std::vector<std::string> parts;
    for (const auto& [value, names] : hosts) parts.push_back(fmt::format("{} ({})", value, fmt::join(names, ", ")));
    add(severity, fmt::format("{}: {}", what, fmt::join(parts, "; ")), remedy);
  }

  void compare_hosts() {
    compare(
        Severity::kFault, "hosts have different versions of Tessera",
        [](const HostFacts& host) { return host.version; }, "install one version on all of them");
    compare(
        Severity::kWarning, "hosts have CPUs with different features",
        [](const HostFacts& host) { return fmt::format("{}: {}", host.cpu, fmt::join(host.cpu_features, " ")); },
        "kernels differ then, and with them the last bits of results; the slowest host sets the pace");
    compare(
        Severity::kWarning, "ranks may use different numbers of cores",
        [](const HostFacts& host) {
          const auto ranks = std::max<size_t>(1, host.ranks.size());
          return fmt::format("{} cores for {} rank{}", host.cores, ranks, ranks == 1 ? "" : "s");
        },
        "give each rank as many cores, else all wait for those that have the fewest");
    compare(
        Severity::kWarning, "packets have different sizes (MTU)",
        [](const HostFacts& host) { return std::to_string(mtu_of(host)); },
        "set one MTU on these interfaces and on what lies between them: large packets may be lost without a word");
    for (const HostFacts& host : facts_.hosts) check_host(host);
  }

  void check_host(const HostFacts& host) {
    if (facts_.hosts.size() > 1 && is_loopback(host.address)) {
      add(Severity::kFault, fmt::format("{}: other hosts cannot reach its address {}", host.name, host.address),
          "name an interface that they reach, by `--interface eth0` or TESSERA_INTERFACE");
    }
    if (std::abs(host.clock_offset_s) > kClockWarning) {
      const bool is_fault = std::abs(host.clock_offset_s) > kClockFault;
      add(is_fault ? Severity::kFault : Severity::kWarning,
          fmt::format("{}: its clock is {} {} that of {}", host.name, format_seconds(std::abs(host.clock_offset_s)),
                      host.clock_offset_s > 0 ? "ahead of" : "behind", facts_.hosts.front().name),
          is_fault ? "set the clocks (NTP, chrony): certificates are not valid yet, or no longer, on one of them"
                   : "set the clocks (NTP, chrony), so that logs can be compared");
    }
    if (host.open_files > 0 && host.open_files < kFewFiles) {
      add(Severity::kWarning, fmt::format("{}: a process may have {} open files", host.name, host.open_files),
          "raise `ulimit -n`: connections to many ranks and the files of a checkpoint need more");
    }
    if (facts_.hosts.size() > 1) check_names(host);
  }

  // Ranks meet by addresses; names are what people write into host files and `--join`.
  void check_names(const HostFacts& host) {
    for (const auto& [name, address] : host.resolved) {
      const auto named = std::ranges::find(facts_.hosts, name, &HostFacts::name);
      if (named == facts_.hosts.end()) continue;
      if (address.empty()) {
        add(Severity::kWarning, fmt::format("{}: the name {} has no address there", host.name, name),
            "use addresses, or add the name to DNS or /etc/hosts");
      } else if (named->name != host.name && !has_address(*named, address)) {
        add(Severity::kFault,
            fmt::format("{}: the name {} is {} there, which is no address of that host ({})", host.name, name, address,
                        fmt::join(addresses_of(*named), ", ")),
            "mend DNS or /etc/hosts there");
      }
    }
    const auto own = host.resolved.find(host.name);
    if (own != host.resolved.end() && is_loopback(own->second)) {
      add(Severity::kWarning, fmt::format("{}: it resolves its own name to {}", host.name, own->second),
          "what listens at that name is not reached from other hosts: mend its /etc/hosts, or give addresses");
    }
  }

  // A job of theirs would not begin.
  void check_reach() {
    for (const PairFacts& pair : facts_.pairs) {
      if (pair.unreachable.empty()) continue;
      add(Severity::kFault,
          fmt::format("{} and {} do not reach each other: {}", facts_.hosts[pair.first].name,
                      facts_.hosts[pair.second].name, pair.unreachable),
          "let TCP through between them, at all ports from 1024 on (a firewall, a security group, a route), or name an "
          "interface of a network that both are in, by `--interface eth0` or TESSERA_INTERFACE");
    }
    if (facts_.missing.empty()) return;
    add(Severity::kFault, facts_.missing,
        "start it on every host, and look at what is written there: who does not reach rank 0 says at which address "
        "and "
        "why; let TCP through to that, or name another one by TESSERA_STORE");
  }

  // Packets that the interfaces of both hosts take, but not what lies between them.
  void check_paths() {
    if (facts_.hosts.size() < 2) return;
    for (const PairFacts& pair : facts_.pairs) {
      const HostFacts& first = facts_.hosts[pair.first];
      const HostFacts& second = facts_.hosts[pair.second];
      const int64_t sent = std::min(mtu_of(first), mtu_of(second));
      if (pair.path_mtu == 0 || pair.path_mtu >= sent) continue;
      add(Severity::kWarning,
          fmt::format("{} and {}: packets of more than {} bytes do not pass between them, their interfaces send {}",
                      first.name, second.name, pair.path_mtu, sent),
          "raise the MTU of what lies between them (a tunnel, a switch), or set that of both interfaces to what "
          "passes");
    }
  }

  void compare_pairs() {
    const bool is_measured = std::ranges::all_of(facts_.pairs, &PairFacts::is_measured);
    if (facts_.pairs.size() < 3 || !is_measured) return;
    const double bandwidth = median(&PairFacts::bytes_per_second);
    const double latency = median(&PairFacts::latency_s);
    for (const PairFacts& pair : facts_.pairs) {
      const auto names = fmt::format("{} and {}", facts_.hosts[pair.first].name, facts_.hosts[pair.second].name);
      if (pair.bytes_per_second < kSlowShare * bandwidth) {
        add(Severity::kWarning,
            fmt::format("{}: {}/s between them, {}/s between most hosts", names, bytes(pair.bytes_per_second),
                        bytes(bandwidth)),
            "look at their cables, ports and switches, and at who else uses them");
      }
      if (pair.latency_s > kLateTimes * latency) {
        add(Severity::kWarning,
            fmt::format("{}: a message takes {}, {} between most hosts", names, format_seconds(pair.latency_s),
                        format_seconds(latency)),
            "look at the way between them (another switch, another building), and at their load");
      }
    }
  }

  void check_transport() {
    const bool is_encrypted = facts_.transport.ends_with("tls");
    if (facts_.hosts.size() < 2 || is_encrypted) return;
    add(Severity::kWarning,
        fmt::format("what ranks send each other between hosts is not encrypted ({})", facts_.transport),
        "leave TESSERA_TRANSPORT out, or set it to tls; or train on a network that you trust");
  }

  void check_rank_table(const std::string& text, const std::string& name) {
    const auto add_unreadable = [&](const std::string& why) {
      add(Severity::kFault, fmt::format("{}: cannot be read as a rank table: {}", name, why),
          "write it as docs/cluster.md describes it");
    };
    nlohmann::json table;
    try {
      table = parse_bounded_json<nlohmann::json>(without_last_commas(text), "", {.name = "rank table"});
    } catch (const InvalidArgument& error) {
      return add_unreadable(error.what());
    }
    try {
      add_servers(table, name);
    } catch (const nlohmann::json::exception& error) {
      add_unreadable(plain_json_words(error.what()));
    }
  }

  std::vector<Finding> take() {
    std::ranges::stable_sort(found_, std::greater<>(), &Finding::severity);
    return std::move(found_);
  }

 private:
  static std::vector<std::string> addresses_of(const HostFacts& host) {
    std::vector<std::string> all;
    for (const auto& one : host.interfaces) all.insert(all.end(), one.addresses.begin(), one.addresses.end());
    return all;
  }
  static bool has_address(const HostFacts& host, const std::string& address) {
    return std::ranges::count(addresses_of(host), address) > 0;
  }
  static bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }
  static std::string bytes(double number) { return format_bytes(static_cast<int64_t>(number)); }

  double median(double PairFacts::*figure) const {
    std::vector<double> all;
    for (const PairFacts& pair : facts_.pairs) all.push_back(pair.*figure);
    std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
    return all[all.size() / 2];
  }

  // Throws InvalidArgument where it is none that a rank can have.
  static int number_of(const nlohmann::json& value) {
    const int64_t number = value.is_number() ? value.get<int64_t>() : parse_int(value.get<std::string>(), "rank_id");
    if (number >= 0 && number < std::numeric_limits<int>::max()) return static_cast<int>(number);
    throw InvalidArgument("rank_id {} is no rank's", number);
  }

  // Of either format: by servers, or by groups of instances.
  void add_servers(const nlohmann::json& table, const std::string& name) {
    std::map<int, std::string> server_of;
    const auto add_rank = [&](const nlohmann::json& rank, const std::string& server, const nlohmann::json& devices) {
      const int number = number_of(rank);
      if (!server_of.emplace(number, server).second) {
        add(Severity::kFault, fmt::format("{}: rank {} is in it twice", name, number),
            "give each rank a number of its own");
      }
      for (const auto& device : devices) {
        const std::string ip = device.value("device_ip", "");
        const HostFacts* host = facts_.host_of(number);
        if (ip.empty() || host == nullptr || has_address(*host, ip)) continue;
        add(Severity::kWarning,
            fmt::format("{}: device_ip {} of rank {} is no address of {} ({})", name, ip, number, host->name,
                        fmt::join(addresses_of(*host), ", ")),
            "Tessera does not use it: ranks meet by server_id");
      }
    };
    try {
      for (const auto& server : table.value("server_list", nlohmann::json::array())) {
        for (const auto& device : server.at("device")) {
          add_rank(device.at("rank_id"), server.at("server_id"), nlohmann::json::array({device}));
        }
      }
      for (const auto& group : table.value("group_list", nlohmann::json::array())) {
        for (const auto& instance : group.at("instance_list")) {
          add_rank(instance.at("rank_id"), instance.at("server_id"),
                   instance.value("devices", nlohmann::json::array()));
        }
      }
    } catch (const InvalidArgument& error) {
      add(Severity::kFault, fmt::format("{}: {}", name, error.what()), "ranks are numbers from 0 on");
      return;
    }
    compare_servers(server_of, name);
  }

  void compare_servers(const std::map<int, std::string>& server_of, const std::string& name) {
    const int num_ranks = facts_.num_ranks();
    if (static_cast<int>(server_of.size()) != num_ranks) {
      add(Severity::kFault,
          fmt::format("{}: it has {}, this job {}", name, plural(std::ssize(server_of), "rank"), num_ranks),
          "start as many ranks as it names, or write a table of as many");
    }
    std::map<std::pair<const HostFacts*, std::string>, std::vector<int>> elsewhere;
    for (const auto& [rank, server] : server_of) {
      const HostFacts* host = facts_.host_of(rank);
      if (host == nullptr) {
        if (static_cast<int>(server_of.size()) != num_ranks) continue;
        add(Severity::kFault, fmt::format("{}: it has a rank {} of {}", name, rank, num_ranks),
            "ranks are numbers from 0 on without a gap");
      } else if (server != host->name && !has_address(*host, server)) {
        elsewhere[{host, server}].push_back(rank);
      }
    }
    for (const auto& [where, ranks] : elsewhere) {
      const auto& [host, server] = where;
      add(Severity::kFault,
          fmt::format("{}: rank{} {} {} at {} there, but on {} ({}) here", name, ranks.size() == 1 ? "" : "s",
                      fmt::join(ranks, ", "), ranks.size() == 1 ? "is" : "are", server, host->name,
                      fmt::join(addresses_of(*host), ", ")),
          "write the server_id of the host that the ranks are started on");
    }
  }

  const ClusterFacts& facts_;
  std::vector<Finding> found_;
};

}  // namespace

const char* to_string(Severity severity) { return severity == Severity::kFault ? "fault" : "warning"; }

std::vector<Finding> find_faults(const ClusterFacts& facts, const std::string& rank_table,
                                 const std::string& rank_table_name) {
  Findings findings(facts);
  findings.compare_hosts();
  findings.check_reach();
  findings.check_paths();
  findings.compare_pairs();
  findings.check_transport();
  if (!rank_table.empty()) findings.check_rank_table(rank_table, rank_table_name);
  return findings.take();
}

}  // namespace tessera::tools
