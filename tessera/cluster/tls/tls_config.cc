#include "tessera/cluster/tls/tls_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/json/bounded_json.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"

namespace tessera::cluster {

CertificateFiles read_tls_config(const std::string& path, TlsSide side, Password password) {
  constexpr int64_t kMaxBytes = 1 << 20;
  FileSystem& files = FileSystem::local();
  if (files.exists(path) && files.size_bytes(path) > kMaxBytes) {
    throw InvalidArgument("the TLS configuration \"{}\" has more than {} bytes", path, kMaxBytes);
  }
  return parse_tls_config(files.read_text(path), path, side, std::move(password));
}

CertificateFiles parse_tls_config(const std::string& text_of_file, const std::string& path, TlsSide side,
                                  Password password) {
  const auto config = parse_bounded_json<nlohmann::json>(
      text_of_file, fmt::format("the TLS configuration \"{}\"", path), {.name = "TLS configuration"});
  if (!config.is_object()) throw InvalidArgument("the TLS configuration \"{}\" is no JSON object", path);
  // The last two are of the reference's own, and say nothing here: files are looked at twice a second.
  const std::vector<std::string> known = {"server_cert_path",    "client_cert_path",
                                          "ca_cert_path",        "crl_path",
                                          "cipher_list",         "cert_expire_warning_time_in_day",
                                          "cert_check_interval", "recovery"};
  for (const auto& [key, value] : config.items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string near = closest(key, known);
    throw InvalidArgument("the TLS configuration \"{}\" has {}, which is no key of it{}", path, printable(key),
                          near.empty() ? "; it has " + fmt::format("{}", fmt::join(known, ", "))
                                       : fmt::format("; did you mean {}?", near));
  }
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  const auto text = [&](const char* key, bool is_needed) {
    const auto found = config.find(key);
    const bool is_there = found != config.end() && found->is_string() && !found->get_ref<const std::string&>().empty();
    if (!is_there && (is_needed || (found != config.end() && !found->is_string()))) {
      throw InvalidArgument("the TLS configuration \"{}\" needs a text for {}", path, key);
    }
    return is_there ? found->get<std::string>() : std::string();
  };
  const auto place = [&](const char* key, bool is_needed) {
    const std::string value = text(key, is_needed);
    return value.empty() || value.starts_with('/') ? value : join_path(folder, value);
  };
  CertificateFiles found{
      .identity_path = place(side == TlsSide::kServer ? "server_cert_path" : "client_cert_path", /*is_needed=*/true),
      .password = std::move(password),
      .authority_path = place("ca_cert_path", /*is_needed=*/true),
      .revocation_path = place("crl_path", /*is_needed=*/false),
      .ciphers = text("cipher_list", /*is_needed=*/false)};
  if (const auto days = config.find("cert_expire_warning_time_in_day"); days != config.end()) {
    if (!days->is_number_integer() || days->get<int64_t>() < 7 || days->get<int64_t>() > 180) {
      throw InvalidArgument("the TLS configuration \"{}\": cert_expire_warning_time_in_day is from 7 to 180", path);
    }
    found.warning_days = days->get<int>();
  }
  return found;
}

}  // namespace tessera::cluster
