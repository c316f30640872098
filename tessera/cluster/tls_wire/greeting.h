// Greeting: the first words of two ranks on a connection, within TLS, one from each side. They say of which job and
// generation the connection is, from which rank to which, and prove it by the secret of the ranks' connections: for
// this connection alone, since what is proven is bound to its keys. Pure.
//     u32 version   u32 channel   u32 from   u32 to   u32 size   u64 generation   32 bytes job   32 bytes proof
// Numbers are little-endian; `job` is a hash of the job's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/comm/wire/secret.h"

namespace tessera::cluster {

inline constexpr size_t kGreetingBytes = 5 * 4 + 8 + 2 * comm::kHashBytes;

// What all connections of a wire have in common.
struct WirePlace {
  std::string job_id;
  uint64_t generation = 0;
  int size = 1;
  int channel = 0;      // tells the connections of two ranks apart
  comm::Secret secret;  // that the ranks of this generation know
};

// What `from` says to `to`. `binding`: TlsSession::binding() of the connection.
std::string print_greeting(const WirePlace& place, int from, int to, std::string_view binding);

struct GreetingCheck {
  int from = -1;       // who greets; -1: nobody of this wire
  std::string reason;  // why, then
};

// Reads what was said to the rank `to`; `text` may be anything.
GreetingCheck check_greeting(const WirePlace& place, int to, std::string_view binding, std::string_view text);

}  // namespace tessera::cluster
