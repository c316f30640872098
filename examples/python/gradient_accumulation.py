"""Gradient accumulation by a training step of one's own: the gradients of several batches make one update.

    python gradient_accumulation.py
    mpirun -n 4 python gradient_accumulation.py --parallel_mode data_parallel
    mpirun -n 4 python gradient_accumulation.py --parallel_mode auto_parallel --loss_scale 1024

The step has two forms, which share their parameters: one adds gradients to accu_grads, the other also updates. The loop
switches between them by the flag `accumulation` and names them by the phase, so that each is compiled once.
"""
import argparse
import sys

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, context, nn, ops
from mindspore.common.initializer import initializer
from mindspore.communication import get_group_size, get_rank, init
from mindspore.nn.wrap.loss_scale import _grad_scale
from mindspore.train.callback import LossMonitor, RunContext, _CallbackManager, _InternalCallbackParam

STEPS = 3  # batches of one update
BATCHES, BATCH_SIZE = 12, 8

add_to = ops.MultitypeFuncGraph("add_to")
clear = ops.MultitypeFuncGraph("clear")


@add_to.register("Tensor", "Tensor")
def _add_to(total, gradient):
    return ops.depend(True, ops.assign_add(total, ops.cast(gradient, ms.float32)))


@clear.register("Tensor")
def _clear(total):
    return ops.depend(True, ops.assign(total, ops.zeros_like(total)))


class AccumulatingStep(nn.TrainOneStepCell):
    """Adds its gradients to accu_grads while `accumulation` is set; else the optimizer gets their sum."""

    def __init__(self, network, optimizer):
        super().__init__(network, optimizer)
        self.accumulation = False
        self.accu_grads = self.weights.clone(prefix="accu_grads", init="zeros")
        self.map = ops.HyperMap()

    def construct(self, *inputs):
        loss = self.network(*inputs)
        sens = ops.Fill()(ops.DType()(loss), ops.Shape()(loss), self.sens)
        gradients = self.grad(self.network, self.weights)(*inputs, sens)
        if self.accumulation:
            return ops.depend(loss, self.map(add_to, self.accu_grads, gradients))
        gradients = self.grad_reducer(gradients)
        loss = ops.depend(loss, self.map(clear, self.accu_grads))
        return ops.depend(loss, self.optimizer(gradients))


class AccumulatingStepWithLossScale(nn.TrainOneStepWithLossScaleCell):
    """The same with a loss scale: (loss, overflow, scale). An overflow in any of the batches drops the update."""

    def __init__(self, network, optimizer, scale_sense):
        super().__init__(network, optimizer, scale_sense)
        self.accumulation = False
        self.accu_grads = self.weights.clone(prefix="accu_grads", init="zeros")
        self.accu_overflow = Parameter(initializer(0, [], ms.float32), requires_grad=False)
        self.map = ops.HyperMap()

    def construct(self, *inputs):
        loss = self.network(*inputs)
        status, scale = self.start_overflow_check(loss, self.scale_sense)
        sens = ops.ones_like(loss) * ops.cast(scale, ops.dtype(loss))
        gradients = self.grad(self.network, self.weights)(*inputs, sens)
        overflow = ops.logical_or(self.get_overflow_status(status, gradients), self.accu_overflow > 0)
        if self.accumulation:
            self.accu_overflow = ops.cast(overflow, ms.float32)
            return ops.depend(loss, self.map(add_to, self.accu_grads, gradients)), overflow, scale
        self.accu_overflow = ops.zeros_like(self.accu_overflow)
        gradients = self.map(ops.partial(_grad_scale, scale), self.grad_reducer(gradients))
        loss = ops.depend(loss, self.map(clear, self.accu_grads))
        overflow = self.process_loss_scale(overflow)
        if overflow:
            updated = False
        else:
            updated = self.optimizer(gradients)
        return ops.depend(loss, updated), overflow, scale


def train(step, epochs, dataset, callbacks):
    """Callbacks of steps are told of the last batch that is only added, and of the update."""
    params = _InternalCallbackParam(train_network=step, epoch_num=epochs, batch_num=dataset.get_dataset_size(), cur_step_num=0)
    run_context, manager = RunContext(params), _CallbackManager(callbacks)
    manager.begin(run_context)
    for epoch in range(1, epochs + 1):
        params.cur_epoch_num = epoch
        manager.epoch_begin(run_context)
        for number, batch in enumerate(dataset.create_tuple_iterator(num_epochs=1)):
            accumulates = (number + 1) % STEPS != 0
            if number < STEPS:
                step.add_flags_recursive(accumulation=accumulates)
            step.phase = "train0" if accumulates else "train1"
            params.cur_step_num += 1
            params.net_outputs = step(*batch)
            if (number + 2) % STEPS == 0 or not accumulates:
                manager.step_end(run_context)
        manager.epoch_end(run_context)
        if run_context.get_stop_requested():
            break
    manager.end(run_context)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parallel_mode", default="stand_alone", choices=["stand_alone", "data_parallel", "auto_parallel", "semi_auto_parallel"])
    parser.add_argument("--loss_scale", type=float, help="the loss's factor; without it there is none")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    context.set_context(mode=context.GRAPH_MODE, device_target="CPU")
    context.set_auto_parallel_context(parallel_mode=options.parallel_mode, gradients_mean=options.parallel_mode == "data_parallel",
                                      grad_accumulation_step=STEPS)
    ranks, rank = 1, 0
    if options.parallel_mode != "stand_alone":
        init()
        ranks, rank = get_group_size(), get_rank()

    random = np.random.RandomState(1)
    x = random.rand(BATCHES * BATCH_SIZE, 4).astype(np.float32)
    y = x @ np.array([[1], [-2], [3], [0.5]], np.float32)
    rows = ms.dataset.NumpySlicesDataset({"x": x, "y": y}, shuffle=False, num_shards=ranks, shard_id=rank).batch(BATCH_SIZE // ranks)
    network = nn.Dense(4, 1, weight_init="ones", bias_init="zeros")
    optimizer = nn.Momentum(network.trainable_params(), learning_rate=0.05, momentum=0.9)
    with_loss = nn.WithLossCell(network, nn.MSELoss())
    if options.loss_scale is None:
        step = AccumulatingStep(with_loss, optimizer)
    else:
        step = AccumulatingStepWithLossScale(with_loss, optimizer, Tensor([options.loss_scale], ms.float32))
    step.set_train()
    train(step, options.epochs, rows, [LossMonitor()])
    sys.stdout.write(f"weight {network.weight.asnumpy().tolist()} bias {network.bias.asnumpy().tolist()}\n")  # in one piece: ranks share it


if __name__ == "__main__":
    main()
