"""The pages of `tessera plan --html` and `tessera report` in a headless Chromium, spoken to over its debugging pipe: they load from disk,
report no error; that of a plan folds, unfolds and filters, that of a run fits a narrow window, listens to keys and is dark in the dark.

    python3 tests/tools/plan_page_test.py BUILD [--screenshot FILE]

Without a browser nothing runs, and the reason is printed. Debian's package `chromium` is one.
"""

import argparse
import base64
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from page_look import Browser, check, check_look


def click(cell):
    return ("[...document.querySelectorAll('svg .box')].find(b => b.querySelector('text').textContent === "
            f"{json.dumps(cell)}).dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")


def press_at(place, key):
    return f"{place}.dispatchEvent(new KeyboardEvent('keydown', {{key: {json.dumps(key)}, bubbles: true, cancelable: true}}))"


def check_plan_keys(browser, cell):
    """Whatever the pointer does on the page of a plan, keys do, too."""
    boxes = "document.querySelectorAll('svg .box').length"
    tip = "document.getElementById('tip').textContent"
    few = browser.value_of(boxes)
    box = f"[...document.querySelectorAll('svg .box')].find(b => b.querySelector('text').textContent === {json.dumps(cell)})"
    browser.value_of(f"{box}.focus()")
    check(browser.value_of(tip).startswith(cell), f"a box that has the focus says what it is: {browser.value_of(tip)}")
    browser.value_of(press_at(box, "Enter"))
    check(browser.value_of(boxes) > few, "Enter unfolds a cell")
    check(browser.value_of("document.activeElement.textContent") == "− " + cell, "where it is folded again has the focus then")
    browser.value_of("document.activeElement.click()")
    check(browser.value_of(boxes) == few, "and folds it")
    browser.value_of(press_at("document.getElementById('memory')", "End"))
    check("while it runs" in browser.value_of(tip), f"arrow keys say the memory of an operator: {browser.value_of(tip)}")
    before = browser.value_of("window_[1] - window_[0]")
    browser.value_of(press_at("document.getElementById('lanes')", "+"))
    check(browser.value_of("window_[1] - window_[0]") < before, "+ comes nearer to the lanes")
    browser.value_of(press_at("document.getElementById('lanes')", "Home"))
    check(browser.value_of("window_[1] - window_[0]") == before, "Home shows all of them")


def check_page(browser, page):
    browser.call("Emulation.setDeviceMetricsOverride", width=800, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(page)
    check(browser.value_of("document.documentElement.scrollWidth") <= 800, "it fits a window of 800 pixels")
    browser.call("Emulation.clearDeviceMetricsOverride")
    browser.open(page)
    boxes = "document.querySelectorAll('svg .box').length"
    rows = "document.querySelectorAll('#body tr').length"
    few = browser.value_of(boxes)
    check(0 < few <= 60, f"the graph is folded to few boxes, {few}")
    check(browser.value_of("document.querySelectorAll('canvas').length") == 2, "memory and lanes are drawn")
    folded = browser.value_of(
        "[...document.querySelectorAll('svg .box')].map(b => [...b.querySelectorAll('text')].map(t => t.textContent))"
        ".filter(([, facts]) => /^\\d+ operators/.test(facts)).map(([name]) => name)")
    check(folded, "some cells are folded")
    browser.value_of(click(folded[0]))
    unfolded = browser.value_of(boxes)
    check(unfolded > few, f"a click on {folded[0]} unfolds it: {few} boxes, {unfolded} then")
    browser.value_of("[...document.querySelectorAll('#unfolded button')].find(b => b.textContent === "
                     f"{json.dumps('− ' + folded[0])}).click()")
    check(browser.value_of(boxes) == few, "its button folds it again")
    verdict = browser.value_of("document.getElementById('verdict').textContent")
    check(verdict.startswith("Taken: "), f"the page opens with what was taken: {verdict}")
    check(browser.value_of("document.querySelectorAll('#facts div').length") >= 6, "and with numbers")
    check(browser.value_of("document.querySelectorAll('#candidates tr.taken').length") == 1, "one of the plans that were compared was taken")
    check_plan_keys(browser, folded[0])
    all_rows = browser.value_of(rows)
    browser.value_of("const f = document.getElementById('filter'); f.value = 'Word_Embedding'; f.dispatchEvent(new Event('input'))")
    some_rows = browser.value_of(rows)
    check(0 < some_rows < all_rows, f"the filter leaves some rows: {some_rows} of {all_rows}")
    browser.value_of("document.querySelectorAll('#head th button')[3].click()")
    check(browser.value_of("document.querySelectorAll('#head th')[3].getAttribute('aria-sort')") == "descending", "a column's name sorts by it")
    browser.value_of("document.getElementById('lanes').dispatchEvent(new WheelEvent('wheel', {deltaY: -1, cancelable: true}))")
    browser.value_of("f.value = ''; f.dispatchEvent(new Event('input'))")
    check(not browser.errors, "no error is reported: " + "; ".join(browser.errors))


def check_pipeline_page(browser, page):
    """That of `tessera plan --stages`: all that is written lies within the drawing, numbers of micro-batches within their phases."""
    browser.open(page)
    check(browser.value_of("document.querySelectorAll('svg rect').length") == 2 * (4 + 4 + 1), "each phase is a box")
    outside = browser.value_of("""(() => {
        const drawing = document.querySelector('svg').getBoundingClientRect();
        const boxes = [...document.querySelectorAll('svg rect')].map(r => r.getBoundingClientRect());
        const within = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
        return [...document.querySelectorAll('svg text')].filter(text => {
            const at = text.getBoundingClientRect();
            return !within(at, drawing) || (text.classList.contains('on') && !boxes.some(box => within(at, box)));
        }).map(text => text.textContent);
    })()""")
    check(not outside, f"what is written lies where it belongs, but {outside}")
    check(browser.value_of("[...document.querySelectorAll('svg text')].filter(t => /^[0-9.]+ [um]?s$/.test(t.textContent)).length") >= 3, "time is marked")
    check(not browser.errors, "no error is reported: " + "; ".join(browser.errors))


def check_report_page(browser, page):
    browser.call("Emulation.setDeviceMetricsOverride", width=800, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(page)
    check(browser.value_of("document.documentElement.scrollWidth") <= 800, "it fits a window of 800 pixels")
    figures = browser.value_of("document.querySelectorAll('figure[tabindex] svg path.line').length")
    check(figures >= 5, f"loss, rate, throughput and memory are drawn: {figures} lines")
    said = browser.value_of("const f = document.querySelector('figure[tabindex]'); f.focus();"
                            "f.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home', bubbles: true})); f.querySelector('output').textContent")
    check(said.startswith("step 1: "), f"the key Home goes to the first step: {said}")
    said = browser.value_of("f.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true})); f.querySelector('output').textContent")
    check(said.startswith("step 2: "), f"an arrow goes to the next one: {said}")
    said = browser.value_of("const m = document.querySelector('figure[aria-label*=operations]'); m.focus();"
                            "m.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home', bubbles: true})); m.querySelector('output').textContent")
    check(said.startswith("operation 0: alive 0 B"), f"memory over a step is said by operation: {said}")
    bars = browser.value_of("[...document.querySelectorAll('figure rect.pale')].length")
    check(bars == 2, f"each class of operators has a bar: {bars}")
    inside = browser.value_of("[...document.querySelectorAll('svg')].every(s => [...s.querySelectorAll('text')].every(t => "
                              "t.getBBox().x >= -1 && t.getBBox().x + t.getBBox().width <= s.viewBox.baseVal.width + 1))")
    check(inside, "every text of a drawing lies within it")
    for width in (800, 400):
        for theme in ("light", "dark"):
            browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            check_look(browser, f"the report, {width} pixels, {theme}", width)
    ground = browser.value_of("getComputedStyle(document.body).backgroundColor")
    check(ground == "rgb(18, 22, 29)", f"it is dark in the dark: {ground}")
    browser.call("Emulation.setEmulatedMedia", features=[])
    browser.call("Emulation.clearDeviceMetricsOverride")
    check(not browser.errors, "no error is reported: " + "; ".join(browser.errors))


def write_log(path):
    with open(path, "w") as file:
        print(json.dumps({"kind": "run", "step": 0, "epochs": 1,
                          "plan": {"mesh": "[data=4]", "operators": 9, "split_operators": 8, "values": [
                              {"name": "layer." * 30 + "weight", "kind": "param", "type": "f32[1024,1024]", "split": "[data,_]", "bytes": 4 << 20,
                               "rank_bytes": 1 << 20}]},
                          "memory": {"planned_bytes": 9 << 20, "operations": 100, "peak_bytes": 8 << 20, "peak_operation": 50, "peak_name": "matmul",
                                     "at_peak": [{"name": "%1", "type": "f32[4]", "bytes": 16, "made_by": "add", "last_read_by": "relu"}],
                                     "alive_bytes": [[i, (50 - abs(i - 50)) << 17] for i in range(100)]}}), file=file)
        for step in range(1, 201):
            print(json.dumps({"kind": "step", "time": "2026-03-04T05:06:07.089Z", "seconds": step / 2, "epoch": 1, "step": step,
                              "loss": 2 / step if step != 50 else "NaN", "learning_rate": 0.1, "rows_per_second": 100.0 + step % 7,
                              "resident_bytes": 1 << 30, "arena_bytes": 1 << 20}), file=file)
        print(json.dumps({"kind": "evaluation", "epoch": 1, "step": 200, "metrics": {"<b>accuracy</b>" * 20: 0.5}}), file=file)


# A timeline of one rank: a step of 10 ms, with an operator of 6 and one of 2.
def write_trace(path):
    names = [{"kind": "step", "text": "step"},
             {"kind": "operator", "text": 'matmul "fc"', "graph": "train", "dtype": "f32", "flops": 1e9, "bytes": 1 << 20},
             {"kind": "operator", "text": "an_operator_of_quite_a_long_name", "graph": "train", "dtype": "f32", "bytes": 1 << 20}]
    rank = {"rank": 0, "size": 1, "pid": 1, "host": "host", "clock": "clock", "job": "job", "steady_ns": 0, "system_ms": 0, "steps": "1:",
            "is_written": True, "lanes": [{"title": "compute", "dropped": 0, "whole_from_ns": 0}], "names": names}
    events = [{"ph": "X", "pid": 0, "tid": 0, "ts": begin, "dur": duration, "cat": names[n]["kind"], "name": names[n]["text"],
               "args": {"n": n, "step": 1, "run": 0}} for n, begin, duration in ((0, 0, 10000), (1, 1000, 6000), (2, 7000, 2000))]
    path.write_text(json.dumps({"otherData": {"tessera_timeline": 1, "origin_ns": 0, "ranks": [rank]}, "traceEvents": events}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--screenshot", type=Path)
    args = parser.parse_args()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        print("skipped: plan_page_test: no chromium is installed (Debian: apt-get install chromium)")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "plan.html"
        command = [args.build / "bin" / "tessera", "plan", "gpt2_small", "--devices", "8", "--simulate", "--quiet", "--html", page]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        browser = Browser(program, Path(folder) / "profile")
        try:
            pipeline = Path(folder) / "pipeline.html"
            subprocess.run([args.build / "bin" / "tessera", "plan", "resnet50", "--devices", "2", "--batch_size", "64", "--stages", "2", "--micro_batches",
                            "4", "--schedule", "1f1b", "--quiet", "--html", pipeline], check=True, stdout=subprocess.DEVNULL)
            check_pipeline_page(browser, pipeline)
            write_log(Path(folder) / "log.jsonl")
            write_trace(Path(folder) / "trace.json")
            report = Path(folder) / "report.html"
            subprocess.run([args.build / "bin" / "tessera", "report", folder, "--profile", "h100-80gb", "-o", report], check=True, stdout=subprocess.DEVNULL)
            check_report_page(browser, report)
            check_page(browser, page)
            if args.screenshot:
                size = browser.call("Page.getLayoutMetrics")["cssContentSize"]
                clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
                image = browser.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
                args.screenshot.write_bytes(base64.b64decode(image))
        except AssertionError as failure:
            print(f"FAILED: {failure}\n0 passed, 1 failed")
            return 1
        finally:
            browser.close()
    print("1 passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
