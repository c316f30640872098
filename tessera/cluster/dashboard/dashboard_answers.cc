#include "tessera/cluster/dashboard/dashboard_answers.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/comm/wire/secret.h"

namespace tessera::cluster {
namespace {

constexpr int64_t kAnswerMs = 1000;
constexpr std::string_view kBearer = "bearer ";

std::string_view reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    default: return "HTTP Version Not Supported";
  }
}

// Of a text, as a Content-Security-Policy names it.
std::string source_of(const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
  unsigned int size = 0;
  check(EVP_Digest(text.data(), text.size(), hash.data(), &size, EVP_sha256(), nullptr) == 1, "SHA-256 is there");
  std::array<unsigned char, 2 * EVP_MAX_MD_SIZE> base64{};
  const int length = EVP_EncodeBlock(base64.data(), hash.data(), static_cast<int>(size));
  return fmt::format("'sha256-{}'", std::string(base64.begin(), base64.begin() + length));
}

std::string html_of(const DashboardPage& page) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n"
      "<title>A job of Tessera</title>\n<style>{}</style>\n</head>\n<body>\n{}<script>{}</script>\n</body>\n</html>\n",
      page.style, page.body, page.script);
}

std::string head_of(int status, std::string_view type, size_t size, std::string_view policy = "default-src 'none'") {
  std::string_view further;
  if (status == 405) further = "Allow: GET, HEAD\r\n";
  if (status == 503) further = "Retry-After: 1\r\n";
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n"
      "Content-Security-Policy: {}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\nReferrer-Policy: no-referrer\r\n"
      "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n{}\r\n",
      status, reason_of(status), type, size, policy, further);
}

}  // namespace

DashboardPlace parse_dashboard_place(std::string_view text) {
  DashboardPlace place;
  const auto refuse = [&](std::string_view why) {
    throw InvalidArgument("dashboard \"{}\": {}; expected [ADDRESS:]PORT, as 8000, 10.0.0.1:8000 or [::1]:8000", text,
                          why);
  };
  const size_t colon = text.rfind(':');
  std::string_view port = text;
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    port = text.substr(colon + 1);
    const bool is_bracketed = host.starts_with('[') && host.ends_with(']') && host.size() > 1;
    if (is_bracketed) host = host.substr(1, host.size() - 2);
    if (!is_bracketed && host.find(':') != std::string_view::npos) refuse("an IPv6 address stands in brackets");
    if (host.empty()) refuse("there is no address before the colon");
    place.host = in_small_letters(host);
  }
  constexpr size_t kMaxDigits = 5;
  constexpr int kMaxPort = 65535;
  const bool is_number =
      !port.empty() && port.size() <= kMaxDigits && port.find_first_not_of("0123456789") == std::string_view::npos;
  int number = kMaxPort + 1;
  if (is_number) number = std::stoi(std::string(port));
  if (number > kMaxPort) refuse("a port is from 0 to 65535");
  place.port = static_cast<uint16_t>(number);
  return place;
}

DashboardAnswers::DashboardAnswers(const JobBoard& board, const DashboardPage& page, std::string token, Clock& clock)
    : board_(board),
      token_(std::move(token)),
      clock_(clock),
      page_(std::make_shared<const std::string>(html_of(page))),
      policy_(fmt::format("default-src 'none'; style-src {}; script-src {}; img-src data:; connect-src 'self'",
                          source_of(page.style), source_of(page.script))) {
  check(!token_.empty(), "a dashboard has a token");
}

void DashboardAnswers::refresh() { state_ = metrics_ = {}; }

HttpAnswer DashboardAnswers::plain(int status) {
  auto body = std::make_shared<const std::string>(fmt::format("{} {}\n", status, reason_of(status)));
  return {.status = status,
          .head = head_of(status, "text/plain; charset=utf-8", body->size()),
          .body = std::move(body),
          .is_state = false};
}

// The time that it takes tells only how long the token is, which is no secret.
bool DashboardAnswers::knows_token(const HttpHead& head) const {
  if (comm::is_equal_hash(value_in_query(head.query, "token"), token_)) return true;
  const std::string_view given = head.authorization;
  if (given.size() < kBearer.size()) return false;
  const bool is_bearer = in_small_letters(given.substr(0, kBearer.size())) == kBearer;
  return is_bearer && comm::is_equal_hash(given.substr(kBearer.size()), token_);
}

std::shared_ptr<const std::string> DashboardAnswers::newest(CachedText& cached,
                                                            std::string (JobBoard::*make)() const) const {
  const int64_t now = clock_.monotonic_ns() / 1'000'000;
  if (cached.text == nullptr || now - cached.made_ms >= kAnswerMs) {
    cached = {.text = std::make_shared<const std::string>((board_.*make)()), .made_ms = now};
  }
  return cached.text;
}

HttpAnswer DashboardAnswers::answer(const HttpHead& head, const std::vector<std::string>& names) {
  const bool has_body = head.method != "HEAD";
  const auto without_body = [has_body](HttpAnswer answer) {
    if (!has_body) answer.body = nullptr;
    return answer;
  };
  if (head.method != "GET" && head.method != "HEAD") return plain(405);
  const auto name = name_in_host(head.host);
  const bool is_own_name = name && std::ranges::find(names, *name) != names.end();
  if (!is_own_name || !knows_token(head)) return without_body(plain(403));
  HttpAnswer answer;
  std::string_view type;
  std::string_view policy = "default-src 'none'";
  if (head.path == "/") {
    answer.body = page_;
    type = "text/html; charset=utf-8";
    policy = policy_;
  } else if (head.path == "/state.json") {
    answer.body = newest(state_, &JobBoard::state_json);
    answer.is_state = has_body;
    type = "application/json";
  } else if (head.path == "/metrics") {
    answer.body = newest(metrics_, &JobBoard::metrics_text);
    type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
  } else {
    return without_body(plain(404));
  }
  answer.head = head_of(answer.status, type, answer.body->size(), policy);
  return without_body(std::move(answer));
}

}  // namespace tessera::cluster
