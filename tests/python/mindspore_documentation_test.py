"""help() of the functions and classes of `mindspore` and its modules says shapes where it is about tensors, what is raised, and has an example, which does
what it says."""
import importlib
import re

import mindspore as ms
import numpy as np
import pytest
import tessera
from help_examples import SAYS_SHAPES, example_of, public_classes, public_functions, run, words_of
from mindspore import nn, ops

pytestmark = pytest.mark.usefixtures("fresh_context", "fresh_data_settings")
NAMES = ("", "amp", "boost", "common.initializer", "communication", "dataset", "dataset.config", "dataset.text", "dataset.transforms", "dataset.vision", "log", "nn",
         "nn.transformer", "numpy", "ops", "parallel", "train", "utils")
MODULES = {name: importlib.import_module(f"mindspore.{name}".rstrip(".")) for name in NAMES}
# What has no help of its own, and why.
WITHOUT = {
    "common.initializer.PendingTensor": "what initializer() gives; scripts know it as a Tensor",
    "common.initializer.draws_before": "of mindspore.common.seed, which the module uses",
    "common.initializer.to_native": "what cells of the package make of an initializer",
}
FUNCTIONS = {name: item for name, item in public_functions(MODULES).items() if name not in WITHOUT}
ALL_CLASSES = public_classes({"nn": nn, "ops": ops} | MODULES, "mindspore")  # metrics are those of nn, which are looked at for shapes
CLASSES = {name: item for name, item in ALL_CLASSES.items() if name not in WITHOUT}
OF_TENSORS = ("nn.", "ops.", "common.initializer.", "dataset.text.", "dataset.transforms.", "dataset.vision.", "Tensor", "Parameter")
# Of these modules, the classes that are about none.
SHAPELESS = {"dataset.text.NormalizeForm", "dataset.text.Vocab", "dataset.transforms.Relational", "dataset.vision.Inter",
             "dataset.vision.SliceMode", "nn.transformer.EmbeddingOpParallelConfig", "nn.transformer.OpParallelConfig",
             "nn.transformer.TransformerOpParallelConfig", "nn.transformer.TransformerRecomputeConfig"}


@pytest.fixture
def fresh_data_settings(monkeypatch):
    """What an example sets of all data sets ends with it."""
    monkeypatch.setattr(ms.dataset.config, "_settings", dict(ms.dataset.config._settings))


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
    if name.startswith(OF_TENSORS) and name not in SHAPELESS:
        assert re.search(SAYS_SHAPES, words), f"{name} says no shapes"


@pytest.mark.parametrize("name", CLASSES)
def test_the_example_of_a_class_does_what_it_says(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    num_claims = run(example_of(CLASSES[name]), name, {"np": np, "tessera": tessera, "ms": ms, "nn": nn, "ops": ops, "__name__": "example"})
    assert num_claims, f"the example of {name} claims nothing"


def test_functions_and_classes_of_every_module_are_looked_at():
    assert {"set_context", "load_checkpoint", "grad", "set_deterministic", "Tensor"} - set(FUNCTIONS) == {"Tensor"}
    assert {"amp.auto_mixed_precision", "communication.get_rank", "dataset.zip", "dataset.text.to_str", "dataset.vision.Resize", "nn.warmup_lr", "numpy.amax",
            "ops.relu", "utils.to_dlpack"} <= set(FUNCTIONS)
    assert len(FUNCTIONS) > 630
    assert {"nn.Dense", "nn.Adam", "nn.Accuracy", "ops.MatMul", "ops.Send", "Model", "Tensor", "amp.StaticLossScaler", "boost.GradientAccumulation",
            "common.initializer.Zero", "communication.GlobalComm", "dataset.MnistDataset", "dataset.text.Vocab", "dataset.transforms.OneHot",
            "dataset.vision.Decode", "nn.transformer.Transformer"} <= set(CLASSES) and len(CLASSES) > 540


def test_what_has_no_help_is_there():
    assert WITHOUT.keys() <= (public_functions(MODULES) | ALL_CLASSES).keys()
    assert SHAPELESS <= CLASSES.keys()


def test_a_function_of_another_name_is_shown_by_its_own():
    assert "ms.numpy.mod(x, v)" in example_of(ms.numpy.mod) and "ops.floor_mod(x, v)" in example_of(ops.floor_mod)
    assert "y = ops.atleast_2d(v)" in example_of(ops.atleast_2d) and "y = ops.isfinite(x)" in example_of(ops.isfinite)
    assert ops.atleast_2d.__name__ == "atleast_2d" and ms.numpy.amax.__name__ == "amax" and ms.numpy.zeros_like.__name__ == "zeros_like"
