// TlsOptions: by what a process shows who it is, as it was told: certificates where there are some, else the secret.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tessera/cluster/tls/tls_context.h"

namespace tessera::cluster {

struct TlsOptions {
  comm::Secret secret;
  std::optional<CertificateFiles> certificates;
};

// Makes the context of a side; throws InvalidArgument as the contexts do.
std::shared_ptr<const TlsContext> make_tls_context(const TlsOptions& options, TlsSide side, int64_t now_s,
                                                   TlsUse use = TlsUse::kRendezvous);

// Reads the files' places: equal texts where no file has changed.
std::string stamp_of_files(const TlsOptions& options);

}  // namespace tessera::cluster
