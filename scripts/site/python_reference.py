"""The references of the packages `tessera` and `mindspore`, of their sources and, where there is one, of the built package's stubs.

No package is imported: what is written in Python is parsed, what is written in C++ is taken from the type stubs that a build makes,
or else from the bindings themselves.
"""

import ast
import re
from pathlib import Path

import binding_reader
from as_markdown import block, cell, escape, first_sentence, prose
from python_model import Class, Function, Module

# Modules of `tessera` that are files of Python beside the bindings of the same name, and files whose names they take over.
OWN_FILES = {"tessera": "__init__.py", "tessera.nn": "nn.py", "tessera.ops": "ops.py", "tessera.cluster": "cluster.py",
             "tessera.data": "data.py", "tessera.checkpoint": "checkpoint.py"}


def doc_of(node):
    return ast.get_docstring(node) or ""


def signature_of(node):
    """Of a function's definition, with defaults that are short."""
    text = f"({ast.unparse(node.args)})"
    if node.returns is not None:
        text += f" -> {ast.unparse(node.returns)}"
    return text.replace("tessera._tessera.", "tessera.").replace("collections.abc.", "")


def is_shown(name):
    return not name.startswith("_") or name in ("__init__", "__call__")


def members_of(node):
    """The methods and properties of a class; overloads stand below each other."""
    found = []
    for one in node.body:
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_shown(one.name):
            decorators = [ast.unparse(decorator) for decorator in one.decorator_list]
            if any(text.endswith((".setter", ".deleter")) for text in decorators):
                continue
            is_property = any(text.split(".")[-1] in ("property", "cached_property") for text in decorators)
            found.append(Function(one.name, "" if is_property else signature_of(one), doc_of(one)))
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and is_shown(one.target.id):
            found.append(Function(one.target.id, "", ""))
    return found


def class_of(node):
    bases = ", ".join(ast.unparse(base).replace("tessera._tessera.", "") for base in node.bases)
    return Class(node.name, bases, doc_of(node), members_of(node))


def parse(name, text):
    """A module of Python by its source, or of C++ by its stub."""
    tree = ast.parse(text)
    module = Module(name, doc_of(tree))
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_shown(node.name):
            module.functions.append(Function(node.name, signature_of(node), doc_of(node)))
        elif isinstance(node, ast.ClassDef) and is_shown(node.name):
            module.classes.append(class_of(node))
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                own = alias.asname or alias.name
                if is_shown(own) and own != "*":
                    module.names_of_others[own] = node.module
    return module


def stubs(package):
    """The modules that stubs describe, by the names that users import them by."""
    found = {}
    for path in sorted(Path(package, "_tessera").rglob("*.pyi")):
        parts = [part for part in path.relative_to(Path(package, "_tessera")).with_suffix("").parts if part != "__init__"]
        name = ".".join(["tessera", *parts])
        # A function without a name of its own is written as one that no stub can import.
        found[name] = parse(name, re.sub(r"^from .* import <.*$", "", path.read_text(), flags=re.MULTILINE))
        found[name].names_of_others = {}
    return found


def tessera(root, build):
    """The modules of the package, by name: of the stubs of a build that has them, else of the sources."""
    modules = stubs(Path(build, "python/tessera")) or binding_reader.read(root)
    folder = Path(root, "python/tessera")
    for name, file in OWN_FILES.items():
        module = parse(name, (folder / file).read_text())
        known = modules.setdefault(name, Module(name, ""))
        known.doc = module.doc or known.doc
        known.functions += [one for one in module.functions if not known.has(one.name)]
        known.classes += [one for one in module.classes if not known.has(one.name)]
        for own, source in module.names_of_others.items():
            # What a file whose name begins with an underscore defines belongs to the module that shows it.
            hidden = folder / f"{source.removeprefix('tessera.')}.py"
            if source.startswith("tessera._") and source != "tessera._tessera" and hidden.exists() and own not in ("missing_from", ):
                defined = parse(source, hidden.read_text())
                known.functions += [one for one in defined.functions if one.name == own and not known.has(own)]
    return modules


def mindspore(root):
    """The public modules of the package, by name; one that begins with an underscore is none."""
    base = Path(root, "python/compat")
    found = {}
    for path in sorted((base / "mindspore").rglob("*.py")):
        parts = path.relative_to(base).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part.startswith("_") for part in parts):
            found[".".join(parts)] = parse(".".join(parts), path.read_text())
    return found


def page_of(module):
    return f"python/{module}"


def show_function(one, level, owner=""):
    if not one.signature:
        return [block(f"{owner}{one.name}", "python"), "", prose(one.doc), ""]
    heading = [f"{'#' * level} {escape(one.name)}", ""] if level else []
    return [*heading, block(f"{owner}{one.name}{one.signature}", "python"), "", prose(one.doc), ""]


def module_page(module, modules):
    out = [f"# {module.name}", "", f"[All modules]({module.name.partition('.')[0]}_index.md)", "", prose(module.doc), ""]
    own = {*[one.name for one in module.classes], *[one.name for one in module.functions]}
    others = {}
    for name, source in sorted(module.names_of_others.items()):
        if name not in own and source in modules and source != module.name and modules[source].has(name):
            others.setdefault(source, []).append(name)
    for source, names in others.items():
        out += [f"Of [{source}]({source}.md): {', '.join(f'`{name}`' for name in names)}.", ""]
    for one in module.classes:
        bases = f"({one.bases})" if one.bases else ""
        out += [f"## {escape(one.name)}", "", block(f"class {one.name}{bases}", "python"), "", prose(one.doc), ""]
        for member in one.members:
            out += show_function(member, 0, "" if member.name == "__init__" else f"{one.name}.")
    if module.functions and module.classes:
        out += ["## Functions", ""]
    for one in module.functions:
        out += show_function(one, 3 if module.classes else 2)
    return "\n".join(out)


def index(title, text, modules):
    rows = [f"| [{name}]({name}.md) | {cell(first_sentence(module.doc))} |" for name, module in modules.items()]
    return "\n".join([f"# {title}", "", text, "", "| module | what it has |", "|---|---|", *rows, ""])


def has_something(module):
    return bool(module.doc or module.functions or module.classes)


def pages(root, build):
    """Pages of the site by their path without ending, as Markdown."""
    found = {}
    for package, modules, text in (
            ("tessera", tessera(root, build), "The classes of C++ under their own names; [python.md](../python.md) is the guide."),
            ("mindspore", mindspore(root), "Scripts written for MindSpore import this one, after `export PYTHONPATH=$(python -m tessera compat-path)`. What "
             "each name takes, and where it differs, says [compatibility.md](../compatibility.md).")):
        modules = {name: module for name, module in modules.items() if has_something(module)}
        for name, module in modules.items():
            found[page_of(name)] = module_page(module, modules)
        found[f"python/{package}_index"] = index(f"The Python package {package}", text, modules)
    return {path: re.sub(r"\n{3,}", "\n\n", text) for path, text in found.items()}


def public_classes(root, build):
    """(module, class) of everything that is public."""
    return [(name, one.name) for modules in (tessera(root, build), mindspore(root)) for name, module in modules.items()
            for one in module.classes]
