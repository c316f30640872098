"""What is said of a keyword argument that a function does not have."""
import difflib
import functools
import inspect
import re
import types


def explain(function, keywords, error):
    """Of a binding's error: which of the keywords the function does not have, and the nearest that it has; None where it has them all."""
    signatures = [signature[0] for signature in function.__nb_signature__]
    if "incompatible function arguments" not in error or any("**" in signature for signature in signatures):
        return None
    known = {name for signature in signatures for name in re.findall(r"[(,] *(\w+) *(?=[:,=)])", signature)} - {"self"}
    unknown = [word for word in keywords if word not in known]
    name = function.__qualname__.removesuffix(".__init__")
    return unexpected(f"{name}()", unknown[0], sorted(known)) if unknown else None


def unexpected(who, word, known):
    """The text of an error for a keyword that is none of `known`."""
    near = difflib.get_close_matches(word, known, 1, 0.5)
    return f"{who} got an unexpected keyword argument '{word}'; " + (
        f"did you mean '{near[0]}'?" if near else f"it takes {', '.join(known)}" if known else "it takes none")


def explained(function):
    """A function of Python's whose error for an unexpected keyword names the nearest one."""
    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            # Of the call itself: nothing of the function has run.
            word = re.search(r"got an unexpected keyword argument '(\w+)'$", str(error)) if error.__traceback__.tb_next is None else None
            if word is None:
                raise
            known = [name for name, parameter in inspect.signature(function).parameters.items()
                     if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and name not in ("self", "cls")]
            raise TypeError(unexpected(str(error).partition(" got ")[0], word[1], known)) from None

    return call


def explain_modules(modules):
    """Explains the keywords of the public functions, classes and methods that these modules define, wherever they stand in them."""
    names = {module.__name__ for module in modules}
    made = {}
    for module in modules:
        for name, item in list(vars(module).items()):
            if isinstance(item, type) and item.__module__ in names:
                _explain_class(item)
            elif isinstance(item, types.FunctionType) and item.__module__ in names and not name.startswith("__"):
                if item not in made:
                    made[item] = item if name.startswith("_") or hasattr(item, "__wrapped__") else explained(item)
                setattr(module, name, made[item])


def _explain_class(cls):
    for name, item in list(vars(cls).items()):
        is_call = name in ("__init__", "__new__", "__call__")
        if isinstance(item, types.FunctionType) and (is_call or not name.startswith("_") and name != "construct") and not hasattr(item, "__wrapped__"):
            if inspect.signature(item).parameters.keys() - {"self", "cls"}:
                setattr(cls, name, explained(item))
