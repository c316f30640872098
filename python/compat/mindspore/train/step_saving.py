"""Checkpoints of a training whose step is a cell of its own: what ModelCheckpoint is there, in the place of tessera's."""
import os
import re
import time

import tessera

from mindspore.train.rank_texts import gather_texts
from mindspore.train.serialization import finish_writing, values_to_save, write_values


def _numbers_of(name, prefix):
    """(epoch, step) of "PREFIX-EPOCH_STEP.ckpt"; None of other files."""
    match = re.fullmatch(re.escape(prefix) + r"-(\d+)_(\d+)\.ckpt", name)
    return tuple(map(int, match.groups())) if match else None


def _unused_prefix(directory, prefix):
    """The prefix, or PREFIX_1, PREFIX_2, ... where the directory has checkpoints of those before."""
    names = os.listdir(directory)
    number, chosen = 0, prefix
    while any(_numbers_of(name, chosen) for name in names):
        number += 1
        chosen = f"{prefix}_{number}"
    return chosen


class SavesStep(tessera.Callback):
    """Saves the parameters of a step, its network's and its optimizer's, as a ModelCheckpoint of this config would. latest: the newest file.
    is_shared: the ranks of the job train together. Then every rank has one, and of those that name one directory, the same one on a file system that
    they share, the first writes."""

    def __init__(self, prefix, directory, config, step, is_shared):
        super().__init__()
        self._given, self._prefix, self._directory, self._config = prefix, prefix, directory, config
        self._step, self._is_shared, self.latest = step, is_shared, ""
        self._writes, self._written, self._kept = True, [], set()
        self._last_step, self._last_time, self._kept_time = 0, 0.0, None

    def begin(self, run):
        """Chooses the prefix before anyone writes."""
        os.makedirs(self._directory, exist_ok=True)
        self._prefix = _unused_prefix(self._directory, self._given)
        if self._is_shared:
            told = gather_texts(f"{self._prefix}\n{os.path.realpath(self._directory)}")
            prefixes, directories = zip(*(text.split("\n", 1) for text in told))
            self._writes = directories.index(directories[tessera.cluster.rank()]) == tessera.cluster.rank()
            # Where directories differ, all take the highest number.
            self._prefix = max((prefix for prefix in prefixes if prefix.startswith(self._given)), key=lambda prefix: (len(prefix), prefix))
        self._last_step, self._last_time = run.step, time.monotonic()

    def step_end(self, run):
        """Saves where a checkpoint is due."""
        if self._is_due(run.step):
            self._save(run)

    def end(self, run):
        """Saves the last step, unless it is saved."""
        if not run.has_failed and run.step > self._last_step:
            self._save(run)
        finish_writing()

    def _is_due(self, step):
        if self._config.save_checkpoint_steps:
            return step - self._last_step >= self._config.save_checkpoint_steps
        due = time.monotonic() - self._last_time >= self._config.save_checkpoint_seconds
        if self._is_shared:  # clocks differ: rank 0 decides
            due = bool(tessera.ops.broadcast(tessera.Tensor([int(due)], tessera.int64)).numpy()[0])
        return due

    def _save(self, run):
        path = os.path.join(self._directory, f"{self._prefix}-{run.epoch}_{run.step_in_epoch}.ckpt")
        numbers = {"epoch_num": run.epoch, "step_num": run.step}
        appended = {name: tessera.Tensor(numbers[name]) for name in self._config.append_info} | self._config.append_dict
        values = values_to_save(self._step, self._config.integrated_save)  # those of split parameters from all ranks
        self._last_step, self._last_time = run.step, time.monotonic()
        if not self._writes:
            return
        write_values(path, values, appended, self._config.async_save, **self._config.encryption)
        self.latest = path
        self._tidy(path)

    def _tidy(self, path):
        """Removes what is not to be kept beside the newest one: those before so many, or those that are not the first of so many minutes."""
        before, minutes, most = self._written, self._config.keep_checkpoint_per_n_minutes, self._config.keep_checkpoint_max or 5
        if minutes:
            if self._kept_time is None or time.monotonic() - self._kept_time >= 60 * minutes:
                self._kept_time = time.monotonic()
                self._kept.add(path)
            gone = [one for one in before if one not in self._kept]
        else:
            gone = before[:max(len(before) + 1 - most, 0)]
        self._written = [one for one in before if one not in gone] + [path]
        for file in (one + end for one in gone for end in (".manifest", "")):
            if os.path.exists(file):
                os.remove(file)
