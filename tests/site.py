"""Gathers the pages of the site: `python -m tests.site FOLDER`, for `make docs`.

The pages keep their places, so that their links hold. A link to a file that is no page, such as a test, becomes its
text. A block of code keeps the first word of its kind, since MkDocs takes one word.
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
GENERATED = {"docs/MAP.md", "docs/RULES.md"}
"""Lists of modules and tests, for those who have the code beside them."""
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
    documents = [it.relative_to(ROOT).as_posix() for it in sorted((ROOT / "docs").rglob("*.md"))]
    return [ROOT / name for name in (*others, *documents) if name not in GENERATED]


def with_links_to(found: set[Path], page: Path) -> str:
    """The page, in which links to other files than these, and to no site, are their texts."""

    def kept(match: re.Match[str]) -> str:
        is_page = "://" in match[2] or (page.parent / match[2]).resolve() in found
        return match[0] if is_page else match[1]

    return _LINK.sub(kept, _KIND.sub(r"\1", page.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
