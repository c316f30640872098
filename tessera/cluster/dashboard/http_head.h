// The head of an HTTP/1.1 request (RFC 9112), as the dashboard takes it: strictly, and no more of it than it needs. It
// is a function of bytes: it throws nothing on input, and allocates no more than has arrived.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::cluster {

// A longer head, its last empty line included, is refused.
inline constexpr size_t kMaxHttpHead = 8192;

struct HttpHead {
  std::string method;         // "GET"
  std::string path;           // "/state.json", as it came
  std::string query;          // behind the "?"; "" where there is none
  std::string host;           // the field Host; "" where a request of HTTP/1.0 has none
  std::string authorization;  // the field Authorization; "" where there is none
  bool is_1_0 = false;        // it is of HTTP/1.0
};

// A head that was read, or the status with which it is refused.
struct HttpHeadResult {
  std::optional<HttpHead> head;
  int status = 400;  // where there is none: 400, 413 for a request with a body, 431 for a long one, 505
};

// How many bytes the head has at the beginning of what has arrived, its last empty line included; 0 where its end has
// not come yet.
size_t find_http_head_end(std::string_view bytes);
// Reads a head with its last empty line. Lines end with CR LF; each field has a name that is a token, no line is
// continued, control characters are refused, and so are a second Host, a target that is no path, and a body.
HttpHeadResult parse_http_head(std::string_view bytes);
// Prints a request of that head, which is read as an equal one.
std::string print_http_head(const HttpHead& head);

// With the letters A to Z as a to z; what else there is stays as it is.
std::string in_small_letters(std::string_view text);
// The name or address in a field Host, in small letters and without its port and the brackets of IPv6; nullopt where it
// is none.
std::optional<std::string> name_in_host(std::string_view host);
// The first value of this name in a query, as it came; "" where there is none.
std::string_view value_in_query(std::string_view query, std::string_view name);

}  // namespace tessera::cluster
