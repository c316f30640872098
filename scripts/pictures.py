#!/usr/bin/env python3
"""Makes the pictures of docs and README anew: docs/live_page.png, of a job that is made up, docs/plan_page.png, of a plan of GPT-2, and
docs/tensorboard.png, of a small training in TensorBoard itself.

    scripts/pictures.py [BUILD]

BUILD is build/release unless it is given, and must have the Python package. It needs Debian's package `chromium`.
"""

import base64
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "tools"), str(ROOT / "tests" / "python")]

import tensorboard_pages  # noqa: E402
from job_page_test import JOBS, page_of  # noqa: E402
from page_look import Browser  # noqa: E402

MAX_BYTES = 150_000
# A training whose curves have a shape.
RUN = """
import sys
import numpy as np
import tessera
from tessera import nn, ops


class Mlp(nn.Cell):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Dense(64, 256, weight_init="he_uniform"), nn.Dense(256, 10)

    def construct(self, x):
        return self.down(ops.relu(self.up(x)))


x = np.random.default_rng(1).standard_normal((2048, 64), dtype=np.float32)
rows = tessera.data.tensors({"x": x, "label": x[:, :10].argmax(1).astype(np.int32)}).batch(64)
model = tessera.Model(Mlp(), nn.CrossEntropy(), nn.Adam(learning_rate=nn.schedules.cosine(0.002, 320)), metrics=["accuracy"], seed=1)
model.train(10, rows, [tessera.EpochSummary(valid=rows), tessera.TensorBoard(sys.argv[1], histogram_steps=32, hyper_parameters={"rate": 0.002})])
"""


def take(browser, page, picture, width, height, is_there, drawn_in_s=0):
    """A picture of the upper part of a page, once the expression `is_there` holds, and after so many seconds, in which it draws."""
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setScrollbarsHidden", hidden=True)
    browser.open(page)
    if not browser.wait_for(is_there):
        raise SystemExit(f"{picture.relative_to(ROOT)}: the page does not show what it is to: {is_there}")
    time.sleep(drawn_in_s)
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    picture.write_bytes(base64.b64decode(browser.call("Page.captureScreenshot", clip=clip)["data"]))
    size = picture.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{picture.relative_to(ROOT)} has {size} bytes, more than {MAX_BYTES}")
    print(f"{picture.relative_to(ROOT)}: {size} bytes")


def take_tensorboard(browser, build, folder):
    """Of a training of now, as TensorBoard shows it."""
    python = subprocess.run([sys.executable, ROOT / "scripts" / "python_env.py"], check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run([python, "-c", RUN, folder / "runs" / "mlp"], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(build / "python")})
    with tensorboard_pages.served(tensorboard_pages.python(), folder / "runs") as address:
        take(browser, address + "#timeseries", ROOT / "docs" / "tensorboard.png", 1200, 760, "document.querySelector('scalar-card')?.innerText.includes('mlp')", drawn_in_s=5)


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
            take_tensorboard(browser, build, Path(folder))
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
