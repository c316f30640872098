#include "tessera/cluster/dashboard/http_head.h"

#include <algorithm>
#include <utility>

#include "tessera/base/strings.h"

namespace tessera::cluster {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr size_t kMaxMethod = 16;
constexpr int kMaxFields = 100;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
// tchar of RFC 9110.
bool is_token_char(char c) {
  return is_digit(c) || is_letter(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
bool is_token(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_token_char); }
bool is_visible(char c) { return c > ' ' && c < '\x7f'; }
// Of a field's value: what is no control character, and tabs.
bool is_value_char(char c) { return static_cast<unsigned char>(c) >= ' ' ? c != '\x7f' : c == '\t'; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

HttpHeadResult refused(int status) { return {.head = std::nullopt, .status = status}; }

// "GET /path?query HTTP/1.1". Returns 0 where it is right, else the status with which it is refused.
int read_request_line(std::string_view line, HttpHead& head) {
  constexpr int kBad = 400;
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return kBad;
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(method) || method.size() > kMaxMethod) return kBad;
  const bool is_path = target.starts_with('/') && std::ranges::all_of(target, is_visible);
  if (!is_path || target.find('#') != std::string_view::npos) return kBad;
  const bool is_version = version.size() == 8 && version.starts_with("HTTP/") && is_digit(version[5]) &&
                          version[6] == '.' && is_digit(version[7]);
  if (!is_version) return kBad;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return 505;
  const size_t question = target.find('?');
  head.method = method;
  head.path = target.substr(0, question);
  head.query = question == std::string_view::npos ? "" : target.substr(question + 1);
  head.is_1_0 = version == "HTTP/1.0";
  return 0;
}

}  // namespace

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  std::ranges::transform(small, small.begin(), lower);
  return small;
}

size_t find_http_head_end(std::string_view bytes) {
  const size_t end = bytes.find(kHeadEnd);
  return end == std::string_view::npos ? 0 : end + kHeadEnd.size();
}

HttpHeadResult parse_http_head(std::string_view bytes) {
  if (bytes.size() > kMaxHttpHead) return refused(431);
  if (find_http_head_end(bytes) != bytes.size() || bytes.empty()) return refused(400);
  HttpHead head;
  std::string_view rest = bytes.substr(0, bytes.size() - kLineEnd.size());
  const auto take_line = [&rest] {
    const size_t end = rest.find(kLineEnd);
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + kLineEnd.size());
    return line;
  };
  if (const int status = read_request_line(take_line(), head); status != 0) return refused(status);
  bool has_host = false;
  bool has_authorization = false;
  for (int count = 0; !rest.empty(); ++count) {
    if (count == kMaxFields) return refused(431);
    const std::string_view line = take_line();
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return refused(400);
    const std::string name = in_small_letters(line.substr(0, colon));
    const std::string_view value = without_blanks(line.substr(colon + 1));
    if (!std::ranges::all_of(value, is_value_char)) return refused(400);
    if (name == "host") {
      if (std::exchange(has_host, true)) return refused(400);
      head.host = value;
    } else if (name == "authorization") {
      if (std::exchange(has_authorization, true)) return refused(400);
      head.authorization = value;
    } else if (name == "transfer-encoding" || (name == "content-length" && value != "0")) {
      return refused(413);
    }
  }
  if (!has_host && !head.is_1_0) return refused(400);
  return {.head = std::move(head), .status = 200};
}

std::string print_http_head(const HttpHead& head) {
  std::string text = head.method + " " + head.path;
  if (!head.query.empty()) text += "?" + head.query;
  text += head.is_1_0 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n";
  if (!head.host.empty() || !head.is_1_0) text += "Host: " + head.host + "\r\n";
  if (!head.authorization.empty()) text += "Authorization: " + head.authorization + "\r\n";
  return text + "\r\n";
}

std::optional<std::string> name_in_host(std::string_view host) {
  constexpr size_t kMaxName = 255;
  constexpr size_t kMaxDigits = 5;
  const bool is_bracketed = host.starts_with('[');
  const size_t close = is_bracketed ? host.find(']') : std::string_view::npos;
  if (is_bracketed && close == std::string_view::npos) return std::nullopt;
  const size_t end = is_bracketed ? close + 1 : std::min(host.find(':'), host.size());
  const std::string_view port = host.substr(end);
  const bool is_port = port.starts_with(':') && port.size() > 1 && port.size() <= kMaxDigits + 1 &&
                       std::ranges::all_of(port.substr(1), is_digit);
  if (!port.empty() && !is_port) return std::nullopt;
  const std::string_view name = is_bracketed ? host.substr(1, close - 1) : host.substr(0, end);
  const auto may_be = [is_bracketed](char c) {
    return is_digit(c) || is_letter(c) || c == '.' || (is_bracketed ? c == ':' : c == '-' || c == '_');
  };
  if (name.empty() || name.size() > kMaxName || !std::ranges::all_of(name, may_be)) return std::nullopt;
  return in_small_letters(name);
}

std::string_view value_in_query(std::string_view query, std::string_view name) {
  for (const std::string_view part : split(query, '&')) {
    const size_t equals = part.find('=');
    if (equals != std::string_view::npos && part.substr(0, equals) == name) return part.substr(equals + 1);
  }
  return {};
}

}  // namespace tessera::cluster
