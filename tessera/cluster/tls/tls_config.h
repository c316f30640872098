// The file that says where a job's certificates are: JSON with the keys of the tutorials.
//   server_cert_path, client_cert_path   PKCS#12 of the scheduler and of the others
//   ca_cert_path                         the authority's certificate
//   crl_path                             revoked certificates; "" or missing: none
//   cipher_list                          OpenSSL's names, separated by colons; "" or missing: all
//   cert_expire_warning_time_in_day      7 to 180, 90 where it is missing
// A path that is relative begins at the file's folder.
#pragma once

#include <string>

#include "tessera/cluster/tls/certificates.h"
#include "tessera/cluster/tls/tls_context.h"

namespace tessera::cluster {

// Reads it for a side. Throws InvalidArgument naming the file and the key.
CertificateFiles read_tls_config(const std::string& path, TlsSide side, Password password);
// The same of the file's text, whatever that is; `path`: where it lies.
CertificateFiles parse_tls_config(const std::string& text, const std::string& path, TlsSide side, Password password);

}  // namespace tessera::cluster
