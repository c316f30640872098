"""Training by a cell that is a training step itself, Model(step).train(...): what stands there in the place of tessera.Model."""
import zlib

import numpy as np
import tessera

from mindspore.context import warn_once
from mindspore.nn.wrap.cell_wrapper import TrainOneStepCell


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


class _Run:
    """What tessera's callbacks see of such a training: the entries of tessera.RunContext, and in `seen` what a script's callbacks see of the step."""

    def __init__(self, num_epochs, steps_per_epoch):
        self.epoch, self.num_epochs, self.step_in_epoch, self.steps_per_epoch = 0, num_epochs, 0, steps_per_epoch
        self.step = self.first_step = self.number = 0
        self.seen, self.stop_requested, self.has_failed = {}, False, False

    def request_stop(self):
        """Training ends after this step."""
        self.stop_requested = True


def _tell(callbacks, moment, run):
    """Calls those that have such a method: tessera's own, which does nothing, takes only tessera's RunContext."""
    for callback in callbacks:
        if getattr(type(callback), moment) is not getattr(tessera.Callback, moment):
            getattr(callback, moment)(run)


class StepModel:
    """Calls `call`, the network or an AutoParallel of it, for each batch, and its callbacks when tessera.Model would. is_shared: the ranks of the job
    train together."""

    step = 0  # there is nothing that an exception might save

    def __init__(self, call, network, is_shared):
        self._call, self._network, self._is_shared, self._num_epochs_read = call, network, is_shared, 0
        # This step has taken its gradients whatever they are; one with a loss scale, or of a script's own, may have skipped them.
        self._always_updates = getattr(type(network), "construct", None) is TrainOneStepCell.construct

    def train(self, num_epochs, dataset, callbacks, dataset_sink_mode, sink_size, num_workers):
        """As tessera.Model.train."""
        steps = dataset.get_dataset_size()
        self._require_equal_steps(steps)
        self._network.set_train()
        loop = 1 if not dataset_sink_mode else steps if sink_size == -1 else sink_size
        batches = dataset.batches(num_epochs=num_epochs, num_workers=num_workers, first_epoch=self._num_epochs_read)
        run, watch = _Run(num_epochs, steps), _Watch(self._network)
        _tell(callbacks, "begin", run)
        for epoch in range(1, num_epochs + 1):
            if run.stop_requested:
                break
            run.epoch = epoch
            self._num_epochs_read += 1
            self._train_epoch(run, batches, loop, callbacks, watch)
        _tell(callbacks, "end", run)

    def _train_epoch(self, run, batches, loop, callbacks, watch):
        _tell(callbacks, "epoch_begin", run)
        for begin in range(0, run.steps_per_epoch, loop):
            if run.stop_requested:
                break
            run.step_in_epoch = begin + 1
            _tell(callbacks, "step_begin", run)
            for number in range(begin, min(begin + loop, run.steps_per_epoch)):
                run.step_in_epoch = number + 1
                self._train_step(run, next(batches))
                watch.look(is_last=run.step == run.num_epochs * run.steps_per_epoch)
            _tell(callbacks, "step_end", run)
        _tell(callbacks, "epoch_end", run)

    def _train_step(self, run, batch):
        outputs = self._call(*batch)
        run.step += 1
        run.seen = {"train_dataset_element": batch, "net_outputs": outputs}
        if not self._always_updates:
            return
        loss = outputs[0] if isinstance(outputs, tuple) else outputs
        if not np.isfinite(loss.astype(tessera.float32).numpy()).all():
            raise tessera.NonFiniteLoss(f"epoch: {run.epoch} step: {run.step_in_epoch}. Invalid loss, terminating training. "
                                        f"{type(self._network).__name__} gave {loss.numpy()}; the parameters are those behind the step: "
                                        "nn.TrainOneStepWithLossScaleCell is a step that skips such updates")

    def _require_equal_steps(self, steps):
        """InvalidArgument on all ranks where one has other numbers of batches: it would wait for the others, or they for it."""
        if not self._is_shared:
            return
        counts = tessera.ops.all_gather(tessera.Tensor([steps], tessera.int64)).numpy().tolist()
        for rank, count in enumerate(counts):
            if count != counts[0]:
                raise tessera.InvalidArgument(f"train: rank {rank} has {count} batches an epoch, rank 0 has {counts[0]}; the ranks work on each "
                                              "batch together, so all need as many")
