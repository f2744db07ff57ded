"""What must hold of the built site: `python docs/check_site.py FOLDER`.

Every link inside it leads to a page and a place on it that are there, no page asks the network for anything or tells where it
was built, and every public name has its entry.
"""

from __future__ import annotations

import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from reference import public_names

_PROJECT = Path(__file__).resolve().parent.parent
_LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


class Page(HTMLParser):
    """Places, links and what is loaded of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places: set[str] = {""}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in _LOADS and given.get("rel") not in ("canonical", "search", "index", "next", "prev"):
            self.loads.append(given.get(_LOADS[tag], ""))


def broken(folder: Path) -> list[str]:
    """What is wrong, a line each."""
    pages = {path.resolve(): Page(path) for path in folder.rglob("*.html") if "_static" not in path.parts}
    faults = []
    for path, page in pages.items():
        here = path.relative_to(folder.resolve())
        for target in [*page.links, *page.loads]:
            parts = urlsplit(target)
            if parts.scheme in ("https", "http", "mailto", "data", "javascript") or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.exists():
                faults.append(f"{here}: {target} leads nowhere")
            elif there in pages and unquote(parts.fragment) not in pages[there].places:
                faults.append(f"{here}: {target} leads to a page that has no such place")
        faults += [f"{here}: asks the network for {load}" for load in page.loads if urlsplit(load).netloc]
        faults += [f"{here}: tells the folder it was built in"] * (str(_PROJECT) in page.text)
    return faults


def documented(folder: Path) -> set[str]:
    """The names that Sphinx's inventory of the site has."""
    data = (folder / "objects.inv").read_bytes().split(b"\n", 4)[4]
    return {line.split(" ")[0] for line in zlib.decompress(data).decode().splitlines() if " py:" in line}


def main(folder: Path) -> None:
    missing = sorted({public.path for public in public_names()} - documented(folder))
    faults = broken(folder) + [f"{name} is public and not in the reference" for name in missing]
    print(
        "\n".join(faults)
        if faults
        else f"{len(list(folder.rglob('*.html')))} pages: links lead somewhere, no name is missing"
    )
    sys.exit(bool(faults))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
