"""Checkpoints of a training whose step is a cell of its own: what ModelCheckpoint is there, in the place of tessera's."""
import os
import re
import time

import tessera

from mindspore.train.serialization import finish_writing, values_to_save, write_in_turn


def _is_checkpoint(name, prefix):
    return re.fullmatch(re.escape(prefix) + r"-\d+_\d+\.ckpt", name) is not None


def _numbered(prefix, number):
    return f"{prefix}_{number}" if number else prefix


def _unused_number(directory, prefix):
    """0, or the first number with which PREFIX_1, PREFIX_2, ... has no checkpoints in the directory."""
    names, number = os.listdir(directory), 0
    while any(_is_checkpoint(name, _numbered(prefix, number)) for name in names):
        number += 1
    return number


class SavesStep(tessera.Callback):
    """Saves the parameters of a step, its network's and its optimizer's, as a ModelCheckpoint of this config would. latest: the newest file.
    is_shared: the ranks of the job train together. Then every rank has one, and of those that see one directory the first writes."""

    def __init__(self, prefix, directory, config, step, is_shared):
        super().__init__()
        self._prefix, self._directory, self._config = prefix, directory, config
        self._step, self._is_shared, self.latest = step, is_shared, ""
        self._writes, self._written, self._kept = True, [], set()
        self._last_step, self._last_time, self._kept_time = 0, 0.0, None

    def begin(self, run):
        """Chooses who writes, and under which prefix, before anyone does."""
        if self._is_shared:
            number = self._agree()
        else:
            os.makedirs(self._directory, exist_ok=True)
            number = _unused_number(self._directory, self._prefix)
        self._prefix = _numbered(self._prefix, number)
        self._last_step, self._last_time = run.step, time.monotonic()

    def _agree(self):
        """Of ranks that train together: the number of the prefix, which is the highest where directories differ."""
        self._writes = tessera.checkpoint.find_writer(self._directory) == tessera.cluster.rank()
        told = tessera.cluster.run_together("cannot look for checkpoints", lambda: str(_unused_number(self._directory, self._prefix)))
        return max(map(int, told))

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
        seconds = self._config.save_checkpoint_seconds
        due = seconds > 0 and time.monotonic() - self._last_time >= seconds
        if self._is_shared:  # clocks differ: rank 0 decides
            due = bool(tessera.ops.broadcast(tessera.Tensor([int(due)], tessera.int64)).numpy()[0])
        return due

    def _save(self, run):
        path = os.path.join(self._directory, f"{self._prefix}-{run.epoch}_{run.step_in_epoch}.ckpt")
        numbers = {"epoch_num": run.epoch, "step_num": run.step}
        appended = {name: tessera.Tensor(numbers[name]) for name in self._config.append_info} | self._config.append_dict
        values = values_to_save(self._step)  # whole, whatever integrated_save says: such a step keeps no slices
        self._last_step, self._last_time = run.step, time.monotonic()
        if not self._writes:
            return

        def write(values):
            tessera.checkpoint.save(path, values, appended, **self._config.encryption)
            self._tidy(path)  # once the newest one is there

        write_in_turn(values, write, self._config.async_save)
        self.latest = path

    def _tidy(self, path):
        """Removes what is not to be kept beside the newest one: those before so many, or those that are not the first of so many minutes."""
        before, minutes, most = self._written, self._config.keep_checkpoint_per_n_minutes, self._config.keep_checkpoint_max or 1
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
