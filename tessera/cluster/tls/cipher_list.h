// A list of ciphers as configurations have it: OpenSSL's names, separated by colons. Tessera speaks TLS 1.3 only, whose
// suites name a cipher but no key exchange: a name of TLS 1.2 stands for the suite with its cipher.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::cluster {

struct CipherList {
  std::string suites;  // as SSL_CTX_set_ciphersuites takes it
  // What was dropped, each with its position: `cipher 3, "ECDHE-R SA-AES128-GCM-SHA256", is not known`.
  std::vector<std::string> notes;
};

// Reads a list; an empty one means all suites of TLS 1.3 that are usable. Throws InvalidArgument where nothing usable
// is left.
CipherList parse_cipher_list(std::string_view text);

}  // namespace tessera::cluster
