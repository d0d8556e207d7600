"""Formulas of the documentation, typeset when the site is built (a hook of mkdocs).

The pages about the paper and the guarantee write formulas as text in code marks: `e^(-s alpha N0/E)`.
`tools.plain_math` knows which of these are formulas. Other pages, and formulas that text shows badly, use LaTeX between
dollar signs. Both become MathML, which browsers draw themselves: the site needs no script for it and no other host.
"""

import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.plain_math import latex

PAGES = re.compile(r"(?:paper|theory)/.*\.md|understand/guarantee\.md")
CODE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)*)`(?!`)")
LONG = 45  # characters of LaTeX: a longer formula may be wider than the page of a phone
TYPESET = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>([.,;:)]*)', re.DOTALL)


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Called by mkdocs with the text of every page."""
    return typeset(markdown) if PAGES.fullmatch(page.file.src_uri) else markdown


def on_page_content(html: str, **_: object) -> str:
    """Called by mkdocs with the HTML of every page."""
    return TYPESET.sub(_mathml, html)


def typeset(markdown: str) -> str:
    """The page with LaTeX in place of its formulas."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [_paragraphs(part) for part in parts[::2]]
    return "".join(parts)


def _paragraphs(text: str) -> str:
    return "\n\n".join(_paragraph(paragraph) for paragraph in text.split("\n\n"))


def _paragraph(text: str) -> str:
    lines = text.strip("\n").split("\n")
    if all(line.startswith("    ") for line in lines):
        rows = [latex(line.strip(), display=True) for line in lines]
        if None in rows:
            return text
        body = rows[0] if len(rows) == 1 else r"\begin{array}{l}" + r" \\ ".join(map(str, rows)) + r"\end{array}"
        return text.replace("\n".join(lines), f"$$\n{body}\n$$")
    if all(line.startswith("|") for line in lines):
        return text.replace("\n".join(lines), _table(lines))
    return CODE.sub(_inline, text)


def _table(lines: list[str]) -> str:
    """A column that names things of the code keeps them as they are."""
    names = [bool(re.search(r"code|function|method|how it|run it", cell)) for cell in lines[0].split("|")]
    rows = []
    for line in lines:
        cells = line.split("|")
        if len(cells) == len(names):
            cells = [cell if skip else CODE.sub(_inline, cell) for cell, skip in zip(cells, names, strict=True)]
        rows.append("|".join(cells))
    return "\n".join(rows)


def _inline(found: re.Match[str]) -> str:
    formula = latex(" ".join(found[1].split()))
    return found[0] if formula is None else rf"\({formula}\)"


def _mathml(found: re.Match[str]) -> str:
    kind, marks, formula, after = found.groups()
    math = convert(unescape(formula.strip()), display="block" if marks == "[" else "inline")
    if kind == "div":
        return f'<div class="formula">{math}</div>{after}'
    if len(formula) > LONG:
        return f'<span class="long-formula">{math}</span>{after}'
    return f'<span class="one-line">{math}{after}</span>' if after else math
