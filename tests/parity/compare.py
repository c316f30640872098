"""Compares results of Tessera with PyTorch's; README.md describes the folder. Exit code 1 where a deviation is too large."""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks" / "peers"))
import resnet50

DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "u8": np.uint8}


class Case:
    def __init__(self, folder, facts):
        self.folder, self.facts = folder, facts
        self.name, self.kind, self.limit = facts["name"], facts["kind"], facts["limit"]

    def has(self, key):
        return key in self.facts["tensors"]

    def tensor(self, key):
        if not self.has(key):
            raise ValueError(f"case {self.name}: no tensor '{key}'")
        entry = self.facts["tensors"][key]
        dtype = np.dtype(DTYPES[entry["dtype"]]).newbyteorder("<")
        path = self.folder / entry["file"]
        expected = math.prod(entry["shape"]) * dtype.itemsize
        if path.stat().st_size != expected:
            raise ValueError(f"case {self.name}: {path} has {path.stat().st_size} bytes, {entry['dtype']}{entry['shape']} needs {expected}")
        return torch.from_numpy(np.fromfile(path, dtype).astype(dtype.newbyteorder("=")).reshape(entry["shape"]))


def deviation(ours, theirs):
    """The largest difference over the largest magnitude; infinite for different shapes and for what is not finite."""
    if ours.shape != theirs.shape:
        return math.inf
    ours, theirs = ours.double(), theirs.double()
    if not (torch.isfinite(ours).all() and torch.isfinite(theirs).all()):
        return math.inf
    if ours.numel() == 0:
        return 0.0
    scale = theirs.abs().max().item()
    difference = (ours - theirs).abs().max().item()
    return difference / scale if scale > 0 else difference


def deviation_of_norm(ours, theirs):
    """The norm of the difference over the norm; infinite for different shapes and for what is not finite."""
    if ours.shape != theirs.shape:
        return math.inf
    relative = ((ours.double() - theirs.double()).norm() / theirs.double().norm()).item()
    return relative if math.isfinite(relative) else math.inf


def parameter_groups(network, facts):
    """What torch.optim takes: parameters by name, those that begin with a prefix in learning_rates at its rate."""
    rates = facts.get("learning_rates", {})
    for name, tensor in network.named_tensors().items():
        if not tensor.requires_grad:
            continue
        prefixes = [prefix for prefix in rates if name.startswith(prefix)]
        yield {"params": [tensor], "lr": rates[prefixes[0]] if prefixes else facts["learning_rate"]}


def training(case):
    """Yields (what, deviation, limit)."""
    facts = case.facts
    dtype = case.tensor("parameter.fc.weight").dtype
    network = resnet50.ResNet50(facts["num_classes"]).to(dtype)
    tensors = network.named_tensors()
    with torch.no_grad():
        for name, tensor in tensors.items():
            ours = case.tensor(f"parameter.{name}")
            if ours.shape != tensor.shape:
                raise ValueError(f"case {case.name}: parameter.{name} has shape {list(ours.shape)}, not {list(tensor.shape)}")
            tensor.copy_(ours)
    network.train()
    optimizer = torch.optim.SGD(parameter_groups(network, facts), facts["learning_rate"], momentum=facts["momentum"])
    ours = case.tensor("losses").double()
    losses = []
    for step in range(facts["steps"]):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(case.tensor(f"image.{step}").to(dtype)), case.tensor(f"label.{step}").long())
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            measure = deviation_of_norm if "gradient_limit" in facts else deviation
            gradients = [(name, measure(case.tensor(f"gradient.{name}"), tensor.grad)) for name, tensor in tensors.items()
                         if case.has(f"gradient.{name}")]
            if not gradients:
                raise ValueError(f"case {case.name}: no gradient.NAME among its tensors")
            for name, worst in gradients:
                yield f"gradient of {name}", worst, facts.get("gradient_limit", case.limit)
        optimizer.step()
    if len(ours) != len(losses):
        raise ValueError(f"case {case.name}: {len(ours)} losses, not {len(losses)}")
    for step, (mine, theirs) in enumerate(zip(ours.tolist(), losses)):
        relative = abs(mine - theirs) / abs(theirs)
        yield f"loss of step {step + 1} ({theirs:.6f})", relative if math.isfinite(relative) else math.inf, case.limit
    if "loss_falls_by" in facts:
        # As a deviation: how far a batch's last loss stands above what it should have come down to.
        rounds = list(zip(losses[:facts["num_batches"]], losses[-facts["num_batches"]:]))
        above = [last - first * (1 - facts["loss_falls_by"]) for first, last in rounds]
        falls = ", ".join(f"from {first:.4f} to {last:.4f}" for first, last in rounds)
        yield f"each batch's loss falls: {falls}", max(0.0, *above), 0.0


def loss(case):
    logits = case.tensor("logits").requires_grad_()
    labels = case.tensor("labels")
    labels = labels.long() if case.facts["sparse"] else labels.to(logits.dtype)
    value = F.cross_entropy(logits, labels, reduction=case.facts["reduction"])
    value.backward(case.tensor("cotangent").to(logits.dtype))
    yield "loss", deviation(case.tensor("loss"), value.detach()), case.limit
    yield "gradient", deviation(case.tensor("gradient"), logits.grad), case.limit


def optimizer(case):
    facts = case.facts
    parameter = torch.nn.Parameter(case.tensor("parameter"))
    decay = facts.get("weight_decay", 0.0)
    beta1, beta2, eps = facts.get("beta1", 0.9), facts.get("beta2", 0.999), facts.get("eps", 1e-8)
    kind = facts["optimizer"]
    rates = facts["learning_rate"]
    rates = rates if isinstance(rates, list) else [rates] * facts["steps"]
    if kind in ("momentum", "sgd"):
        theirs = torch.optim.SGD([parameter], rates[0], momentum=facts.get("momentum", 0.0), weight_decay=decay,
                                 nesterov=facts.get("nesterov", False))
    elif kind == "adam":
        theirs = torch.optim.Adam([parameter], rates[0], (beta1, beta2), eps, decay)
    elif kind == "adamw":
        theirs = torch.optim.AdamW([parameter], rates[0], (beta1, beta2), eps, decay)
    elif kind == "adam_weight_decay":
        theirs = None
        m, v = torch.zeros_like(parameter), torch.zeros_like(parameter)
    else:
        raise ValueError(f"case {case.name}: unknown optimizer '{kind}'")
    for step in range(facts["steps"]):
        gradient = case.tensor(f"gradient.{step}")
        if theirs is None:
            with torch.no_grad():
                m = beta1 * m + (1 - beta1) * gradient
                v = beta2 * v + (1 - beta2) * gradient * gradient
                parameter -= rates[step] * (m / (v.sqrt() + eps) + decay * parameter)
            continue
        parameter.grad = gradient
        theirs.param_groups[0]["lr"] = rates[step]
        if kind == "adam":
            theirs.param_groups[0]["eps"] = eps / math.sqrt(1 - beta2 ** (step + 1))
        theirs.step()
    yield "parameter after the last step", deviation(case.tensor("result"), parameter.detach()), case.limit


def transform(case):
    facts = case.facts
    image = case.tensor("image")
    planes = image.permute(2, 0, 1)
    kind = facts["transform"]
    if kind == "resize":
        size = (facts["height"], facts["width"])
        result = F.interpolate(planes[None].double(), size, mode="bilinear", align_corners=False)[0].permute(1, 2, 0)
    elif kind == "rescale":
        result = image.float() * facts["scale"] + facts["shift"]
    elif kind == "normalize":
        result = (image.float() - torch.tensor(facts["mean"])) / torch.tensor(facts["std"])
    elif kind == "hwc2chw":
        result = planes
    elif kind == "crop":
        top, left = facts["top"], facts["left"]
        result = F.pad(planes, [facts["padding"]] * 4)[:, top:top + facts["height"], left:left + facts["width"]].permute(1, 2, 0)
    elif kind == "flip":
        result = image.flip(1)
    else:
        raise ValueError(f"case {case.name}: unknown transform '{kind}'")
    ours = case.tensor("result")
    same_shape = ours.shape == result.shape
    yield "grey levels", (ours.double() - result.double()).abs().max().item() if same_shape else math.inf, case.limit


KINDS = {"training": training, "loss": loss, "optimizer": optimizer, "transform": transform}


def compare(folder, verbose=False):
    """(number of comparisons within their limits, number beyond), and a line for each case on standard output."""
    folder = Path(folder)
    index = json.loads((folder / "index.json").read_text())
    if index.get("format") != 1:
        raise ValueError(f"{folder}/index.json: format {index.get('format')}, this program reads 1")
    if not index["cases"]:
        raise ValueError(f"{folder}/index.json: no cases")
    passed = failed = 0
    for facts in index["cases"]:
        case = Case(folder, facts)
        if case.kind not in KINDS:
            raise ValueError(f"case {case.name}: unknown kind '{case.kind}'")
        rows = list(KINDS[case.kind](case))
        wrong = [row for row in rows if not row[1] <= row[2]]
        for limit in dict.fromkeys(row[2] for row in rows):
            alike = [row for row in rows if row[2] == limit]
            worst = max(alike, key=lambda row: row[1])
            print(f"{case.name:<44} {len(alike):>4} compared, largest deviation {worst[1]:.2e} ({worst[0]}), limit {limit:.0e}")
        for what, value, limit in rows if verbose else wrong:
            print(f"  {'over ' if value > limit else '     '}{value:.3e} {what}")
        sys.stdout.flush()
        passed += len(rows) - len(wrong)
        failed += len(wrong)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--verbose", action="store_true", help="print every comparison")
    arguments = parser.parse_args()
    try:
        passed, failed = compare(arguments.folder, arguments.verbose)
    except (ValueError, OSError) as error:
        print(f"parity: {error}")
        return 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
