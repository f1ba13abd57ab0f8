"""The served page in a browser: it comes from 127.0.0.1 and follows what it shows."""

import threading

import pytest

from browser.conftest import Opened
from recollect.view import format as recording
from recollect.view.server import Server, Shelf
from view import samples

pytestmark = pytest.mark.browser


def test_a_served_page_follows_its_run(chromium, tmp_path):
    path = recording.write(tmp_path / "r.json", samples.document(title="after a while"))
    with Server(Shelf([path])) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        page = chromium.new_page()
        try:
            opened = Opened(page).open(f"{server.url}#step=3")
            assert opened.text("h1") == "after a while" and opened.step == 3
            page.keyboard.press("ArrowRight")
            recording.write(path, samples.document(title="later", steps=14, episodes=2))
            opened.until(lambda: opened.text("h1") == "later")
            assert opened.step == 4 and page.locator(".checkpoints input").count() == 1
            assert all(url.startswith(server.url) for url in opened.requests)
            assert opened.faults == []
        finally:
            page.close()
            server.shutdown()
            thread.join()
