// What `tessera cluster check` knows of the hosts of a job, as their ranks say it or as it was measured.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::tools {

struct InterfaceFacts {
  std::string name;
  std::vector<std::string> addresses;
  int64_t mtu = 0;          // bytes
  int64_t speed_mbits = 0;  // of the link; 0: the system does not say
  bool operator==(const InterfaceFacts&) const = default;
};

// One host, of which the lowest rank speaks.
struct HostFacts {
  std::string id;    // no other host's: ranks of one share memory
  std::string name;  // as the host calls itself
  std::vector<int> ranks;
  std::string version;  // of Tessera
  std::string kernel;   // of the system
  std::string cpu;
  std::vector<std::string> cpu_features;
  int64_t cores = 0;  // that the rank may use
  int64_t memory_bytes = 0;
  int64_t open_files = 0;  // that a process may have
  std::string address;     // at which other hosts reach its ranks
  std::vector<InterfaceFacts> interfaces;
  std::map<std::string, std::string>
      resolved;               // names of hosts, this one among them, to an address; "" where there is none
  double clock_offset_s = 0;  // ahead of the first host's
  bool operator==(const HostFacts&) const = default;
};

// How fast two hosts reach each other, or two ranks of the only one.
struct PairFacts {
  size_t first = 0;  // among the hosts
  size_t second = 0;
  double latency_s = 0;         // from one to the other: half of a way there and back, the median
  double bytes_per_second = 0;  // in the slower direction
  int64_t path_mtu = 0;         // bytes of the largest packet that comes through whole; 0: it is not known
  std::string unreachable;      // why ranks of one do not reach those of the other; "" where they do
  bool is_measured = true;      // where some hosts do not reach each other, none are
};

struct ClusterFacts {
  std::string transport;
  std::vector<HostFacts> hosts;
  std::vector<PairFacts> pairs;
  std::string missing;  // which ranks have not come, in words; "" where all have

  int num_ranks() const;
  // The host of a rank; null where there is no such rank.
  const HostFacts* host_of(int rank) const;
};

// The interface that has the host's address; null where none has.
const InterfaceFacts* interface_of(const HostFacts& host);
// Of that interface; 0 where there is none.
int64_t mtu_of(const HostFacts& host);

std::string print_host(const HostFacts& host);
// Throws InvalidArgument where the text is none that print_host() has made.
HostFacts parse_host(const std::string& text);

}  // namespace tessera::tools
