// Gloo over TCP, for ranks on several hosts: it moves bytes, the collectives are ours.
#pragma once

#include <memory>
#include <string>

#include "tessera/comm/store.h"
#include "tessera/comm/wire/secret.h"
#include "tessera/comm/wire/wire.h"

namespace tessera::comm {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string address;  // where the other ranks reach this one: "192.0.2.7"
  int64_t timeout_ms = 30000;
  Secret secret;  // proven at both ends of each connection before its first tensor
};

// Connects every rank with every other; all ranks call it. Where a stranger took a connection, or one failed, all ranks
// connect anew, up to four times. Throws IoError when that fails, too. `store` is used only here,
// `job` outlives the wire. Ignores SIGPIPE in this process unless the program handles it: Gloo writes to connections
// whose peer may have died.
std::shared_ptr<Wire> make_gloo_wire(const GlooOptions& options, Store& store, JobState& job);

}  // namespace tessera::comm
