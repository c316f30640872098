#include "tessera/cluster/rendezvous/host_port.h"

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"

namespace tessera::cluster::rendezvous {

std::string HostPort::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

HostPort parse_host_port(std::string_view text, std::string_view what) {
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (has_brackets) host = host.substr(1, host.size() - 2);
  const bool is_host =
      colon != std::string_view::npos && !host.empty() && (has_brackets || host.find(':') == std::string_view::npos);
  if (!is_host) {
    throw InvalidArgument("{}: expected HOST:PORT, an IPv6 address in brackets, got \"{}\"", what, printable(text));
  }
  const int64_t port = parse_int(text.substr(colon + 1), what);
  if (port < 0 || port > 65535) throw InvalidArgument("{}: a port is from 0 to 65535, got {}", what, port);
  return {std::string(host), static_cast<uint16_t>(port)};
}

}  // namespace tessera::cluster::rendezvous
