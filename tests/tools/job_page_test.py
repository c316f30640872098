"""The page of a running job (`tessera run --dashboard`) in a headless Chromium, with figures of jobs that are made up: of no rank yet, of one, of 64, of one
that has failed. It fits windows of 1,100 and 400 pixels, nothing overlaps, what is written can be read by day and in the dark, and keys
reach and move all there is.

    python3 tests/tools/job_page_test.py [--screenshots FOLDER]

Without a browser nothing runs, and the reason is printed. Debian's package `chromium` is one.
"""

import argparse
import base64
import json
import math
import shutil
import sys
import tempfile
from pathlib import Path

from page_look import Browser, check, check_look

TOOLS = Path(__file__).resolve().parents[2] / "tessera" / "tools"
WIDTHS = (1100, 400)


def job(num_ranks, steps, state="running"):
    """What /state.json says of a job that is made up (docs/dashboard.md)."""
    def loss(rank, step):
        return round(2.3 * math.exp(-step / 120) + 0.2 + 0.03 * math.sin(step / 3 + rank) * math.exp(-step / 200), 6)

    def rank(number):
        is_last = number == num_ranks - 1
        word = "expected" if not steps else "failed" if is_last and state == "failed" else "waiting" if number % 21 == 5 else "training"
        return {"rank": number, "state": word, "detail": "exit code 1" if word == "failed" else "", "host": f"machine-{number // 8}.cluster.example",
                "epoch": 3, "step": steps, "loss": loss(number, steps) if steps else None, "learning_rate": 0.01, "rows_per_second": 812.3 if steps else None,
                "resident_bytes": (3 << 29) + number * 1234567 if steps else 0, "arena_bytes": 700 << 20 if steps else 0,
                "doing": "step 400" if steps else "", "waits_for": 7 if word == "waiting" else None,
                "waits_in": "all_reduce #8123 encoder.blocks.11.attention.projection" if word == "waiting" else "", "heard_s": 0.4, "restarts": number % 3}

    ranks = [rank(number) for number in range(num_ranks)]
    states = {}
    for one in ranks:
        states[one["state"]] = states.get(one["state"], 0) + 1
    at = range(1, steps + 1, 4)
    return {"version": 1, "program": "python3 examples/python/transformer_wmt14/train.py --parallel_mode semi_auto_parallel --layers 12 --hidden_size 1024",
            "state": state if steps else "waiting", "reason": "rank 63 has ended with exit code 1: its loss is not finite" if state == "failed" else "",
            "time": "2026-03-04T05:06:07Z", "started": "2026-03-04T04:00:00Z", "seconds": 3967.0, "num_ranks": num_ranks, "epoch": 3 if steps else 0,
            "epochs": 10 if steps else 0, "step": steps, "steps_per_epoch": 190 if steps else 0, "loss": loss(0, steps) if steps else None,
            "learning_rate": 0.01 if steps else None, "rows_per_second": 51987.2 if steps else None,
            "resident_bytes": sum(one["resident_bytes"] for one in ranks), "arena_bytes": sum(one["arena_bytes"] for one in ranks),
            "mode": "semi_auto_parallel" if steps else "", "plan": "mesh [data=16, model=4], 212 operators split" if steps else "",
            "slowest": {"rank": 7, "percent": 31, "waiting": 0} if num_ranks > 7 and steps else None, "states": states, "ranks": ranks, "ranks_left_out": 0,
            "losses": [{"rank": number, "points": [[step, loss(number, step)] for step in at]} for number in range(num_ranks)] if steps else [],
            "speeds": [[step, 51000 + 900 * math.sin(step / 9)] for step in at], "learning_rates": [[step, 0.01 * min(1, step / 60)] for step in at],
            "checkpoints": [{"step": 190 * (i + 1), "path": f"/data/checkpoints/translation/LM-{i + 1}_190.ckpt", "time": "2026-03-04T04:30:00Z"}
                            for i in range(steps // 190)],
            "log": [{"rank": None if i == 0 else i % max(num_ranks, 1), "text": f"epoch: 1 step: {i}, loss is {2.3 - i / 100:.7f}"}
                    for i in range(60 if steps else 0)]}


def stopped_and_over():
    """A job whose ranks wait for one that is stopped, and the same job when it is over, of which nothing is known but this."""
    stopped = job(4, 400)
    stopped["slowest"] = {"rank": 2, "percent": None, "waiting": 3}
    over = job(4, 400, "completed")
    for one in over["ranks"]:
        one.update(state="ended", doing=None, waits_for=None, waits_in=None, host=None)
    return {"stopped": stopped, "over": over}


JOBS = {"waiting": job(4, 0), "one": job(1, 400), "many": job(64, 400), "failed": job(64, 400, "failed"), **stopped_and_over()}
# What tiles say of some of them.
FACTS = {"waiting": {"slowest rank": "none stands out", "running for": "1:06:07 h"},
         "many": {"slowest rank": "7 (others wait for it 31\u00a0% of the time)"},
         "failed": {"slowest rank": "7 (others waited for it 31\u00a0% of the time)"},
         "stopped": {"slowest rank": "2 (3 others wait for it now)"},
         "over": {"slowest rank": "–", "ran for": "1:06:07 h"}}


def page_of(state):
    """The page as the program puts it together, which gets this state however often it asks."""
    style = (TOOLS / "page" / "page.css").read_text() + (TOOLS / "dashboard" / "job_page.css").read_text()
    answer = json.dumps(state).replace("<", "\\u003c")
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<link rel="icon" href="data:,"><title>A job of Tessera</title><style>{style}</style></head>\n<body>\n'
            + (TOOLS / "dashboard" / "job_page.html").read_text()
            + f"<script>window.fetch = async () => new Response({json.dumps(answer)});</script>"
            + f"<script>{(TOOLS / 'dashboard' / 'job_page.js').read_text()}</script>\n</body></html>\n")


def press(browser, key, **further):
    browser.call("Input.dispatchKeyEvent", type="rawKeyDown", key=key, code=key, windowsVirtualKeyCode=further.pop("code", 0), **further)
    browser.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)


def check_words(browser, name):
    """Tiles say what is, or what was, and what is not known is a dash."""
    facts = browser.value_of("Object.fromEntries([...document.querySelectorAll('#facts div')].map(one => [...one.children].map(part => part.textContent)))")
    for fact, wanted in FACTS.get(name, {}).items():
        check(facts.get(fact) == wanted, f"{name}: {fact} is {wanted!r}, not {facts.get(fact)!r}")
    empty = browser.value_of("[...document.querySelectorAll('#ranks td')].filter(cell => cell.textContent === '').length")
    check(empty == 0, f"{name}: {empty} cells of ranks are empty")


# What is written at an axis: from, to, at most so many intervals of which none is shorter than that.
TICKS = {(0.168, 2.62, 6, 0): ["0.5", "1.0", "1.5", "2.0", "2.5"], (1, 397, 5, 1): ["100", "200", "300"], (4, 6, 5, 1): ["4", "5", "6"],
         (1, 3, 5, 1): ["1", "2", "3"], (-1.5, 2.5, 6, 0): ["-1", "0", "1", "2"], (0.9995, 1.0005, 6, 0): ["0.9996", "0.9998", "1.0000", "1.0002", "1.0004"],
         (0, 1e-8, 6, 0): ["0", "2e-9", "4e-9", "6e-9", "8e-9", "1e-8"], (0, 3e9, 6, 0): ["0", "500000000", "1000000000", "1500000000", "2000000000", "2500000000", "3000000000"],
         (1000000, 1000008, 6, 0): ["1000000", "1000002", "1000004", "1000006", "1000008"]}


def check_axes(browser):
    for (low, high, most, least), wanted in TICKS.items():
        found = browser.value_of(f"ticks({low}, {high}, {most}, {least}).map(tick => tick.text)")
        check(found == wanted, f"an axis from {low} to {high} has {found}, not {wanted}")


def check_keys(browser):
    """Tab goes from top to bottom to whatever scrolls or answers keys, each has a name, and keys move the curves."""
    browser.value_of("document.activeElement.blur()")
    seen = []
    for _ in range(12):
        press(browser, "Tab", code=9)
        at = browser.value_of("(() => { const at = document.activeElement; if (at === document.body) return null;"
                              "const label = at.getAttribute('aria-label') || (document.getElementById(at.getAttribute('aria-labelledby')) || {}).textContent;"
                              "return [label, at.getBoundingClientRect().top + scrollY, getComputedStyle(at).outlineStyle]; })()")
        if at is None or at[0] in [one[0] for one in seen]:
            break
        seen.append(at)
    names = [one[0] for one in seen]
    check(all(names), f"each has a name: {names}")
    for wanted in ("program", "Loss", "Throughput", "Learning rate", "Ranks", "Checkpoints", "Log"):
        check(any(wanted in name for name in names), f"Tab reaches {wanted}: {names}")
    tops = [one[1] for one in seen]
    check(tops == sorted(tops), f"Tab goes from top to bottom: {seen}")
    check(all(one[2] != "none" for one in seen), f"who has the focus can be seen: {seen}")
    live = "[...document.querySelectorAll('figure output')].map(one => one.getAttribute('aria-live'))"
    check(browser.value_of(live) == ["off"] * 3, f"what comes once a second is not read aloud: {browser.value_of(live)}")
    browser.value_of("document.querySelector('figure').focus()")
    said = "document.querySelector('figure output').textContent"
    press(browser, "Home", code=36)
    check(browser.value_of(said).startswith("step 1: "), "Home goes to the first step: " + browser.value_of(said))
    check(browser.value_of(live)[0] == "polite", "what keys ask for is")
    press(browser, "ArrowRight", code=39)
    check(browser.value_of(said).startswith("step 5: "), "an arrow goes to the next: " + browser.value_of(said))
    press(browser, "End", code=35)
    check(browser.value_of(said).startswith("step 397: "), "End goes to the newest: " + browser.value_of(said))
    frame = "document.querySelector('#ranks').closest('.frame')"
    check(browser.value_of(f"{frame}.scrollHeight > {frame}.clientHeight && {frame}.tabIndex === 0"), "the table of 64 ranks scrolls within its frame, by keys, too")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--screenshots", type=Path, help="folder that gets a picture of each")
    args = parser.parse_args()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        print("skipped: job_page_test: no chromium is installed (Debian: apt-get install chromium)")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    passed, failures = 0, []
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(program, Path(folder) / "profile")
        try:
            for name, state in JOBS.items():
                page = Path(folder) / f"{name}.html"
                page.write_text(page_of(state), encoding="utf-8")
                for width in WIDTHS:
                    for is_dark in (False, True):
                        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
                        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])
                        browser.open(page)
                        while not browser.value_of("document.querySelector('#facts div') !== null"):
                            pass
                        if args.screenshots:
                            size = browser.call("Page.getLayoutMetrics")["cssContentSize"]
                            image = browser.call("Page.captureScreenshot", captureBeyondViewport=True,
                                                 clip={"x": 0, "y": 0, "width": width, "height": size["height"], "scale": 1})["data"]
                            args.screenshots.mkdir(exist_ok=True)
                            (args.screenshots / f"{name}_{width}_{'dark' if is_dark else 'light'}.png").write_bytes(base64.b64decode(image))
                        try:
                            check_look(browser, f"{name}, {width} pixels, {'dark' if is_dark else 'light'}", width)
                            check_words(browser, name)
                            if name == "many" and width == WIDTHS[0] and not is_dark:
                                check_axes(browser)
                                check_keys(browser)
                            check(not browser.errors, "no error is reported: " + "; ".join(browser.errors))
                            passed += 1
                        except AssertionError as failure:
                            failures.append(str(failure))
        finally:
            browser.close()
    for failure in failures:
        print(f"FAILED: {failure}")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
