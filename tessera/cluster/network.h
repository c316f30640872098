// Which address this host has on its network interfaces.
#pragma once

#include <string>

namespace tessera::cluster {

// The address of `interface` ("eth0"; IPv4 where it has one); when empty, of the first interface that is up and no
// loopback, else 127.0.0.1. Throws InvalidArgument naming the interfaces that exist.
std::string host_ip(const std::string& interface);

}  // namespace tessera::cluster
