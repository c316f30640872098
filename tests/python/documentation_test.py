"""help() of every public class says shapes where it is about tensors, what is raised, and has an example, which does what it says."""
import ast
import inspect
import re
import textwrap

import numpy as np
import pytest
import tessera
from tessera import nn, ops

MODULES = {"": tessera, "nn": nn, "nn.initializers": nn.initializers, "nn.schedules": nn.schedules, "data": tessera.data,
           "checkpoint": tessera.checkpoint, "cluster": tessera.cluster, "ops": ops}
# Those that have no tensor.
SHAPELESS = {"Callback", "DType", "RunContext", "LoadedParameters", "Decoded", "Vocabulary", "BleuScore", "TransformerOpParallelConfig", "Trace",
             "TrainingLog", "InternalError", "TracedPrograms", "RateSchedule"}


def public_classes():
    found = {}
    for of, module in MODULES.items():
        for name, item in vars(module).items():
            if not name.startswith("_") and isinstance(item, type) and item not in found.values():
                found[f"{of}.{name}".lstrip(".")] = item
    return found


CLASSES = public_classes()


def example_of(item):
    """The example of a class: the indented block at the end of its text."""
    lines = inspect.getdoc(item).splitlines()
    first = len(lines)
    while first > 0 and (not lines[first - 1] or lines[first - 1].startswith("    ")):
        first -= 1
    return textwrap.dedent("\n".join(lines[first:])).strip("\n")


@pytest.mark.parametrize("name", CLASSES)
def test_help_says_shapes_errors_and_an_example(name):
    item = CLASSES[name]
    text = inspect.getdoc(item) or ""
    example = example_of(item)
    assert example and "For example:" in text, f"{name} has no example at the end of its text"
    words = text[:text.rindex("For example:")]
    is_error = issubclass(item, Exception)
    assert is_error or re.search(r"\b[Rr]aises?\b", words), f"{name} does not say what it raises"
    is_of_tensors = issubclass(item, (nn.Cell, nn.Optimizer)) or item in (tessera.Tensor, tessera.Parameter, tessera.Value, tessera.data.Dataset)
    if is_of_tensors and item.__name__ not in SHAPELESS:
        assert re.search(r"\[[^\]\n]*\]|[Ss]hapes? (of|are)|[Aa]ny shape", words), f"{name} says no shapes"


@pytest.mark.parametrize("name", CLASSES)
def test_the_example_does_what_it_says(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    source = example_of(CLASSES[name])
    lines = source.splitlines()
    known = {"np": np, "tessera": tessera, "nn": nn, "ops": ops, "__name__": "example"}
    num_claims = 0
    for statement in ast.parse(source).body:
        comment = lines[statement.end_lineno - 1].partition("  # ")[2]
        code = compile(ast.Module([statement], []), name, "exec")
        if error := re.fullmatch(r"raises (\w+)", comment):
            expected = getattr(tessera, error.group(1), None) or getattr(__import__("builtins"), error.group(1))
            with pytest.raises(expected):
                exec(code, known)
            num_claims += 1
            continue
        exec(code, known)
        if shape := re.fullmatch(r"\[([\d, ]*)\]", comment):
            target = statement.targets[0].id if isinstance(statement, ast.Assign) else statement.value.id
            assert list(known[target].shape) == [int(size) for size in shape.group(1).split(",") if size.strip()], f"{name}: {target}"
            num_claims += 1
    assert num_claims or "assert" in source or name == "nn.TracedPrograms", f"the example of {name} claims nothing"


def test_a_class_of_every_module_is_looked_at():
    assert {"Model", "nn.Dense", "nn.initializers.Initializer", "nn.schedules.RateSchedule", "data.Dataset", "checkpoint.Checkpoint",
            "ops.ShardedCall"} <= set(CLASSES)
    assert len(CLASSES) > 90
