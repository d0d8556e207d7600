"""The README as package indexes show it: links into the repository lead to the tag of this version."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Set `readme`, from README.md, `Repository` and the version."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        tree = f"{metadata['urls']['Repository']}/raw/v{metadata['version']}"
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = _RELATIVE.sub(lambda link: f"]({address(tree, link[1])})", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def address(tree: str, path: str) -> str:
    """Images are files; everything else is a page."""
    image = path.endswith((".svg", ".png"))
    return f"{tree if image else tree.replace('/raw/', '/blob/')}/{path}"
