"""What is said of a keyword argument that a function does not have, and of an argument of another type than it takes."""
import collections.abc
import difflib
import functools
import inspect
import re
import reprlib
import sys
import types

import numpy as np


def explain(function, args, keywords, values, error):
    """Of a binding's error: which of the keywords the function does not have, and the nearest that it has; else which argument is missing,
    too many or of another type; None where that is not known, as where an argument refuses to be looked at."""
    try:
        return _explanation(function, args, keywords, values, error)
    except Exception:
        return None


def _explanation(function, args, keywords, values, error):
    signatures = [signature[0] for signature in function.__nb_signature__]
    if "incompatible function arguments" not in error or any("**" in signature for signature in signatures):
        return None
    known = {name for signature in signatures for name in re.findall(r"[(,] *(\w+) *(?=[:,=)])", signature)} - {"self"}
    unknown = [word for word in keywords if word not in known]
    who = f"{function.__qualname__.removesuffix('.__init__')}()"
    if unknown:
        return unexpected(who, unknown[0], sorted(known))
    if any(re.search(r"\*\w", signature) for signature in signatures):
        return None
    faults = [_fault(who, signature, args, dict(zip(keywords, values))) for signature in signatures]
    return faults[0] if len(set(faults)) == 1 else None


def _parameters(signature):
    """(name, type, whether it may be left out) of each of a binding's parameters."""
    inside = signature[signature.index("(") + 1:signature.rindex(")")]
    parts, depth = [""], 0
    for letter in inside:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    found = []
    for part in parts:
        name, _, rest = part.strip().partition(":")
        kind, has_default, _ = rest.partition(" = ")
        if name and name not in ("/", "*"):
            found.append((name, kind.strip(), bool(has_default)))
    return found


def _fault(who, signature, args, keywords):
    """What is wrong with the first argument that does not fit, else None."""
    parameters = _parameters(signature)
    by_position = _parameters(signature.partition(", *, ")[0] + ")")
    if len(args) > len(by_position):
        own = sum(name == "self" for name, _, _ in parameters)
        return f"{who} takes at most {len(by_position) - own} arguments, got {len(args) - own}"
    by_place = dict(zip((name for name, _, _ in parameters), args))
    twice = next((name for name in by_place if name in keywords), None)
    if twice is not None:
        value = by_place[twice]
        if twice == "learning_rate" and _are_parameters(value):
            return (f"{who}: an optimizer takes no parameters: the Model gives it those of its network; those that learn otherwise, or alone, "
                    "stand in groups=[{\"params\": ..., \"lr\": ...}]")
        return f"{who} got {twice} twice: {_shown(value)}, by its place, and {_shown(keywords[twice])}, by its name"
    given = by_place | keywords
    for name, kind, has_default in parameters:
        if name not in given and not has_default:
            return f"{who} needs {name}, {_article(kind)}" if kind != "object" else f"{who} needs {name}"
        if name in given and name != "self" and not _fits(given[name], kind):
            return misfit(who, name, kind, given[name]) + _other_place(who, name, parameters, given)
    return None


def _other_place(who, name, parameters, given):
    """Says of an argument that does not fit which other one it would be; "" where there is none, or that one is given, too."""
    fitting = [other for other, kind, _ in parameters if other not in given and isinstance(given[name], _class_of(kind) or ())]
    if len(fitting) != 1:
        return ""
    needed = [other for other, _, has_default in parameters if other != "self" and (not has_default or other == fitting[0])]
    return f"; it is what {fitting[0]} takes: {who.removesuffix('()')}({', '.join(needed)})"


def _are_parameters(value):
    """Whether it is what other libraries' optimizers take first: a network, or a list of its parameters."""
    module = sys.modules["tessera"]
    return isinstance(value, module.nn.Cell) or isinstance(value, (list, tuple)) and len(value) > 0 and isinstance(value[0], module.Parameter)


def misfit(who, name, kind, value):
    """The text of an error for an argument of another type."""
    inner = re.fullmatch(r"collections\.abc\.Mapping\[(\w+), (.+)\]", kind)
    if inner is not None and isinstance(value, dict):
        for key, item in value.items():
            if _fits(key, inner[1]) and not _fits(item, inner[2]):
                return misfit(who, f"{name}[{key!r}]", inner[2], item)
    is_function = inspect.isfunction(value) or inspect.isbuiltin(value)
    wants_cell = re.match(r"tessera\.(_tessera\.)?nn\.Cell\b", kind)
    way_out = "; a function becomes one in the construct() of a Cell of your own" if is_function and wants_cell else ""
    return f"{who}: {name} must be {_article(kind)}, got {_shown(value)}{way_out or _way_out(name, kind, value)}"


def _class_of(kind):
    """Tessera's class by the name that a signature has; None of what is none."""
    module, _, name = kind.removesuffix(" | None").rpartition(".")
    cls = getattr(sys.modules.get(module), name, None) if module.startswith("tessera") else None
    return cls if isinstance(cls, type) else None


def _way_out(name, kind, value):
    """What makes a value that fits of one that is near: a list of the one that was given, an object of a class, a data set of rows."""
    of_items = re.fullmatch(r"collections\.abc\.Sequence\[(tessera[\w.]+)\](?: \| None)?", kind)
    cls = _class_of(of_items[1] if of_items else kind)
    if cls is None:
        return ""
    if isinstance(value, type) and issubclass(value, cls):
        made = f"{value.__name__}()"
        return f"; an instance is wanted, which is made by a call: {f'[{made}]' if of_items else made}"
    if of_items and isinstance(value, cls):
        return f"; one alone stands in a list, too: {name}=[...]"
    is_data = cls is getattr(sys.modules.get("tessera.data"), "Dataset", None)
    if is_data and (isinstance(value, (list, tuple, np.ndarray)) or isinstance(value, dict) and value):
        made = "tensors(columns)" if isinstance(value, dict) else 'tensors({"x": x, "label": label})' if isinstance(value, np.ndarray) else 'generator(rows, ["x", "label"])'
        return f"; tessera.data.{made}.batch(size) makes one"
    return ""


_NUMBERS = {"int": int, "float": (int, float), "bool": bool, "str": str, "bytes": bytes, "dict": dict, "list": list}


def _fits(value, kind):
    """Whether the value may be of that type; True where that is not known."""
    options = [option.strip() for option in re.split(r" \| (?![^\[]*\])", kind)]
    return any(_is_one(value, option) for option in options)


def _is_one(value, kind):
    if kind == "None":
        return value is None
    outer, _, inner = kind.partition("[")
    if outer in ("collections.abc.Sequence", "list") and inner:
        items = value.tolist() if isinstance(value, np.ndarray) and outer != "list" else value
        return isinstance(items, collections.abc.Sequence) and not isinstance(items, (str, bytes)) and all(_fits(item, inner[:-1]) for item in items)
    if outer == "collections.abc.Mapping" and inner:
        of_key, _, of_item = inner[:-1].partition(", ")
        return isinstance(value, collections.abc.Mapping) and all(_fits(key, of_key) and _fits(item, of_item) for key, item in value.items())
    if kind in _NUMBERS:
        is_number = kind in ("int", "float")
        if is_number and isinstance(value, (bool, np.bool_)):
            return False
        if is_number and hasattr(value, "__index__" if kind == "int" else "__float__"):
            return kind == "float" or not isinstance(value, int) or -2**63 <= value < 2**64
        return isinstance(value, _NUMBERS[kind])
    cls = _class_of(kind)
    return cls is None or isinstance(value, cls)


def _article(kind):
    """The type in a sentence."""
    words = kind.replace("collections.abc.", "").replace("tessera._tessera.", "tessera.").replace(" | ", " or ")
    return words if words.startswith(("None", "object")) else f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _shown(value):
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value).__name__
    text = reprlib.repr(value).partition("\n")[0]
    if isinstance(value, (str, bytes)):
        return f"{text if len(text) <= 40 else text[:37] + '...'} of type {kind}"
    # What is cut in its middle reads as nothing; that a list has more items does.
    is_cut = len(text) > 40 or re.search(r"[^\s\[({]\.\.\.|\.\.\.[^\])}]", text)
    return f"{text} of type {kind}" if not is_cut else _described(value)


def _described(value):
    """A value of which not all is shown: what it is of."""
    kind = type(value).__name__
    if hasattr(getattr(value, "dtype", None), "name"):
        return f"{_type_of(value)} of type {kind}"
    if isinstance(value, (list, tuple)):
        first = value[0]
        inside = f"a {type(first).__name__} of {', '.join(map(_type_of, first[:4]))}" if isinstance(first, (list, tuple)) else _type_of(first)
        return f"a {kind} of {len(value)} items, the first {inside}"
    return f"an object of type {kind}"


# How other libraries call an option, or Tessera in another class.
_OTHER_WORDS = {"lr": "learning_rate", "p": "keep_prob", "eps": "epsilon", "epsilon": "eps"}


def option_is_read(cls, name):
    """What is said where an attribute of that name is set on an object of a binding's class; None where the class has no such option, sees to it by
    itself, or is derived with an __init__() of its own, whose attributes are called as it likes."""
    made = vars(cls).get("__init__")
    if not hasattr(made, "__nb_signature__") or hasattr(cls, name):
        return None
    options = {option for signature in made.__nb_signature__ for option, _, _ in _parameters(signature[0])} - {"self"}
    option = name if name in options else _OTHER_WORDS.get(name)
    if option not in options:
        return None
    way = f"give it where the object is made, {cls.__name__}({option}=...)"
    if option == "learning_rate":
        way += "; of a model that has begun, model.set_value(\"learning_rate\", value) sets the rate"
    return f"{cls.__name__}: an attribute '{name}' would change nothing, {option} was read when the object was made: {way}"


# What PyTorch calls a thing, or has where Tessera has it elsewhere.
_CELL_WORDS = {
    "eval": "set_train(False) is the mode for predictions; Model.eval() measures a network",
    "train": "set_train() is the mode for training; Model.train() trains a network",
    "state_dict": "named_parameters() gives them; Model.save_checkpoint() and tessera.checkpoint.save() write them",
    "load_state_dict": "Model.load_parameters() and Model.load_checkpoint() read them; parameter.set_data() sets one",
    "modules": "children() gives the cells below", "named_modules": "children() gives the cells below by name",
    "named_children": "children() gives the cells below by name", "forward": "it is called construct() here",
    "zero_grad": "gradients are values of a step, none is kept", "half": "to_float(\"float16\") says what is computed in",
    "to": "to_float(dtype) says what is computed in, tessera.Model(..., device=\"cuda:0\") on what",
    "cuda": "a network has no device: tessera.Model(..., device=\"cuda:0\") says on what it computes",
    "cpu": "a network has no device: a Model computes on the CPU where it names no other device",
    "fit": "a Model trains a network: tessera.Model(network, loss, optimizer).train(num_epochs, dataset)",
    "compile": "a Model is given the loss and the optimizer: tessera.Model(network, loss, optimizer, metrics=[\"accuracy\"])",
    "buffers": "parameters() has them, with requires_grad=False", "summary": "print(network) shows its cells and their parameters",
    "requires_grad_": "each parameter has requires_grad: for p in cell.parameters(): p.requires_grad = False",
    "register_parameter": "a tessera.Parameter becomes one by being an attribute", "add_module": "a Cell becomes one by being an attribute",
    "register_buffer": "a tessera.Parameter with requires_grad=False is one"}
_GRADIENTS = "train_step() of a Model computes the loss and the gradients and updates; nn.value_and_grad() gives gradients inside of construct()"
_DEVICE = "tessera.Model(..., device=\"cuda:0\") says on what a training computes"
_WEIGHTS = "save_checkpoint(path) and load_checkpoint(path) write and read what training goes on from; load_parameters(path) reads the network's alone"
_MODEL_WORDS = {
    "fit": "train(num_epochs, dataset, callbacks) trains", "evaluate": "eval(dataset) measures", "forward": "predict(inputs) gives the network's result",
    "compile": "the loss, the optimizer and the metrics are given where it is made: tessera.Model(network, loss, optimizer, metrics=[\"accuracy\"])",
    "state_dict": f"names() and value(name) give the values; {_WEIGHTS}", "load_state_dict": f"set_value(name, value) sets one; {_WEIGHTS}",
    "save": _WEIGHTS, "load": _WEIGHTS, "save_weights": _WEIGHTS, "load_weights": _WEIGHTS,
    "parameters": "the network has them, network.parameters(); names() and value(name) give all values, the optimizer's, too",
    "cuda": _DEVICE, "cpu": _DEVICE, "to": _DEVICE, "zero_grad": f"gradients are values of a step, none is kept; {_GRADIENTS}", "backward": _GRADIENTS,
    "summary": "print(network) shows its cells and their parameters", "train_on_batch": "train_step(inputs, labels) trains on one batch"}
_TENSOR_WORDS = {
    "backward": f"a tensor does not know what it was made of; {_GRADIENTS}", "grad": f"gradients are values of a step, none is kept; {_GRADIENTS}",
    "detach": "ops.stop_gradient(x) lets no gradient through; a tensor outside of construct() has none", "tolist": "numpy().tolist() gives numbers",
    "cuda": _DEVICE, "cpu": _DEVICE, "to": f"astype(dtype) gives another type; {_DEVICE}", "device": _DEVICE, "permute": "transpose(axes) does it",
    "unsqueeze": "expand_dims(axis) does it", "float": "astype(\"float32\") does it", "long": "astype(\"int64\") does it", "half": "astype(\"float16\") does it",
    "requires_grad_": "a tessera.Parameter has requires_grad", "data": "numpy() gives the elements, set_data() sets them"}
_OPTIMIZER_WORDS = {
    "step": _GRADIENTS, "minimize": _GRADIENTS, "apply_gradients": "update() adds the update to what construct() computes",
    "zero_grad": f"gradients are values of a step, none is kept; {_GRADIENTS}",
    "state_dict": "its states are values of the Model: names() and value(name) give them, save_checkpoint() writes them",
    "load_state_dict": "its states are values of the Model: load_checkpoint() reads them, set_value(name, value) sets one",
    "param_groups": "model.set_value(\"learning_rate\", value) sets the rate of a model that has begun"}
TESSERA_WORDS = {"tensor": "Tensor", "manual_seed": "set_seed", "optim": "nn, which has the optimizers", "save": "checkpoint.save", "load": "checkpoint.load",
                 "utils": "data", "Module": "nn.Cell"}
NN_WORDS = {"Linear": "Dense", "Module": "Cell", "ModuleList": "CellList", "Identity": "Sequential()",
             "BCEWithLogitsLoss": "a Cell of your own", "SequentialCell": "Sequential"}
# Schedules of PyTorch, Keras and transformers.
SCHEDULE_WORDS = {"ConstantLR": "constant", "LinearLR": "linear", "StepLR": "exponential(rate, gamma, num_steps, is_stair=True)",
                  "MultiStepLR": "multi_step", "ExponentialLR": "exponential", "CosineAnnealingLR": "cosine",
                  "CosineAnnealingWarmRestarts": "cosine_restarts", "PolynomialLR": "polynomial", "OneCycleLR": "one_cycle",
                  "SequentialLR": "sequence", "LambdaLR": "RateSchedule", "step": "exponential(rate, gamma, num_steps, is_stair=True)",
                  "PiecewiseConstantDecay": "multi_step", "ExponentialDecay": "exponential", "PolynomialDecay": "polynomial",
                  "CosineDecay": "cosine", "CosineDecayRestarts": "cosine_restarts", "InverseTimeDecay": "RateSchedule",
                  "get_constant_schedule": "constant", "get_constant_schedule_with_warmup": "warmup(num_steps, constant(rate))",
                  "get_linear_schedule_with_warmup": "warmup(num_steps, linear(rate, 0, ...))",
                  "get_cosine_schedule_with_warmup": "warmup(num_steps, cosine(rate, ...))",
                  "get_polynomial_decay_schedule_with_warmup": "warmup(num_steps, polynomial(rate, ...))",
                  "get_inverse_sqrt_schedule": "warmup(num_steps, inverse_square_root(rate, num_steps))"}
NN_WORDS |= {name: f"schedules.{word}" for name, word in SCHEDULE_WORDS.items() if name[0].isupper() or name.startswith("get_")}
DATA_WORDS = {"DataLoader": "tensors(columns).batch(size), or generator(source, names).batch(size)", "TensorDataset": "tensors", "IterableDataset": "stream",
              "from_tensor_slices": "tensors", "random_split": "Dataset.take and Dataset.skip"}
OPS_WORDS = {"cat": "concat", "permute": "transpose", "view": "reshape", "max": "reduce_max", "min": "reduce_min", "prod": "reduce_prod", "mm": "matmul",
              "bmm": "matmul", "clamp": "maximum and minimum", "detach": "stop_gradient", "unsqueeze": "expand_dims", "silu": "x * sigmoid(x)"}
_OPTION_WORDS = {"dim": ("axis", "axes"), "keepdim": ("keep_dims", ), "op": ("reduction", ), "bias": ("has_bias", ),
                 "lr": ("learning_rate", )}
_CLIPPED = "ops.clip_by_global_norm(gradients, 1.0) clips the gradients, in a training step that is a cell, before the optimizer gets them"
_KEYWORDS = dict.fromkeys(("gradient_clip_norm", "gradient_clip_val", "max_grad_norm", "clip_grad_norm", "grad_clip", "grad_clip_norm", "clip_norm", "clipnorm",
                           "global_clipnorm", "clip_gradients"), _CLIPPED)
_KEYWORDS |= {"padding_idx": "a row of zeros in embedding_table is one, and its parameter's set_data() sets it", "betas": "beta1 and beta2 are two numbers here", "inplace": "values are never changed in place",
             "dtype": "parameters are float32; Cell.to_float() says what is computed in",
             "device": 'a network has no device: train.Model(..., device="cuda:0") says on what it computes'}


def attribute_hint(cls, name):
    """What is said behind an AttributeError of a cell: "" or how the thing is called here."""
    if name in _CELL_WORDS:
        return f": {_CELL_WORDS[name]}"
    if name.startswith("_"):
        return ""
    near = difflib.get_close_matches(name, [known for known in dir(cls) if not known.startswith("_")], 1, 0.75)
    return f"; did you mean '{near[0]}'?" if near else ""


def explain_attributes(model, optimizer, *tensors):
    """The AttributeErrors of objects of these classes say what another library's name of a thing is here."""
    for classes, words in (((model, ), _MODEL_WORDS), ((optimizer, ), _OPTIMIZER_WORDS), (tensors, _TENSOR_WORDS)):
        for cls in classes:
            cls.__getattr__ = _missing_attribute(words)


def _missing_attribute(words):
    def missing(self, name):
        hint = ""
        if name in words:
            hint = f": {words[name]}"
        elif not name.startswith("_"):
            near = difflib.get_close_matches(name, [known for known in dir(type(self)) if not known.startswith("_")], 1, 0.75)
            hint = f"; did you mean '{near[0]}'?" if near else ""
        _raise_missing(f"'{type(self).__name__}' object has no attribute '{name}'", hint, self)
    return missing


def _raise_missing(text, hint, owner):
    # Behind an error that names its attribute Python puts a guess of its own, which another hint would contradict.
    raise AttributeError(text + hint, obj=owner) if hint else AttributeError(text)


def missing_from(module, words):
    """A module's __getattr__(): names the nearest that it has, or what PyTorch's name of a thing is here."""
    def missing(name):
        known = [other for other in vars(module) if not other.startswith("_")]
        near = [words[name]] if name in words else difflib.get_close_matches(name, known, 1, 0.7) if not name.startswith("_") else []
        _raise_missing(f"module '{module.__name__}' has no attribute '{name}'", f"; did you mean {near[0]}?" if near else "", module)
    return missing


def unexpected(who, word, known):
    """The text of an error for a keyword that is none of `known`."""
    if word in _KEYWORDS and word not in known:
        return f"{who} got an unexpected keyword argument '{word}': {_KEYWORDS[word]}" + (
            f"; it takes {', '.join(known)}" if len(known) <= 12 else "")
    near = [name for name in _OPTION_WORDS.get(word, ()) if name in known] or difflib.get_close_matches(word, known, 1, 0.6)
    return f"{who} got an unexpected keyword argument '{word}'; " + (
        f"did you mean '{near[0]}'?" if near else f"it takes {', '.join(known)}" if known else "it takes none")


def _type_of(value):
    dtype = getattr(value, "dtype", None)
    return f"{dtype.name}{list(value.shape)}" if hasattr(dtype, "name") else type(value).__name__


def held_in(holder, cell):
    """Where a cell holds another as no part of it, in a list, tuple or dict, as words behind that one's class; "" where it does not."""
    def has(items):
        items = items.values() if isinstance(items, dict) else items
        return any(item is cell or isinstance(item, (list, tuple, dict)) and has(item) for item in items)

    for name, value in vars(holder).items():
        if not name.startswith("_") and isinstance(value, (list, tuple, dict)) and has(value):
            return f" that {type(holder).__name__} holds in its {type(value).__name__} \"{name}\""
    return ""


def construct_fault(cell, path, args, keywords, names):
    """What is said where a cell's construct() does not take these arguments, which a data set's columns of these names are, or which the
    network has computed (""); None where it takes them."""
    try:
        signature = inspect.signature(cell.construct)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **keywords)
        return None
    except TypeError as error:
        fault = str(error)
    who = type(cell).__name__ + (f" \"{path}\"" if path else "")
    are_columns = bool(names) and all(name and not re.fullmatch(r"(input)?\d+", name) for name in names)
    given = ", ".join(names if are_columns else map(_type_of, args))
    what = f"{len(args)} column{'s' if len(args) != 1 else ''}" if are_columns else f"{len(args)} argument{'s' if len(args) != 1 else ''}"
    given += "".join(f", {name}=" for name in keywords)
    how = "; columns go by position, and with a loss the last one is the label" if are_columns else ""
    return f"{who}: construct{signature} cannot take {what} ({given}): {fault}{how}"


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
