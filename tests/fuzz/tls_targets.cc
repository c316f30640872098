// What somebody shows who is not known yet: a certificate, or the first words of a rank; and the file that says where
// the own certificates are.
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <nlohmann/json.hpp>

#include "tessera/cluster/tls/certificates.h"
#include "tessera/cluster/tls/tls_config.h"
#include "tessera/cluster/tls_wire/greeting.h"
#include "tests/fuzz/mutators.h"
#include "tests/fuzz/round_trip.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {
namespace {

// Certificates

// A worker's, signed by itself, whose names are tessera:worker:left/*, left and 127.0.0.1.
constexpr std::string_view kCertificate =
    "MIIBpzCCAU6gAwIBAgIUPxlg1mvIR+TwpO2ezvBORMxKaUYwCgYIKoZIzj0EAwIwETEPMA0GA1UEAwwGd29ya2VyMB4XDTI2MTEy"
    "OTE2NTM0N1oXDTM2MTEyNjE2NTM0N1owETEPMA0GA1UEAwwGd29ya2VyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE/r5gSJlc"
    "FQ7Ju6IrbaqaZgtlhM1qMwlTh5sZHGODeT1Y3SA17OijXYYKS0x5SfQCz19/EHYcheVJKy5EtNjT36OBgzCBgDAMBgNVHRMBAf8E"
    "AjAAMA4GA1UdDwEB/wQEAwIHgDATBgNVHSUEDDAKBggrBgEFBQcDAjAsBgNVHREEJTAjhhV0ZXNzZXJhOndvcmtlcjpsZWZ0LyqC"
    "BGxlZnSHBH8AAAEwHQYDVR0OBBYEFMEVPgQ7JV3/up+508AKc2rC9vADMAoGCCqGSM49BAMCA0cAMEQCIA+QhnQwAD9vxF3JxMO+"
    "/+RSAJ+Ixk85WgyPB030s36dAiBtbdL+AtbW3IHa2ksimI2T5vqCA8GrhZkNiWdYmTAWbw==";
constexpr std::string_view kUri = "tessera:worker:left/*";
constexpr int64_t kNowSeconds = 1'800'000'000;

std::string decode_base64(std::string_view text) {
  std::string bytes(text.size(), '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  bytes.resize(static_cast<size_t>(size) - (text.size() - text.find_last_not_of('=') - 1));
  return bytes;
}

bool certificate_parses(const std::string& bytes) {
  const auto* begin = reinterpret_cast<const unsigned char*>(bytes.data());
  const cluster::X509Pointer certificate(d2i_X509(nullptr, &begin, static_cast<long>(bytes.size())));  // NOLINT
  ERR_clear_error();
  if (certificate == nullptr) return false;
  const cluster::StorePointer nobody(X509_STORE_new());
  if (cluster::why_untrusted(certificate.get(), nullptr, nobody.get(), kNowSeconds).empty()) {
    throw Broken("a certificate is trusted where no authority is");
  }
  const auto identity = cluster::identity_of(certificate.get());
  if (!identity) return false;
  const std::string uri = cluster::print_identity_uri(identity->role, identity->node_id);
  const auto again = cluster::parse_identity_uri(uri);
  if (!again || again->role != identity->role || again->node_id != identity->node_id) {
    throw Broken("a role and node that were read do not come back");
  }
  return true;
}

struct DerElement {
  unsigned char tag = 0;
  std::string body;
};

// The elements of which the bytes are made, one behind the other; none where they are not.
std::vector<DerElement> parse_der(std::string_view bytes) {
  std::vector<DerElement> found;
  while (bytes.size() >= 2) {
    const auto tag = static_cast<unsigned char>(bytes[0]);
    size_t size = static_cast<unsigned char>(bytes[1]);
    size_t begin = 2;
    if (size > 0x80) {
      const size_t end = begin + (size & 0x7FU);
      if (end > begin + 3 || end > bytes.size()) return {};
      for (size = 0; begin < end; ++begin) size = size << 8U | static_cast<unsigned char>(bytes[begin]);
    }
    if (size > bytes.size() - begin) return {};
    found.push_back({tag, std::string(bytes.substr(begin, size))});
    bytes.remove_prefix(begin + size);
  }
  return bytes.empty() ? found : std::vector<DerElement>{};
}

std::string print_der(const DerElement& element, size_t size) {
  std::string bytes(1, static_cast<char>(element.tag));
  if (size >= 0x80) bytes += {static_cast<char>(0x82), static_cast<char>(size >> 8U & 0xFFU)};
  return bytes + static_cast<char>(size & 0xFFU) + element.body;
}

// Takes the elements apart, drops, repeats, renames and changes some, nested ones too, and writes them with right
// lengths but for one in sixteen, which lies.
std::string mutate_der(const std::string& bytes, Draws& draws) {
  std::vector<DerElement> elements = parse_der(bytes);
  if (elements.empty()) return mutate_bytes(bytes, draws);
  const size_t at = draws.below(elements.size());
  const auto place = elements.begin() + static_cast<std::ptrdiff_t>(at);
  if (draws.one_in(16)) {
    elements.erase(place);
  } else if (draws.one_in(16)) {
    elements.insert(place, DerElement(draws.pick(elements)));
  } else {
    if (draws.one_in(16)) place->tag = static_cast<unsigned char>(draws.below(256));
    place->body = mutate_der(place->body, draws);
  }
  std::string made;
  for (const DerElement& element : elements) {
    const bool lies = draws.one_in(16 * elements.size());
    made += print_der(element, lies ? static_cast<size_t>(draws.pick(telling_numbers())) : element.body.size());
  }
  return made;
}

// Half of what is made is a whole certificate with another role and node, or with what is none.
std::string mutate_certificate(const std::string& bytes, Draws& draws) {
  const size_t at = bytes.find(kUri);
  if (draws.one_in(2) || at == std::string::npos) return mutate_der(bytes, draws);
  std::string made = bytes;
  for (size_t left = 1 + draws.below(4); left > 0; --left) {
    made[at + draws.below(kUri.size())] = static_cast<char>(draws.one_in(2) ? draws.below(256) : draws.below(95) + 32);
  }
  return made;
}

// The configuration

constexpr const char* kConfig =
    R"({"server_cert_path": "server.p12", "crl_path": "/etc/crl.pem", "client_cert_path": "client.p12", )"
    R"("ca_cert_path": "ca.crt", "cipher_list": "TLS_AES_128_GCM_SHA256", "cert_expire_warning_time_in_day": 90})";

bool config_parses(const std::string& text) {
  const auto parse = [](const std::string& bytes) {
    return cluster::parse_tls_config(bytes, "/folder/config.json", cluster::TlsSide::kClient, cluster::Password());
  };
  const auto print = [](const cluster::CertificateFiles& files) {
    return nlohmann::json{{"client_cert_path", files.identity_path},
                          {"ca_cert_path", files.authority_path},
                          {"crl_path", files.revocation_path},
                          {"cipher_list", files.ciphers},
                          {"cert_expire_warning_time_in_day", files.warning_days}}
        .dump();
  };
  const auto same = [](const cluster::CertificateFiles& a, const cluster::CertificateFiles& b) {
    return a.identity_path == b.identity_path && a.authority_path == b.authority_path &&
           a.revocation_path == b.revocation_path && a.ciphers == b.ciphers && a.warning_days == b.warning_days;
  };
  return comes_back(text, parse, print, same);
}

// A rank's first words

constexpr const char* kBinding = "of this connection";

cluster::WirePlace place_of_greeting() {
  return {.job_id = "job",
          .generation = 3,
          .size = 4,
          .channel = 0,
          .secret = comm::Secret("32 bytes that nobody else knows.", "fuzz")};
}

bool greeting_parses(const std::string& text) {
  const auto check = cluster::check_greeting(place_of_greeting(), /*to=*/0, kBinding, text);
  if (check.from < 0) {
    if (check.reason.empty()) throw Broken("somebody is refused without a reason");
    return false;
  }
  if (text != cluster::print_greeting(place_of_greeting(), check.from, /*to=*/0, kBinding)) {
    throw Broken("words are believed that no rank of this connection says");
  }
  return true;
}

}  // namespace

std::vector<Target> tls_targets() {
  const std::string greeting = cluster::print_greeting(place_of_greeting(), /*from=*/1, /*to=*/0, kBinding);
  return {{"certificate", {decode_base64(kCertificate)}, mutate_certificate, certificate_parses},
          {"tls_config", {kConfig}, mutate_json, config_parses},
          {"greeting", {greeting}, mutate_bytes, greeting_parses}};
}

}  // namespace tessera::fuzz
