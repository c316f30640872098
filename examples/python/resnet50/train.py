"""ResNet-50 on CIFAR-10, on as many ranks as it is started with:

    export PYTHONPATH=$(python -m tessera compat-path)
    python train.py --data_path cifar-10-batches-bin
    mpirun -n 4 python train.py --data_path cifar-10-batches-bin --parallel_mode data_parallel
"""
import argparse
import time

import mindspore.dataset as ds
import mindspore.dataset.transforms.c_transforms as C
import mindspore.dataset.vision.c_transforms as vision
from mindspore import Model, context, dtype, nn
from mindspore.communication import get_group_size, get_rank, init
from mindspore.train.callback import Callback, LossMonitor, TimeMonitor
from resnet import resnet50


def create_dataset(path, image_size, batch_size):
    """Batches of this rank's part of the images."""
    dataset = ds.Cifar10Dataset(path, usage="train", num_shards=get_group_size(), shard_id=get_rank())
    dataset = dataset.map(operations=C.TypeCast(dtype.int32), input_columns="label")
    dataset = dataset.map(operations=[
        vision.RandomCrop((32, 32), (4, 4, 4, 4)), vision.RandomHorizontalFlip(), vision.Resize((image_size, image_size)),
        vision.Rescale(1.0 / 255.0, 0.0), vision.Normalize((0.4465, 0.4822, 0.4914), (0.2010, 0.1994, 0.2023)), vision.HWC2CHW()
    ], input_columns="image")
    return dataset.batch(batch_size, drop_remainder=True)


class Summary(Callback):
    """A line at the end of the training, by rank 0: how long, how fast, how good."""

    def __init__(self, batch_size):
        self.batch_size, self.start = batch_size, 0.0

    def begin(self, run_context):
        self.start = time.time()

    def end(self, run_context):
        run, seconds = run_context.original_args(), time.time() - self.start
        images = run.cur_step_num * self.batch_size * get_group_size()
        if get_rank() == 0:
            print(f"trained {run.cur_epoch_num} epochs in {seconds:.1f} s, {images / seconds:.1f} images/s; the last loss is {run.net_outputs}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_path", required=True, help="folder with CIFAR-10's binary files")
    parser.add_argument("--parallel_mode", default="stand_alone")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=32, help="of a rank")
    parser.add_argument("--image_size", type=int, default=32)
    arguments = parser.parse_args()

    context.set_context(mode=context.GRAPH_MODE)
    init()
    context.set_auto_parallel_context(parallel_mode=arguments.parallel_mode, gradients_mean=True)
    dataset = create_dataset(arguments.data_path, arguments.image_size, arguments.batch_size)
    network = resnet50(arguments.batch_size, 10)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    model = Model(network, loss_fn=loss, optimizer=optimizer)
    model.train(arguments.epochs, dataset, callbacks=[LossMonitor(), TimeMonitor(), Summary(arguments.batch_size)], dataset_sink_mode=True)


if __name__ == "__main__":
    main()
