"""TensorBoard itself shows a run of ours, in a headless Chromium: its pages have what was logged."""
import base64
import json
import re
import shutil
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import tensorboard_pages
import tessera
from tessera import nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))
from page_look import Browser  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# A picture of 2 x 2 pixels.
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEklEQVR4nGP4H8DAEPCfAUIBACSyBT1yijv7AAAAAElFTkSuQmCC")


class Own(tessera.Callback):
    def __init__(self, board):
        super().__init__()
        self.board = board

    def step_end(self, run):
        if run.step == 2:
            self.board.add_text("note", "**the second step**")
            self.board.add_image("picture", PNG, 2, 2)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    interpreter = tensorboard_pages.python()
    folder = tmp_path_factory.mktemp("board")
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(24, 2)
    rows = tessera.data.tensors({"x": x, "y": x[:, :1] * 2}).batch(4)
    model = tessera.Model(nn.Dense(2, 1), nn.MSELoss(), nn.Momentum(learning_rate=0.1), metrics=["mae"])
    board = tessera.TensorBoard(folder / "ours", histogram_steps=3, hyper_parameters={"rate": 0.1, "name": "mlp"})
    model.train(3, rows, [tessera.EpochSummary(valid=rows), board, Own(board)])
    with tensorboard_pages.served(interpreter, folder) as at:
        yield at


@pytest.fixture(scope="module")
def browser(address, tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium is installed (Debian: apt-get install chromium)")
    started = Browser(CHROMIUM, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


def asked(address, path):
    with urllib.request.urlopen(address + path, timeout=60) as answer:
        return json.load(answer)


def test_it_has_something_for_each_of_its_pages(address):
    listed = asked(address, "data/plugins_listing")
    assert {name for name, plugin in listed.items() if plugin["enabled"]} >= {"timeseries", "scalars", "images", "graphs", "histograms", "distributions", "text", "hparams"}
    tags = asked(address, "data/plugin/scalars/tags")
    assert set(tags) == {"ours"} and set(tags["ours"]) >= {"loss", "learning_rate", "rows_per_second", "epoch/loss", "evaluation/mae"}
    losses = asked(address, "data/plugin/scalars/scalars?run=ours&tag=loss")
    assert [step for _, step, _ in losses] == list(range(1, 19))
    histograms = asked(address, "data/plugin/histograms/histograms?run=ours&tag=weights/weight")
    assert [step for _, step, _ in histograms] == [3, 6, 9, 12, 15, 18]


def test_its_page_of_graphs_has_the_network(address):
    assert asked(address, "data/plugin/graphs/info")["ours"]["run_graph"] is True
    with urllib.request.urlopen(address + "data/plugin/graphs/graph?run=ours&limit_attr_size=1024&large_attrs_key=_too_large_attrs", timeout=60) as answer:
        text = answer.read().decode()
    assert re.search(r'name: "matmul"\s+op: "matmul"\s+input: "x"\s+input: "weight"', text) and 'name: "loss/square"' in text, text


def test_its_page_draws_the_curves(browser, address, tmp_path):
    browser.open(address + "#timeseries")
    cards = browser.wait_for("document.querySelectorAll('scalar-card').length")
    assert cards, browser.value_of("document.body.innerText")
    text = browser.wait_for("document.body.innerText.includes('loss') && document.body.innerText")
    assert "ours" in text and "learning_rate" in text, text
    assert browser.wait_for("document.querySelectorAll('scalar-card svg').length"), "a curve is drawn"
    picture = base64.b64decode(browser.call("Page.captureScreenshot")["data"])
    (tmp_path / "tensorboard.png").write_bytes(picture)
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000, "the picture has more than an empty page"
