"""help() of every public class and function says shapes where it is about tensors, what is raised, and has an example, which does what it says."""
import inspect
import re

import numpy as np
import pytest
import tessera
from help_examples import SAYS_SHAPES, example_of, public_functions, run, words_of
from tessera import nn, ops

MODULES = {"": tessera, "nn": nn, "nn.initializers": nn.initializers, "nn.schedules": nn.schedules, "data": tessera.data,
           "checkpoint": tessera.checkpoint, "cluster": tessera.cluster, "ops": ops}
# Those that have no tensor.
SHAPELESS = {"Callback", "DType", "RunContext", "LoadedParameters", "Decoded", "Vocabulary", "BleuScore", "TransformerOpParallelConfig", "Trace",
             "TrainingLog", "InternalError", "TracedPrograms", "RateSchedule"}
# Of operators, those that are about no tensor.
ABOUT_NUMBERS = {"ops.promote_numbers"}


def public_classes():
    found = {}
    for of, module in MODULES.items():
        for name, item in vars(module).items():
            if not name.startswith("_") and isinstance(item, type) and item not in found.values():
                found[f"{of}.{name}".lstrip(".")] = item
    return found


CLASSES = public_classes()
FUNCTIONS = public_functions(MODULES)


@pytest.mark.parametrize("name", CLASSES)
def test_help_says_shapes_errors_and_an_example(name):
    item = CLASSES[name]
    words = words_of(item, name)
    is_error = issubclass(item, Exception)
    assert is_error or re.search(r"\b[Rr]aises?\b", words), f"{name} does not say what it raises"
    is_of_tensors = issubclass(item, (nn.Cell, nn.Optimizer)) or item in (tessera.Tensor, tessera.Parameter, tessera.Value, tessera.data.Dataset)
    if is_of_tensors and item.__name__ not in SHAPELESS:
        assert re.search(r"\[[^\]\n]*\]|[Ss]hapes? (of|are)|[Aa]ny shape", words), f"{name} says no shapes"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_of_a_function_says_shapes_errors_and_an_example(name):
    words = words_of(FUNCTIONS[name], name)
    assert re.search(r"\b[Rr]aises?\b", words), f"{name} does not say what it raises"
    if name.startswith("ops.") and name not in ABOUT_NUMBERS:
        said = words.partition("\n")[2] if type(FUNCTIONS[name]).__name__ == "nb_func" else words  # behind its signature
        assert re.search(SAYS_SHAPES, said), f"{name} says no shapes"


@pytest.mark.parametrize("name", CLASSES | FUNCTIONS)
def test_the_example_does_what_it_says(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    if name == "export_onnx":
        pytest.importorskip("onnx")
    num_claims = run(example_of((CLASSES | FUNCTIONS)[name]), name, {"np": np, "tessera": tessera, "nn": nn, "ops": ops, "__name__": "example"})
    assert num_claims or name == "nn.TracedPrograms", f"the example of {name} claims nothing"


def test_classes_and_functions_of_every_module_are_looked_at():
    assert {"Model", "nn.Dense", "nn.initializers.Initializer", "nn.schedules.RateSchedule", "data.Dataset", "checkpoint.Checkpoint",
            "ops.ShardedCall"} <= set(CLASSES)
    assert {"set_seed", "export_onnx", "nn.group_parameters", "nn.initializers.zeros", "nn.schedules.linear", "data.tensors", "checkpoint.save", "cluster.rank",
            "ops.matmul", "ops.conv3d"} <= set(FUNCTIONS)
    assert len(CLASSES) > 90 and len(FUNCTIONS) > 190
    assert all(inspect.getdoc(item) for item in FUNCTIONS.values())
