"""help() of the functions of `mindspore` itself says what is raised and has an example, which does what it says."""
import re

import mindspore as ms
import numpy as np
import pytest
import tessera
from help_examples import example_of, public_functions, run, words_of
from mindspore import nn, ops

pytestmark = pytest.mark.usefixtures("fresh_context")
FUNCTIONS = public_functions({"": ms})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_says_errors_and_an_example(name):
    # Most classes of errors are Python's own, and the reference's: what raises none says so.
    assert re.search(r"\b[Rr]aises?\b|Error\b", words_of(FUNCTIONS[name], name)), f"{name} does not say what it raises"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_does_what_it_says(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    if name == "export":
        pytest.importorskip("onnx")
    assert run(example_of(FUNCTIONS[name]), name, {"np": np, "tessera": tessera, "ms": ms, "nn": nn, "ops": ops, "__name__": "example"})


def test_the_functions_are_looked_at():
    assert {"set_context", "load_checkpoint", "grad", "set_deterministic", "Tensor"} - set(FUNCTIONS) == {"Tensor"} and len(FUNCTIONS) > 50
