"""An argument that would have no effect beside the others is refused, or said, in the words of the script."""
import os
import time

import numpy as np
import pytest
import tessera
from small_net import IDS, Net, trained
from tessera import nn

ROWS = {"ids": np.tile(IDS, 6), "label": np.tile(IDS % 3, 6)}


def rows(batch=4):
    return tessera.data.tensors(ROWS).batch(batch)


def model(**options):
    return tessera.Model(Net(), nn.CrossEntropyLoss(), nn.Momentum(learning_rate=0.1), **options)


def saved(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".ckpt"))


class Slow(tessera.Callback):
    def step_end(self, run):
        time.sleep(0.35)


def test_a_time_that_is_given_alone_says_when_a_checkpoint_is_saved(tmp_path, capfd):
    model().train(1, rows(), [tessera.ModelCheckpoint("late", str(tmp_path), save_checkpoint_seconds=600)])
    assert saved(tmp_path) == ["late-1_6.ckpt"]
    model().train(1, rows(), [Slow(), tessera.ModelCheckpoint("often", str(tmp_path), save_checkpoint_seconds=1)])
    assert 2 <= len([name for name in saved(tmp_path) if name.startswith("often")]) <= 4
    assert "has no effect" not in capfd.readouterr().err


def test_minutes_that_are_given_alone_say_which_checkpoints_stay(tmp_path):
    model().train(2, rows(), [tessera.ModelCheckpoint("a", str(tmp_path), keep_checkpoint_per_n_minutes=30)])
    assert saved(tmp_path) == ["a-1_1.ckpt", "a-2_6.ckpt"]


def test_a_time_beside_a_number_is_said_to_have_no_effect(tmp_path, capfd):
    saver = tessera.ModelCheckpoint("a", str(tmp_path), save_checkpoint_steps=3, save_checkpoint_seconds=600, keep_checkpoint_max=2,
                                    keep_checkpoint_per_n_minutes=30)
    model().train(2, rows(), [saver])
    heard = capfd.readouterr().err
    assert heard.count("save_checkpoint_seconds = 600 has no effect beside save_checkpoint_steps = 3: leave one of them out") == 1
    assert heard.count("keep_checkpoint_per_n_minutes = 30 has no effect beside keep_checkpoint_max = 2: leave one of them out") == 1
    assert saved(tmp_path) == ["a-2_3.ckpt", "a-2_6.ckpt"]


@pytest.mark.parametrize("mode, words", [("AES-GCM/reference", "without a key encrypts nothing: give the key, 16, 24 or 32 bytes, or leave the mode out"),
                                         ("ROT13", 'must be "AES-GCM", "AES-GCM/reference" or "AES-CBC", got "ROT13"')])
def test_a_mode_of_encryption_without_a_key_is_refused(tmp_path, mode, words):
    one = model()
    one.train(1, rows())
    path = str(tmp_path / "a.ckpt")
    for call in (lambda: tessera.ModelCheckpoint("a", str(tmp_path), enc_mode=mode), lambda: one.save_checkpoint(path, enc_mode=mode),
                 lambda: tessera.checkpoint.save(path, {"w": IDS}, enc_mode=mode), lambda: tessera.checkpoint.load(path, dec_mode=mode),
                 lambda: one.load_checkpoint(path, dec_mode=mode), lambda: one.load_parameters(path, dec_mode=mode)):
        with pytest.raises(tessera.InvalidArgument, match=words):
            call()
    assert saved(tmp_path) == []
