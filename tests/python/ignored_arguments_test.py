"""No argument of the package mindspore is ignored in silence: what a function does not read is refused, or docs/compatibility.md says why it has no
effect. The functions are found in the sources, and the arguments that they read."""
import ast
import re
from pathlib import Path

import mindspore
import pytest

PACKAGE = Path(mindspore.__file__).resolve().parent
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
SECTION = "## Arguments without effect"
# What only looks at a type, as a statement of its own; other checks of mindspore._check refuse values.
TYPE_CHECKS = {"boolean", "integer", "number", "_check_compiling"}
# Modules of checks, which are there to look at arguments; and so are functions of that name.
CHECKS = ("_check.py", "_checkparam.py")
IS_CHECK = re.compile("_?check.*")
# Arguments that a function is called with, whatever it does: those of callbacks, of context managers, and what says with its name that nobody reads it.
CALLED_WITH = re.compile("self|cls|run_context|error|_.*")
# What scripts call it by.
CALLED = {"TensorType": "Tensor", "init_data": "Tensor.init_data", "Cells.set_grad": "CellList.set_grad"}
# Interfaces within the package, of which some classes need less than others.
INTERNAL = {
    "MissingModules.find_spec target", "Sampler.apply native", "SequentialSampler.apply native",
    "Sampler.numbers rng", "Sampler.numbers in_order", "SequentialSampler.numbers rng", "SequentialSampler.numbers in_order", "DistributedSampler.numbers in_order",
    "SubsetRandomSampler.apply native", "DrawnSampler.count in_order", "RaggedRows.batches num_workers", "ragged_source epoch",
    "InOrder.is_numbered key", "Fixed.construct global_step", "Transformer.configure layers",
    "Primitive.of_operands shapes", "appended_values argument", "weights_of who", "Losses.update output", "Losses.update label", "ForgetsResults.epoch_end run", "Receive.run x",
}


def is_type_check(statement):
    """Whether it raises TypeError for a value of another type, and does nothing else."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        is_of_checks = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "_check"
        return (function.attr if is_of_checks else getattr(function, "id", "")) in TYPE_CHECKS
    if isinstance(statement, ast.For):
        return all(is_type_check(inner) for inner in statement.body)
    if not isinstance(statement, ast.If) or statement.orelse or not all(isinstance(inner, ast.Raise) for inner in statement.body):
        return False
    return all(isinstance(inner.exc, ast.Call) and getattr(inner.exc.func, "id", "") == "TypeError" for inner in statement.body)


def only_refuses(body):
    """Whether the body of a function is empty, or raises whatever the function is given."""
    return all(isinstance(part, (ast.Raise, ast.Pass)) or isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) for part in body)


def names_read(body):
    """The names that the body of a function reads, beyond looking at their types."""
    names, waiting = set(), [part for part in body if not is_type_check(part)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.add(node.id)
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt) or not is_type_check(child)]
    return names


def ignored(tree):
    """{"CLASS.FUNCTION ARGUMENT"} of a module's classes and public functions: names without their leading underscores, constructors by their class, and
    the functions of a table by what the table calls them."""
    found = set()

    def look_into(node, path):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Dict):
                for key, value in zip(child.keys, child.values):
                    name = str(key.value) if isinstance(key, ast.Constant) else ""
                    look_into(ast.Module([ast.Expr(value)], []), [*path, name] if name else path)
                continue
            if isinstance(child, ast.ClassDef):
                look_into(child, [*path, child.name])
                continue
            if not isinstance(child, (ast.FunctionDef, ast.Lambda)):
                look_into(child, path)
                continue
            own = [*path] if isinstance(child, ast.Lambda) or child.name in ("__init__", "__call__") else [*path, child.name]
            body = child.body if isinstance(child.body, list) else [ast.Expr(child.body)]
            arguments = child.args
            given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            is_private = not path and own and own[0].startswith("_")
            read = names_read(body)
            if not is_private and not IS_CHECK.fullmatch(own[-1] if own else "") and "locals" not in read and not only_refuses(body):
                name = ".".join(part.lstrip("_") for part in own)
                found.update(f"{CALLED.get(name, name)} {argument.arg}" for argument in given
                             if argument is not None and argument.arg not in read and not CALLED_WITH.fullmatch(argument.arg))
            look_into(child, own)

    look_into(tree, [])
    return found


def documented():
    """The same of the document's section, {"CLASS.FUNCTION ARGUMENT": why}."""
    section = DOCUMENT.read_text(encoding="utf-8").partition(SECTION + "\n")[2].partition("\n## ")[0]
    known = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) != 3 or not cells[0].startswith("`"):
            continue
        owners, arguments = ([re.sub(r"^(nn|ops|dataset|ms)\.", "", name) for name in re.findall("`([^`]+)`", cell)] for cell in cells[:2])
        known |= {f"{owner} {argument}": cells[2] for owner in owners for argument in arguments}
    return known


def all_ignored():
    return set().union(*(ignored(ast.parse(path.read_text(encoding="utf-8"))) for path in PACKAGE.rglob("*.py") if path.name not in CHECKS))


def test_what_a_function_ignores_is_documented():
    unknown = all_ignored() - INTERNAL - set(documented())
    assert not unknown, f"ignored in silence: give them their effect, refuse them, or say in {DOCUMENT.name} why they have none: {sorted(unknown)}"


def test_what_is_documented_is_ignored():
    gone = set(documented()) - all_ignored()
    assert not gone, f"read by now, or not there: {sorted(gone)}"
    assert not INTERNAL - all_ignored()


@pytest.mark.parametrize("source, expected", [
    ("def f(a, b): return a", {"f b"}),
    ("def f(a):\n    _check.boolean('f', 'a', a)\n    return 1", {"f a"}),
    ("def f(a):\n    if not isinstance(a, int):\n        raise TypeError(a)\n    return 1", {"f a"}),
    ("def f(a):\n    if a:\n        raise NotImplementedError(a)\n    return 1", set()),
    ("def f(a):\n    _check.only('f', 'a', a, (1, ))", set()),
    ("def f(a, run_context, _rest): raise NotImplementedError", set()),
    ("class C:\n    def __init__(self, a): pass\n    def g(self, a): return 1", {"C.g a"}),
    ("class _C:\n    def __init__(self, a):\n        self.b = 1", {"C a"}),
    ("T = {'Op': (lambda x, seed: x, {})}", {"Op seed"}),
    ("def f(a):\n    def g(): return a\n    return g", set()),
    ("def _f(a): return 1\ndef check_f(a): return 1\ndef f(a): return locals()", set()),
])
def test_the_search_finds(source, expected):
    assert ignored(ast.parse(source)) == expected
