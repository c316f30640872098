"""help() of the functions of `mindspore` and its modules, and of the classes of its nn and ops, says shapes where it is about tensors, what is raised, and has
an example, which does what it says."""
import importlib
import re

import mindspore as ms
import numpy as np
import pytest
import tessera
from help_examples import SAYS_SHAPES, example_of, public_functions, run, words_of
from mindspore import nn, ops

pytestmark = pytest.mark.usefixtures("fresh_context")
MODULES = ("amp", "communication", "dataset", "dataset.text", "dataset.transforms", "dataset.vision", "nn", "numpy", "ops", "parallel", "train", "utils")
FUNCTIONS = public_functions({"": ms} | {name: importlib.import_module(f"mindspore.{name}") for name in MODULES})


def classes_of(module):
    """By name the classes that the module has of the package, each of them once."""
    found = {}
    for name, item in vars(module).items():
        if isinstance(item, type) and item.__module__.startswith("mindspore.") and not name.startswith("_") and item not in found.values():
            found[name] = item
    return found


CLASSES = {f"{of}.{name}": item for of, module in (("nn", nn), ("ops", ops)) for name, item in classes_of(module).items()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_says_shapes_errors_and_an_example(name):
    # Most classes of errors are Python's own, and the reference's: what raises none says so.
    words = words_of(FUNCTIONS[name], name)
    assert re.search(r"\b[Rr]aises?\b|Error\b", words), f"{name} does not say what it raises"
    if name.startswith(("numpy.", "ops.")):
        assert re.search(SAYS_SHAPES, words), f"{name} says no shapes"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_does_what_it_says(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    if name == "export":
        pytest.importorskip("onnx")
    num_claims = run(example_of(FUNCTIONS[name]), name, {"np": np, "tessera": tessera, "ms": ms, "nn": nn, "ops": ops, "__name__": "example"})
    assert num_claims, f"the example of {name} claims nothing"


@pytest.mark.parametrize("name", CLASSES)
def test_help_of_a_class_says_shapes_errors_and_an_example(name):
    words = words_of(CLASSES[name], name)
    assert re.search(r"\b[Rr]aises?\b", words), f"{name} does not say what it raises"
    assert re.search(SAYS_SHAPES, words), f"{name} says no shapes"


@pytest.mark.parametrize("name", CLASSES)
def test_the_example_of_a_class_does_what_it_says(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    num_claims = run(example_of(CLASSES[name]), name, {"np": np, "tessera": tessera, "ms": ms, "nn": nn, "ops": ops, "__name__": "example"})
    assert num_claims, f"the example of {name} claims nothing"


def test_functions_of_every_module_are_looked_at():
    assert {"set_context", "load_checkpoint", "grad", "set_deterministic", "Tensor"} - set(FUNCTIONS) == {"Tensor"}
    assert {"amp.auto_mixed_precision", "communication.get_rank", "dataset.zip", "dataset.text.to_str", "dataset.vision.Resize", "nn.warmup_lr", "numpy.amax",
            "ops.relu", "utils.to_dlpack"} <= set(FUNCTIONS)
    assert len(FUNCTIONS) > 550
    assert {"nn.Dense", "nn.Adam", "nn.Accuracy", "ops.MatMul", "ops.Send"} <= set(CLASSES) and len(CLASSES) > 330


def test_a_function_of_another_name_is_shown_by_its_own():
    assert "ms.numpy.mod(x, v)" in example_of(ms.numpy.mod) and "ops.floor_mod(x, v)" in example_of(ops.floor_mod)
    assert "y = ops.atleast_2d(v)" in example_of(ops.atleast_2d) and "y = ops.isfinite(x)" in example_of(ops.isfinite)
    assert ops.atleast_2d.__name__ == "atleast_2d" and ms.numpy.amax.__name__ == "amax" and ms.numpy.zeros_like.__name__ == "zeros_like"
