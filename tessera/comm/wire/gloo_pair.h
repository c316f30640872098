// Gloo's TCP, whose listeners take whoever comes first, with proofs before its first byte: both ends of a pair show
// each other that they know the secret and are the ranks that the pair is meant for. What a stranger sends never
// reaches Gloo. Nothing is encrypted, and what follows the proof is not authenticated.
#pragma once

#include <gloo/transport/device.h>

#include <chrono>
#include <memory>
#include <string>

#include "tessera/comm/wire/secret.h"

namespace tessera::comm {

struct PairProof {
  Secret secret;
  int size = 1;
  int attempt = 0;                         // a proof holds for one
  std::chrono::milliseconds time_limit{};  // from the connection on
};

// A device at this host's `address`. A context that connects by it throws std::exceptions where a pair is not proven.
std::shared_ptr<::gloo::transport::Device> make_proven_device(const std::string& address, const PairProof& proof);

}  // namespace tessera::comm
