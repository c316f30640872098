"""An argument that would have no effect beside the others is refused, or said, in the words of the script."""
import os
import subprocess
import sys
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
    begin = time.monotonic()
    model().train(1, rows(), [Slow(), tessera.ModelCheckpoint("often", str(tmp_path), save_checkpoint_seconds=1)])
    passed_s = time.monotonic() - begin
    # One a second, and that of the end.
    assert 2 <= len([name for name in saved(tmp_path) if name.startswith("often")]) <= passed_s + 1
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


@pytest.mark.parametrize("make, words", [
    (lambda: nn.Dense(2, 3, has_bias=False, bias_init="zeros"), "Dense: bias_init has no effect without a bias"),
    (lambda: nn.Conv2d(2, 3, 3, bias_init="ones"), "Conv2d: bias_init has no effect without a bias: set has_bias"),
    (lambda: nn.Conv2dTranspose(2, 3, 3, bias_init="ones"), "Conv2dTranspose: bias_init"), (lambda: nn.Conv1d(2, 3, 3, bias_init="ones"), "Conv1d: bias_init"),
    (lambda: nn.Conv1dTranspose(2, 3, 3, bias_init="ones"), "Conv1dTranspose: bias_init"),
    (lambda: nn.RecurrentLayer(2, 3, dropout=0.5), r"dropout = 0.5 has no effect on one layer"),
    (lambda: nn.SGD(0.1, dampening=0.5), "SGD: dampening = 0.5 has no effect without momentum"),
    (lambda: nn.Momentum(0.1, 0, use_nesterov=True), "Momentum: use_nesterov has no effect without momentum"),
    (lambda: nn.Momentum(0.1, 2), r"Momentum: momentum must be in \[0,1\], got 2"), (lambda: nn.SGD(0.1, 2), r"SGD: momentum must be in \[0,1\], got 2"),
    (lambda: nn.RMSProp(decay=3), r"RMSProp: decay must be in \[0,1\], got 3"), (lambda: tessera.Trace("a.json", num_spans=0), "num_spans must be at least 1, got 0"),
    (lambda: tessera.RecordValues(), "it needs a directory to record into"), (lambda: tessera.RecordValues("a", stops=False), "stops = false has no effect without")])
def test_an_argument_without_effect_or_out_of_range_is_refused(make, words):
    with pytest.raises(tessera.InvalidArgument, match=words):
        make()


@pytest.mark.parametrize("arguments, words", [
    (dict(sink_size=3), "sink_size = 3 has no effect without dataset_sink_mode"), (dict(dataset_sink_mode=True, sink_size=0), "sink_size must be a number of steps above 0, or -1"),
    (dict(dataset_sink_mode=True, sink_size=-7), "or -1, a whole epoch, got -7"),
    (dict(callbacks=[tessera.EpochSummary(valid=rows())]), "EpochSummary: the model has no metrics that `valid` could be measured by"),
    (dict(callbacks=[tessera.ReduceLROnPlateau("train_loss", min_rate=0.5)]), "min_rate = 0.5 is above the learning rate, 0.1")])
def test_an_argument_of_a_training_that_has_no_effect_is_refused(arguments, words):
    with pytest.raises(tessera.InvalidArgument, match=words):
        model().train(1, rows(), **arguments)


@pytest.mark.parametrize("options, words", [
    ({"record_steps": "2"}, "record_steps has no effect without record_values, compare_values"), ({"on_difference": "warn"}, "on_difference has no effect without compare_values"),
    ({"kernel_cache": "cache"}, "kernel_cache has no effect without kernels"), ({"kernels": "measured", "reference_kernels": True}, "kernels has no effect beside reference_kernels"),
    ({"parallel_mode": "data_parallel", "servers": 2}, "servers has no effect on one rank: `tessera run -n` starts more"),
    ({"search": {"save": "a.plan"}}, 'search["save"] has no effect in stand_alone: only in auto_parallel'),
    ({"pipeline": {"schedule": "gpipe"}, "parallel_mode": "pipeline_parallel"}, 'pipeline has no effect without pipeline["stages"], pipeline["ranks"], servers')])
def test_an_option_of_a_model_that_has_no_effect_is_said_once(options, words, capfd):
    one = model(**options)
    one.train(1, rows())
    one.train(1, rows())
    assert capfd.readouterr().err.count(words) == 1


def test_a_misspelt_schedule_is_refused_on_one_rank():
    with pytest.raises(tessera.InvalidArgument, match='pipeline schedule "zb_h3": no schedule has that name, did you mean zb_h1'):
        model(parallel_mode="pipeline_parallel", pipeline={"stages": 2, "schedule": "zb_h3"})


def test_an_index_to_ignore_beside_distributions_is_refused():
    columns = {"ids": IDS, "label": np.eye(3, dtype=np.float32)[IDS % 3]}
    one = tessera.Model(Net(), nn.CrossEntropy(ignore_index=0), nn.SGD(0.1))
    with pytest.raises(tessera.InvalidArgument, match="ignore_index = 0 has no effect on labels that are distributions"):
        one.train(1, tessera.data.tensors(columns).batch(4))


def test_class_numbers_that_are_floats_are_named():
    with pytest.raises(tessera.InvalidArgument, match=r"class numbers are i32\[4\] or i64\[4\] for logits f32\[4,3\], got f32\[4\]: convert them to integers"):
        trained_on = tessera.data.tensors({"ids": IDS, "label": (IDS % 3).astype(np.float32)}).batch(4)
        tessera.Model(Net(), nn.CrossEntropy(), nn.SGD(0.1)).train(1, trained_on)


def test_a_name_that_rename_knows_and_the_checkpoint_does_not_is_refused(tmp_path):
    path = trained(Net()).save_checkpoint(str(tmp_path / "net"))
    other = trained(Net())
    before = other.value("head.weight").numpy()
    with pytest.raises(tessera.InvalidArgument, match='rename names "haed", of which the checkpoint has no value, did you mean head'):
        other.load_parameters(path, rename={"haed": "head"})
    np.testing.assert_array_equal(other.value("head.weight").numpy(), before)
    assert "head.weight" in other.load_parameters(path, rename={"head": "head", "": ""}).loaded


def test_two_trainings_do_not_record_into_one_folder(tmp_path):
    folder = str(tmp_path / "values")
    other = """
import sys
import numpy as np
import tessera
from tessera import nn
class Waits(tessera.Callback):
    def step_end(self, run):
        print("recording", flush=True)
        sys.stdin.readline()
x = np.ones((4, 2), np.float32)
model = tessera.Model(nn.Dense(2, 1), nn.MSELoss(), nn.SGD(0.1), record_values=sys.argv[1])
model.train(1, tessera.data.tensors({"x": x, "y": x[:, :1]}).batch(4), [Waits()])
"""
    with subprocess.Popen([sys.executable, "-c", other, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "recording\n"
        with pytest.raises(tessera.InvalidArgument, match=rf"values: another job \(process {holder.pid} on .*\) records its values here; this one cannot: give each job"):
            trained(Net(), record_values=folder)
        holder.communicate("\n", timeout=60)
    trained(Net(), record_values=folder)
    assert sorted(name for name in os.listdir(folder) if name.endswith(".jsonl")) == ["step-1.rank-0.jsonl"]


def test_parameters_that_are_given_to_an_optimizer_are_refused():
    for call in (lambda: nn.AdamW(Net().trainable_parameters(), learning_rate=0.1), lambda: nn.SGD(Net(), learning_rate=0.1),
                 lambda: nn.Adam(Net().parameters(), 0.1)):
        with pytest.raises(TypeError, match="an optimizer takes no parameters: the Model gives it those of its network"):
            call()
    with pytest.raises(TypeError, match=r"SGD\(\) got learning_rate twice: 0.1 of type float, by its place, and 0.2 of type float, by its name"):
        nn.SGD(0.1, learning_rate=0.2)


def test_what_is_wrong_is_named_by_its_name():
    with pytest.raises(tessera.InvalidArgument, match=r"Model\(\): servers must be from 0 to 2147483647, got -1"):
        model(servers=-1)
    with pytest.raises(TypeError, match=r"Model\(\): servers must be an int, got 2.5 of type float"):
        model(servers=2.5)
    with pytest.raises(TypeError, match=r"TensorBoard\(\): hyper_parameters\['a'\] must be a bool or float or str, got \[1\] of type list"):
        tessera.TensorBoard("runs", hyper_parameters={"a": [1]})
    with pytest.raises(KeyError, match="'head' has the setting 'learning_rat'; did you mean 'lr'"):
        nn.group_parameters(Net(), {"head": {"learning_rat": 0.1}})
    with pytest.raises(KeyError, match="'head' has the setting 'decay'"):
        nn.group_parameters(Net(), {"head": {"decay": 0.1}})
