"""Links between the site and the rest of the repository (a hook of mkdocs).

A page of the site writes `repo:design/claims.md#c14-batches` for a file of the repository. The file and the heading
must exist; on the site the link leads to the tag of this version in `Repository` of pyproject.toml.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

import countless

ROOT = Path(__file__).parents[1]
TO_REPOSITORY = re.compile(r"(?<=\]\()repo:([^)#\s]+)(?:#([^)\s]+))?(?=\))")
WITHIN = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Called by mkdocs with the text of every page."""
    base = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]

    def address(link: re.Match[str]) -> str:
        if wrong := missing(ROOT / link[1], link[2]):
            raise PluginError(f"{page.file.src_uri}: {wrong}")
        anchor = f"#{link[2]}" if link[2] else ""
        return f"{base}/blob/v{countless.__version__}/{link[1]}{anchor}"

    return TO_REPOSITORY.sub(address, markdown)


def broken(page: Path) -> Iterator[str]:
    """The relative links of a page that lead nowhere."""
    for path, anchor in WITHIN.findall(_outside_code(page)):
        if wrong := missing(page.parent / path if path else page, anchor):
            yield f"{page.relative_to(ROOT)}: {wrong}"


def missing(target: Path, anchor: str | None) -> str | None:
    """The file or heading that is not there."""
    if not target.exists():
        return f"no file {target}"
    if anchor and target.suffix == ".md" and anchor not in headings(target):
        return f"no heading #{anchor} in {target}"
    return None


def headings(page: Path) -> set[str]:
    """Anchors, as code hosts make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", _outside_code(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = next(n for n in range(1000) if (f"{slug}-{n}" if n else slug) not in found)
        found.add(f"{slug}-{number}" if number else slug)
    return found


def _outside_code(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
