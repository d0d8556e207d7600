"""Pipes of code in tables (a hook of mkdocs): code hosts want `str \\| None`, and the site would show the backslash."""

import re

CODE = re.compile(r"(?<!`)`[^`\n]+`(?!`)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs with the text of every page."""
    rows = (line if not line.startswith("|") else CODE.sub(_without_backslash, line) for line in markdown.split("\n"))
    return "\n".join(rows)


def _without_backslash(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")
