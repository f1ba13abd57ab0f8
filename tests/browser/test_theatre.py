"""The page in a real browser: what it loads, what it shows, how it is moved."""

import math
import re

import numpy as np
import pytest

from recollect.view import boards
from recollect.view import format as recording
from view import samples

pytestmark = pytest.mark.browser


def number(x, digits=3):
    """As the page writes a number."""
    if x == 0:
        return "0"
    size = abs(x)
    if size >= 1e7 or size < 10**-digits:
        mantissa, exponent = f"{x:.{max(0, digits - 2)}e}".split("e")
        text = f"{mantissa}e{'+' if int(exponent) > 0 else '-'}{abs(int(exponent))}"
    elif size >= 1000:
        text = f"{round(x):,}"
    else:
        text = f"{x:.{1 if size >= 100 else digits}f}".rstrip("0").rstrip(".")
    return text.replace("-", "−")


def percent(p):
    text = "< 1 %" if 0 < p < 0.01 else "> 99 %" if 0.99 < p < 1 else f"{math.floor(100 * p + 0.5)} %"
    return text.replace(" ", "\xa0")


def test_loads_from_disk_without_a_request_or_a_complaint(show):
    page = show(samples.document())
    assert page.requests == [] and page.faults == []
    policy = page.page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_begins_where_it_mattered(show):
    page = show(samples.document())
    assert page.step == int(page.page.locator("button.moment").first.get_attribute("data-step"))


SHOWN = """() => {
  const all = (selector, read) => [...document.querySelectorAll(selector)].map(read);
  const text = (e, selector) => e.querySelector(selector).textContent;
  return {
    policy: all('.policy .bar', (e) => [Number(e.dataset.value), text(e, '.figure')]),
    facts: Object.fromEntries(all('[data-fact]', (e) => [e.dataset.fact, [Number(e.dataset.value), e.textContent]])),
    slots: all('.slot', (e) => [
      e.dataset.seen, e.dataset.probability, e.dataset.logWeight, e.classList.contains('recalled'),
      text(e, '.share'), text(e, '.weight'), text(e, '.age'),
    ]),
    seen: all('.bars.seen .bar', (e) => Number(e.dataset.value)),
  };
}"""


@pytest.mark.parametrize("slots", [1, 3, 20])
def test_every_number_is_the_recordings(show, slots):
    document = samples.document(steps=15, slots=slots)
    (episode,) = document["episodes"]
    held = episode["memory"]
    find = {name: recording.decode(episode[name]) for name in ("policy", "value", "delta", "reward", "action")}
    find |= {name: recording.decode(held[name]) for name in ("probability", "recalled", "credit")}
    stays = {name: recording.decode(held["stays"][name]) for name in held["stays"]}
    page = show(document, hash="#step=0")
    for t in range(15):
        assert page.step == t
        state = page.page.evaluate(SHOWN)
        assert [text for _, text in state["policy"]] == [percent(float(p)) for p in find["policy"][t]]
        np.testing.assert_array_equal(np.float32([value for value, _ in state["policy"]]), find["policy"][t])
        for name in ("value", "delta", "reward"):
            value, text = state["facts"][name]
            assert np.float32(value) == np.float32(find[name][t])
            sign = "+" if name != "value" and value > 0 else ""
            assert text == sign + number(value)
        np.testing.assert_array_equal(state["seen"], recording.decode(episode["observation"])[t])
        for slot, (seen, share, weight, recalled, share_text, weight_text, age) in enumerate(state["slots"]):
            own = (stays["slot"] == slot) & (stays["from"] <= t) & (t < stays["until"])
            assert recalled == (find["recalled"][t] == slot)
            if not own.any():
                assert (seen, share, share_text) == ("", "", "")
                continue
            (at,) = np.flatnonzero(own)
            assert int(seen) == stays["seen"][at]
            assert np.float32(share) == np.float32(find["probability"][t, slot])
            assert share_text == percent(float(find["probability"][t, slot]))
            assert np.float32(weight) == stays["log_weight"][at]
            assert weight_text == f"weight {number(math.exp(float(stays['log_weight'][at])))}"
            assert age == f"step {stays['seen'][at]}, {t - stays['seen'][at]} ago"
        if find["recalled"][t] >= 0:
            assert np.float32(state["facts"]["credit"][0]) == np.float32(find["credit"][t])
        page.page.keyboard.press("ArrowRight")
    assert page.faults == []


def fate(document, stay):
    """Until when a stored observation stays, how often it is recalled and what credit it gets, in the page's words."""
    episode = document["episodes"][0]
    held = episode["memory"]
    slot, begin, until = (int(recording.decode(held["stays"][name])[stay]) for name in ("slot", "from", "until"))
    recalls = begin + np.flatnonzero(recording.decode(held["recalled"])[begin:until] == slot)
    credit = float(recording.decode(held["credit"])[recalls].astype(float).sum())
    end = "to the end" if until == episode["steps"] else f"until step {until - 1}"
    times = f"{len(recalls)} time{'' if len(recalls) == 1 else 's'}"
    return f"it stays {end}, recalled {times}, credit {'+' if credit > 0 else ''}{number(credit)}"


def test_what_comes_in_and_what_goes_out_is_said(show):
    document = samples.document(steps=15, slots=2)
    stays = {k: recording.decode(v) for k, v in document["episodes"][0]["memory"]["stays"].items()}
    page = show(document)
    told = 0
    for t in range(14):
        page.page.evaluate(f"location.hash = '#step={t}'")
        page.until(lambda t=t: page.step == t)
        text = page.page.locator(".exchange").text_content()
        (entered,) = np.nonzero(stays["seen"] == t)
        if not len(entered):
            assert "is not stored" in text
            continue
        assert f"is stored in slot {stays['slot'][entered[0]] + 1}" in text
        assert fate(document, entered[0]) in text  # what the score tells who hovers, for those who use the keys
        same_slot = stays["slot"] == stays["slot"][entered[0]]
        for gone in np.flatnonzero(same_slot & (stays["until"] == stays["from"][entered[0]])):
            assert f"out step {stays['seen'][gone]}," in text
            assert page.page.locator(".slot.leaves, .slot.recalled").count() >= 1
            told += 1
    assert told >= 3


def test_why_is_the_score_by_element_largest_first(show):
    document = samples.document(steps=12, slots=3, size=6)
    episode = document["episodes"][0]
    # Stored observations of many elements, so that there is an order to see.
    rng = np.random.default_rng(1)
    episode["observation"] = recording.encode(rng.normal(size=(12, 6)).astype(np.float32))
    held = episode["memory"]
    t = 11
    page = show(document, hash=f"#step={t}")
    stays = {k: recording.decode(v) for k, v in held["stays"].items()}
    for slot in range(3):
        page.page.locator(f".slot[data-slot='{slot}']").hover()
        (at,) = np.flatnonzero((stays["slot"] == slot) & (stays["from"] <= t) & (t < stays["until"]))
        item = recording.decode(episode["observation"])[stays["seen"][at]]
        shares = recording.decode(held["query"])[t] * item / 0.5
        order = np.argsort(-np.abs(shares))
        rows = page.page.locator(".contributions .bar")
        assert [int(rows.nth(k).get_attribute("data-element")) for k in range(rows.count())] == order.tolist()
        shown = [float(rows.nth(k).get_attribute("data-value")) for k in range(rows.count())]
        np.testing.assert_allclose(shown, shares[order], rtol=1e-5)
        assert f"step {stays['seen'][at]}?" in page.text(".why h2").lower()
        there = [np.flatnonzero((stays["slot"] == s) & (stays["from"] <= t) & (t < stays["until"])) for s in range(3)]
        items = recording.decode(episode["observation"])[stays["seen"][np.concatenate(there)]]
        scores = items.astype(float) @ recording.decode(held["query"])[t].astype(float) / 0.5
        others = sorted(np.delete(scores, slot))
        told = f"Score {number(scores[slot], 2)}, the others {number(others[0], 2)} to {number(others[1], 2)}: "
        assert told in page.text(".why")


def test_what_was_stored_before_the_episode_is_said_to_be(show):
    document = samples.document(steps=12, slots=3)
    held = document["episodes"][0]["memory"]
    stays = {k: recording.decode(held["stays"][k]).astype(int) for k in ("slot", "seen")}
    keys = recording.decode(document["episodes"][0]["observation"])[stays["seen"]].copy()
    first = int(np.flatnonzero(stays["slot"] == recording.decode(held["recalled"])[11])[-1])
    stays["seen"][first], keys[first] = -1, [0, 0, 0, 1]
    held["stays"]["seen"], held["keys"] = recording.encode(stays["seen"]), recording.encode(keys)
    page = show(recording.check(document, "here"), hash="#step=11")
    assert "It recalls a step before this episode, junction (" in page.text(".sentence")
    card = page.page.locator(".slot.recalled")
    assert card.locator(".age").inner_text() == "a step before this episode"
    assert card.locator(".what").inner_text() == "junction"
    assert page.text("[data-fact=credit]").endswith(" to a step before this episode")
    assert page.text(".why h2").lower().startswith("why did it recall a step before this episode?")
    assert page.faults == []


def test_why_says_whether_another_recall_would_have_changed_anything(show):
    document = samples.document(steps=12, slots=3)
    episode = document["episodes"][0]
    policies = np.tile(recording.decode(episode["policy"])[:, None], (1, 3, 1))
    policies[9] = np.eye(3)
    episode["memory"]["policies"] = recording.encode(policies.astype(np.float32))
    page = show(document, hash="#step=8")
    assert "With any other of these slots it would have done the same." in page.text(".why")
    assert "hidden state" not in page.text(".why")
    page.page.keyboard.press("ArrowRight")
    assert "Another slot would have moved the policy by up to 100" in page.text(".why")


def test_keys(show):
    page = show(samples.document(steps=40), hash="#step=5")
    press = page.page.keyboard.press
    for key, step in [("ArrowRight", 6), ("ArrowLeft", 5), ("Shift+ArrowRight", 15), ("Home", 0), ("ArrowLeft", 0)]:
        press(key)
        assert page.step == step, key
    press("End")
    assert page.step == 39
    press("Home")
    press("Space")
    page.until(lambda: page.step >= 2)
    assert page.page.locator("button.play").get_attribute("aria-label") == "pause"
    press("Space")
    stopped = page.step
    page.page.wait_for_timeout(600)
    assert page.step == stopped and page.faults == []


def test_scrubbing(show):
    page = show(samples.document(steps=30), hash="#step=0")
    page.page.locator("input.scrub").fill("17")
    assert "At step 17 " in page.text(".sentence")
    box = page.page.locator(".score-canvas").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] - 5, box["y"] + 80)
    page.page.mouse.down()
    assert page.step == 29
    page.page.mouse.move(box["x"] + 110, box["y"] + 80)
    page.page.mouse.up()
    assert page.step == 0
    assert "Step 0: " in page.text(".tip")


def test_the_address_leads_to_a_step_and_follows_it(show):
    page = show(samples.document(steps=30, episodes=3), hash="#step=17&checkpoint=1")
    assert page.step == 17 and "1,000 steps" in page.text(".trained")
    page.page.keyboard.press("ArrowRight")
    page.until(lambda: page.page.evaluate("location.hash") == "#step=18&checkpoint=1")
    page.page.evaluate("location.hash = '#step=4'")
    page.until(lambda: page.step == 4)
    for odd in ("#step=999999", "#step=-3", "#step=<b>", "#checkpoint=77", "#"):
        page.page.evaluate("(hash) => { location.hash = hash }", odd)
        page.page.wait_for_timeout(50)
        assert 0 <= page.step < 30
    assert page.faults == []


def test_the_slider_over_checkpoints_plays_the_same_episode_by_the_agent_of_then(show):
    document = samples.document(steps=20, episodes=4)
    page = show(document, hash="#step=8")
    for k in (0, 2, 3):
        page.page.locator(".checkpoints input").fill(str(k))
        value = recording.decode(document["episodes"][k]["value"])[8]
        shown = float(page.page.locator("[data-fact=value]").get_attribute("data-value"))
        assert np.float32(shown) == value
        assert f"{1000 * k:,} steps" in page.text(".trained")
    assert page.page.locator(".chart[data-chart='query entropy of this episode'] canvas").count() == 1


@pytest.mark.parametrize("width", [360, 768, 1280, 3840])
def test_nothing_sticks_out(show, width):
    page = show(samples.document(slots=8, episodes=2), width=width, height=900)
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.page.set_viewport_size({"width": 500, "height": 700})
    page.page.wait_for_timeout(100)
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.page.locator(".score-canvas").bounding_box()["width"] <= 500
    assert page.faults == []


def test_light_and_dark(show):
    def ground(page):
        return page.page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = show(samples.document(), color_scheme="light")
    assert ground(light) == "rgb(251, 251, 250)"
    dark = show(samples.document(), color_scheme="dark")
    assert ground(dark) == "rgb(18, 21, 27)"
    dark.page.locator("button.theme").click()
    assert ground(dark) == "rgb(251, 251, 250)"
    assert dark.faults == []


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '"><svg onload=alert(3)>',
    "<!--<script>${alert(4)}",
]


def test_hostile_names_are_shown_as_text(show):
    document = samples.document(names=list(HOSTILE), title=HOSTILE[1])
    document["environment"] = {"name": HOSTILE[0], "options": {HOSTILE[2]: HOSTILE[0]}}
    document["agent"]["name"] = HOSTILE[3]
    document["actions"]["names"] = HOSTILE[:3]
    document["episodes"][0]["texts"] = [HOSTILE[1]] * 12
    page = show(document, hash="#step=5")
    page.page.locator("details.steps summary").click()
    page.page.locator(".score-canvas").hover()
    assert page.text("h1") == HOSTILE[1]
    assert HOSTILE[0] in page.text(".facts-line") and HOSTILE[3] in page.text(".facts-line")
    names = page.page.locator(".policy .name").all_inner_texts()
    assert [name.removeprefix("▸ ") for name in names] == HOSTILE[:3]
    assert page.text(".rendered") == HOSTILE[1]
    assert page.page.locator("#theatre img, #theatre script, #theatre svg[onload]").count() == 0
    assert page.page.title() == HOSTILE[1]
    assert page.faults == [] and page.requests == []


def test_readers_of_the_screen_get_a_table_and_labels(show):
    document = samples.document(steps=25)
    page = show(document, hash="#step=9")
    page.page.locator("details.steps summary").click()
    rows = page.page.locator("details.steps tbody tr")
    page.until(lambda: rows.count() == 25)
    assert rows.nth(9).locator("td").first.inner_text() in samples.NAMES
    stored = recording.decode(document["episodes"][0]["memory"]["stays"]["seen"])
    for stay, t in enumerate(stored):
        end, recalls, credit = re.fullmatch(
            r"it stays (.+), recalled (\d+) times?, credit (.+)", fate(document, stay)
        ).groups()
        cells = rows.nth(int(t)).locator("td").all_inner_texts()[-3:]
        assert cells[0].endswith(end) and cells[1:] == [recalls, credit]
    assert page.page.locator("input.scrub").get_attribute("aria-valuetext") == "step 9 of 24"
    assert "recalled" in page.page.locator(".slot.recalled").get_attribute("aria-label")
    nameless = page.page.evaluate("""() => [...document.querySelectorAll('button, input, select')]
        .filter((e) => !e.getAttribute('aria-label') && !e.textContent.trim() && !e.closest('label')).length""")
    assert nameless == 0


def test_a_hidden_state_is_shown_where_there_are_no_slots(show):
    document = samples.document()
    del document["episodes"][0]["memory"]
    values = np.random.default_rng(0).uniform(-1, 1, (12, 10)).astype(np.float32)
    document["episodes"][0]["hidden"] = [{"name": "GRU", "values": recording.encode(values)}]
    page = show(document, hash="#step=3")
    assert page.page.locator(".memory").is_hidden() and page.page.locator(".why").is_hidden()
    assert page.faults == []


def test_runs_side_by_side_move_together(show):
    page = show(samples.document(title="one"), samples.document(title="two", steps=20), hash="#step=15")
    assert page.page.locator("article.theatre").count() == 2
    sentences = page.page.locator(".sentence").all_inner_texts()
    assert "At step 11 " in sentences[0] and "At step 15 " in sentences[1]


def test_a_long_episode_is_shown_by_a_window_and_an_overview(show):
    page = show(samples.document(steps=3000, slots=16, size=8), hash="#step=2500")
    assert page.page.locator(".score-overview").is_visible()
    box = page.page.locator(".score-overview").bounding_box()
    page.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
    assert abs(page.step - 1500) < 5
    assert page.faults == []


def figure():
    x = [10, 20, 30]
    series = [
        {"name": f"seed {k}", "group": group, "values": [k + 0.1, k + 0.2, None if k == 2 else k + 0.3]}
        for group in ("informative", "uninformative")
        for k in range(3)
    ]
    claim = {"claim": "<i>close</i>", "criterion": "≥ 0.95", "measured": "0.99", "verdict": "holds for 2 of 3 seeds"}
    claim |= {"holding": 2, "seeds": 3, "values": {"return": [0.99, 0.98, None]}}
    panel = {"title": "(a) mean write weight", "x": x, "xlabel": "episodes", "series": series}
    return {
        "format": "recollect figure",
        "title": "Figure 4",
        "subtitle": "sub",
        "panels": [panel],
        "claims": [claim],
        "notes": ["a note"],
    }


def test_a_figure_has_panels_seeds_and_claims(show):
    page = show(figure())
    legend = page.page.locator(".u-legend").inner_text
    assert "informative (mean of 3)" in legend()
    page.page.locator("input[data-seed='seed 1']").uncheck()
    assert "informative (mean of 2)" in legend()
    page.page.locator("input[data-each]").check()
    assert "informative, seed 0" in legend() and "seed 1" not in legend()
    over = page.page.locator(".u-over").bounding_box()
    page.page.mouse.move(over["x"] + 1, over["y"] + 20)
    assert "0.1" in legend()
    assert page.text(".claims tbody th") == "<i>close</i>" and "◐ holds for 2 of 3" in page.text(".verdict")
    page.page.locator(".behind summary").click()
    assert "0.99, 0.98, –" in page.text(".behind details")
    assert page.faults == []


def test_a_board_sorts_and_filters(show, tmp_path):
    rows = [
        {"task": "t-maze-10", "agent": "episodic", "return": 1.0, "interval": [0.9, 1.0], "median_steps": 500},
        {"task": "t-maze-80", "agent": "gru", "return": -0.2, "interval": [-0.5, 0.1], "median_steps": "inf"},
        {"task": "t-maze-9", "agent": "gru", "return": 0.5, "interval": [0.4, 0.6], "median_steps": 12000},
    ]
    runs = [{"task": row["task"], "agent": row["agent"], "seed": 0, "steps": 100, "curve": [0.0, 0.5]} for row in rows]
    page = show(boards.document({"command": "recollect benchmark", "table": rows, "rows": runs}, tmp_path / "b.json"))
    first = lambda: page.page.locator(".board tbody").first.locator("tr th").all_inner_texts()  # noqa: E731
    page.page.locator("th[data-column=return] button").click()
    assert first() == ["t-maze-10", "t-maze-9", "t-maze-80"]
    page.page.locator("th[data-column=return] button").click()
    assert first() == ["t-maze-80", "t-maze-9", "t-maze-10"]
    page.page.locator("th[data-column=task] button").click()
    assert first() == ["t-maze-9", "t-maze-10", "t-maze-80"]
    page.page.locator("th[data-column=median_steps] button").click()
    assert first() == ["t-maze-9", "t-maze-10", "t-maze-80"]  # what was never reached comes last
    page.page.locator("input[type=search]").fill("gru 80")
    assert first() == ["t-maze-80"] and page.page.locator(".chart").count() == 1
    assert page.faults == []
