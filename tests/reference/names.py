"""names.py list FILE: writes the public names of the package `mindspore` on the path, by module; and of modules inside of those, the places from
which scripts import, what they have and which public name means the same.
names.py check FILE [--update]: asks Tessera's package for each. A name works, or stands for what is refused when it is used; any other answer is a
failure, and so is a place's name that means another thing than the public one, and other counts than those of docs/compatibility.md, which --update
writes anew."""
import importlib
import json
import sys
import types
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "compatibility.md"
BEGIN, END = "<!-- counts: written by tests/reference/names.py check FILE --update -->\n", "<!-- end of counts -->\n"
MODULES = ("mindspore", "mindspore.nn", "mindspore.ops", "mindspore.numpy", "mindspore.train", "mindspore.parallel", "mindspore.communication",
           "mindspore.common.initializer", "mindspore.dataset", "mindspore.dataset.text", "mindspore.dataset.transforms", "mindspore.dataset.vision")


def public_names(module):
    """What the module says is public; of one that does not say so, its classes."""
    listed = getattr(module, "__all__", None)
    names = listed if listed is not None else [name for name, item in vars(module).items() if isinstance(item, type) and name[0].isupper()]
    # Some lists of MindSpore's hold the letters of a name.
    return sorted({name for name in names if isinstance(name, str) and name.isidentifier() and not name.startswith("_") and len(name) > 1})


def places():
    """Paths of modules that Tessera's package answers for, beside MODULES."""
    folder = Path(__file__).resolve().parent.parent.parent / "python" / "compat" / "mindspore"
    tables = {}
    for name in ("_places", "_refused"):
        source = (folder / f"{name}.py").read_text(encoding="utf-8").replace("from mindspore import _places as places", "places = None")
        exec(compile(source, name, "exec"), tables)
    return sorted({*tables["HOMES"], *tables["MODULES"]} - set(MODULES))


def names_at(path):
    """{name: the module that has the same thing as a public name, "" where none has} of what the place has to offer; None where it cannot be
    imported."""
    try:
        module = importlib.import_module(path)
    except ImportError:
        return None
    listed = public_names(module)
    if not hasattr(module, "__all__"):
        listed = [name for name in listed if getattr(module, name).__module__.startswith(path)]
    found = {}
    for name in listed:
        same = [known for known in MODULES if name in public_names(sys.modules[known]) and vars(sys.modules[known]).get(name) is getattr(module, name, None)]
        found[name] = same[0] if same else ""
    return found


def answer(module, name):
    """"works", "refused", or what is wrong."""
    from mindspore._stand_ins import refusal  # here: MindSpore's own package has none
    namespace = {}
    try:
        exec(f"from {module} import {name}", namespace)
    except ImportError as error:
        return f"{module}.{name}: no word of what to use instead: {error}"
    return "refused" if refusal(namespace[name]) else "works"


def others(found):
    """Of the names at places those that mean another thing than the public name does."""
    texts = []
    for path, listed in found.items():
        for name, known in listed.items():
            if not known or answer(path, name) != "works":
                continue
            here, there = (getattr(importlib.import_module(module), name, None) for module in (path, known))
            # A module of the function's name has what scripts look for in it.
            if here is not there and not isinstance(here, types.ModuleType):
                texts.append(f"{path}.{name} is not {known}.{name}")
    return texts


def check(names, found, update):
    """Whether every name has its answer and the document the right counts. found: names at places, as names_at() has them."""
    rows, totals, wrong = [], {"works": 0, "refused": 0}, []
    groups = {f"`{module}`": [answer(module, name) for name in listed] for module, listed in names.items()}
    groups[f"{len(found)} modules inside of these"] = [answer(path, name) for path, listed in found.items() for name in listed]
    for title, answers in groups.items():
        wrong += [text for text in answers if text not in totals]
        counts = {kind: answers.count(kind) for kind in totals}
        totals = {kind: totals[kind] + counts[kind] for kind in totals}
        rows.append(f"| {title} | {counts['works']} | {counts['refused']} | {len(answers) - sum(counts.values())} |\n")
    wrong += others(found)
    table = "| module | names that work | that are refused with a remedy | missing |\n|---|---|---|---|\n" + "".join(rows)
    document = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = document.partition(BEGIN)
    old, _, after = rest.partition(END)
    if update:
        DOCUMENT.write_text(before + BEGIN + table + END + after, encoding="utf-8")
    elif old != table:
        wrong.append(f"{DOCUMENT.name} has other counts; they are\n{table}")
    for text in wrong:
        print(f"FAILED: {text}")
    print(f"{totals['works']} names work, {totals['refused']} are refused")
    return not wrong


def main():
    command, path = sys.argv[1:3]
    if command == "list":
        names = {module: public_names(importlib.import_module(module)) for module in MODULES}
        found = {module: listed for module, listed in ((module, names_at(module)) for module in places()) if listed is not None}
        Path(path).write_text(json.dumps({"names": names, "places": found}), encoding="utf-8")
        return 0
    read = json.loads(Path(path).read_text(encoding="utf-8"))
    return 0 if check(read["names"], read["places"], "--update" in sys.argv) else 1


if __name__ == "__main__":
    sys.exit(main())
