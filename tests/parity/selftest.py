"""Claims about compare.py itself: equal results pass, results that differ by a little more than the limit fail.

PyTorch plays both sides here, with each formula written out where PyTorch has one of its own. Started with the system's
Python; makes .venv-torch where it is missing.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


class Writer:
    def __init__(self, folder):
        self.folder, self.cases, self.files = Path(folder), [], 0

    def case(self, name, kind, limit, tensors, **facts):
        entries = {}
        for key, tensor in tensors.items():
            tensor = tensor.detach()
            dtype = {torch.float32: "f32", torch.float64: "f64", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8"}[tensor.dtype]
            file = f"{self.files}.bin"
            self.files += 1
            tensor.contiguous().numpy().tofile(self.folder / file)
            entries[key] = {"file": file, "dtype": dtype, "shape": list(tensor.shape)}
        self.cases.append({"name": name, "kind": kind, "limit": limit, "tensors": entries, **facts})

    def close(self):
        (self.folder / "index.json").write_text(json.dumps({"format": 1, "cases": self.cases}))


def write_training(writer, error=0.0, **facts):
    """Two steps of ResNet-50 on 32x32 images, layer4 at a rate of its own; `error` is added to one gradient's largest
    element, relative to it."""
    torch.manual_seed(1)
    network = resnet50.ResNet50().double()
    resnet50.initialise(network, 1)
    tensors = {f"parameter.{name}": tensor.detach().clone() for name, tensor in network.named_tensors().items()}
    losses, velocity = [], {}
    for step in range(2):
        images = torch.randn(4, 3, 32, 32, dtype=torch.float64)
        labels = torch.randint(0, 10, (4,), dtype=torch.int32)
        tensors |= {f"image.{step}": images, f"label.{step}": labels}
        network.zero_grad()
        log_probabilities = network(images).log_softmax(1)
        loss = -log_probabilities[torch.arange(4), labels.long()].mean()
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for name, tensor in network.named_tensors().items():
                if tensor.grad is None:
                    continue
                if step == 0:
                    tensors[f"gradient.{name}"] = tensor.grad.clone()
                velocity[name] = 0.9 * velocity.get(name, 0) + tensor.grad
                tensor -= (0.02 if name.startswith("layer4.") else 0.01) * velocity[name]
    tensors["losses"] = torch.tensor(losses, dtype=torch.float64)
    gradient = tensors["gradient.layer3.c.conv2.weight"].view(-1)
    gradient[gradient.abs().argmax()] *= 1 + error
    writer.case("resnet50 f64", "training", 1e-10, tensors, num_classes=10, learning_rate=0.01, learning_rates={"layer4.": 0.02},
                momentum=0.9, steps=2, **facts)


def write_losses(writer, error=0.0):
    torch.manual_seed(2)
    logits = torch.randn(5, 7, dtype=torch.float64) * 3
    labels = torch.randint(0, 7, (5,), dtype=torch.int32)
    dense = torch.nn.functional.one_hot(labels.long(), 7).double()
    softmax = logits.exp() / logits.exp().sum(1, keepdim=True)
    each = -(softmax * dense).sum(1).log()
    for reduction, value, cotangent, scale in (("none", each, torch.ones(5).double(), 1.0),
                                               ("mean", each.mean(), torch.tensor(1.0).double(), 0.2),
                                               ("sum", each.sum(), torch.tensor(1.0).double(), 1.0)):
        for sparse in (True, False):
            writer.case(f"cross entropy {reduction} {'sparse' if sparse else 'dense'}", "loss", 1e-12,
                        {"logits": logits, "labels": labels if sparse else dense, "cotangent": cotangent,
                         "loss": value * (1 + error), "gradient": (softmax - dense) * scale}, reduction=reduction, sparse=sparse)


def write_optimizers(writer, error=0.0):
    torch.manual_seed(3)
    start = torch.randn(4, 3, dtype=torch.float64)
    gradients = [torch.randn(4, 3, dtype=torch.float64) for _ in range(10)]
    given = {"parameter": start} | {f"gradient.{i}": gradient for i, gradient in enumerate(gradients)}

    def write(name, step, **facts):
        p, m, v = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
        for i, gradient in enumerate(gradients):
            p, m, v = step(p, m, v, gradient, i + 1)
        writer.case(name, "optimizer", 1e-12, given | {"result": p * (1 + error)}, steps=10, learning_rate=0.1, **facts)

    def momentum(nesterov, decay):
        def step(p, m, v, g, _):
            g = g + decay * p
            m = 0.9 * m + g
            return p - 0.1 * (g + 0.9 * m if nesterov else m), m, v
        return step

    def adam(p, m, v, g, t):
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        rate = 0.1 * (1 - 0.99 ** t) ** 0.5 / (1 - 0.9 ** t)
        return p - rate * m / (v.sqrt() + 1e-3), m, v

    def adamw(p, m, v, g, t):
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return p - 0.1 * (m / (1 - 0.9 ** t) / ((v / (1 - 0.99 ** t)).sqrt() + 1e-3) + 0.05 * p), m, v

    def adam_weight_decay(p, m, v, g, _):
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return p - 0.1 * (m / (v.sqrt() + 1e-3) + 0.05 * p), m, v

    write("momentum", momentum(False, 0.0), optimizer="momentum", momentum=0.9)
    write("momentum, nesterov, weight decay", momentum(True, 0.01), optimizer="momentum", momentum=0.9, nesterov=True, weight_decay=0.01)
    write("sgd", lambda p, m, v, g, _: (p - 0.1 * g, m, v), optimizer="sgd")
    write("adam", adam, optimizer="adam", beta1=0.9, beta2=0.99, eps=1e-3)
    write("adamw", adamw, optimizer="adamw", beta1=0.9, beta2=0.99, eps=1e-3, weight_decay=0.05)
    write("adam weight decay", adam_weight_decay, optimizer="adam_weight_decay", beta1=0.9, beta2=0.99, eps=1e-3, weight_decay=0.05)


def write_transforms(writer, error=0):
    torch.manual_seed(4)
    image = torch.randint(0, 200, (8, 6, 3), dtype=torch.uint8)
    changed = lambda tensor: tensor + (2 * error if tensor.dtype == torch.uint8 else error)
    # Twice the size: each pixel lies a quarter of the way from one source pixel to the next.
    index = lambda n: [(max((i + 0.5) / 2 - 0.5, 0.0)) for i in range(2 * n)]
    along = lambda x, n: torch.stack([x[int(s)] * (1 - (s - int(s))) + x[min(int(s) + 1, n - 1)] * (s - int(s)) for s in index(n)])
    twice = along(along(image.double(), 8).transpose(0, 1), 6).transpose(0, 1).round().to(torch.uint8)
    mean, std = [10.0, 20.0, 30.0], [2.0, 3.0, 4.0]
    padded = torch.zeros(12, 10, 3, dtype=torch.uint8)
    padded[2:10, 2:8] = image
    for name, limit, result, facts in (
            ("resize", 1, twice, {"height": 16, "width": 12}),
            ("rescale", 1e-6, image.float() * 0.5 + 1, {"scale": 0.5, "shift": 1.0}),
            ("normalize", 1e-5, (image.float() - torch.tensor(mean)) / torch.tensor(std), {"mean": mean, "std": std}),
            ("hwc2chw", 0, image.permute(2, 0, 1), {}),
            ("crop", 0, padded[1:9, 4:10], {"top": 1, "left": 4, "height": 8, "width": 6, "padding": 2}),
            ("flip", 0, torch.stack([image[:, 5 - i] for i in range(6)], 1), {})):
        writer.case(name, "transform", limit, {"image": image, "result": changed(result)}, transform=name, **facts)


class Comparison(unittest.TestCase):
    def compared(self, write, **arguments):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            writer = Writer(folder)
            write(writer, **arguments)
            writer.close()
            return compare.compare(folder)

    def test_equal_training_passes_and_one_wrong_gradient_fails(self):
        self.assertEqual(self.compared(write_training), (161 + 2, 0))
        self.assertEqual(self.compared(write_training, error=1e-9), (161 + 2 - 1, 1))

    def test_gradients_by_their_norm(self):
        self.assertEqual(self.compared(write_training, error=0.1, gradient_limit=0.1), (161 + 2, 0))
        self.assertEqual(self.compared(write_training, error=1e3, gradient_limit=0.1), (161 + 2 - 1, 1))

    def test_the_loss_of_each_batch_has_to_fall(self):
        # Two steps on two batches: the first losses are the last.
        self.assertEqual(self.compared(write_training, num_batches=2, loss_falls_by=0.0), (161 + 2 + 1, 0))
        self.assertEqual(self.compared(write_training, num_batches=2, loss_falls_by=0.01), (161 + 2, 1))

    def test_losses(self):
        self.assertEqual(self.compared(write_losses), (12, 0))
        self.assertEqual(self.compared(write_losses, error=1e-11), (6, 6))

    def test_optimizers(self):
        self.assertEqual(self.compared(write_optimizers), (6, 0))
        self.assertEqual(self.compared(write_optimizers, error=1e-11), (0, 6))

    def test_transforms(self):
        self.assertEqual(self.compared(write_transforms), (6, 0))
        self.assertEqual(self.compared(write_transforms, error=1), (0, 6))

    def test_a_file_of_the_wrong_size_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            writer = Writer(folder)
            write_transforms(writer)
            writer.close()
            (Path(folder) / "0.bin").write_bytes(b"short")
            with self.assertRaisesRegex(ValueError, "0.bin has 5 bytes"):
                compare.compare(folder)


if __name__ == "__main__":
    # ctest starts this with the system's Python; PyTorch is in .venv-torch.
    if "--inside" not in sys.argv:
        env = subprocess.run([sys.executable, HERE.parent.parent / "scripts" / "torch_env.py"], stdout=subprocess.PIPE, text=True)
        if env.returncode != 0:
            sys.exit(1)
        python = env.stdout.strip()
        os.execv(python, [python, "-B", __file__, "--inside"])
    import compare
    import torch

    import resnet50  # compare.py has put its folder on the path
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
