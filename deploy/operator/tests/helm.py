"""The part of Helm's templates that the chart uses, so that what it makes can be looked at where there is no helm: define, include, if,
else, range, comments, pipelines of default, quote, toYaml, nindent, and the trimming of spaces by {{- and -}}."""

import re
from pathlib import Path

import yaml

TOKEN = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.S)


class Chart:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.about = yaml.safe_load((self.folder / "Chart.yaml").read_text())
        self.defaults = yaml.safe_load((self.folder / "values.yaml").read_text())
        self.defined = {}
        for path in sorted((self.folder / "templates").glob("*.tpl")):
            self._render(path.read_text(), None, None)

    def render(self, namespace="tessera-system", **values):
        """File's name -> text, of all templates."""
        root = {"Values": _merged(self.defaults, values), "Release": {"Namespace": namespace, "Name": "release"},
                "Chart": {"AppVersion": str(self.about["appVersion"]), "Name": self.about["name"]}}
        return {path.name: self._render(path.read_text(), root, root) for path in sorted((self.folder / "templates").iterdir()) if path.suffix != ".tpl"}

    def objects(self, **options):
        return [item for name, text in self.render(**options).items() if name.endswith(".yaml") for item in yaml.safe_load_all(text) if item]

    # A text is a list of texts and actions; blocks nest.
    def _render(self, text, root, dot):
        parts, end = [], 0
        for match in TOKEN.finditer(text):
            before = text[end:match.start()]
            parts += [("text", before.rstrip() if match.group(1) else before), ("action", match.group(2))]
            end = match.end()
            if match.group(3):
                end += len(text) - end - len(text[end:].lstrip())
        parts.append(("text", text[end:]))
        out, rest = self._block(parts, 0, root, dot)
        if rest != len(parts):
            raise ValueError(f"a block ends that did not begin: {parts[rest]}")
        return out

    def _block(self, parts, at, root, dot, is_shown=True):
        """Renders up to the {{ end }} or {{ else }} that is the block's own; returns where that stands."""
        out = []
        while at < len(parts):
            kind, text = parts[at]
            word = text.split(" ", 1)[0] if kind == "action" else None
            if kind == "text":
                out.append(text if is_shown else "")
            elif word in ("end", "else"):
                return "".join(out), at
            elif word in ("if", "range", "define"):
                shown, at = self._nested(word, text.partition(" ")[2], parts, at + 1, root, dot, is_shown)
                out.append(shown)
            elif is_shown and not text.startswith("/*"):
                out.append(_text(self._value(text, root, dot)))
            at += 1
        return "".join(out), at

    def _nested(self, word, condition, parts, begin, root, dot, is_shown):
        if word == "define":
            body, end = self._block(parts, begin, root, dot, is_shown=False)
            self.defined[condition.strip('"')] = parts[begin:end]
            return "", end
        value = self._value(condition, root, dot) if is_shown else None
        if word == "range":
            shown, end = "", self._block(parts, begin, root, dot, False)[1]
            for item in value or []:
                shown += self._block(parts, begin, root, item)[0]
        else:
            shown, end = self._block(parts, begin, root, dot, is_shown and bool(value))
        if parts[end][1].startswith("else"):
            other, end = self._block(parts, end + 1, root, dot, is_shown and not value)
            shown += other
        return shown, end

    def _value(self, text, root, dot):
        """Of a pipeline."""
        value = None
        for number, step in enumerate(text.split("|")):
            words = re.findall(r'"[^"]*"|\S+', step)
            arguments = [self._word(word, root, dot) for word in words[1:]]
            if number:
                arguments.append(value)
            value = self._call(words[0], arguments, root, dot)
        return value

    def _call(self, name, arguments, root, dot):
        if name == "include":
            shown, end = self._block(self.defined[arguments[0]], 0, arguments[1], arguments[1])
            assert end == len(self.defined[arguments[0]])
            return shown
        functions = {"default": lambda other, value: value or other, "quote": lambda value: '"' + _text(value).replace('"', '\\"') + '"',
                     "toYaml": lambda value: yaml.safe_dump(value, sort_keys=False).rstrip("\n"),
                     "nindent": lambda count, value: "\n" + "\n".join(" " * count + line if line else line for line in value.split("\n"))}
        return functions[name](*arguments) if name in functions else self._word(name, root, dot)

    @staticmethod
    def _word(word, root, dot):
        if word.startswith('"'):
            return word.strip('"')
        if word.isdigit():
            return int(word)
        value, path = (root, word[1:]) if word.startswith("$") else (dot, word)
        if not path.startswith(".") and path:
            raise ValueError(f"the chart uses {word}, which helm.py does not know")
        for part in filter(None, path.split(".")):
            value = value[part]
        return value


def _merged(below, above):
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {key: _merged(below[key], above[key]) if key in below and key in above else above.get(key, below.get(key)) for key in {**below, **above}}


def _text(value):
    return "" if value is None else {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
