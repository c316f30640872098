#include "tessera/tools/check/measure.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <memory>
#include <optional>
#include <span>

#include "tessera/engine.h"
#include "tessera/tools/check/cpu_features.h"
#include "tessera/tools/check/packet_end.h"
#include "tessera/tools/check/survey_facts.h"

namespace tessera::tools {
namespace {

constexpr const char* kWho = "cluster check";
constexpr int kClockQuestions = 20;

double seconds_now() { return static_cast<double>(Clock::system().monotonic_ns()) / 1e9; }
// What a clock on the wall shows, to a millisecond.
double time_of_day() { return static_cast<double>(Clock::system().wall_ms()) / 1e3; }

int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::max<int64_t>(number, 0) : 0;
}

std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  if (address->sa_family == AF_INET6) bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (bytes == nullptr || inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr) return "";
  return text.data();
}

// Those that are up.
std::vector<InterfaceFacts> own_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<InterfaceFacts> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_UP) == 0 || entry->ifa_addr == nullptr) continue;
    const auto address = text_of(entry->ifa_addr);
    if (address.empty()) continue;
    auto known = std::ranges::find(found, entry->ifa_name, &InterfaceFacts::name);
    if (known == found.end()) {
      const auto folder = fmt::format("/sys/class/net/{}/", entry->ifa_name);
      known = found.insert(
          known,
          {.name = entry->ifa_name, .mtu = number_in(folder + "mtu"), .speed_mbits = number_in(folder + "speed")});
    }
    known->addresses.push_back(address);
  }
  return found;
}

// "" where the name has no address.
std::string resolve(const std::string& name) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &wanted, &list) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  return text_of(list->ai_addr);
}

HostFacts own_facts(int rank, const MeasureOptions& options) {
  utsname system{};
  uname(&system);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  HostFacts host{.id = cluster::host_identity(cluster::host_id_from_environment()),
                 .name = system.nodename,
                 .ranks = {rank},
                 .version = options.version,
                 .kernel = fmt::format("{} {}", system.sysname, system.release),
                 .cpu = kernels::cpu_model(),
                 .cpu_features = cpu_features(),
                 .cores = cluster::num_cores(),
                 .memory_bytes = memory_of_machine(),
                 .open_files = static_cast<int64_t>(std::min<rlim_t>(files.rlim_cur, INT64_MAX)),
                 .interfaces = own_interfaces()};
  host.address = cluster::host_ip(cluster::interface_from_environment());
  return host;
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

// What is lost on a way that takes a packet of this size does not come thrice.
constexpr int kSameSize = 3;
constexpr int kArrivalMs = 100;
// IP lets everybody send as much, and has no larger packets than the second.
constexpr int64_t kLeastPacket = 576;
constexpr int64_t kMostPacket = 65535;

// Between two ranks of a job, of which this is one.
class Between {
 public:
  Between(comm::Communicator& world, int peer) : world_(world), peer_(peer), begins_(world.rank() < peer) {}

  // Half of a way there and back of an empty message, on the one that begins; 0 on the other.
  double latency(int count) {
    std::vector<double> times;
    for (int i = 0; i < count; ++i) {
      char byte = 0;
      const double begin = seconds_now();
      pass(&byte, 1);
      times.push_back((seconds_now() - begin) / 2);
    }
    return begins_ ? median(times) : 0;
  }
  // Of the slower direction, on the one that begins.
  double bytes_per_second(std::span<std::byte> bytes, int count) {
    std::vector<double> there, back;
    for (int i = 0; i < count; ++i) {
      for (std::vector<double>* times : {&there, &back}) {
        const bool sends = begins_ == (times == &there);
        const double begin = seconds_now();
        char done = 0;
        if (sends) {
          world_.send(bytes.data(), std::ssize(bytes), DType::kU8, peer_, kWho);
          world_.receive(&done, 1, DType::kU8, peer_, kWho);
        } else {
          world_.receive(bytes.data(), std::ssize(bytes), DType::kU8, peer_, kWho);
          world_.send(&done, 1, DType::kU8, peer_, kWho);
        }
        times->push_back(seconds_now() - begin);
      }
    }
    return begins_ ? static_cast<double>(bytes.size()) / std::max(median(there), median(back)) : 0;
  }
  // The largest packet that comes through whole, both there and back, of up to `most` bytes; 0 where none does.
  int64_t path_mtu(const std::string& own_address, const std::string& peer_address, int64_t most) {
    std::optional<PacketEnd> end;
    const auto attempt = [](const auto& f) {
      try {
        f();
        return true;
      } catch (const IoError& error) {
        log_warning("packets between hosts are not measured: {}", error.what());
        return false;
      }
    };
    const int64_t own_port = attempt([&] { end.emplace(own_address); }) ? end->port() : 0;
    const int64_t port = exchange(own_port);
    if (own_port == 0 || port == 0) return 0;
    const bool is_connected = attempt([&] { end->connect(peer_address, static_cast<uint16_t>(port)); });
    // Both hear only each other from here on, or both measure nothing.
    if (exchange(is_connected ? 1 : 0) == 0 || !is_connected) return 0;
    const int64_t there = largest_packet(*end, begins_, most);
    const int64_t back = largest_packet(*end, !begins_, most);
    return std::min(there, back);
  }
  // By how much the other one's clock is ahead, on the one that begins: by the exchange that was fastest.
  double clock_offset(int count) {
    double fastest = INFINITY, offset = 0;
    for (int i = 0; i < count; ++i) {
      char byte = 0;
      double there = 0;
      if (begins_) {
        const double begin = time_of_day();
        world_.send(&byte, 1, DType::kU8, peer_, kWho);
        world_.receive(&there, 1, DType::kF64, peer_, kWho);
        const double end = time_of_day();
        if (end - begin < fastest) {
          fastest = end - begin;
          offset = there - (begin + end) / 2;
        }
      } else {
        world_.receive(&byte, 1, DType::kU8, peer_, kWho);
        there = time_of_day();
        world_.send(&there, 1, DType::kF64, peer_, kWho);
      }
    }
    return offset;
  }

 private:
  // Gives the other one a number for its own.
  int64_t exchange(int64_t own) {
    int64_t other = 0;
    if (begins_) world_.send(&own, 1, DType::kI64, peer_, kWho);
    world_.receive(&other, 1, DType::kI64, peer_, kWho);
    if (!begins_) world_.send(&own, 1, DType::kI64, peer_, kWho);
    return other;
  }
  // In one direction; both get the same.
  int64_t largest_packet(PacketEnd& end, bool sends, int64_t most) {
    int64_t size = 0;
    char has_come = 0;
    if (sends) {
      const int64_t largest = largest_that(kLeastPacket, most, [&](int64_t tried) {
        for (int i = 0; i < kSameSize; ++i) end.send(tried);
        world_.send(&tried, 1, DType::kI64, peer_, kWho);
        world_.receive(&has_come, 1, DType::kU8, peer_, kWho);
        return has_come != 0;
      });
      size = -largest;  // no more are tried
      world_.send(&size, 1, DType::kI64, peer_, kWho);
      return largest;
    }
    while (true) {
      world_.receive(&size, 1, DType::kI64, peer_, kWho);
      if (size <= 0) return -size;
      has_come = end.receives(size, kArrivalMs) ? 1 : 0;
      world_.send(&has_come, 1, DType::kU8, peer_, kWho);
    }
  }
  void pass(void* data, int64_t count) {
    if (begins_) world_.send(data, count, DType::kU8, peer_, kWho);
    world_.receive(data, count, DType::kU8, peer_, kWho);
    if (!begins_) world_.send(data, count, DType::kU8, peer_, kWho);
  }

  comm::Communicator& world_;
  int peer_;
  bool begins_;
};

// Rounds in which each of so many is in one pair at most, and all pairs together.
std::vector<std::vector<std::pair<size_t, size_t>>> rounds_of(size_t count) {
  const size_t even = count + count % 2;  // the last one is nobody where the number is odd
  std::vector<size_t> circle(even);
  for (size_t i = 0; i < even; ++i) circle[i] = i;
  std::vector<std::vector<std::pair<size_t, size_t>>> rounds;
  for (size_t round = 0; round + 1 < even; ++round) {
    auto& pairs = rounds.emplace_back();
    for (size_t i = 0; i < even / 2; ++i) {
      const auto [low, high] = std::minmax(circle[i], circle[even - 1 - i]);
      if (high < count) pairs.emplace_back(low, high);
    }
    std::rotate(circle.begin() + 1, circle.end() - 1, circle.end());
  }
  return rounds;
}

// Each pair's figures are known to the one that begins, and then to all.
std::vector<PairFacts> measure_pairs(comm::Communicator& world, const std::vector<HostFacts>& hosts,
                                     const std::vector<int>& ranks, const MeasureOptions& options) {
  const bool measures = std::ranges::count(ranks, world.rank()) > 0;
  std::vector<std::byte> bytes(measures ? static_cast<size_t>(options.bytes) : 0);
  std::vector<PairFacts> pairs;
  constexpr int kShortOnes = 10;
  for (const auto& round : rounds_of(ranks.size())) {
    for (const auto& [first, second] : round) {
      pairs.push_back({.first = first, .second = second});
      if (world.rank() != ranks[first] && world.rank() != ranks[second]) continue;
      const bool is_first = world.rank() == ranks[first];
      Between between(world, is_first ? ranks[second] : ranks[first]);
      if (hosts.size() > 1) {
        const HostFacts& own = hosts[is_first ? first : second];
        const HostFacts& other = hosts[is_first ? second : first];
        const int64_t most = std::min({mtu_of(own), mtu_of(other), kMostPacket});
        if (most > kLeastPacket) pairs.back().path_mtu = between.path_mtu(own.address, other.address, most);
      }
      between.latency(kShortOnes);  // what is made at the first message is no part of its time
      pairs.back().latency_s = between.latency(kShortOnes * options.num_messages);
      pairs.back().bytes_per_second = between.bytes_per_second(bytes, options.num_messages);
    }
    world.barrier(kWho);
  }
  for (PairFacts& pair : pairs) {
    std::array figures{pair.latency_s, pair.bytes_per_second, static_cast<double>(pair.path_mtu)};
    world.broadcast(figures.data(), std::ssize(figures), DType::kF64, ranks[pair.first], kWho);
    pair.latency_s = figures[0];
    pair.bytes_per_second = figures[1];
    pair.path_mtu = static_cast<int64_t>(figures[2]);
  }
  return pairs;
}

}  // namespace

std::string words_of_host(int rank, const MeasureOptions& options) { return print_host(own_facts(rank, options)); }

ClusterFacts measure_cluster(cluster::Context& context, const MeasureOptions& options) {
  comm::Communicator& world = context.world();
  HostFacts own = own_facts(context.rank(), options);
  auto hosts = by_host(session::gather_texts(world, print_host(own), kWho));
  for (const HostFacts& host : hosts) own.resolved[host.name] = resolve(host.name);
  std::vector<double> offsets(hosts.size());
  for (size_t i = 1; i < hosts.size(); ++i) {
    const int asked = hosts[i].ranks.front();
    if (world.rank() == 0) offsets[i] = Between(world, asked).clock_offset(kClockQuestions);
    if (world.rank() == asked) Between(world, 0).clock_offset(kClockQuestions);
    world.barrier(kWho);
  }
  world.broadcast(offsets.data(), std::ssize(offsets), DType::kF64, 0, kWho);
  hosts = by_host(session::gather_texts(world, print_host(own), kWho));
  std::vector<int> ranks;
  for (size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].clock_offset_s = offsets[i];
    ranks.push_back(hosts[i].ranks.front());
  }
  name_apart(hosts);
  if (hosts.size() == 1 && world.size() > 1) ranks.push_back(1);
  auto pairs = measure_pairs(world, hosts, ranks, options);
  return {.transport = context.transport(), .hosts = std::move(hosts), .pairs = std::move(pairs)};
}

}  // namespace tessera::tools
