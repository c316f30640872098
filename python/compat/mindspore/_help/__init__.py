"""Gives the functions and classes of the modules of `mindspore` what help() says beside their own words. Examples know ms, nn, ops, np and tessera, the first three
being the package's."""
import inspect
import sys
import types

from tessera._function_help import texts_of, with_text

from mindspore._help import dataset, initializer, nn, numpy, operations, ops, others, root, rows, text, transformer, transforms, vision

# By module its rows and its other texts, which have the names of what it defines, and the path by which examples call that.
_WHOLE = {
    "mindspore": (root.ROWS, root.TEXTS, "ms"),
    "mindspore.common.initializer": (initializer.ROWS, "", "ms.common.initializer"),
    "mindspore.dataset": (dataset.ROWS, dataset.TEXTS, "ms.dataset"),
    "mindspore.dataset.config": (dataset.CONFIG, "", "ms.dataset.config"),
    "mindspore.dataset.text": (text.ROWS, text.TEXTS, "ms.dataset.text"),
    "mindspore.dataset.transforms": (transforms.ROWS, transforms.TEXTS, "ms.dataset.transforms"),
    "mindspore.dataset.vision": (vision.ROWS, vision.TEXTS, "ms.dataset.vision"),
    "mindspore.nn.transformer": (transformer.ROWS, "", "nn.transformer"),
}


def _add(item, own, path, texts, done):
    """Puts the text of an item that a module has under the name `own` behind the item's words, unless it has one: `done` are those that have."""
    make = texts.get(own) or texts.get(item.__name__)
    if make is None or item in done:
        return
    doc = item.__doc__ or inspect.getdoc(item) or ""
    if "For example:" in doc:  # the text of what it is derived from, or that of tessera's function
        if own not in texts:
            return
        doc = doc.split("\n\n")[0]
    done.add(item)
    item.__doc__ = with_text(doc, make(f"{path}.{own}"))


def add_to_modules():
    """Puts the texts behind those of the functions and classes of the modules, once. A module may call a function otherwise than it is called where it is defined."""
    of_ops, of_numpy, of_operations, of_nn, of_others = (rows.texts_of(table.ROWS) for table in (ops, numpy, operations, nn, others))
    done = set()
    for module, path, of_classes in (("mindspore.ops", "ops", of_operations), ("mindspore.nn", "nn", of_nn), ("mindspore.numpy", "ms.numpy", {})):
        for own, item in vars(sys.modules[module]).items():
            if isinstance(item, type) and item.__module__.partition(".")[0] == "mindspore":
                _add(item, own, path, of_classes, done)
            elif isinstance(item, types.FunctionType) and not own.startswith("_") and path != "nn":
                _add(item, own, path, of_numpy if item.__module__ == "mindspore.numpy" else of_ops, done)
    for module, (alike, single, path) in _WHOLE.items():
        texts = rows.texts_of(alike) | {name: lambda _path, made=made: made for name, made in texts_of(single).items()}
        for own in texts:
            _add(vars(sys.modules[module])[own], own, path, texts, done)
    alike = {path: make(path if path.startswith("nn.") else f"ms.{path}") for path, make in of_others.items()}
    for path, text in (texts_of(others.TEXTS) | alike).items():
        module, _, name = path.rpartition(".")
        function = vars(sys.modules[f"mindspore.{module}"])[name]
        function.__doc__ = with_text(function.__doc__ or "", text)
