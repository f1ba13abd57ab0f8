"""A page in Python: saved, opened in a browser, or shown in a notebook."""

import tempfile
import webbrowser
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from recollect.view import page


class View:
    """Documents as a page. In a notebook, the last expression of a cell shows it inline.

    Args:
        documents: as ``recollect.view.episodes.record`` gives them.
        height: of the frame in a notebook, in pixels.
    """

    def __init__(self, documents: Sequence[dict[str, Any]], height: int = 900):
        self.documents, self.height = list(documents), height

    def save(self, path: Path | str) -> Path:
        """Write the page, one HTML file that needs nothing else."""
        return page.write(path, self.documents)

    def open(self) -> Path:
        """Write the page to a temporary file and open it in a browser."""
        with tempfile.NamedTemporaryFile(prefix="recollect-", suffix=".html", delete=False) as file:
            file.write(page.html(self.documents).encode())
        webbrowser.open(Path(file.name).as_uri())
        return Path(file.name)

    def _repr_html_(self) -> str:
        """The same page in a frame of its own, which can run its script and reach nothing else."""
        content = escape(page.html(self.documents), quote=True)
        return (
            f'<iframe sandbox="allow-scripts" title="what the agent remembers" width="100%" height="{self.height}" '
            f'frameborder="0" srcdoc="{content}"></iframe>'
        )

    def __repr__(self) -> str:
        titles = ", ".join(repr(found.get("title", "")) for found in self.documents)
        return f"View({titles}): .save(FILE) writes it, .open() shows it in a browser"
