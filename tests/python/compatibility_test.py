"""The table of names in docs/compatibility.md is what the package mindspore has. To write it anew:
run.py BUILD_FOLDER compatibility_test.py --update"""
import importlib
import re
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import context, nn, ops
from mindspore._stand_ins import refusal

import specified_names

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "docs" / "compatibility.md"
BEGIN, END = "<!-- names: written by tests/python/compatibility_test.py --update -->\n", "<!-- end of names -->\n"


def read_names():
    """{module: its names}, and the calls."""
    modules, calls = {}, []
    for line in (HERE / "compatibility_names.txt").read_text(encoding="utf-8").splitlines():
        line = line.partition("#")[0].rstrip()
        if line and not line.startswith(" "):
            names = calls if line == "calls" else modules.setdefault(line, [])
        elif line:
            names += [line.strip()] if names is calls else line.split()
    return modules, calls


MODULES, CALLS = read_names()
# A method of what a class makes, where the class itself only makes it.
MADE = {"Parameter": lambda: ms.Parameter(1.0, name="w"), "Tensor": lambda: ms.Tensor(1.0), "Cell": nn.Cell,
        "Model": lambda: ms.Model(nn.ReLU())}


def ask(call):
    """"" where it works; else what the error says."""
    try:
        call()
    except (ImportError, AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        return str(error) or type(error).__name__
    finally:
        context.reset_auto_parallel_context()
        context.set_context(mode=context.GRAPH_MODE)
    return ""


def find(module, name):
    """What a script gets that imports the name from the module."""
    first, *rest = name.split(".")
    namespace = {}
    exec(f"from {module} import {first}", namespace)
    found = namespace[first]
    if rest and first in MADE:
        found = MADE[first]()
    for part in rest:
        found = getattr(found, part)
    if refusal(found):
        raise NotImplementedError(refusal(found))
    return found


def reason(text):
    """The error's text as a short phrase."""
    waits = re.search(r"waits for ([\w ]+)", text)
    if waits:
        return f"waits for {waits[1]}"
    phrase = text.splitlines()[0].rpartition("mindspore package; ")[2]
    if phrase.startswith(("its names are in", "see help")) or "has no attribute" in phrase:
        return "not there"
    phrase = re.sub(r"^For '\w+(\.\w+)?', ", "", phrase).strip(" .")
    return phrase.replace("|", "/")


def table():
    """The generated part of the document."""
    lines = ["| from | name | | why |", "|---|---|---|---|"]
    for module, names in MODULES.items():
        answers = {name: ask(lambda name=name: find(module, name)) for name in names}
        works = [f"`{name}`" for name, text in answers.items() if not text]
        if works:
            lines.append(f"| `{module}` | {' '.join(works)} | works | |")
        for why in dict.fromkeys(reason(text) for text in answers.values() if text):
            refused = [f"`{name}`" for name, text in answers.items() if text and reason(text) == why]
            lines.append(f"| `{module}` | {' '.join(refused)} | refused | {why} |")
    scope = {"ms": ms, "nn": nn, "ops": ops, "ds": ds, "np": np}
    for call in CALLS:
        text = ask(lambda call=call: eval(call, scope))
        lines.append(f"| a call | `{call}` | {'refused' if text else 'works'} | {reason(text) if text else ''} |")
    return "\n".join(lines) + "\n"


def test_the_document_says_what_is_there(request, capsys):
    document = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = document.partition(BEGIN)
    old, _, after = rest.partition(END)
    assert after or rest.endswith(END), f"{DOCUMENT} has no place for the names"
    new = table()
    if request.config.getoption("--update"):
        DOCUMENT.write_text(before + BEGIN + new + END + after, encoding="utf-8")
    else:
        assert old == new, f"{DOCUMENT}: run the test with --update"
    rows = [line.split(" | ") for line in new.splitlines()[2:]]
    works, refused = (sum(len(row[1].split("` `")) for row in rows if row[2] == state) for state in ("works", "refused"))
    with capsys.disabled():
        print(f"\n{works} names work, {refused} are refused")


@pytest.mark.parametrize("module, name", [(module, name) for module, names in MODULES.items() for name in names])
def test_what_is_refused_says_why(module, name):
    text = ask(lambda: find(module, name))
    if text:
        assert re.search("waits for|is not part of Tessera's mindspore package|has no attribute", text), text


def test_every_name_of_the_specification_is_listed():
    if not specified_names.PAGE.exists():
        pytest.skip("../shared/spec/api.md is absent")
    listed = {part for name in [*MODULES, *CALLS, *(name for names in MODULES.values() for name in names)] for part in re.findall(r"[A-Za-z_]\w*", name)}
    specified = specified_names.specified_names()
    assert len(specified) > 200
    assert sorted(specified - listed - specified_names.OTHERS) == [], "list it in compatibility_names.txt, or among what is no name"
    assert sorted(specified_names.OTHERS - specified) == sorted(specified_names.OTHERS & listed) == []


def test_an_unknown_name_gets_what_is_near():
    with pytest.raises(ImportError, match="mindspore.ops.MatMull is not part of Tessera's mindspore package; it has MatMul"):
        from mindspore.ops import MatMull  # noqa: F401
    with pytest.raises(AttributeError, match="mindspore.nn.Transformr is not part of"):
        nn.Transformr
    with pytest.raises(ModuleNotFoundError, match="mindspore.scypi is not part of Tessera's mindspore package"):
        importlib.import_module("mindspore.scypi")
    with pytest.raises(ModuleNotFoundError, match="mindspore.nn.layr is not part of Tessera's mindspore package; it has mindspore.nn.layer"):
        importlib.import_module("mindspore.nn.layr")
