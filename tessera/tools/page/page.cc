#include "tessera/tools/page/page.h"

#include <fmt/format.h>

#include "tessera/engine.h"

namespace tessera::tools {

// Of page.css, by the build.
extern const char* const kPageStyle;

std::string escaped_html(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '&': result += "&amp;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string json_in_page(std::string json) {
  // Outside of its texts JSON has no "<".
  for (size_t at = 0; (at = json.find('<', at)) != std::string::npos; at += 6) json.replace(at, 1, "\\u003c");
  return json;
}

std::string page_head(std::string_view title, std::string_view own_style) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n",
      escaped_html(title), kPageStyle, own_style);
}

}  // namespace tessera::tools
