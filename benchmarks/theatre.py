"""A long episode in a real browser: how large its page is, how soon it is there, how fast it can be scrubbed.

    python benchmarks/theatre.py --steps 10000 --slots 64

Needs Chromium and Playwright (``make test-browser`` installs both). Prints, and with ``--out`` writes, one JSON object:
bytes of the page, milliseconds to its first paint and until it shows a step, frames a second while it is scrubbed back
and forth, each frame at another step, and the processor time of the whole browser that a frame takes. ``within`` says
which of the three limits hold.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from recollect.view import page
from view import samples

LIMITS = {"bytes": 5_000_000, "first_paint_ms": 1000.0, "frames_per_second": 30.0}

SCRUB = """(frames) => new Promise((done) => {
  const range = document.querySelector("input.scrub");
  const most = Number(range.max);
  let [n, begun, worst, last] = [0, performance.now(), 0, performance.now()];
  const next = (now) => {
    worst = Math.max(worst, now - last);
    last = now;
    if (n === frames) return done({ fps: (1000 * frames) / (now - begun), worst });
    range.value = String(Math.round((0.5 - 0.5 * Math.cos((6.3 * n) / frames)) * most));
    range.dispatchEvent(new Event("input"));
    n += 1;
    requestAnimationFrame(next);
  };
  requestAnimationFrame((now) => { begun = last = now; next(now); });
})"""


def _processor_seconds() -> float:
    """Of all processes below this one: what scrubbing costs, whoever else is at work on the machine."""
    parents, spent = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        spent[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def below(process: int) -> bool:
        while process in parents:
            process = parents[process]
            if process == os.getpid():
                return True
        return False

    return sum(seconds for process, seconds in spent.items() if below(process))


def measure(steps: int, slots: int, frames: int) -> dict[str, float]:
    """All figures of one page."""
    from playwright.sync_api import sync_playwright

    browsers = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in browsers if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit("no Chromium: make test-browser installs it")
    with tempfile.TemporaryDirectory() as here, sync_playwright() as playwright:
        path = page.write(Path(here) / "long.html", [samples.document(steps, slots, size=12, title="a long episode")])
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1280, "height": 900})
        opened.goto(path.as_uri())
        opened.wait_for_selector(".sentence mark")
        shown = opened.evaluate("performance.now()")
        paint = opened.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        before = _processor_seconds()
        scrubbed = opened.evaluate(SCRUB, frames)
        spent = _processor_seconds() - before
        size = path.stat().st_size
        browser.close()
    return {
        "bytes": size,
        "first_paint_ms": round(paint, 1),
        "step_shown_ms": round(shown, 1),
        "frames_per_second": round(scrubbed["fps"], 1),
        "slowest_frame_ms": round(scrubbed["worst"], 1),
        "processor_ms_per_frame": round(1000 * spent / frames, 1),
    }


def main() -> None:
    """Measure, print, and say which limits hold."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=10_000)
    options.add_argument("--slots", type=int, default=64)
    options.add_argument("--frames", type=int, default=300)
    options.add_argument("--out", type=Path)
    args = options.parse_args()
    found = measure(args.steps, args.slots, args.frames)
    within = {
        "bytes": found["bytes"] < LIMITS["bytes"],
        "first_paint_ms": found["first_paint_ms"] < LIMITS["first_paint_ms"],
        "frames_per_second": found["frames_per_second"] >= LIMITS["frames_per_second"],
    }
    report = {"command": f"python benchmarks/theatre.py --steps {args.steps} --slots {args.slots}", **found}
    report |= {"limits": LIMITS, "within": within}
    print(json.dumps(report, indent=1))
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
