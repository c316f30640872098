"""Gives the functions and classes of the modules of `mindspore` what help() says beside their own words. Examples know ms, nn, ops, np and tessera, the first three
being the package's."""
import inspect
import sys
import types

from tessera._function_help import texts_of, with_text

from mindspore._help import nn, numpy, operations, ops, others, rows


def _own_words(function, texts, own):
    """What a function says before such a text; None where it has one already, and under the name `own` none of those."""
    doc = function.__doc__ or inspect.getdoc(function) or ""
    if "For example:" not in doc:
        return doc
    return doc.split("\n\n")[0] if own in texts else None


def _add_to_classes(module, path, texts):
    """Puts the texts behind those of the classes that the module has of the package, under the name that the class has there first."""
    done = set()
    for own, cls in vars(sys.modules[module]).items():
        if isinstance(cls, type) and cls.__module__.partition(".")[0] == "mindspore" and cls not in done and (own in texts or cls.__name__ in texts):
            done.add(cls)
            words = _own_words(cls, texts, own)
            cls.__doc__ = with_text(words, (texts.get(own) or texts[cls.__name__])(f"{path}.{own}"))


def add_to_modules():
    """Puts the texts behind those of the functions and classes of the modules, once. A module may call a function otherwise than it is called where it is defined."""
    done = set()
    of_ops, of_numpy = rows.texts_of(ops.ROWS), rows.texts_of(numpy.ROWS)
    for module, path in (("mindspore.ops", "ops"), ("mindspore.numpy", "ms.numpy")):
        for own, function in vars(sys.modules[module]).items():
            if own.startswith("_") or not isinstance(function, types.FunctionType):
                continue
            texts = of_numpy if function.__module__ == "mindspore.numpy" else of_ops
            words = _own_words(function, texts, own)
            make = texts.get(own) or texts.get(function.__name__)
            if function not in done and words is not None and make is not None:
                done.add(function)
                function.__doc__ = with_text(words, make(f"{path}.{own}"))
    _add_to_classes("mindspore.ops", "ops", rows.texts_of(operations.ROWS))
    _add_to_classes("mindspore.nn", "nn", rows.texts_of(nn.ROWS))
    for path, text in texts_of(others.TEXTS).items():
        module, _, name = path.rpartition(".")
        function = vars(sys.modules[f"mindspore.{module}"])[name]
        function.__doc__ = with_text(function.__doc__ or "", text)
