// What this host is to others, and which address it has on its network interfaces.
#pragma once

#include <string>

namespace tessera::cluster {

// The address of `interface` ("eth0"; IPv4 where it has one); when empty, of the first interface that is up and no
// loopback, else 127.0.0.1. Throws InvalidArgument naming the interfaces that exist.
std::string host_ip(const std::string& interface);

// The address by which this host reaches the one at `ip`, which nothing is sent to; "" where there is no way there, it
// is no address, or both are loopbacks.
std::string own_ip_towards(const std::string& ip);

// Why this host does not reach itself at 127.0.0.1, with the way out: its loopback interface is down, as in a network
// namespace that has just been made. "" where it does.
std::string why_no_loopback();

// This host's name, as a scheduler is told and reports have it.
std::string own_host_name();

// Equal for processes that can share memory: of the same boot of a machine, PID namespace, user and `id`.
std::string host_identity(const std::string& id);

}  // namespace tessera::cluster
