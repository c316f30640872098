#include "tessera/cluster/rendezvous/host_port.h"

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/rendezvous/messages/frame.h"

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
  const std::string_view port = text.substr(colon + 1);
  const bool is_number = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == port.npos;
  const int64_t number = is_number ? parse_int(port, what) : -1;
  if (number < 0 || number > 65535) {
    throw InvalidArgument("{}: expected HOST:PORT, as 10.0.0.1:6667, with a port up to 65535, got \"{}\"", what,
                          printable(text));
  }
  return {std::string(host), static_cast<uint16_t>(number)};
}

void check_node_id(std::string_view id, std::string_view what, size_t max_bytes) {
  if (is_visible(id) && id.size() <= max_bytes) return;
  constexpr size_t kShown = 120;  // shows which one it is
  std::string shown;
  for (const char c : id.substr(0, kShown)) {
    shown += is_visible({&c, 1}) ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  throw InvalidArgument("{} must be 1 to {} visible characters of ASCII, without spaces, got {}: \"{}{}\"", what,
                        max_bytes, id.size(), shown, id.size() > kShown ? "..." : "");
}

}  // namespace tessera::cluster::rendezvous
