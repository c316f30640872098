#include "tessera/cluster/tls/peer_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tessera::cluster {
namespace {

constexpr std::string_view kScheme = "tessera:";
constexpr std::string_view kRoleNames[] = {"scheduler", "worker", "observer"};
constexpr size_t kMaxNodeIdBytes = 100;

}  // namespace

bool PeerIdentity::may_be_node(std::string_view id) const {
  if (!is_certified) return true;
  const std::string_view own(node_id);
  return own.ends_with('*') ? id.starts_with(own.substr(0, own.size() - 1)) : id == own;
}

std::string_view name_of(CertificateRole role) { return kRoleNames[static_cast<size_t>(role)]; }

std::string print_identity_uri(CertificateRole role, std::string_view node_id) {
  return fmt::format("{}{}:{}", kScheme, name_of(role), node_id);
}

std::optional<PeerIdentity> parse_identity_uri(std::string_view uri) {
  if (!uri.starts_with(kScheme)) return std::nullopt;
  uri.remove_prefix(kScheme.size());
  const size_t colon = uri.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto* role = std::ranges::find(kRoleNames, uri.substr(0, colon));
  const std::string_view node_id = uri.substr(colon + 1);
  const bool is_id = !node_id.empty() && node_id.size() <= kMaxNodeIdBytes &&
                     std::ranges::all_of(node_id, [](char c) { return c > ' ' && c < '\x7f'; });
  if (role == std::end(kRoleNames) || !is_id) return std::nullopt;
  return PeerIdentity{.is_certified = true,
                      .role = static_cast<CertificateRole>(role - std::begin(kRoleNames)),
                      .node_id = std::string(node_id)};
}

}  // namespace tessera::cluster
