"""Gathers the pages of the site: `python -m tests.site FOLDER`, for `make docs`.

The pages keep their places, so that their links hold. Only the site has the pages that programs make: a document links
to a source of such a page. A link to another file that is no page, such as a test, becomes its text. A block of code
keeps the first word of its kind, since MkDocs takes one word.
"""

import re
import shutil
import sys
from os.path import relpath
from pathlib import Path

from tests import api_page, module_map, rules_index

ROOT = Path(__file__).parents[1]
MADE = {
    ROOT / "docs/API.md": api_page.page,
    ROOT / "docs/MAP.md": module_map.page,
    ROOT / "docs/RULES.md": rules_index.page,
}
"""The pages that programs make."""
SOURCES = {
    ROOT / "dbio_commit/__init__.py": ROOT / "docs/API.md",
    ROOT / "tests/module_map.py": ROOT / "docs/MAP.md",
    ROOT / "tests/rules_index.py": ROOT / "docs/RULES.md",
}
"""The page that is made of a file: the file is what a link to the page names."""
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")

_KIND = re.compile(r"^(```\w+) .*$", re.MULTILINE)


def main(target: Path) -> None:
    """Replaces what is in the folder."""
    shutil.rmtree(target, ignore_errors=True)
    found = pages()
    for page in found:
        place = target / page.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(with_links_to(set(found), page), encoding="utf-8")
    for picture in (ROOT / "docs").glob("*.png"):
        shutil.copy(picture, target / "docs")


def pages() -> list[Path]:
    others = "README.md", "CHANGELOG.md", "SECURITY.md", "docker/README.md", "bench/RESULTS.md"
    return [*(ROOT / name for name in others), *sorted((ROOT / "docs").rglob("*.md")), *MADE]


def text_of(page: Path) -> str:
    return MADE[page]() if page in MADE else page.read_text(encoding="utf-8")


def with_links_to(found: set[Path], page: Path) -> str:
    """The page, in which links to other files than these, and to no site, are their texts."""

    def kept(match: re.Match[str]) -> str:
        text, path, anchor = match.groups(default="")
        target = (page.parent / path).resolve()
        if made := SOURCES.get(target):
            return f"[{text}]({relpath(made, page.parent)}{anchor})"
        return match[0] if "://" in path or target in found else text

    return _LINK.sub(kept, _KIND.sub(r"\1", text_of(page)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
