"""The options of a Model: each is named once, in for_each_option() beside the struct that has it. Python's keywords, their help and what
modes warn of are made of that; whoever names an option again would have to be kept in step by hand."""

import re
from pathlib import Path

FOLDER = "tessera/train/options"
HEADERS = {"ModelOptions": f"{FOLDER}/model_options.h", "AutomaticPlanOptions": f"{FOLDER}/automatic_options.h",
           "PipelineOptions": f"{FOLDER}/pipeline_options.h"}
# Members that scripts reach in another way: objects, functions, and structs whose members are named one by one.
WITHOUT_A_NAME = {"ModelOptions": {"are_of_python", "initial_states", "metrics", "session"}, "AutomaticPlanOptions": {"search", "planner"}, "PipelineOptions": set()}
# What makes something of the list, and so has no names of its own. Elsewhere a name may stand in an error, or be another function's.
READERS = ("tessera/train/options", "tessera/train/modes/mode_options.cc", "python/src/model_options.cc", "python/src/train.cc", "python/tessera")
# Words that are texts for other reasons, too.
COMMON = {"seed", "pipeline", "search", "profile", "load", "save", "schedule", "stages", "timeout", "precision", "debug", "kernels", "rounds", "algorithm", "device"}


def members(text, struct):
    body = re.search(rf"struct {struct} {{\n(.*?)\n}};", text, re.S)[1]
    return set(re.findall(r"^  [\w:<>,() &]+? (\w+)(?: = .*)?;$", re.sub(r"\s*//.*", "", body), re.M))


def rows(text):
    """(name in Python, member) of each row of the list."""
    listed = text[text.index("void for_each_option("):]
    found = re.findall(r'OptionInfo\{\s*\.name = "(\w+)".*?\},\s*options\.([\w.]+)\);', listed, re.S)
    if len(found) != listed.count("OptionInfo{"):
        raise ValueError(f"{listed.count('OptionInfo{')} options are listed, of which {len(found)} could be read")
    return found


def faults(root):
    """A line for each option that is not named, or named in a second place."""
    lines, names = [], []
    for struct, header in HEADERS.items():
        text = Path(root, header).read_text()
        listed = rows(text)
        names += [name for name, _ in listed]
        first = [member.split(".")[0] for _, member in listed]
        for member in sorted(members(text, struct) - WITHOUT_A_NAME[struct] - set(first)):
            lines.append(f"{header}: {struct}::{member} has no row in for_each_option(): Python does not know it")
        for name in sorted({name for name, _ in listed if [other for other, _ in listed].count(name) > 1}):
            lines.append(f"{header}: {name} has two rows")
    words = re.compile("|".join(rf'["\']{name}["\']' for name in sorted(set(names) - COMMON)))
    for reader in READERS:
        for path in sorted(Path(root, reader).rglob("*")) or [Path(root, reader)]:
            place = path.relative_to(root).as_posix()
            if not path.is_file() or path.suffix not in (".h", ".cc", ".py") or place in HEADERS.values():
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for word in words.findall(line):
                    lines.append(f"{place}:{number}: names the option {word[1:-1]} again: for_each_option() has it")
    return lines
