"""The examples in what help() says: which code they are, and whether it does what it claims."""
import ast
import builtins
import inspect
import re
import textwrap
import types

import pytest
import tessera

# What help() of a function of tensors says somewhere.
SAYS_SHAPES = r"\[[^\]\n]*\]|[Ss]hapes?\b|[Aa]ny type"


def public_functions(modules):
    """By name the functions of modules, each of them once."""
    found = {}
    for of, module in modules.items():
        for name, item in vars(module).items():
            is_function = isinstance(item, types.FunctionType) or type(item).__name__ in ("nb_func", "builtin_function_or_method")
            if not name.startswith("_") and is_function and not any(item is other for other in found.values()):
                found[f"{of}.{name}".lstrip(".")] = item
    return found


def public_classes(modules, package):
    """By name the classes of that package that modules have, each of them once."""
    found = {}
    for of, module in modules.items():
        for name, item in vars(module).items():
            is_own = isinstance(item, type) and item.__module__.partition(".")[0] == package
            if is_own and not name.startswith("_") and not any(item is other for other in found.values()):
                found[f"{of}.{name}".lstrip(".")] = item
    return found


def example_of(item):
    """The example of a class or function: the indented block at the end of its text."""
    lines = (inspect.getdoc(item) or "").splitlines()
    first = len(lines)
    while first > 0 and (not lines[first - 1] or lines[first - 1].startswith("    ")):
        first -= 1
    return textwrap.dedent("\n".join(lines[first:])).strip("\n")


def words_of(item, name):
    """What stands before the example, which there must be."""
    text = inspect.getdoc(item) or ""
    assert example_of(item) and "For example:" in text, f"{name} has no example at the end of its text"
    return text[:text.rindex("For example:")]


def run(source, name, known):
    """Runs an example. `# [4, 3]` behind a line is the shape of what the line assigns or is; `# raises InvalidArgument` is what the line does. Returns
    how many such claims it makes."""
    lines = source.splitlines()
    num_claims = 0
    for statement in ast.parse(source).body:
        comment = lines[statement.end_lineno - 1].partition("  # ")[2]
        code = compile(ast.Module([statement], []), name, "exec")
        if error := re.fullmatch(r"raises (\w+)", comment):
            expected = getattr(tessera, error.group(1), None) or getattr(builtins, error.group(1))
            with pytest.raises(expected):
                exec(code, known)
            num_claims += 1
            continue
        exec(code, known)
        if (shape := re.fullmatch(r"\[([\d, ]*)\]", comment)) and not isinstance(statement, ast.For):
            target = statement.targets[0].id if isinstance(statement, ast.Assign) else statement.value.id
            assert list(known[target].shape) == [int(size) for size in shape.group(1).split(",") if size.strip()], f"{name}: {target}"
            num_claims += 1
    return num_claims + ("assert" in source)
