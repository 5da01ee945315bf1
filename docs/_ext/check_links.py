"""Whether every link inside a built site leads somewhere: `check_links.py FOLDER`.

Sphinx knows the links it wrote itself; this reads the pages as a browser does: files, places in
them, pictures.  Links to other sites are not followed, and no page may load anything from one.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse


class _Page(HTMLParser):
    """The links, the anchors and what is loaded of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        for name in ("src", "href"):
            if tag in ("img", "script", "link", "iframe", "source") and name in given:
                self.loaded.append(given[name])


def broken(folder: Path) -> tuple[list[str], int]:
    """What leads nowhere or loads from another site, a line each; and the links that were tried."""
    pages: dict[Path, _Page] = {}
    for path in sorted(folder.rglob("*.html")):
        pages[path.resolve()] = page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
    found, tried = [], 0
    for path, page in pages.items():
        where = path.relative_to(folder.resolve())
        found += [
            f"{where}: loads {link} from the network"
            for link in page.loaded
            if urlparse(link).netloc
        ]
        for link in (*page.links, *page.loaded):
            if urlparse(link).scheme or urlparse(link).netloc:
                continue
            tried += 1
            target, anchor = urldefrag(unquote(link))
            file = (path.parent / target.split("?")[0]).resolve() if target else path
            if not file.exists():
                found.append(f"{where}: {link}: no such file")
            elif anchor and file in pages and anchor not in pages[file].anchors:
                found.append(f"{where}: {link}: no such place in that page")
    return found, tried


def main() -> int:
    found, tried = broken(Path(sys.argv[1]))
    for line in found:
        print(line, file=sys.stderr)
    print(f"{tried:,} links tried, {len(found)} broken")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
