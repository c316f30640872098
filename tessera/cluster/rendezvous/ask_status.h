// ask_status() asks a scheduler how its job is, ask_resize() for another number of its ranks.
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

// Asks for so many ranks of an elastic job, and returns how it is then. Throws IoError where the scheduler refuses,
// with its reason, or does not answer within `timeout_ms`.
AnsweredStatus ask_resize(const HostPort& scheduler, const TlsOptions& tls, int num_ranks, int64_t timeout_ms);

}  // namespace tessera::cluster::rendezvous
