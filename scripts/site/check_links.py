"""Links of a built site: each leads to a file of the site, and to a place in it that is there; nothing is fetched from elsewhere."""

import html.parser
import os
import re
import urllib.parse
from pathlib import Path

FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append((tag, name, value))


def faults(site):
    """page: link: what is wrong with it."""
    site = Path(site)
    pages = {path.relative_to(site).as_posix(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for place, page in pages.items():
        for tag, attribute, link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme in ("http", "https", "mailto") or link.startswith("//"):
                if (tag, attribute) in FETCHED:
                    found.append(f"{place}: {link}: is fetched from the network")
                continue
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.path.startswith("/"):
                found.append(f"{place}: {link}: is not relative")
                continue
            target = os.path.normpath(Path(place).parent / urllib.parse.unquote(parts.path)) if parts.path else place
            if not (site / target).is_file():
                found.append(f"{place}: {link}: there is no {target}")
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{place}: {link}: {target} has no place #{parts.fragment}")
    for path in sorted(site.rglob("*.css")):
        found += [f"{path.relative_to(site).as_posix()}: {link}: is fetched from the network"
                  for link in re.findall(r"url\([\"']?((?:https?:)?//[^)\"']+)", path.read_text())]
    return found
