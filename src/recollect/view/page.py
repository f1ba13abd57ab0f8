"""Documents and the built viewer as one HTML file: nothing is loaded from anywhere, and nothing in it is HTML but ours.

The documents are one JSON text, compressed and in base64, so that no name or title in them can be read as markup; the
viewer only ever makes text of them. A Content-Security-Policy allows the one script and the one style sheet by their
sums and forbids everything else.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from recollect.store import files

FAVICON = "data:,"
_BEGINS = b"""<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-"""
"""What every page has near its beginning, whatever release wrote it."""


def assets() -> tuple[str, str]:
    """The viewer's script and style sheet, as ``npm run build`` in ``viewer/`` makes them."""
    folder = resources.files("recollect.view") / "assets"
    return (folder / "viewer.js").read_text("utf-8"), (folder / "viewer.css").read_text("utf-8")


def pack(documents: Sequence[dict[str, Any]], **more: Any) -> bytes:
    """The documents as the viewer unpacks them."""
    content = json.dumps({"documents": list(documents), **more}, separators=(",", ":"), allow_nan=False)
    return gzip.compress(content.encode(), mtime=0)


def policy(served: bool = False) -> str:
    """The Content-Security-Policy of a page; a served one may ask its own server for news."""
    script, style = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in assets())
    rules = ["default-src 'none'", f"script-src 'sha256-{script}'", f"style-src 'sha256-{style}'", "img-src data:"]
    rules += ["connect-src 'self'" if served else "connect-src 'none'", "base-uri 'none'", "form-action 'none'"]
    return "; ".join(rules)


def html(documents: Sequence[dict[str, Any]], *, served: bool = False, **more: Any) -> str:
    """The page; ``more``: what the viewer is told besides the documents."""
    script, style = assets()
    title = escape(", ".join(str(found.get("title", "")) for found in documents) or "recollect")
    data = base64.b64encode(pack(documents, **more)).decode()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy(served)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="{FAVICON}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="theatre"><noscript>This page draws with JavaScript, which is switched off.</noscript></div>
<script type="text/plain" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def is_own(path: Path) -> bool:
    """Whether a file is such a page, so that another may take its place."""
    with path.open("rb") as file:
        return _BEGINS in file.read(1024)


def write(path: Path | str, documents: Sequence[dict[str, Any]]) -> Path:
    """Write the page, whole or not at all."""
    path = Path(path)
    files.replace(path, html(documents).encode())
    return path
