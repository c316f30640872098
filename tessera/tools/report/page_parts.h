// Parts that a report's page is put together of: headings, sentences and tables, with whatever logs hold as text.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "tessera/tools/page/page.h"

namespace tessera::tools {

inline std::string heading(const char* text) { return fmt::format("<h2>{}</h2>\n", text); }

inline std::string sentence(const std::string& text, const char* style = "") {
  const std::string attribute = *style == 0 ? "" : fmt::format(" class=\"{}\"", style);
  return fmt::format("<p{}>{}</p>\n", attribute, escaped_html(text));
}

// Makes a table in a frame that scrolls, also by keys.
class PageTable {
 public:
  PageTable(const std::string& label, const std::vector<std::string>& columns)
      : text_(fmt::format("<div class=\"frame\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table><thead><tr>",
                          escaped_html(label))) {
    for (const auto& column : columns) text_ += fmt::format("<th scope=\"col\">{}</th>", escaped_html(column));
    text_ += "</tr></thead><tbody>\n";
  }
  void begin_row() { text_ += "<tr>"; }
  void number(const std::string& text) { text_ += fmt::format("<td class=\"number\">{}</td>", escaped_html(text)); }
  void text(const std::string& text) { text_ += fmt::format("<td class=\"text\">{}</td>", escaped_html(text)); }
  void end_row() { text_ += "</tr>\n"; }
  std::string take() { return std::move(text_) + "</tbody></table></div>\n"; }

 private:
  std::string text_;
};

}  // namespace tessera::tools
