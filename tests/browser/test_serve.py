"""The served page in a browser: it comes from 127.0.0.1 and follows what it shows."""

import re
import signal
import subprocess
import sys
import threading
import time

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


def figure(title):
    series = [{"name": f"run {k}", "group": "mean", "values": [0.0, float(k)]} for k in (1, 2)]
    claim = {
        "claim": "holds",
        "criterion": "c",
        "measured": "m",
        "verdict": "v",
        "holding": 1,
        "seeds": 2,
        "values": {},
    }
    panel = {"title": "panel", "x": [1, 2], "xlabel": "episodes", "series": series}
    head = {"format": "recollect figure", "title": title, "subtitle": "", "notes": []}
    return {**head, "panels": [panel], "claims": [claim]}


def board(title):
    rows = [{"task": task, "return": k} for k, task in enumerate(("a", "b", "b2"))]
    columns = [{"name": name, "label": name, "numeric": name == "return"} for name in ("task", "return")]
    head = {"format": "recollect board", "title": title, "subtitle": "", "notes": [], "curves": []}
    return {**head, "columns": columns, "rows": rows}


class Kept(Shelf):
    """A shelf whose documents a test puts there."""

    def __init__(self, *documents):
        super().__init__([])
        self.given = list(documents)

    def state(self):
        return "".join(found["title"] for found in self.given)

    def documents(self):
        return self.given


def test_news_change_nothing_that_whoever_looks_has_set(chromium):
    """What is open, filtered, sorted, switched off, scrolled to and focused stays so while training goes on."""
    long = {"steps": 300, "slots": 8, "episodes": 2}
    shelf = Kept(samples.document(title="one", **long), figure("two"), board("three"))
    with Server(shelf) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        page = chromium.new_page(viewport={"width": 1280, "height": 700})
        try:
            opened = Opened(page).open(f"{server.url}#step=3")
            page.locator("details.steps summary").click()
            page.get_by_role("button", name="more steps").click()
            page.locator(".behind summary").click()
            page.locator("input[data-seed='run 1']").uncheck()
            page.locator("input[type=search]").fill("b")
            page.locator("th[data-column=return] button").click()
            page.locator(".slot[data-slot='2']").focus()
            page.evaluate("() => { scrollTo(0, 700); document.querySelector('.steps .scroll').scrollTop = 90 }")
            unchanged = page.locator("article.board").element_handle()
            shelf.given = [samples.document(title="one, later", **long), figure("two, later"), shelf.given[2]]
            opened.until(lambda: opened.text("h1") == "one, later")
            page.wait_for_timeout(100)

            def seen():
                return page.evaluate("""() => [
                    scrollY, document.querySelector(".steps .scroll").scrollTop,
                    document.querySelectorAll(".steps tbody tr").length, document.activeElement.dataset.slot,
                    document.querySelector(".behind details").open,
                    document.querySelector("input[data-seed='run 1']").checked,
                ]""")

            assert seen() == [700, 90, 300, "2", True, False]
            assert unchanged.evaluate("(element) => element.isConnected")  # what has no news is left alone
            shelf.given = [*shelf.given[:2], board("three, later")]
            opened.until(lambda: "three, later" in page.locator("article.board h1").inner_text())
            assert page.locator("input[type=search]").input_value() == "b"
            assert page.locator(".board tbody tr th").all_inner_texts() == ["b2", "b"]
            assert page.locator("th[aria-sort=descending]").count() == 1
            assert seen() == [700, 90, 300, "2", True, False] and opened.faults == []
        finally:
            page.close()
            server.shutdown()
            thread.join()


def started(*arguments, **options):
    return subprocess.Popen([sys.executable, "-m", "recollect", *map(str, arguments)], text=True, **options)


@pytest.mark.slow
def test_a_run_is_followed_while_it_trains(chromium, tmp_path):
    """As two terminals would: one trains, the other shows; training is then ended by Ctrl-C."""
    run, log = tmp_path / "run", (tmp_path / "said").open("w")
    more = ("--agent", "episodic", "--set", "memory_size=2", "--steps", 10**8, "--log-every", 500)
    train = started("train", "--env", "recollect/TMaze-v0", *more, "--checkpoint-every", 1, "--out", run, stderr=log)
    serve, page = None, chromium.new_page()
    try:
        for _ in range(1200):
            if (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size:
                break
            assert train.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.1)
        serve = started("view", "--serve", "--no-open", run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        url = re.search(r"http://127\.0\.0\.1:\d+/", serve.stdout.readline()).group()
        opened = Opened(page).open(f"{url}#step=2")

        def trained():
            return int(re.match(r"[\d,]+", opened.text(".trained")).group().replace(",", ""))

        first = trained()
        assert "running" in opened.text(".facts-line") and train.poll() is None
        opened.until(lambda: trained() > first, seconds=60)  # the newest agent is shown, as it becomes newer
        assert opened.step == 2 and page.locator(".chart[data-chart=return] canvas").count() == 1
        page.locator(".checkpoints input").fill("0")  # one that looks back is not taken along
        train.send_signal(signal.SIGINT)
        assert train.wait(60) == 130
        opened.until(lambda: "interrupted" in opened.text(".facts-line"), seconds=60)
        assert trained() == 0 and opened.step == 2
        assert all(address.startswith(url) for address in opened.requests) and opened.faults == []
    finally:
        page.close()
        log.close()
        for process in (train, serve):
            if process is not None:
                process.kill()
                process.communicate()
