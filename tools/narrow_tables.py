"""Tables of text on narrow screens (a hook of mkdocs): with three columns and more, style.css stacks their cells.

Tables with aligned columns have numbers, and stay as they are.
"""

import re

TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEAD = re.compile(r"<th>(.*?)</th>")
TAG = re.compile(r"<[^>]*>")
ROW = re.compile(r"<tr>\n<td>.*?</tr>", re.DOTALL)
COLUMNS = 3


def on_page_content(html: str, **_: object) -> str:
    """Called by mkdocs with the HTML of every page."""
    return TABLE.sub(_stacked, html)


def _stacked(table: re.Match[str]) -> str:
    head = [TAG.sub("", cell).replace('"', "&quot;") for cell in HEAD.findall(table[0])]
    if len(head) < COLUMNS:
        return table[0]

    def named(row: re.Match[str]) -> str:
        names = iter(head)
        return re.sub("<td>", lambda _: f'<td data-column="{next(names)}">', row[0])

    return ROW.sub(named, table[0]).replace("<table>", "<table data-stacked>", 1)
