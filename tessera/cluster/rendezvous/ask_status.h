// ask_status() asks a scheduler how its job is.
#pragma once

#include <cstdint>

#include "tessera/cluster/rendezvous/host_port.h"
#include "tessera/cluster/rendezvous/messages/messages.h"
#include "tessera/cluster/tls/tls_options.h"

namespace tessera::cluster::rendezvous {

struct AnsweredStatus {
  JobStatus status;
  uint64_t generation = 0;
};

// Asks as an observer. Throws IoError where the scheduler does not answer within `timeout_ms`.
AnsweredStatus ask_status(const HostPort& scheduler, const TlsOptions& tls, int64_t timeout_ms);

}  // namespace tessera::cluster::rendezvous
