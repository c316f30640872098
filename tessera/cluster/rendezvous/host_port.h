// Addresses of a scheduler: HOST:PORT, with an IPv6 address in brackets.
#pragma once

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

}  // namespace tessera::cluster::rendezvous
