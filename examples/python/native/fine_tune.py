"""A network that was trained on one task learns another one from few rows:

    python fine_tune.py                                     makes the file of weights first: safetensors, in another library's names
    tessera run -n 2 python fine_tune.py                    the same in two processes
    python fine_tune.py --weights body.safetensors --rename model.encoder=body      a file of one's own, layers [64,16] and [64,64]

The body comes from the file, the head is new. The body's first layer is frozen, the second one learns at a tenth of the head's rate.
In the end it is compared with a network that has learnt the same rows from its initial values.
"""
import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tessera
from numpy.typing import NDArray
from tessera import nn

FEATURES, HIDDEN = 16, 64


class Classifier(nn.Cell):
    """x [n,16] -> logits [n,classes]. Parameters: body.0 and body.1, head, each with weight and bias."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Dense(FEATURES, HIDDEN, weight_init="he_uniform", activation="relu"),
                                  nn.Dense(HIDDEN, HIDDEN, weight_init="he_uniform", activation="relu"))
        self.head = nn.Dense(HIDDEN, classes, weight_init="xavier_uniform")

    def construct(self, x: tessera.Tensor) -> tessera.Tensor:
        logits: tessera.Tensor = self.head(self.body(x))
        return logits


def task(rows: int, classes: int, seed: int) -> tessera.data.Dataset:
    """Rows x f32[16] whose class is decided by eight hidden features, which are the same in all tasks; by which, the seed says."""
    hidden = np.random.default_rng(0).standard_normal((FEATURES, 8))
    decides = np.random.default_rng((1, classes)).standard_normal((8, classes))
    x = np.random.default_rng(seed).standard_normal((rows, FEATURES)).astype(np.float32)
    label: NDArray[Any] = (np.abs(x @ hidden) @ (decides - decides.mean(1, keepdims=True))).argmax(1)
    return tessera.data.tensors({"x": x, "label": label.astype(np.int32)}, shuffle=True, seed=1).batch(min(rows, 40))


def new_model(network: Classifier, rate: float, groups: list[dict[str, Any]] | None = None) -> tessera.Model:
    return tessera.Model(network, nn.CrossEntropy(), nn.AdamW(rate, groups=groups), metrics=["accuracy"], parallel_mode="data_parallel", seed=1)


def make_weights(path: Path, rows: int, epochs: int) -> None:
    """Trains on a task of eight classes, and writes what was learnt as another library would call it."""
    network = Classifier(8)
    new_model(network, 5e-3).train(epochs, task(rows, 8, seed=2))
    there = {name: name.replace("body", "model.encoder").replace("head", "model.classifier") for name, _ in network.named_parameters()}
    tessera.checkpoint.save_safetensors(path, {there[name]: parameter.numpy() for name, parameter in network.named_parameters()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, help="a .safetensors file (default: one is made)")
    parser.add_argument("--rename", nargs="*", default=["model.encoder=body"], metavar="THERE=HERE", help="what cells of the file are called here")
    parser.add_argument("--freeze", nargs="*", default=["body.0"], metavar="PATTERN", help="parameters that stay: a cell, or a name with * and ?")
    parser.add_argument("--rows", type=int, default=120, help="of the new task, to learn from")
    parser.add_argument("--epochs", type=int, default=30, help="through these rows")
    parser.add_argument("--pretraining_rows", type=int, default=8000, help="of the task that the file is made by")
    parser.add_argument("--pretraining_epochs", type=int, default=10)
    parser.add_argument("--learning_rate", type=float, default=5e-3, help="of the head")
    options = parser.parse_args()
    if min(options.rows, options.epochs, options.pretraining_rows, options.pretraining_epochs) < 1:
        parser.error("numbers of rows and epochs must be at least 1")
    if wrong := [pair for pair in options.rename if "=" not in pair]:
        parser.error(f"--rename: {wrong[0]} must be THERE=HERE, such as model.encoder=body")
    if options.weights and not (options.weights.is_file() and options.weights.suffix == ".safetensors"):
        parser.error(f"--weights: {options.weights} is no .safetensors file")

    train, test = task(options.rows, 3, seed=3), task(1000, 3, seed=4)
    from_scratch = new_model(Classifier(3), options.learning_rate)
    from_scratch.train(options.epochs, train)

    network = Classifier(3)
    for pattern in options.freeze:  # before the model is made
        network.freeze(pattern)
    groups = nn.group_parameters(network, {"body": {"lr": options.learning_rate / 10}})  # the head's rate is the optimizer's
    model = new_model(network, options.learning_rate, groups)
    with tempfile.TemporaryDirectory() as made:  # each process has its own
        weights = options.weights or Path(made) / "pretrained.safetensors"
        if not options.weights:
            make_weights(weights, options.pretraining_rows, options.pretraining_epochs)
        # strict=False: what the file lacks, the head, keeps its initial values.
        loaded = model.load_parameters(weights, strict=False, rename=dict(pair.split("=", 1) for pair in options.rename))
    before = {name: parameter.numpy().copy() for name, parameter in network.named_parameters()}
    model.train(options.epochs, train, [tessera.EpochSummary()])
    moved = {name: float(np.abs(parameter.numpy() - before[name]).max()) for name, parameter in network.named_parameters()}

    scores = model.eval(test)["accuracy"], from_scratch.eval(test)["accuracy"]
    if tessera.cluster.rank() == 0:
        print("loaded:", *loaded.loaded, "\nnew:", *loaded.missing, "\nleft in the file:", *loaded.left_out)
        for name, distance in moved.items():
            print(f"{name}: " + ("frozen" if distance == 0 else f"moved by {distance:.4f} at most"))
        print(f"accuracy on rows that were held out: {scores[0]:.4f}; learnt from {options.rows} rows alone: {scores[1]:.4f}", flush=True)


if __name__ == "__main__":
    main()
