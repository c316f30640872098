// What somebody shows who is not known yet: a certificate, or the first words of a rank; and the files of the own
// certificate, of revoked ones, and that say where these are.
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

// Files of the own certificate and its key

// A worker's: with a code that shows whether it was changed, and the password "pass"; without one, which OpenSSL takes
// with an empty password only; and without one and without a word that is encrypted. Passwords are hashed once.
constexpr std::string_view kWithCode =
    "MIIEWQIBAzCCBBMGCSqGSIb3DQEHAaCCBAQEggQAMIID/DCCAqEGCSqGSIb3DQEHBqCCApIwggKOAgEAMIIChwYJKoZIhvcNAQcB"
    "MFYGCSqGSIb3DQEFDTBJMCgGCSqGSIb3DQEFDDAbBAiwTSQn0WS1HwIBATAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQj24Y"
    "M37+nzF6JkgdLSKkiICCAiB3ee9enQ1BsuAdEN24KkKdq76rEGnJC85tmziODrG89+CXZij/i3DhXce+DdMmysepds4hUpm5+2pZ"
    "3rmXrBiIKqOL51x6bhZWcM1SvgtNgBmbZe9eSHLw1aGoiOq0hKEXOSEGLboyFyt5SlDtdYJ/Mx7RN1xGPzvhinusPPlk/w6/QJ0y"
    "HFUUpDoF/tBb60C4NHFYZt/UL1X9F2H2+eMHa1CjLPsyxN4PW6VFiRAHelSewAPXKCxeka7KQK6X8OovNFwhwd5ygAFYlWGXHjfy"
    "h5jIt0fopFPeqtrvfLMBvHkAQjxtjndROqdY+x0gJJrSmQWPPlW4s1JjtZ1CdOpSb/divQCiwJt6DgW+JL9WVgvfJ4XDch/Z5YQu"
    "Dt93MKyXFSmmBZqAlfHvYDou+213hiFum+42v7rn+Og8o9FtT665pFjygotsDBfmlaruY7yb0nwB7v/UnPJqg7tegUHmYzeXbQsh"
    "LGx8CZGH6fekcHkghLWUtFaPhzu8nL17GahfMWt/v4eZ8Y1ybSml+rYQfL/Jwv3rC/nYEB7ArbeESqRDr0rL084aG5WHePhlJ68A"
    "RaX7JYjrwV4r83tvJJvXr+v4plUh712bDaQZ+Dqgz1EUVFtHbRanvcC2Mz9koU6NLZip/xb6j2U7NHo2AI2tF/Bkc0OQzxOzpzyg"
    "VrypIHZR4CVLVqXyYY9zOd1tJiMtbsZ+y7ucIqOM9K7kgRnUMIIBUwYJKoZIhvcNAQcBoIIBRASCAUAwggE8MIIBOAYLKoZIhvcN"
    "AQwKAQKgge4wgeswVgYJKoZIhvcNAQUNMEkwKAYJKoZIhvcNAQUMMBsECDxZyVmPZKXOAgEBMAwGCCqGSIb3DQIJBQAwHQYJYIZI"
    "AWUDBAEqBBAIWD/KVJTzortpeWzACgO3BIGQ5nQ+eZeGCLMAUtb62XOOAEDfGe87ftFhfi1pjB3gw7nXFtuTba9RGKMa0RJc75n8"
    "96S6Sd/Z9uRVSZn3GSVGdNcpGcGhSAR2CEEbddftv7biO0i9OZmRAQ09xsa+XrBXljIQa2P3StwWhX40CUUt5X7gEvZNam3sBAsn"
    "t1lwPqi0qIAJiW6xrxGHGhgoOvxVMTgwEQYJKoZIhvcNAQkUMQQeAgB3MCMGCSqGSIb3DQEJFTEWBBQh2lyKisMy3JGzUV6B8NX1"
    "CK+PVzA9MDEwDQYJYIZIAWUDBAIBBQAEIGAg/8ST/rssLtjpW+liUIKSvtdo6LS1jHhILupuT4+5BAiwIjVTk+DdfQ==";
constexpr std::string_view kWithoutCode =
    "MIIDqgIBAzCCA6MGCSqGSIb3DQEHAaCCA5QEggOQMIIDjDCCAjEGCSqGSIb3DQEHAaCCAiIEggIeMIICGjCCAhYGCyqGSIb3DQEM"
    "CgEDoIIByzCCAccGCiqGSIb3DQEJFgGgggG3BIIBszCCAa8wggFUoAMCAQICAhI0MAoGCCqGSM49BAMCMBQxEjAQBgNVBAMMCWF1"
    "dGhvcml0eTAeFw0yNjExMjkyMDI2NDZaFw0zNjExMjYyMDI2NDZaMBExDzANBgNVBAMMBndvcmtlcjBZMBMGByqGSM49AgEGCCqG"
    "SM49AwEHA0IABAUecTBH9Fmdp3gygFUeE0AaeLrcT4b0wr88GdAEwmftDmcGODXWIkcbUecN0WLNHaaNLZOCJF+9jMJOPeY8LX2j"
    "gZgwgZUwDAYDVR0TAQH/BAIwADAOBgNVHQ8BAf8EBAMCB4AwEwYDVR0lBAwwCgYIKwYBBQUHAwIwIAYDVR0RBBkwF4YVdGVzc2Vy"
    "YTp3b3JrZXI6bGVmdC8qMB0GA1UdDgQWBBQpa9q6aheV0gdHROMGLLEwTi1WJzAfBgNVHSMEGDAWgBQdNdkvRj5M51y0Qy9p+7F1"
    "HUHSQTAKBggqhkjOPQQDAgNJADBGAiEAppcmWE6EL/+LTQ8TNI8PaEcR2mfbjoNBdCbn6DRJj9ECIQD/0BJaMhw7XvxOgSj+yu32"
    "y6uTlHDKdLhSO3PpS2UW3TE4MBEGCSqGSIb3DQEJFDEEHgIAdzAjBgkqhkiG9w0BCRUxFgQUIdpciorDMtyRs1FegfDV9Qivj1cw"
    "ggFTBgkqhkiG9w0BBwGgggFEBIIBQDCCATwwggE4BgsqhkiG9w0BDAoBAqCB7jCB6zBWBgkqhkiG9w0BBQ0wSTAoBgkqhkiG9w0B"
    "BQwwGwQItu8STgfEVuICAQEwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEKMOLLV/HDCziXeFfdjHji0EgZCbwqy71KJ0aDg0"
    "VDUf/fFCEk5ovLvGe2du4u+Rv/YC+ZnLVACfhdag2kxywoG53sfyACPMaz8bAG6s45CP+vsPMMEg5/8h5tlYWfQvQbrz+XEPepfJ"
    "9RT/We4i2Ozy0MB1iDcsVEKOWIPX+j52OwCjCovMAWt5n2PRNjM4WiQX1AP3DGgvaU49XElRu+b7qCQxODARBgkqhkiG9w0BCRQx"
    "BB4CAHcwIwYJKoZIhvcNAQkVMRYEFCHaXIqKwzLckbNRXoHw1fUIr49X";
constexpr std::string_view kInPlainWords =
    "MIIDQQIBAzCCAzoGCSqGSIb3DQEHAaCCAysEggMnMIIDIzCCAjEGCSqGSIb3DQEHAaCCAiIEggIeMIICGjCCAhYGCyqGSIb3DQEM"
    "CgEDoIIByzCCAccGCiqGSIb3DQEJFgGgggG3BIIBszCCAa8wggFUoAMCAQICAhI0MAoGCCqGSM49BAMCMBQxEjAQBgNVBAMMCWF1"
    "dGhvcml0eTAeFw0yNjExMjkyMDI2NDZaFw0zNjExMjYyMDI2NDZaMBExDzANBgNVBAMMBndvcmtlcjBZMBMGByqGSM49AgEGCCqG"
    "SM49AwEHA0IABAUecTBH9Fmdp3gygFUeE0AaeLrcT4b0wr88GdAEwmftDmcGODXWIkcbUecN0WLNHaaNLZOCJF+9jMJOPeY8LX2j"
    "gZgwgZUwDAYDVR0TAQH/BAIwADAOBgNVHQ8BAf8EBAMCB4AwEwYDVR0lBAwwCgYIKwYBBQUHAwIwIAYDVR0RBBkwF4YVdGVzc2Vy"
    "YTp3b3JrZXI6bGVmdC8qMB0GA1UdDgQWBBQpa9q6aheV0gdHROMGLLEwTi1WJzAfBgNVHSMEGDAWgBQdNdkvRj5M51y0Qy9p+7F1"
    "HUHSQTAKBggqhkjOPQQDAgNJADBGAiEAppcmWE6EL/+LTQ8TNI8PaEcR2mfbjoNBdCbn6DRJj9ECIQD/0BJaMhw7XvxOgSj+yu32"
    "y6uTlHDKdLhSO3PpS2UW3TE4MBEGCSqGSIb3DQEJFDEEHgIAdzAjBgkqhkiG9w0BCRUxFgQUIdpciorDMtyRs1FegfDV9Qivj1cw"
    "gesGCSqGSIb3DQEHAaCB3QSB2jCB1zCB1AYLKoZIhvcNAQwKAQGggYowgYcCAQAwEwYHKoZIzj0CAQYIKoZIzj0DAQcEbTBrAgEB"
    "BCCqY1uNCdDfNLqJSJHH5yYMVnX+uC10cFOJaDF7VRyWBqFEA0IABAUecTBH9Fmdp3gygFUeE0AaeLrcT4b0wr88GdAEwmftDmcG"
    "ODXWIkcbUecN0WLNHaaNLZOCJF+9jMJOPeY8LX0xODARBgkqhkiG9w0BCRQxBB4CAHcwIwYJKoZIhvcNAQkVMRYEFCHaXIqKwzLc"
    "kbNRXoHw1fUIr49X";
// So that no execution takes long; what a program reads may have more.
constexpr int64_t kRounds = 1000;

bool identity_parses(const std::string& bytes) {
  const auto read_with = [&](const char* password) {
    return parse_or_refuse(
        [&](const std::string& file) {
          return cluster::parse_identity(file, "/folder/client.p12", cluster::Password(password), kRounds);
        },
        bytes);
  };
  auto read = read_with("pass");
  if (!read) read = read_with("");
  if (!read) return false;
  if (read->own == nullptr || read->key == nullptr) throw Broken("an identity has no certificate or no key");
  if (X509_check_private_key(read->own.get(), read->key.get()) != 1) throw Broken("a key is another certificate's");
  // Whatever a certificate says is read without harm.
  cluster::identity_of(read->own.get());
  return true;
}

// Lists of revoked certificates

constexpr std::string_view kAuthority =
    "MIIBbDCCARKgAwIBAgIUXtE+q7g8LFBpEQHkMsj6F42afmcwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJYXV0aG9yaXR5MB4XDTI2"
    "MTEyOTIwMjY0NloXDTM2MTEyNjIwMjY0NlowFDESMBAGA1UEAwwJYXV0aG9yaXR5MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE"
    "SuuSv3aL/eVFaBgiY0ypzxRNnCW6N9e7dBPlqW2GCIV8PHCTAkAb0/wpDFlDns+j32JYfhdqYJUNtfrFJJezEaNCMEAwDwYDVR0T"
    "AQH/BAUwAwEB/zAOBgNVHQ8BAf8EBAMCAQYwHQYDVR0OBBYEFB012S9GPkznXLRDL2n7sXUdQdJBMAoGCCqGSM49BAMCA0gAMEUC"
    "IQDtGTNYibD8FshnIh5pGgUz0urI5zDAVZQypAzM9tklpQIgLHDMbFbmR4zw7rO1tfG74Db+f0hPd4mgfj37qHHMjX8=";
// It revokes number 0x1234.
constexpr std::string_view kList =
    "MIHCMGoCAQEwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJYXV0aG9yaXR5Fw0yNjExMjkyMDI2NDZaFw0zNjEwMDcyMDI2NDZaMBUw"
    "EwICEjQXDTI2MTEyOTIwMjY0NlqgDjAMMAoGA1UdFAQDAgEBMAoGCCqGSM49BAMCA0gAMEUCIQCBP4HZrQIO+rOkb31xSgeGfrhW"
    "mQiXsfxVcEDGhscptwIgOO58kHr3eeA0jVCrxuDvQtGyHtNpZ5xI0YRi4hTWk4k=";
constexpr int64_t kRevoked = 0x1234;

std::string print_list(std::string_view der) {
  std::string text(4 * (der.size() / 3 + 1) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(der.data()), static_cast<int>(der.size()));
  text.resize(static_cast<size_t>(size));
  constexpr size_t kLine = 64;
  std::string lines;
  for (size_t begin = 0; begin < text.size(); begin += kLine) lines += text.substr(begin, kLine) + "\n";
  return "-----BEGIN X509 CRL-----\n" + lines + "-----END X509 CRL-----\n";
}

// The authority has signed one list. Whoever changes a bit of it that says something is not believed.
bool list_parses(const std::string& text) {
  const std::string der = decode_base64(kAuthority);
  const auto* begin = reinterpret_cast<const unsigned char*>(der.data());
  const cluster::X509Pointer authority(d2i_X509(nullptr, &begin, static_cast<long>(der.size())));  // NOLINT
  const auto list = parse_or_refuse(
      [&](const std::string& bytes) {
        return cluster::parse_revocations(bytes, "/folder/crl.pem", authority.get(), kNowSeconds);
      },
      text);
  if (!list) return false;
  ASN1_INTEGER* number = ASN1_INTEGER_new();
  ASN1_INTEGER_set_int64(number, kRevoked);
  X509_REVOKED* entry = nullptr;
  const bool is_revoked = X509_CRL_get0_by_serial(list->get(), &entry, number) == 1;
  ASN1_INTEGER_free(number);
  if (!is_revoked) throw Broken("a list is believed that its authority has not signed");
  return true;
}

// Half of what is made has a right form outside, with damage within.
std::string mutate_list(const std::string& text, Draws& draws) {
  return draws.one_in(2) ? mutate_bytes(text, draws) : print_list(mutate_der(decode_base64(kList), draws));
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
          {"identity",
           {decode_base64(kWithCode), decode_base64(kWithoutCode), decode_base64(kInPlainWords)},
           mutate_der,
           identity_parses},
          {"revocations", {print_list(decode_base64(kList))}, mutate_list, list_parses},
          {"tls_config", {kConfig}, mutate_json, config_parses},
          {"greeting", {greeting}, mutate_bytes, greeting_parses}};
}

}  // namespace tessera::fuzz
