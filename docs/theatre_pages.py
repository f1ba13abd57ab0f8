"""For the site: the recordings in ``docs/recordings`` as pages beside the page ``theatre``, which frames them."""

from pathlib import Path

from recollect.view import format as recording
from recollect.view import page

HERE = Path(__file__).parent / "recordings"


def on_post_build(config, **_) -> None:
    """Called by mkdocs when everything else is written."""
    place = Path(config["site_dir"]) / "theatre"
    place.mkdir(parents=True, exist_ok=True)
    for path in sorted(HERE.glob("*.json.gz")):
        page.write(place / f"{path.name.removesuffix('.json.gz')}.html", [recording.read(path)])
