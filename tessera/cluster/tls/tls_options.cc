#include "tessera/cluster/tls/tls_options.h"

#include <fmt/format.h>
#include <sys/stat.h>

namespace tessera::cluster {

std::shared_ptr<const TlsContext> make_tls_context(const TlsOptions& options, TlsSide side, int64_t now_s, TlsUse use) {
  return options.certificates ? TlsContext::with_certificates(*options.certificates, side, now_s, use)
                              : TlsContext::with_secret(options.secret, side, use);
}

std::string stamp_of_files(const TlsOptions& options) {
  if (!options.certificates) return "";
  std::string stamp;
  const CertificateFiles& files = *options.certificates;
  for (const std::string& path : {files.identity_path, files.authority_path, files.revocation_path}) {
    struct stat status {};
    if (path.empty() || stat(path.c_str(), &status) != 0) {
      stamp += "- ";
      continue;
    }
    stamp += fmt::format("{}.{}.{}.{}.{} ", status.st_ino, status.st_size, status.st_mtim.tv_sec,
                         status.st_mtim.tv_nsec, status.st_ctim.tv_nsec);
  }
  return stamp;
}

}  // namespace tessera::cluster
