"""The first page of the documentation begins with the first screen of the README (a hook of mkdocs)."""

from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"
MARK = "<!-- the first screen of README.md -->"


def first_screen() -> str:
    """Up to the first section, with links as the site has them."""
    text, _, _ = README.read_text(encoding="utf-8").partition("\n## ")
    return text.replace("](docs/", "](").replace("](design/", "](repo:design/")


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Called by mkdocs with the text of every page."""
    return markdown.replace(MARK, first_screen()) if page.file.src_uri == "index.md" else markdown
