"""What the bindings of python/src say of the package `tessera`, read from their C++ where no built package is at hand.

A type stub of a built package says the same and more (types of arguments). What a binding makes in a loop over the
registry of operators is found by the registry's own definitions.
"""

import re
import runpy
from pathlib import Path

from cpp_reference import skip_braces, skip_literal
from python_model import Class, Function, Module


# One that is given a module: its name and that of the module.
FUNCTION = re.compile(r"^(?:template [^\n]*\n)?(?:void|nb::object) (\w+)\(nb::module_& ?(\w+)[^{;]*\{$", re.MULTILINE)
# One that is given a class, last, and binds a part of its members: its name and that of the class.
PART = re.compile(r"^void (\w+)\((?:nb::module_& ?\w+, )?nb::class_<[^;{]*>& ?(\w+)\) \{$", re.MULTILINE)


def literal(text):
    """The text of C++ literals that stand side by side; None where something else stands there."""
    at, out = 0, ""
    text = text.strip()
    while at < len(text):
        if text.startswith('R"(', at):
            end = text.index(')"', at)
            out += text[at + 3:end]
            at = end + 2
        elif text[at] == '"':
            end = skip_literal(text, at)
            out += re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match.group(1), match.group(1)), text[at + 1:end - 1])
            at = end
        elif text[at].isspace():
            at += 1
        else:
            return None
    return out if text else None


def arguments(text, at):
    """(arguments, the place behind) of the call whose bracket is at `at`."""
    depth, found, current, angle = 0, [], "", 0
    while at < len(text):
        behind = skip_literal(text, at)
        if behind != at:
            current += text[at:behind] if not text.startswith("//", at) else ""
            at = behind
            continue
        letter = text[at]
        if letter == "{":
            behind = skip_braces(text, at)
            current += text[at:behind]
            at = behind
            continue
        if letter in "([":
            depth += 1
            if depth == 1:
                at += 1
                continue
        elif letter in ")]":
            depth -= 1
            if depth == 0:
                return [*found, current.strip()] if current.strip() or found else [], at + 1
        elif letter == "," and depth == 1 and angle == 0:
            found.append(current.strip())
            current = ""
            at += 1
            continue
        current += letter
        at += 1
    return found, at


def default(text):
    words = {"nb::none()": "None", "true": "True", "false": "False", "nb::make_tuple()": "()", "nb::dict()": "{}", "world": "'world'"}
    text = text.strip()
    if text in words:
        return words[text]
    if (said := literal(text)) is not None:
        return repr(said)
    return text if re.fullmatch(r"-?[\d.]+(e-?\d+)?", text) else "..."


def signature(given, is_method):
    """(signature, documentation) by a binding's arguments behind the name and the function."""
    words, doc, own = ["self"] if is_method else [], "", None
    for one in given:
        if match := re.match(r'"(\w+)"_a(?:\.\w+\(\))*\s*(?:=\s*(.*))?$', one, re.S):
            name = {"options": "**options", "batch": "*batch", "inputs": "*inputs"}.get(match.group(1), match.group(1))
            words.append(name if match.group(2) is None or name[0] == "*" else f"{name}={default(match.group(2))}")
        elif one.startswith("nb::kw_only"):
            words.append("*")
        elif one.startswith("nb::sig("):
            own = literal(one[len("nb::sig("):-1])
        elif (said := literal(one)) is not None:
            doc = said
        elif one.startswith("doc_of("):
            parts, _ = arguments(one, one.index("("))
            doc = "\n\n".join(filter(None, (literal(part) or "" for part in parts[1:])))
    text = own.split("(", 1)[1].rsplit(")", 1)[0] if own and "(" in own else ", ".join(words)
    return f"({text})", doc


def registry(root):
    """(what each operator does, by name; the elementwise ones, which are bound in a loop, with the number of their operands)."""
    docs, elementwise = {}, {}
    for path in sorted(Path(root, "tessera/ops/defs").glob("*.cc")):
        text = path.read_text()
        for name, doc in re.findall(r'[({]\s*"([a-z]\w*)",\s*((?:"(?:[^"\\]|\\.)*"\s*)+)[,}]', text) + re.findall(
                r'\.name = "(\w+)",\s*\.doc =\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', text):
            docs.setdefault(name, literal(doc) or "")
        if path.name == "elementwise.cc":
            named = re.findall(r'\{"([a-z]\w*)",\s*"[^"]*\.', text) + re.findall(r'elementwise_def\(\s*"(\w+)", "[^"]*", \{"x"\}', text)
            for name in named:
                if name in docs and not name.endswith("_grad") and name not in ("x", "condition"):
                    elementwise[name] = 2 if re.search(r"\by\b", docs[name]) else 1
    return docs, elementwise


class Bindings:
    def __init__(self, root):
        # Functions are defined in `helped(m)` as they are in m; what their help gets besides is asked for by its name.
        self.texts = {path: re.sub(r"\bhelped\((\w+)\)\s*\.", r"\1.", path.read_text()) for path in sorted(Path(root, "python/src").glob("*.cc"))}
        self.help = runpy.run_path(str(Path(__file__).resolve().parents[2] / "python/tessera/_function_help.py"))["with_help"]
        self.docs, self.elementwise = registry(root)
        self.modules = {}
        self.classes = {}  # by the C++ type
        self.bodies, self.parts = {}, {}
        for text in self.texts.values():
            for found, of in ((self.bodies, FUNCTION), (self.parts, PART)):
                for match in of.finditer(text):
                    name, parameter = match.groups()
                    end = text.index("\n}\n", match.end())
                    found[name] = (parameter, text[match.end():end])

    def read(self):
        main = next(text for text in self.texts.values() if "NB_MODULE(" in text)
        body = main[main.index("NB_MODULE("):]
        self.modules["tessera"] = Module("tessera", "")
        self.body(body, {"m": "tessera"})
        return self.modules

    def function(self, module, name, given):
        if name.startswith("_"):
            return
        text, doc = signature(given, False)
        if self.modules[module].has(name):
            return
        known = self.docs.get(name, "") if module == "tessera.ops" else ""
        doc = "\n\n".join(one for one in (known if known not in doc else "", doc) if one)
        self.modules[module].functions.append(Function(name, text, self.help(f"tessera._{module}", name, doc)))

    def body(self, text, modules, given_classes=None):
        """Reads a function's body; `modules` and `given_classes`: the variables that are modules and classes, with what they are."""
        classes, helpers, at = dict(given_classes or {}), {}, 0
        pairs = {name: re.findall(r'\{"(\w+)"', listed) for name, listed in re.findall(r"(\w+)\[\] = \{(.*?)\};", text, re.S)}
        for found in re.finditer(r"const auto (\w+) = \[[^\]]*\]\(const char\* name.*?\b(\w+)\.def(\()\s*name", text, re.S):
            helpers[found.group(1)] = (found.group(2), arguments(text, found.start(3))[0][2:])
        docs = dict(re.findall(r"(\w+)\s*=\s*(R\"\(.*?\)\")", text, re.S))
        call = re.compile(r"(?:(\w+)\.)?((?:nb::)?\w+)\s*(<(?:[^;(){}]|\(\))*?>)?\(")
        while match := call.search(text, at):
            variable, name, template = match.groups()
            given, behind = arguments(text, match.end() - 1)
            at = match.end()
            before = text[max(match.start() - 60, 0):match.start()]
            if name == "def_submodule":
                path = f"{modules[variable]}.{literal(given[0])}"
                self.modules[path] = Module(path, (literal(given[1]) or "") if len(given) > 1 else "")
                if own := re.search(r"(\w+)\s*=\s*$", before):
                    modules[own.group(1)] = path
            elif name in ("nb::class_", "nb::enum_") and len(given) > 1 and given[0] in modules and literal(given[1]):
                at = self.chain(text, behind, self.begin_class(modules[given[0]], template, given, docs), classes, before)
            elif variable in classes and name.startswith("def"):
                self.member(classes[variable], name, given)
                at = behind
            elif variable in modules and name == "def" and given and (own := literal(given[0])):
                self.function(modules[variable], own, given[2:])
                at = behind
            elif variable is None and name in helpers and helpers[name][0] in modules and given and (own := literal(given[0])):
                self.function(modules[helpers[name][0]], own, helpers[name][1])
            elif len(given) > 1 and given[0] in modules and (own := literal(given[1])) and re.fullmatch(r"\w+", own):
                self.helper(modules[given[0]], name, own, template, given)
                at = behind
            elif len(given) > 1 and given[0] in modules and given[1] == "name":
                listed = re.findall(r":\s*(\w+)\)\s*\{?\s*$", before)
                for own in pairs.get(listed[-1], []) if listed else []:
                    self.function(modules[given[0]], own, given[2:])
            elif given and given[0] in modules and name in self.bodies and len(given) <= 2:
                self.enter(name, modules[given[0]])
            if variable is None and name in self.parts and given and given[-1] in classes:
                own, part = self.parts[name]
                self.body(part, {}, {own: classes[given[-1]]})
            if name == "bind_elementwise_of_registry":
                for own, operands in self.elementwise.items():
                    self.function(modules[given[0]], own, ['"x"_a', '"y"_a'][:operands])

    def enter(self, name, module):
        parameter, body = self.bodies[name]
        self.body(body, {parameter: module})

    def helper(self, module, helper, name, template, given):
        parameter, body = self.bodies.get(helper, ("", ""))
        if "nb::class_<" in body:
            made = self.begin_class(module, template, given, {})
            members = re.search(r"nb::class_<", body)
            _, behind = arguments(body, body.index("(", members.end()))
            self.chain(body, behind, made, {}, "")
        elif "nb::exception<" in body:
            own = {"error": "Error", "invalid_argument": "InvalidArgument"}
            bases = [re.sub(r"PyExc_|nb::handle|nb::make_tuple|[()\s]", "", one) for one in given[2].split(",")]
            self.modules[module].classes.append(Class(name, ", ".join(own.get(one, one) for one in bases), "", []))
        else:
            self.function(module, name, given[2:])

    def begin_class(self, module, template, given, docs):
        types = [one.strip() for one in (template or "<>")[1:-1].split(",")]
        bases = [self.classes[one].name for one in types[1:] if one in self.classes]
        doc = next((said for one in given[2:] if (said := literal(one)) is not None), "")
        for one in given[2:]:
            if match := re.fullmatch(r"(\w+)\.c_str\(\)", one):
                doc = literal(docs.get(match.group(1), "")) or doc
        made = Class(literal(given[1]), ", ".join(bases), doc, [])
        if types[0]:
            self.classes[types[0]] = made
        if not made.name.startswith("_"):
            self.modules[module].classes.append(made)
        return made

    def chain(self, text, at, made, classes, before):
        """Reads `.def(...).def_ro(...)`; returns the place behind."""
        while match := re.compile(r"\s*\.(def\w*)\(").match(text, at):
            given, at = arguments(text, match.end() - 1)
            self.member(made, match.group(1), given)
        if own := re.search(r"(\w+)\s*=\s*$", before):
            classes[own.group(1)] = made
        return at

    def member(self, made, kind, given):
        name = literal(given[0]) if given else None
        if not name or name.startswith("_") and name not in ("__init__", "__call__", "__len__", "__getitem__", "__iter__"):
            return
        is_property = kind.startswith(("def_ro", "def_rw", "def_prop"))
        text, doc = signature(given[2:] if not is_property else given[1:], kind == "def")
        made.members.append(Function(name, "" if is_property else text, doc))


def read(root):
    """The modules of the package, by name."""
    return Bindings(root).read()
