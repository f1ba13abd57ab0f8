"""The documentation's pictures of the theatre, taken in Chromium from the recordings beside it.

    python docs/make_pictures.py

Needs what ``make test-browser`` installs.
"""

import shutil
import tempfile
from pathlib import Path

from recollect.view import format as recording
from recollect.view import page

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

SHOTS = {
    # picture: recording, part of the address, width, height, light or dark
    "theatre.png": ("t-maze", "", 1280, 860, "light"),
    "theatre-before.png": ("t-maze", "#step=11&checkpoint=2", 1280, 760, "light"),
    "theatre-informant.png": ("secret-informant", "", 1280, 900, "light"),
    "theatre-minigrid.png": ("minigrid", "", 1280, 900, "dark"),
    "theatre-phone.png": ("t-maze", "#step=4", 360, 1300, "light"),
}


def main() -> None:
    """Take them all."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = next(found for name in BROWSERS if (found := shutil.which(name)))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for picture, (name, place, width, height, scheme) in SHOTS.items():
            found = recording.read(HERE / "recordings" / f"{name}.json.gz")
            written = page.write(Path(folder) / f"{name}.html", [found])
            opened = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            opened.goto(written.as_uri() + place)
            opened.wait_for_selector(".sentence mark")
            opened.wait_for_timeout(500)  # pictures inside the page are read as they are first drawn
            opened.screenshot(path=HERE / "pictures" / picture)
            opened.close()
        browser.close()


if __name__ == "__main__":
    main()
