#!/usr/bin/env python3
"""Makes the pictures of docs and README anew: docs/live_page.png, of a job that is made up, and docs/plan_page.png, of a plan of GPT-2.

    scripts/pictures.py [BUILD]

BUILD is build/release unless it is given. It needs Debian's package `chromium`.
"""

import base64
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "tools"))

from job_page_test import JOBS, page_of  # noqa: E402
from plan_page_test import Browser  # noqa: E402

MAX_BYTES = 150_000


def take(browser, page, picture, width, height, is_there):
    """A picture of the upper part of a page, once the expression `is_there` holds."""
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setScrollbarsHidden", hidden=True)
    browser.open(page)
    while not browser.value_of(is_there):
        pass
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    picture.write_bytes(base64.b64decode(browser.call("Page.captureScreenshot", clip=clip)["data"]))
    size = picture.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{picture.relative_to(ROOT)} has {size} bytes, more than {MAX_BYTES}")
    print(f"{picture.relative_to(ROOT)}: {size} bytes")


def main():
    build = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "release").resolve()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        return "no chromium is installed (Debian: apt-get install chromium)"
    with tempfile.TemporaryDirectory() as folder:
        live, plan = Path(folder) / "live.html", Path(folder) / "plan.html"
        live.write_text(page_of(JOBS["many"]), encoding="utf-8")
        subprocess.run([build / "bin" / "tessera", "plan", "gpt2_small", "--devices", "8", "--simulate", "--quiet", "--html", plan], check=True,
                       stdout=subprocess.DEVNULL)
        browser = Browser(program, Path(folder) / "profile")
        try:
            take(browser, live, ROOT / "docs" / "live_page.png", 900, 790, "document.querySelector('#facts div') !== null")
            take(browser, plan, ROOT / "docs" / "plan_page.png", 900, 760, "document.querySelectorAll('svg .box').length > 0")
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
