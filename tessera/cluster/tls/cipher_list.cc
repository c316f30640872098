#include "tessera/cluster/tls/cipher_list.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"

namespace tessera::cluster {
namespace {

// A suite, and how the ends of older names with its cipher read.
struct Suite {
  std::string_view name;
  std::string_view older_end;
};

constexpr Suite kSuites[] = {{"TLS_AES_256_GCM_SHA384", "-AES256-GCM-SHA384"},
                             {"TLS_CHACHA20_POLY1305_SHA256", "-CHACHA20-POLY1305"},
                             {"TLS_AES_128_GCM_SHA256", "-AES128-GCM-SHA256"},
                             {"TLS_AES_128_CCM_SHA256", "-AES128-CCM"}};

// Key exchanges of TLS 1.2 that keep recorded traffic secret, by certificates.
constexpr std::string_view kOlderBeginnings[] = {"ECDHE-RSA", "ECDHE-ECDSA", "DHE-RSA"};

// Of a name: its suite, or nullptr and why there is none.
const Suite* find_suite(std::string_view name, std::string_view& why) {
  for (const Suite& suite : kSuites) {
    if (name == suite.name) return &suite;
    for (const std::string_view beginning : kOlderBeginnings) {
      if (name.starts_with(beginning) && name.substr(beginning.size()) == suite.older_end) return &suite;
    }
  }
  const bool is_old = name.find("PSK") != std::string_view::npos || name.find("DSS") != std::string_view::npos ||
                      name.find("SHA") != std::string_view::npos || name.find("CCM") != std::string_view::npos;
  why = is_old && name.find(' ') == std::string_view::npos ? "is none that Tessera uses" : "is not known";
  return nullptr;
}

}  // namespace

CipherList parse_cipher_list(std::string_view text) {
  CipherList list;
  std::vector<std::string_view> chosen;
  int position = 0;
  if (trim(text).empty()) {
    for (const Suite& suite : kSuites) chosen.push_back(suite.name);
  }
  for (const std::string_view name : split(text, ':')) {
    ++position;
    if (trim(name).empty()) continue;
    std::string_view why;
    const Suite* suite = find_suite(trim(name), why);
    if (suite == nullptr) {
      list.notes.push_back(fmt::format("cipher {}, \"{}\", {}", position, printable(name), why));
    } else if (std::ranges::find(chosen, suite->name) == chosen.end()) {
      chosen.push_back(suite->name);
    }
  }
  if (chosen.empty()) {
    throw InvalidArgument("cipher_list has no cipher that can be used ({}); name one of {}",
                          fmt::join(list.notes, "; "),
                          "TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256, TLS_AES_128_GCM_SHA256");
  }
  list.suites = fmt::format("{}", fmt::join(chosen, ":"));
  return list;
}

}  // namespace tessera::cluster
