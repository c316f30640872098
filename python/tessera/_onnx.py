"""Networks as ONNX models: what a prediction computes, for other programs to run."""
import contextlib
import inspect
import os
import secrets
from typing import Any

import tessera
from tessera import _onnx_operators as operators
from tessera import nn

_IR_VERSION = 8  # the file format of opset 18's time, which runtimes since 2022 read
_MAX_BYTES = (1 << 31) - (16 << 20)  # a protobuf message holds 2 GiB; some of it is the graph's own


def export_onnx(cell: nn.Cell, *inputs: Any, path: str | os.PathLike[str]) -> None:
    """Writes what the cell computes in prediction as an ONNX model (opset 18) to the file `path`, which appears whole or not at all.

    inputs: tensors, or tuples, lists and dicts of them, as in a call of the cell; the model takes tensors of exactly these shapes and
    dtypes, under the names of construct()'s parameters. Its results are named output, or output0, output1, ... Parameters are initializers
    with the names that checkpoints have. Directories that are missing are made. Where parameters are split over ranks, every rank must
    call this.

    Raises ImportError without the package onnx; InvalidArgument, before anything is written, for operators that ONNX has no equivalent of, by
    name and origin, for a cell that assigns to parameters when it predicts, and for more than 2 GiB of parameters.
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError("export_onnx needs the package onnx: pip install onnx") from error
    if not isinstance(cell, nn.Cell):
        raise TypeError(f"export_onnx takes a cell, got {type(cell).__name__}")
    with _predicting(cell):
        graph = cell._describe_call(*inputs)
    if graph["assigned"]:
        raise tessera.InvalidArgument(f"the network cannot be written as ONNX, in which nothing is kept from call to call: construct() assigns to "
                                      f"{', '.join(graph['assigned'])}")
    _write(os.path.realpath(os.fspath(path)), _model(onnx, cell, inputs, graph).SerializeToString())


@contextlib.contextmanager
def _predicting(cell):
    """Within it, the cell and all below are in prediction mode."""
    modes = list(_modes(cell))
    if any(mode for _, mode in modes):
        nn.Cell.set_train(cell, False)
    try:
        yield
    finally:
        if any(mode for _, mode in modes):
            for each, mode in modes:  # parents first: each sets those below
                nn.Cell.set_train(each, mode)


def _modes(cell):
    yield cell, cell.training
    for _, child in nn.Cell.children(cell):
        yield from _modes(child)


def _model(onnx, cell, inputs, graph):
    """The graph as a model that ONNX's checker accepts."""
    builder = operators.Builder(onnx)
    types = [(dtype.name, list(shape)) for dtype, shape in graph["types"]]
    names = {}  # by value
    read = {value for node in graph["nodes"] for value in node[2]} | set(graph["outputs"])
    # Parameters first: they keep their names.
    for kind, name, value in graph["inputs"]:
        if kind == "input" or value not in read:
            continue
        if name not in graph["parameters"]:
            raise tessera.InvalidArgument(f'ONNX has no equivalent of the state "{name}", which is kept from call to call')
        names[value] = builder.add_initializer(builder.unique(name), graph["parameters"][name].numpy(), types[value][0])
    given = []
    wanted = _input_names(cell, inputs)
    for kind, name, value in graph["inputs"]:
        if kind == "input":
            names[value] = builder.unique(wanted[int(name)])
            builder.dtypes[names[value]] = types[value][0]
            given.append(_value_info(onnx, names[value], types[value]))
    _add_nodes(builder, graph, types, names, read)
    if builder.size_bytes > _MAX_BYTES:
        raise tessera.InvalidArgument(f"the parameters of the network take {builder.size_bytes} bytes, an ONNX file holds 2 GiB")
    results = _name_results(builder, [names[value] for value in graph["outputs"]])
    outputs = [_value_info(onnx, name, types[value]) for name, value in zip(results, graph["outputs"])]
    model = onnx.helper.make_model(onnx.helper.make_graph(builder.nodes, type(cell).__name__, given, outputs, builder.initializers),
                                   producer_name="tessera", ir_version=_IR_VERSION, opset_imports=[onnx.helper.make_opsetid("", operators.OPSET)])
    onnx.checker.check_model(model, full_check=True)
    return model


def _add_nodes(builder, graph, types, names, read):
    """Writes all nodes and names what they make; refuses those that cannot be written, each once."""
    refused = {}
    lacking = {}  # values that ONNX does not compute, by the node that should
    for op, attributes, inputs, outputs, source in graph["nodes"]:
        node = operators.Node(op, attributes, source, [names.get(value) for value in inputs], [types[value] for value in inputs],
                              [types[value] for value in outputs], [value in read for value in outputs])
        if op in operators.OPERATORS and None in node.inputs:  # of what is refused, or refused now
            refused.update((lacking[value], "only its first result can be used") for value in inputs if value in lacking)
            continue
        try:
            names.update(zip(outputs, operators.write(builder, node)))
        except operators.Unsupported as why:
            refused[str(node)] = str(why)
        else:
            lacking.update((value, str(node)) for value in outputs if names[value] is None)
    refused.update((lacking[value], "only its first result can be used") for value in graph["outputs"] if value in lacking)
    if refused:
        listed = "; ".join(f"{node}: {why}" for node, why in refused.items())
        raise tessera.InvalidArgument(f"the network cannot be written as ONNX, which has no equivalent of {listed}")


def _name_results(builder, values):
    """Gives the model's results their names and returns these."""
    wanted = ["output"] if len(values) == 1 else [f"output{i}" for i in range(len(values))]
    made = {name for node in builder.nodes for name in node.output}
    renamed, results = {}, []
    builder.prefix = ""
    for name, value in zip(wanted, values):
        name = builder.unique(name)
        if value in renamed or value not in made:  # a second time, or an input or parameter as it is
            renamed[builder.emit("Identity", value)] = name
        else:
            renamed[value] = name
        results.append(name)
    for node in builder.nodes:
        for field in (node.input, node.output):
            field[:] = [renamed.get(name, name) for name in field]
    return results


def _value_info(onnx, name, of_type):
    dtype, shape = of_type
    return onnx.helper.make_tensor_value_info(name, operators.DTYPES[dtype][1], shape)


def _input_names(cell, inputs):
    """A name for each tensor in the inputs, in order: those of construct()'s parameters."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        known = [name for name, parameter in inspect.signature(cell.construct).parameters.items() if parameter.kind in positional]
    except (TypeError, ValueError):  # of C++
        known = []
    single = ["input"] if len(inputs) == 1 else [f"input{i}" for i in range(len(inputs))]
    return [name for i, item in enumerate(inputs) for name in _leaves(item, known[i] if i < len(known) else single[i])]


def _leaves(item, name):
    if isinstance(item, (tessera.Tensor, nn.Parameter)) or hasattr(item, "__array__") and hasattr(item, "dtype"):
        yield name
    elif isinstance(item, dict):
        for key, value in item.items():
            yield from _leaves(value, f"{name}_{key}")
    elif isinstance(item, (tuple, list)):
        for i, value in enumerate(item):
            yield from _leaves(value, f"{name}_{i}")


def _write(path, content):
    """The file, whole or not at all."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    unfinished = f"{path}.{secrets.token_hex(4)}.part"
    try:
        with open(unfinished, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(unfinished)
        raise
