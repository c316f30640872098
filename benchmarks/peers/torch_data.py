"""PyTorch's data pipeline on CIFAR-10's format: crop, flip, resize, scale, normalise, batch; worker processes of DataLoader."""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
from rounds import serve_rounds
from torch.nn import functional as F

MEAN = torch.tensor([0.4914, 0.4822, 0.4465])[:, None, None]
STD = torch.tensor([0.2023, 0.1994, 0.2010])[:, None, None]


class Images(torch.utils.data.Dataset):
    def __init__(self, path, size):
        self.records = np.fromfile(path, np.uint8).reshape(-1, 3073)
        self.size = size

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        record = torch.from_numpy(self.records[index])
        image = F.pad(record[1:].view(3, 32, 32), (4, 4, 4, 4))
        top, left, flip = torch.randint(0, 9, (2,)).tolist() + [torch.rand(()) < 0.5]
        image = image[:, top:top + 32, left:left + 32]
        if flip:
            image = image.flip(2)
        image = image.float()
        if self.size != 32:
            image = F.interpolate(image[None], (self.size, self.size), mode="bilinear", align_corners=False)[0]
        return (image / 255 - MEAN) / STD, int(record[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image_size", type=int, default=32)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2, help="worker processes")
    parser.add_argument("--batches", type=int, default=20, help="batches of a round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data_batch_1.bin")
        records = np.random.default_rng(0).integers(0, 256, (5000, 3073), np.uint8)
        records[:, 0] %= 10
        records.tofile(path)
        loader = torch.utils.data.DataLoader(Images(path, arguments.image_size), arguments.batch_size, shuffle=True,
                                             num_workers=arguments.threads, drop_last=True, persistent_workers=True, prefetch_factor=4)

    def endless():
        while True:
            yield from loader

    batches = endless()
    next(batches)

    def run_round():
        start = time.perf_counter()
        for _ in range(arguments.batches):
            next(batches)
        return arguments.batches * arguments.batch_size / (time.perf_counter() - start)

    serve_rounds("images/s", f"torch {torch.__version__} DataLoader", run_round)


if __name__ == "__main__":
    main()
