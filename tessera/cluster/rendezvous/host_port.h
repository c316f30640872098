// What a user says of a scheduler: its address, HOST:PORT, with an IPv6 address in brackets, and the node id by which
// it knows a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::cluster::rendezvous {

struct HostPort {
  std::string host;
  uint16_t port = 0;

  // Prints it so that it is read again.
  std::string text() const;
};

// Reads an address. Throws InvalidArgument naming `what`: no host, no port, a port beyond 65535.
HostPort parse_host_port(std::string_view text, std::string_view what);

// A launcher adds "/N" to its node id for each of its ranks.
inline constexpr size_t kMaxNodeIdOfLauncher = 90;

// Throws InvalidArgument naming `what` unless `id` is 1 to `max_bytes` visible characters of ASCII: others would break
// the lines of logs, and the scheduler refuses them.
void check_node_id(std::string_view id, std::string_view what, size_t max_bytes);

}  // namespace tessera::cluster::rendezvous
