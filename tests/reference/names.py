"""names.py list FILE: writes the public names of the package `mindspore` on the path, by module.
names.py check FILE [--update]: asks Tessera's package for each. A name works, or stands for what is refused when it is used; any other answer is a
failure, and so are other counts than those of docs/compatibility.md, which --update writes anew."""
import importlib
import json
import sys
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "compatibility.md"
BEGIN, END = "<!-- counts: written by tests/reference/names.py check FILE --update -->\n", "<!-- end of counts -->\n"
MODULES = ("mindspore", "mindspore.nn", "mindspore.ops", "mindspore.numpy", "mindspore.train", "mindspore.parallel", "mindspore.communication",
           "mindspore.common.initializer", "mindspore.dataset", "mindspore.dataset.transforms", "mindspore.dataset.vision")


def public_names(module):
    """What the module says is public; of one that does not say so, its classes."""
    listed = getattr(module, "__all__", None)
    names = listed if listed is not None else [name for name, item in vars(module).items() if isinstance(item, type) and name[0].isupper()]
    # Some lists of MindSpore's hold the letters of a name.
    return sorted({name for name in names if name.isidentifier() and not name.startswith("_") and len(name) > 1})


def answer(module, name):
    """"works", "refused", or what is wrong."""
    from mindspore._stand_ins import refusal  # here: MindSpore's own package has none
    namespace = {}
    try:
        exec(f"from {module} import {name}", namespace)
    except ImportError as error:
        return f"{module}.{name}: no word of what to use instead: {error}"
    return "refused" if refusal(namespace[name]) else "works"


def check(names, update):
    """Whether every name has its answer and the document the right counts."""
    rows, totals, wrong = [], {"works": 0, "refused": 0}, []
    for module, listed in names.items():
        answers = [answer(module, name) for name in listed]
        wrong += [text for text in answers if text not in totals]
        counts = {kind: answers.count(kind) for kind in totals}
        totals = {kind: totals[kind] + counts[kind] for kind in totals}
        rows.append(f"| `{module}` | {counts['works']} | {counts['refused']} | {len(answers) - sum(counts.values())} |\n")
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
        Path(path).write_text(json.dumps(names), encoding="utf-8")
        return 0
    return 0 if check(json.loads(Path(path).read_text(encoding="utf-8")), "--update" in sys.argv) else 1


if __name__ == "__main__":
    sys.exit(main())
