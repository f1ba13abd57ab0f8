"""Debian's Chromium, driven by Playwright; ``make test-browser`` installs both, and without them this is skipped."""

import shutil
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium():
    missing = "playwright is not here: make test-browser installs it"
    sync_api = pytest.importorskip("playwright.sync_api", reason=missing)
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is here: make test-browser installs Debian's chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page of the viewer, and all that it did which it should not."""

    def __init__(self, page):
        self.page, self.faults = page, []
        page.on("console", lambda message: self.faults.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", self._request)
        self.requests = []

    def _request(self, request):
        if not request.url.startswith(("file:", "data:")):
            self.requests.append(request.url)

    def open(self, url):
        self.page.goto(url)
        self.page.wait_for_selector("article")
        return self

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def until(self, holds, seconds=10):
        """Wait for it; asked from here, as the page's policy lets nobody evaluate text inside it."""
        for _ in range(20 * seconds):
            if holds():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"it did not come about in {seconds} seconds")

    @property
    def step(self):
        return int(self.page.locator("input.scrub").input_value())


@pytest.fixture
def show(chromium, tmp_path):
    """Write documents as a page and open it from disk."""
    from recollect.view import page as writer

    contexts = []

    def opened(*documents, hash="", width=1280, height=900, **options):
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        path = writer.write(Path(tmp_path) / "page.html", documents)
        return Opened(context.new_page()).open(path.as_uri() + hash)

    yield opened
    for context in contexts:
        context.close()
