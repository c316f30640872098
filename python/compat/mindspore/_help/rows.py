"""Reads what help() says of many functions that take alike: words behind `= `, which go on in lines that are indented, and below them lines

    NAMES: CALL -> [SHAPE] || CALL -> ERROR

whose functions return that shape and raise that error. `f` is the function; `x`, `w`, ... are tensors that the example makes. In place of a call with a
shape there may be statements, joined by ` && `.
"""
import re

# By the names that calls use, what they are.
_INPUTS = {
    "x": "ms.Tensor(np.ones((2, 3), np.float32))",
    "h": "ms.Tensor(np.full((2, 3), 0.5, np.float32))",
    "w": "ms.Tensor(np.ones((3, 4), np.float32))",
    "v": "ms.Tensor(np.ones(3, np.float32))",
    "m": "ms.Tensor(np.eye(3, dtype=np.float32))",
    "s": "ms.Tensor(np.ones((2, 3, 3), np.float32))",
    "b": "ms.Tensor(np.ones((2, 3), np.bool_))",
    "i": "ms.Tensor(np.zeros((2, 3), np.int32))",
    "row": "ms.Tensor(np.ones((1, 3), np.float32))",
    "network": "nn.Dense(3, 1)",
    "learned": "network.trainable_params()",
    "trained": "nn.WithLossCell(network, nn.MSELoss())",
    "target": "ms.Tensor(np.ones((2, 1), np.float32))",
    "state": "ms.Tensor(np.zeros((2, 4), np.float32))",
    "words": "ms.Tensor(np.ones((5, 1, 4), np.float32))",
    "scores": "ms.Tensor([[0.2, 0.5, 0.3], [0.3, 0.1, 0.6]])",
    "steps": "ms.Tensor(np.zeros((4, 1, 3), np.float32))",
    "classes": "ms.Tensor([[1]])",
    "labels": "ms.Tensor(np.array([0, 2], np.int32))",
    "lines": "ms.Tensor(np.ones((1, 2, 6), np.float32))",
    "images": "ms.Tensor(np.ones((1, 2, 4, 4), np.float32))",
    "volumes": "ms.Tensor(np.ones((1, 2, 4, 4, 4), np.float32))",
    "image": "np.ones((6, 4, 3), np.uint8)",
    "vocab": 'ms.dataset.text.Vocab.from_list(["good", "##ness"])',
    "tokens": "ms.Tensor(np.ones((2, 3, 4), np.float32))",
    "seen": "ms.Tensor(np.ones((2, 3, 3), np.float32))",
    "batches": 'ms.dataset.NumpySlicesDataset({"x": np.ones((4, 3), np.float32), "y": np.ones((4, 1), np.float32)}).batch(2)',
    "sgd": "nn.SGD(network.trainable_params(), 0.1)",
    "model": 'ms.Model(network, nn.MSELoss(), sgd, metrics={"loss"})',
}


_USED = re.compile(rf"(?<![\w.\"'])(?:{'|'.join(_INPUTS)})(?![\w\"'=])")
_FUNCTION = re.compile(r"(?<![\w.])f(?=[(,])")


def _example(row, path):
    """The indented lines of an example of the function that is called `path`."""
    right, _, wrong = row.partition(" || ")
    lines = []
    for statement in right.split(" && "):
        call, arrow, shape = statement.partition(" -> ")
        lines.append(f"y = {call}  # {shape}" if arrow else statement)
    if wrong:
        call, _, error = wrong.rpartition(" -> ")
        lines.append(f"{call}  # raises {error}")
    used = set(_USED.findall("\n".join(lines)))
    while of_which := {name for made in used for name in _USED.findall(_INPUTS[made])} - used:  # these are made
        used |= of_which
    made = [f"{name} = {code}" for name, code in _INPUTS.items() if name in used]
    return "\n".join("    " + _FUNCTION.sub(path, line) for line in made + lines)


def texts_of(rows):
    """By a function's name what makes its text: given how the function is called, its words and its example."""
    texts = {}
    for group in re.findall(r"^= (.*?)(?=^= |\Z)", rows, re.MULTILINE | re.DOTALL):
        words, lines = re.fullmatch(r"(.*?\n)(?!  )(.*)", group, re.DOTALL).groups()
        words = words.strip().replace("\n  ", "\n")
        for names, row in (line.split(": ", 1) for line in lines.splitlines() if line):
            for name in names.split():
                texts[name] = lambda path, words=words, row=row: f"{words}\n\n{_example(row, path)}"
    return texts
