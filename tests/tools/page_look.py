"""What the tests of pages have in common: a headless Chromium, spoken to over its debugging pipe, and what is looked at on every page."""

import json
import os
import subprocess

TIMEOUT_S = 60


class Browser:
    """One page of a Chromium: commands are JSON, each ended by a zero byte, on its descriptors 3 and 4."""

    def __init__(self, program, profile):
        to_browser, self.commands = os.pipe()
        self.answers, from_browser = os.pipe()

        def take_descriptors():
            # Through numbers that are out of the way: one of them may be 3 or 4 already.
            os.dup2(to_browser, 103)
            os.dup2(from_browser, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1400,1600",
             f"--user-data-dir={profile}", "--no-first-run", "--disable-background-networking"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=take_descriptors)
        os.close(to_browser)
        os.close(from_browser)
        self.number = 0
        self.buffer = b""
        self.errors = []
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def read(self):
        while b"\0" not in self.buffer:
            part = os.read(self.answers, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(message)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:")):
            self.errors.append("asks the network for " + params["request"]["url"])
        elif method:
            self.events.append(method)
        return message

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, place):
        """A file, or an address."""
        self.events.clear()
        self.call("Page.navigate", url=place if isinstance(place, str) else place.as_uri())
        while "Page.loadEventFired" not in self.events:
            self.read()

    def value_of(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression):
        """The value of an expression as soon as it is true, which is looked at when the document changes; of a minute without that its last value."""
        watch = ("new Promise(done => {{ const look = () => {{ const found = {0}; if (found) done(found); return found; }};"
                 "new MutationObserver(look).observe(document, {{childList: true, subtree: true, characterData: true, attributes: true}});"
                 "look(); setTimeout(() => done(look()), {1}); }})").format(expression, TIMEOUT_S * 1000)
        result = self.call("Runtime.evaluate", expression=watch, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def close(self):
        self.process.terminate()
        self.process.wait(TIMEOUT_S)


def check(condition, claim):
    if not condition:
        raise AssertionError(claim)


# By the rules of WCAG 2: what is written against what is behind it.
CONTRASTS = """(() => {
    const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    const parse = color => { const n = color.match(/[0-9.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const ground = node => {
        for (let at = node; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor); if (c[3] > 0) return c; }
        return parse(getComputedStyle(document.documentElement).backgroundColor);
    };
    const poor = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.textContent.trim() || node.closest('script,style,noscript,title,[hidden]')) continue;
        const style = getComputedStyle(node);
        const a = light(parse(node.closest('svg') ? style.fill : style.color)), b = light(ground(node));
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) poor.push(`${walker.currentNode.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
    }
    return [...new Set(poor)];
})()"""
# Lines and bars must differ from the ground, too: three to one.
SHAPES = """(() => {
    const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    const parse = color => color.match(/[0-9.]+/g).map(Number);
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const ground = light(parse(getComputedStyle(document.body).backgroundColor));
    return [...document.querySelectorAll('svg .lead, svg path.line, svg rect')].map(shape => {
        const style = getComputedStyle(shape), a = light(parse(style.fill === 'none' ? style.stroke : style.fill));
        return (Math.max(a, ground) + 0.05) / (Math.min(a, ground) + 0.05);
    });
})()"""
# Texts of a drawing that lie over each other or outside of it, and boxes whose content is wider than they are.
OVERLAPS = """(() => {
    const found = [];
    for (const drawing of document.querySelectorAll('svg:not([hidden])')) {
        const frame = drawing.getBoundingClientRect();
        const boxes = [...drawing.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
        boxes.forEach(([name, a], i) => {
            if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.bottom > frame.bottom + 1) found.push(`${name} is outside`);
            for (const [other, b] of boxes.slice(i + 1)) {
                if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2) found.push(`${name} over ${other}`);
            }
        });
    }
    for (const box of document.querySelectorAll('#facts div, figcaption, h1, h2, p')) {
        if (box.scrollWidth > box.clientWidth + 1) found.push(`${box.textContent.slice(0, 40)} is too wide`);
    }
    return found;
})()"""
# The smallest letters, in pixels of the screen.
SMALLEST = """Math.min(...[...document.querySelectorAll('svg:not([hidden]) text')].map(text =>
    parseFloat(getComputedStyle(text).fontSize) * text.getCTM().a), ...[...document.querySelectorAll('td, dt, p')].map(node => parseFloat(getComputedStyle(node).fontSize)))"""


def check_look(browser, where, width):
    """A page that is open in a window so wide fits it, nothing overlaps, and what is written and drawn can be seen."""
    check(browser.value_of("document.documentElement.scrollWidth") <= width, f"{where}: it fits its window")
    poor = browser.value_of(CONTRASTS)
    check(not poor, f"{where}: what is written can be read, but {poor}")
    shapes = browser.value_of(SHAPES)
    check(all(ratio >= 3 for ratio in shapes), f"{where}: lines and bars can be seen: {shapes}")
    overlaps = browser.value_of(OVERLAPS)
    check(not overlaps, f"{where}: nothing overlaps, but {overlaps}")
    smallest = browser.value_of(SMALLEST)
    check(smallest >= 9, f"{where}: letters are large enough: {smallest}")
