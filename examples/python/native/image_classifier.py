"""A small convolutional network that tells images of CIFAR-10's form apart:

    python image_classifier.py                                           made images of ten figures, one process
    tessera run -n 2 python image_classifier.py                          two processes, each computes half of a batch
    python image_classifier.py --data_path cifar-10-batches-bin          the real images, binary version
    python image_classifier.py --patience 5 --learning_rate 0.02         stops after five epochs that were no better

Images are cropped and mirrored at random as they are read, by C++ threads. The rate rises for an epoch and then falls along half
a cosine. What is trained is scored after each epoch; where the score has not risen for a while the training ends, and the network
of the best epoch stays. The losses are the same for any number of processes, but for rounding: the statistics of the batch norms are
those of the whole batch.
"""
import argparse
import tempfile
from pathlib import Path

import tessera
from tessera import data, nn, ops

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of CIFAR-10's channels
CLASSES = 10


class Stage(nn.Cell):
    """x [n,c,h,w] -> [n,out,h/2,w/2]."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.filters = nn.Conv2d(channels, out, 3, weight_init="he_normal")
        self.norm = nn.BatchNorm2d(out)
        self.pool = nn.MaxPool2d(2, 2)

    def construct(self, x: tessera.Tensor) -> tessera.Tensor:
        smaller: tessera.Tensor = self.pool(ops.relu(self.norm(self.filters(x))))
        return smaller


class Classifier(nn.Cell):
    """image f32[n,3,h,w] -> logits f32[n,10]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stages = nn.Sequential(Stage(3, width), Stage(width, 2 * width), Stage(2 * width, 4 * width))
        self.head = nn.Dense(4 * width, CLASSES, weight_init="xavier_uniform")

    def construct(self, image: tessera.Tensor) -> tessera.Tensor:
        logits: tessera.Tensor = self.head(ops.reduce_mean(self.stages(image), (2, 3)))  # the mean over all places
        return logits


def images(folder: str, usage: str, batch_size: int, augment: bool) -> data.Dataset:
    """Batches of image f32[n,3,32,32] and label int32[n]. Those to train on come in another order in each epoch."""
    train = usage == "train"
    rows = data.cifar10(folder, usage=usage, shuffle=train, seed=1)
    at_random = [data.random_crop(32, 4), data.random_horizontal_flip()] if augment else []
    rows = rows.map("image", [*at_random, data.rescale(1 / 255), data.normalize(MEAN, STD), data.hwc2chw()])
    return rows.map("label", data.type_cast("int32")).batch(batch_size, drop_remainder=train)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", help="folder with data_batch_1.bin to data_batch_5.bin and test_batch.bin (default: made images)")
    parser.add_argument("--train_images", type=int, default=2000, help="of the made ones")
    parser.add_argument("--test_images", type=int, default=400, help="of the made ones")
    parser.add_argument("--epochs", type=int, default=12, help="at most")
    parser.add_argument("--patience", type=int, default=3, help="epochs without a better accuracy after which the training ends")
    parser.add_argument("--batch_size", type=int, default=50, help="images of a step, over all processes")
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    parser.add_argument("--learning_rate", type=float, default=0.05, help="the highest one")
    parser.add_argument("--no_augment", action="store_true", help="train on the images as they are")
    options = parser.parse_args()
    if min(options.train_images, options.test_images, options.epochs, options.patience, options.batch_size, options.width) < 1:
        parser.error("numbers of images, epochs and channels, and --patience, must be at least 1")
    if options.data_path and not (Path(options.data_path) / "test_batch.bin").is_file():
        parser.error(f"--data_path: {options.data_path} has no test_batch.bin: unpack cifar-10-binary.tar.gz, and name the folder that comes of it")
    if not options.data_path and options.batch_size > options.train_images:
        parser.error(f"--batch_size must be at most --train_images {options.train_images}, is {options.batch_size}")

    with tempfile.TemporaryDirectory() as made:  # each process has its own, with the same bytes in it
        if not options.data_path:
            data.write_synthetic_cifar10(made, options.train_images, options.test_images)
        folder = options.data_path or made
        train = images(folder, "train", options.batch_size, augment=not options.no_augment)
        test = images(folder, "test", options.batch_size, augment=False)

        warmup, steps = len(train), options.epochs * len(train)
        schedule = nn.schedules.warmup(warmup, nn.schedules.cosine(options.learning_rate, max(steps - warmup, 1)))
        # The gamma and beta of norms do not decay.
        optimizer = nn.Momentum(schedule, momentum=0.9, weight_decay=5e-4)
        model = tessera.Model(Classifier(options.width), nn.CrossEntropy(label_smoothing=0.1), optimizer,
                              metrics=["accuracy", "top_5_accuracy"], parallel_mode="data_parallel", seed=1)
        # It takes the accuracy that the summary before it has measured.
        stopping = tessera.EarlyStopping("accuracy", patience=options.patience, restore_best=True)
        model.train(options.epochs, train, [tessera.EpochSummary(valid=test, row_name="images"), stopping])

        score = model.eval(test)
        image, label = next(iter(test))
        guessed = model.predict(image).numpy().argmax(1)
        if tessera.cluster.rank() == 0:
            if stopping.stopped_epoch:
                print(f"stopped after epoch {stopping.stopped_epoch}: {options.patience} epochs were no better")
            print(f"epoch {stopping.best_epoch} was the best: top-1 accuracy {score['accuracy']:.4f}, top-5 {score['top_5_accuracy']:.4f}")
            print("classes of the first test images:", *label.numpy()[:10], "- guessed:", *guessed[:10], flush=True)


if __name__ == "__main__":
    main()
