// What all pages have in common that the command `tessera` writes: their style, light and dark, their head, and how
// text of others stands in them. A page is one file that works from disk and asks for nothing.
#pragma once

#include <string>
#include <string_view>

namespace tessera::tools {

// The page's beginning up to <body>: its title, the style of all pages (page.css), and `own_style` behind that.
std::string page_head(std::string_view title, std::string_view own_style);
// The text as it stands in an element or, between quotes, in an attribute: nothing in it is markup, and what would
// steer or deceive its reader is shown as printable() shows it.
std::string escaped_html(std::string_view text);
// JSON as it stands in a <script> element: no text in it ends that element.
std::string json_in_page(std::string json);

}  // namespace tessera::tools
