"""What every picture needs: matplotlib, which comes with the extra ``plots``, colours, and a way onto the disk."""

import io
from pathlib import Path
from typing import Any

from recollect.errors import RecollectError
from recollect.store import files

# The colours that the paper's captions name.
LIME, COPPER, MAGENTA, GREY = "#66a61e", "#d95f02", "#e7298a", "#666666"
AQUA, GOLD, VIOLET, CORN = "#1b9e77", "#a6761d", "#7570b3", "#e6ab02"


def pyplot() -> Any:
    """Matplotlib, drawing to files alone."""
    try:
        import matplotlib
    except ImportError as error:
        raise RecollectError("drawing needs matplotlib: pip install 'recollect[plots]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def require(path: Path | None = None) -> None:
    """Refuse now, rather than after training, where pictures, or one of that name, cannot be drawn."""
    pyplot()
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path is not None and _format(path).lower() not in known:
        raise RecollectError(f"cannot draw {path}: its name ends in none of .{', .'.join(sorted(known))}")


def _format(path: Path) -> str:
    return path.suffix.removeprefix(".") or "png"


def save(figure: Any, path: Path, **options: Any) -> Path:
    """Draw into memory and write that, so that a picture is there whole or not at all, and no link is followed.

    The figure is done with then, but for saving it once more.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format=_format(path), **options)
    pyplot().close(figure)
    files.replace(path, buffer.getvalue())
    return path
