// PeerIdentity: who the other side of a connection is, as the handshake has shown it. One who has shown the job's
// secret may be any node; one with a certificate is what that says, in a URI among its alternative names:
//   tessera:ROLE:NODE_ID     ROLE is scheduler, worker or observer; NODE_ID a node id, or a beginning of ids and '*'
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::cluster {

// What a certificate allows its holder to be.
enum class CertificateRole : uint8_t { kScheduler, kWorker, kObserver };

struct PeerIdentity {
  bool is_certified = false;
  CertificateRole role = CertificateRole::kWorker;
  std::string node_id;
  std::string address = {};  // of its host, for people

  bool may_be_node(std::string_view id) const;
};

// "scheduler", "worker", "observer".
std::string_view name_of(CertificateRole role);

// Prints role and node id as the URI of a certificate.
std::string print_identity_uri(CertificateRole role, std::string_view node_id);
// Reads them; nullopt for any other text.
std::optional<PeerIdentity> parse_identity_uri(std::string_view uri);

}  // namespace tessera::cluster
