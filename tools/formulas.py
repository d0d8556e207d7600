"""Formulas of the documentation, typeset when the site is built (a hook of mkdocs).

Pages write LaTeX as code hosts render it: $`x^2`$ in a line, and blocks of the language `math`. Here it becomes
MathML, which browsers draw themselves: the site needs no script for it and no other host.
"""

import re
from html import unescape

from latex2mathml.converter import convert

BLOCK = re.compile(r"^( *)```math\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"\$`([^`]+)`\$")
LONG = 45  # characters of LaTeX: a longer formula may be wider than the page of a phone
TYPESET = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>([.,;:)]*)', re.DOTALL)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs with the text of every page."""
    return INLINE.sub(r"\\(\1\\)", BLOCK.sub(r"\1$$\n\2\1$$", markdown))


def on_page_content(html: str, **_: object) -> str:
    """Called by mkdocs with the HTML of every page."""
    return TYPESET.sub(_mathml, html)


def _mathml(found: re.Match[str]) -> str:
    kind, marks, formula, after = found.groups()
    math = convert(unescape(formula.strip()), display="block" if marks == "[" else "inline")
    if kind == "div":
        return f'<div class="formula">{math}</div>{after}'
    if len(formula) > LONG:
        return f'<span class="long-formula">{math}</span>{after}'
    return f'<span class="one-line">{math}{after}</span>' if after else math
