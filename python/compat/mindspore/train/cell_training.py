"""Training by a cell that is a training step itself: Model(step).train(...)."""
import types
import zlib

import tessera

from mindspore.context import warn_once
from mindspore.train.callback import RunContext, _CallbackManager, entered


# After so many steps one that trains has changed something, though the rate of the first may be 0.
_ENOUGH = 2


def _digest(parameter):
    return zlib.crc32(parameter.numpy().tobytes())


class _Watch:
    """Of a step that has no optimizer of its own: says, after some steps, that its parameters are what they were. A warning: those that it
    trains may be held elsewhere, or its rate still be 0."""

    def __init__(self, step):
        self._step, self._num_steps = step, 0
        self._watches = not step.__dict__.get("_holds_optimizers")
        self._before = [(p, _digest(p)) for p in tessera.nn.Cell.parameters(step)] if self._watches else []
        self._watches = bool(self._before)

    def look(self, is_last):
        """To be called after each step, by every rank."""
        self._num_steps += 1
        if not self._watches or self._num_steps < _ENOUGH and not is_last:
            return
        self._watches = False
        if not any([_digest(p) != before for p, before in self._before]):  # of all: a value may be gathered from all ranks
            warn_once(f"For 'Model.train', {type(self._step).__name__} has changed none of its parameters in {self._num_steps} "
                      f"step{'s' if self._num_steps > 1 else ''}: unless it trains others, give the Model an optimizer, or a cell that is a "
                      "training step, such as nn.TrainOneStepCell(network_with_loss, optimizer)")
        self._before = []


def train_by_cell(step, epoch, native, num_workers, callbacks, params, sink_size, initial_epoch=0, evaluations=None):
    """Calls step(*batch) for every batch of tessera's data set. sink_size: callbacks of steps stand around so many; 1: around each.
    evaluations(callbacks): tessera's callbacks before and behind those at the end of an epoch."""
    batches = native.get_dataset_size()
    params.update(epoch_num=epoch - initial_epoch, batch_num=batches, cur_epoch_num=0, cur_step_num=0)
    step.set_train()
    with entered(callbacks) as callbacks:
        around = evaluations(callbacks) if evaluations else ((), ())
        _train(step, epoch, native.batches(num_epochs=epoch - initial_epoch, num_workers=num_workers), batches, callbacks, params, sink_size,
               initial_epoch, around)


def _train(step, epoch, rows, batches, callbacks, params, sink_size, initial_epoch, around):
    context, manager = RunContext(params), _CallbackManager(callbacks)
    manager.on_train_begin(context)
    watch = _Watch(step)
    for number in range(initial_epoch + 1, epoch + 1):
        params.cur_epoch_num = number
        manager.on_train_epoch_begin(context)
        for begin in range(0, batches, sink_size):
            manager.on_train_step_begin(context)
            for _ in range(begin, min(begin + sink_size, batches)):
                params.train_dataset_element = next(rows)
                params.cur_step_num += 1
                params.net_outputs = step(*params.train_dataset_element)
                watch.look(is_last=params.cur_step_num == (epoch - initial_epoch) * batches)
            manager.on_train_step_end(context)
            if context.get_stop_requested():
                break
        run = types.SimpleNamespace(epoch=number)
        for callback in around[0]:
            callback.epoch_end(run)
        manager.on_train_epoch_end(context)
        for callback in around[1]:
            callback.epoch_end(run)
        if context.get_stop_requested():
            break
    manager.on_train_end(context)
