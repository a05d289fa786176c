"""A hook of mkdocs: files of the repository that pages link to are pages of the site, so that no link leads nowhere.

A page may link to any file beside ``docs/``, as in ``[the rules](../rules/noops.rules)``: it becomes a page that shows
the file. What pages of that kind link to stays as it is, but for pages of the documentation. A folder that the
navigation names stands for the pages in it.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
PLACE = "source"
"""The folder of the site in which such pages are."""

LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "sh", ".rules": "rules"}
SHOWN = 100_000
"""Bytes of a file that are shown; the rest is cut off."""


def on_config(config: Any) -> None:
    """Puts the pages of a folder in its place in the navigation."""
    config.nav = _with_folders(config.nav)


def _with_folders(nav: Any) -> Any:
    match nav:
        case list():
            return [_with_folders(entry) for entry in nav]
        case dict():
            return {title: _with_folders(entry) for title, entry in nav.items()}
        case str() if nav.endswith("/"):
            pages = sorted((DOCS / nav).glob("*.md"), key=lambda path: (path.name != "README.md", path.name))
            return [nav + path.name for path in pages]
    return nav


def on_files(files: Files, config: Any) -> Files:
    """Adds a page for each file that pages link to, and for those that these link to."""
    waiting = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path is not None]
    known = set[Path]()
    while waiting:
        page = waiting.pop()
        for target in _outside(page):
            if target not in known:
                known.add(target)
                files.append(File.generated(config, _uri(target), content=_page(target)))
                if target.suffix == ".md":
                    waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links of a page to files of the repository lead to the pages that show them."""
    uri = page.file.src_uri
    home = ROOT / uri.removeprefix(f"{PLACE}/").removesuffix(".md") if uri.startswith(f"{PLACE}/") else DOCS / uri

    def lead(found: re.Match[str]) -> str:
        target = _resolve(home, found[2])
        if target is None or not target.is_file():
            return found[0]
        inside = target.is_relative_to(DOCS)
        goal = target.relative_to(DOCS).as_posix() if inside else _uri(target)
        return found[1] + posixpath.relpath(goal, posixpath.dirname(uri) or ".") + found[3]

    return LINK.sub(lead, markdown)


def _outside(page: Path) -> list[Path]:
    """The files that a page links to which are not in the documentation."""
    targets = (_resolve(page, link) for _, link, _ in LINK.findall(page.read_text(encoding="utf-8")))
    return [target for target in targets if target is not None and target.is_file() and not target.is_relative_to(DOCS)]


def _resolve(page: Path, link: str) -> Path | None:
    """The file of the repository that a link from a page names."""
    target = Path(os.path.normpath(page.parent / link))
    return target if target.is_relative_to(ROOT) else None


def _uri(target: Path) -> str:
    """Where the page lies that shows a file."""
    return f"{PLACE}/{target.relative_to(ROOT).as_posix()}.md"


def _page(target: Path) -> str:
    """A page that shows a file; one in Markdown is shown as it reads."""
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".md":
        return text
    if len(text) > SHOWN:
        text = text[:SHOWN].rpartition("\n")[0] + "\n…\n"
    language = LANGUAGES.get(target.suffix, "text")
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`{3,}", text)), 3)
    name = target.relative_to(ROOT).as_posix()
    return f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n{fence}{language}\n{text}\n{fence}\n"
