"""The package mindspore: checkpoints in any number of slices, in one process."""
import json
import os

import mindspore as ms
import numpy as np
import pytest
import tessera
from mindspore import Parameter, Tensor, nn
from mindspore.parallel import checkpoint_transform
from mindspore.train import serialization

pytestmark = pytest.mark.usefixtures("fresh_context")


def whole(rows=8, columns=6):
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)


def layout(device_matrix, tensor_map, shape, step=0, size=0):
    return {"dev_matrix": device_matrix, "tensor_map": tensor_map, "tensor_shape": shape, "field": 0,
            "opt_weight_shard_step": step, "opt_weight_shard_size": size}


def write_strategy(path, layouts, stage=0):
    items = {f"MatMul_{name}": {"stage": stage, "parallel_strategy": [[1, 1], [1, 1]]} for name in layouts}
    path.write_text(json.dumps({"current_stage": 1, "parallel_strategy_item": items, "parallel_layout_item": layouts}))
    return str(path)


def write_ranks(folder, slices, **more):
    for rank, part in enumerate(slices):
        os.makedirs(folder / f"rank_{rank}", exist_ok=True)
        data = {"w": part} | {name: np.float32(value) for name, value in more.items()}
        ms.save_checkpoint([{"name": name, "data": Tensor(value)} for name, value in data.items()], str(folder / f"rank_{rank}" / "net-1_2.ckpt"))
    return str(folder)


@pytest.fixture
def trained(tmp_path):
    """(folder, strategy file) of 4 ranks: 2 parts of the columns, each in 2 optimizer shards."""
    w = whole()
    strategy = write_strategy(tmp_path / "src.json", {"w": layout([2, 2], [-1, 0], [8, 6], step=2, size=2)})
    return write_ranks(tmp_path / "src", [w[:4, :3], w[:4, 3:], w[4:, :3], w[4:, 3:]], learning_rate=0.5), strategy


def test_names_are_where_scripts_of_each_release_import_them_from():
    for name in ("load_distributed_checkpoint", "build_searched_strategy", "merge_sliced_parameter", "restore_group_info_list", "transform_checkpoints",
                 "transform_checkpoint_by_rank", "rank_list_for_transform", "merge_pipeline_strategys"):
        assert getattr(ms, name) is getattr(serialization, name) is getattr(checkpoint_transform, name) is getattr(ms.parallel, name)


def test_four_ranks_become_three_and_one(tmp_path, trained):
    source, src_strategy = trained
    dst_strategy = write_strategy(tmp_path / "dst.json", {"w": layout([3], [0, -1], [8, 6])})
    ms.transform_checkpoints(source, str(tmp_path / "three"), "transformed", src_strategy, dst_strategy)
    found = [ms.load_checkpoint(str(tmp_path / "three" / f"rank_{r}" / f"transformed{r}.ckpt")) for r in range(3)]
    for part, (first, last) in zip(found, [(0, 3), (3, 6), (6, 8)]):
        np.testing.assert_array_equal(part["w"].asnumpy(), whole()[first:last])
        assert part["learning_rate"].asnumpy() == 0.5
    assert ms.rank_list_for_transform(0, src_strategy, dst_strategy) == [1, 0]
    assert ms.rank_list_for_transform(1, src_strategy, dst_strategy) == [3, 2, 1, 0]
    assert ms.rank_list_for_transform(0) == [0]
    files = {rank: os.path.join(source, f"rank_{rank}", "net-1_2.ckpt") for rank in (0, 1)}
    ms.transform_checkpoint_by_rank(0, files, str(tmp_path / "one.ckpt"), src_strategy, dst_strategy)
    assert (tmp_path / "one.ckpt").read_bytes() == (tmp_path / "three" / "rank_0" / "transformed0.ckpt").read_bytes()
    ms.transform_checkpoints(source, str(tmp_path / "one"), "w", src_strategy)
    np.testing.assert_array_equal(ms.load_checkpoint(str(tmp_path / "one" / "rank_0" / "w0.ckpt"))["w"].asnumpy(), whole())


def test_stages_of_a_pipeline_are_merged(tmp_path):
    stages = tmp_path / "stages"
    stages.mkdir()
    for stage, name in enumerate("wv"):
        write_strategy(stages / f"src_strategy{stage}.json", {name: layout([2], [0, -1], [8, 6])}, stage)
        for rank in range(2):
            folder = tmp_path / "src" / f"rank_{2 * stage + rank}"
            folder.mkdir(parents=True)
            ms.save_checkpoint([{"name": name, "data": Tensor(whole()[4 * rank:4 * rank + 4])}], str(folder / "a.ckpt"))
    ms.merge_pipeline_strategys(str(stages), str(tmp_path / "merged" / "all.json"))
    assert sorted(ms.build_searched_strategy(str(tmp_path / "merged" / "all.json"))) == ["0-w", "1-v"]
    ms.transform_checkpoints(str(tmp_path / "src"), str(tmp_path / "dst"), "transformed", str(tmp_path / "merged" / "all.json"))
    found = ms.load_checkpoint(str(tmp_path / "dst" / "rank_0" / "transformed0.ckpt"))
    assert all((found[name].asnumpy() == whole()).all() for name in "wv")
    net = nn.Cell()
    net.w, net.v = Parameter(Tensor(np.zeros((8, 6), np.float32))), Parameter(Tensor(np.zeros((8, 6), np.float32)))
    ms.load_distributed_checkpoint(net, [str(tmp_path / "src" / f"rank_{r}" / "a.ckpt") for r in range(4)], None, str(tmp_path / "merged" / "all.json"))
    assert all((p.asnumpy() == whole()).all() for p in net.get_parameters())


def test_slices_are_merged_by_their_layout(tmp_path, trained):
    strategy = ms.build_searched_strategy(trained[1])
    assert strategy["w"].dev_matrix[0].dim == [2, 2] and strategy["w"].tensor_map[0].dim == [-1, 0]
    assert (strategy["w"].opt_weight_shard_step, strategy["w"].opt_weight_shard_size, strategy["w"].field) == (2, 2, 0)
    w = whole()
    slices = [Parameter(Tensor(part), "w", requires_grad=False) for part in (w[:4, :3], w[:4, 3:], w[4:, :3], w[4:, 3:])]
    merged = ms.merge_sliced_parameter(slices, strategy)
    np.testing.assert_array_equal(merged.asnumpy(), w)
    assert merged.name == "w" and not merged.requires_grad
    rows = [Parameter(Tensor(w[:3]), "moments.w"), Parameter(Tensor(w[3:]), "moments.w")]
    np.testing.assert_array_equal(ms.merge_sliced_parameter(rows).asnumpy(), w)


class OneWeight(nn.Cell):
    def __init__(self, value=np.zeros((8, 6), np.float32)):
        super().__init__()
        self.w = Parameter(Tensor(value))


def test_a_single_device_loads_what_all_ranks_saved(trained):
    source, strategy = trained
    files = [os.path.join(source, f"rank_{rank}", "net-1_2.ckpt") for rank in range(4)]
    net = OneWeight()
    ms.load_distributed_checkpoint(net, files, None, strategy)
    np.testing.assert_array_equal(net.w.asnumpy(), whole())
    ms.set_auto_parallel_context(strategy_ckpt_load_file=strategy)
    net = OneWeight()
    ms.load_distributed_checkpoint(net, files)
    np.testing.assert_array_equal(net.w.asnumpy(), whole())
    half = OneWeight(np.zeros((4, 6), np.float32))
    ms.load_distributed_checkpoint(half, files, {"w": [[2], [0, -1], [4, 6], 0]})
    np.testing.assert_array_equal(half.w.asnumpy(), whole()[:4])
    with pytest.raises(ValueError, match="got 3 files and the device count is 4"):
        ms.load_distributed_checkpoint(net, files[:3])
    with pytest.raises(RuntimeError, match="should have the same shape"):
        ms.load_distributed_checkpoint(half, files)


def test_a_group_file_names_who_may_replace_a_rank(tmp_path):
    (tmp_path / "group.pb").write_bytes(b"\x0a\x09\x0a\x03all\x12\x02\x08\x00\x12\x04\x08\x00\x08\x04")
    assert ms.restore_group_info_list(str(tmp_path / "group.pb")) == [0, 4]


@pytest.mark.parametrize("form", ["ckpt", "safetensors"])
def test_what_is_saved_is_loaded(tmp_path, form):
    path = str(tmp_path / f"net.{form}")
    data = {"a": whole(), "half": np.array([1.5], np.float16), "count": np.array(3, np.int64)}
    ms.save_checkpoint({name: Parameter(Tensor(value), name) for name, value in data.items()}, path, format=form)
    found = ms.load_checkpoint(path, format=form)
    assert list(found) == list(data) and all(isinstance(value, Parameter) for value in found.values())
    for name, value in data.items():
        np.testing.assert_array_equal(found[name].asnumpy(), value)
        assert found[name].asnumpy().dtype == value.dtype


def test_what_is_appended_comes_after_the_parameters(tmp_path):
    path = str(tmp_path / "net.ckpt")
    info = {"epoch_num": 3, "rate": 0.25, "done": True, "words": "äöü", "t": Tensor([1, 2])}
    ms.save_checkpoint([Parameter(Tensor([1.0]), "w"), {"name": "v", "data": Tensor([2.0])}], path, append_dict=info, crc_check=True)
    found = ms.load_checkpoint(path, crc_check=True)
    assert list(found) == ["w", "v", *info]
    assert found["words"] == "äöü" and found["epoch_num"].asnumpy() == 3 and found["rate"].asnumpy() == 0.25 and found["done"].asnumpy()
    assert b"crc_num" in (tmp_path / "net.ckpt").read_bytes()[-17:]


def test_prefixes_and_a_function_choose(tmp_path):
    path = str(tmp_path / "net.ckpt")
    ms.save_checkpoint([{"name": name, "data": Tensor([1.0])} for name in ("a.w", "a.b", "b.w")], path, choice_func=lambda name: name != "a.b")
    assert list(ms.load_checkpoint(path)) == ["a.w", "b.w"]
    assert list(ms.load_checkpoint(path, filter_prefix="a")) == ["b.w"]
    assert list(ms.load_checkpoint(path, specify_prefix=("a", "c"))) == ["a.w"]
    assert list(ms.load_checkpoint(path, choice_func=lambda name: name.endswith("w") and name < "b")) == ["a.w"]
    with pytest.raises(ValueError, match="empty after filter"):
        ms.load_checkpoint(path, filter_prefix=["a", "b"])


def test_a_thread_writes_what_the_values_were(tmp_path):
    path = str(tmp_path / "net.ckpt")
    array = np.ones((1000, 1000), np.float32)
    tensor = Tensor.from_numpy(array)
    ms.save_checkpoint([{"name": "w", "data": tensor}], path, async_save=True)
    array[:] = 0
    assert ms.load_checkpoint(path)["w"].asnumpy().min() == 1
    ms.save_checkpoint([{"name": "w", "data": tensor}], str(tmp_path / "net.ckpt" / "impossible.ckpt"), async_save="thread")
    with pytest.raises(OSError, match="net.ckpt"):
        ms.load_checkpoint(path)
    assert ms.load_checkpoint(path)


def test_what_is_saved_at_once_waits_for_what_a_thread_writes(tmp_path, monkeypatch):
    calls, wait, save = [], serialization._writing.wait, tessera.checkpoint.save
    monkeypatch.setattr(serialization._writing, "wait", lambda: (calls.append("wait"), wait()))
    monkeypatch.setattr(tessera.checkpoint, "save", lambda *args, **kwargs: (calls.append("save"), save(*args, **kwargs)))
    ms.save_checkpoint([{"name": "w", "data": Tensor(whole())}], str(tmp_path / "net.ckpt"))
    assert calls == ["wait", "save"]


def test_types_are_converted_within_a_family_unless_it_is_strict():
    net = OneWeight()
    half = {"w": Parameter(Tensor(whole().astype(np.float16)), "w")}
    assert ms.load_param_into_net(net, half) == ([], [])
    np.testing.assert_array_equal(net.w.asnumpy(), whole())
    with pytest.raises(RuntimeError, match="should have the same type"):
        ms.load_param_into_net(net, half, strict_load=True)
    with pytest.raises(RuntimeError, match="should have the same type"):
        ms.load_param_into_net(net, {"w": Parameter(Tensor(whole().astype(np.int32)), "w")})


def test_a_prefix_that_the_network_lacks_is_dropped():
    prefixed = {"backbone.w": Parameter(Tensor(whole()), "backbone.w")}
    net = OneWeight()
    assert ms.load_param_into_net(net, prefixed, strict_load=True) == (["w"], ["backbone.w"])
    assert ms.load_param_into_net(net, prefixed) == ([], [])
    np.testing.assert_array_equal(net.w.asnumpy(), whole())


def test_a_model_is_trained_for_as_many_epochs_as_it_was_built_for():
    data = ms.dataset.NumpySlicesDataset({"x": whole(), "y": whole()[:, :2]}, shuffle=False).batch(4)
    net = nn.Dense(6, 2)
    model = ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.01, 0.9))
    model.build(data, epoch=2)
    with pytest.raises(ValueError, match="the value of epoch in build 2 and the value of epoch in train 3"):
        model.train(3, data)
    model.train(2, data)


@pytest.mark.parametrize("mode", ["AES-GCM", "AES-GCM/reference", "AES-CBC"])
def test_what_is_encrypted_needs_the_key(tmp_path, mode):
    key, path = b"0123456789abcdef", str(tmp_path / "net.ckpt")
    ms.save_checkpoint([{"name": "w", "data": Tensor(whole())}], path, enc_key=key, enc_mode=mode)
    written = (tmp_path / "net.ckpt").read_bytes()
    assert whole().tobytes() not in written
    assert written.startswith(b"\xd8\x5e\x3a\x7f" if mode == "AES-GCM/reference" else b"\x89TSRAES1"), "AES-CBC is not written"
    np.testing.assert_array_equal(ms.load_checkpoint(path, dec_key=key, dec_mode=mode)["w"].asnumpy(), whole())
    with pytest.raises(ValueError, match="encrypted"):
        ms.load_checkpoint(path)
    with pytest.raises(ValueError):
        ms.load_checkpoint(path, dec_key=b"another key 1234", dec_mode=mode)
    (tmp_path / "s.json").write_text(json.dumps({"current_stage": 1, "parallel_layout_item": {"w": layout([1], [-1, -1], [8, 6])}, "parallel_strategy_item": {}}))
    net = OneWeight()
    ms.load_distributed_checkpoint(net, [path], None, str(tmp_path / "s.json"), dec_key=key, dec_mode=mode)
    np.testing.assert_array_equal(net.w.asnumpy(), whole())
    model, data = trainer()
    saver = ms.ModelCheckpoint("model", str(tmp_path), ms.CheckpointConfig(enc_key=key, enc_mode=mode))
    model.train(1, data, saver)
    found = ms.load_checkpoint(saver.latest_ckpt_file_name, dec_key=key, dec_mode=mode)
    np.testing.assert_array_equal(found["weight"].asnumpy(), model.train_network.network.backbone_network.weight.asnumpy())


def trainer(columns=6):
    """(model, data set of two steps)."""
    data = ms.dataset.NumpySlicesDataset({"x": whole(8, columns) / 100, "y": whole(8, columns)[:, :2]}, shuffle=False).batch(4)
    net = nn.Dense(columns, 2)
    return ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.01, 0.9)), data


def test_a_thread_saves_while_a_model_trains(tmp_path):
    model, data = trainer()
    info = ["epoch_num", "step_num", {"note": "as is", "rate": 0.5, "table": Tensor([1, 2])}]
    saver = ms.ModelCheckpoint("net", str(tmp_path), ms.CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=2, async_save=True, append_info=info))
    model.train(3, data, saver)
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["net-2_2.ckpt", "net-3_2.ckpt"]
    found = ms.load_checkpoint(saver.latest_ckpt_file_name)
    assert found["epoch_num"].asnumpy() == 3 and found["step_num"].asnumpy() == 6 and found["note"] == "as is"
    assert found["rate"].asnumpy() == 0.5 and found["table"].asnumpy().tolist() == [1, 2]
    np.testing.assert_array_equal(found["weight"].asnumpy(), model.train_network.network.backbone_network.weight.asnumpy())


@pytest.mark.parametrize("is_built", [False, True])
def test_an_optimizer_goes_on_from_its_states(tmp_path, is_built):
    model, data = trainer()
    saver = ms.ModelCheckpoint("net", str(tmp_path), ms.CheckpointConfig(save_checkpoint_steps=2))
    model.train(2, data, saver)
    at_once = model.train_network.network.backbone_network.weight.asnumpy()
    saved = ms.load_checkpoint(str(tmp_path / "net-1_2.ckpt"))
    _, data = trainer()
    net = nn.Dense(6, 2)
    optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
    model = ms.Model(net, nn.MSELoss(), optimizer)
    if is_built:
        model.build(data)
    not_found, left = ms.load_param_into_net(net, saved)
    assert not_found == [] and set(left) >= {"moments.weight", "moments.bias"} and not {"weight", "bias"} & set(left)  # as the optimizer's are not the network's
    assert ms.load_param_into_net(optimizer, saved)[0] == []
    model.train(1, data)
    # Without the moments it is another.
    np.testing.assert_allclose(net.weight.asnumpy(), at_once, rtol=1e-5)
    if is_built:
        assert set(ms.load_param_into_net(optimizer, {})[0]) >= {"moments.weight", "moments.bias", "learning_rate", "momentum"}
        with pytest.raises(RuntimeError, match="moments.bias in the argument 'net' should have the same shape"):
            ms.load_param_into_net(optimizer, {"moments.bias": Parameter(Tensor([1.0]), "moments.bias")})


class TestStatOfSGD:
    X, Y = Tensor(whole()), Tensor(whole().sum(1, keepdims=True))

    def step(self, rate=1e-4):
        net = nn.Dense(6, 1, "zeros", "zeros")
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), rate, momentum=0.9, dampening=0.5))
        step.set_train()
        return step

    def saved(self, step, path):
        ms.save_checkpoint(step, str(path))
        return ms.load_checkpoint(str(path))

    def test_a_checkpoint_says_whether_a_step_was_made(self, tmp_path):
        step = self.step()
        before = self.saved(step, tmp_path / "before.ckpt")
        step(self.X, self.Y)
        after = self.saved(step, tmp_path / "after.ckpt")
        for name, shape in (("stat.weight", (1, 6)), ("stat.bias", (1,))):
            assert before[name].shape == after[name].shape == shape
            assert (before[name].asnumpy() == 1).all() and (after[name].asnumpy() == 0).all()

    def test_one_of_the_reference_that_counts_no_steps_goes_on(self, tmp_path):
        step = self.step()
        step(self.X, self.Y)
        found = self.saved(step, tmp_path / "one.ckpt")
        found["global_step"].set_data(Tensor([0], ms.int32))  # a fixed rate: the reference does not count
        resumed = self.step()
        ms.load_param_into_net(resumed, found)
        for each in (step, resumed):
            each(self.X, self.Y)
        for one, other in zip(step.trainable_params(), resumed.trainable_params()):
            np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())

    def test_one_before_the_first_step_begins_with_it(self, tmp_path):
        found = self.saved(self.step(), tmp_path / "none.ckpt")
        step, resumed = self.step(), self.step()
        ms.load_param_into_net(resumed, found)
        for each in (step, resumed):
            each(self.X, self.Y)
        np.testing.assert_array_equal(step.trainable_params()[0].asnumpy(), resumed.trainable_params()[0].asnumpy())


def test_an_exception_leaves_a_breakpoint(tmp_path):
    class Fails(ms.Callback):
        def step_end(self, run_context):
            if run_context.original_args().cur_step_num == 3:
                raise KeyError("on purpose")

    for saves in (True, False):
        model, data = trainer()
        folder = tmp_path / str(saves)
        config = ms.CheckpointConfig(save_checkpoint_steps=100, append_info=["epoch_num"], exception_save=saves)
        with pytest.raises(KeyError, match="on purpose"):
            model.train(2, data, [ms.ModelCheckpoint("net", str(folder), config), Fails()], dataset_sink_mode=False)
        assert [path.name for path in folder.glob("*.ckpt")] == (["net-2_1_breakpoint.ckpt"] if saves else [])
    found = ms.load_checkpoint(str(tmp_path / "True" / "net-2_1_breakpoint.ckpt"))
    assert found["epoch_num"].asnumpy() == 2 and {"weight", "bias", "moments.weight"} <= set(found)


class FailsInEpoch(ms.Callback):
    """Raises an error of another rank after the first step of an epoch."""

    def __init__(self, epoch):
        self._epoch = epoch

    def step_end(self, run_context):
        if run_context.original_args().cur_epoch_num == self._epoch:
            error = KeyError("on purpose")
            error.failed_rank = 7
            raise error


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("epochs, initial_epoch, fails_in, name", [(2, 0, 2, "net-2_{}_breakpoint.ckpt"), (4, 2, 4, "net-4_{}_breakpoint.ckpt")])
def test_a_breakpoint_of_a_later_training_counts_its_own_epochs(tmp_path, epochs, initial_epoch, fails_in, name, sinks):
    model, data = trainer()
    model.train(2, data, dataset_sink_mode=sinks)
    saver = ms.ModelCheckpoint("net", str(tmp_path), ms.CheckpointConfig(save_checkpoint_steps=100, append_info=["epoch_num"], exception_save=True))
    with pytest.raises(KeyError, match="on purpose"):
        model.train(epochs, data, [saver, FailsInEpoch(fails_in)], dataset_sink_mode=sinks, initial_epoch=initial_epoch)
    (saved,) = tmp_path.glob("*.ckpt")
    assert saved.name == name.format(2 if sinks else 1)
    assert ms.load_checkpoint(str(saved))["epoch_num"].asnumpy() == fails_in


def test_a_breakpoint_that_cannot_be_saved_leaves_the_error_as_it_is(tmp_path, capfd):
    model, data = trainer()
    (tmp_path / "net-1_1_breakpoint.ckpt.tmp").mkdir()  # where a file must be
    saver = ms.ModelCheckpoint("net", str(tmp_path), ms.CheckpointConfig(save_checkpoint_steps=100, exception_save=True))
    with pytest.raises(KeyError, match="on purpose") as raised:
        model.train(1, data, [saver, FailsInEpoch(1)], dataset_sink_mode=False)
    assert raised.value.failed_rank == 7
    assert "net-1_1_breakpoint.ckpt was not saved" in capfd.readouterr().err


def test_layouts_are_those_of_split_networks():
    model = ms.Model(nn.Dense(6, 2))
    with pytest.raises(RuntimeError, match="only supports semi auto parallel"):
        model.infer_predict_layout(Tensor(whole()))
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    net = nn.Dense(6, 2)
    model = ms.Model(net)
    assert model.infer_preict_layout(Tensor(whole())) == net.parameter_layout_dict
    assert net.parameter_layout_dict["weight"] == ([1], [-1, -1], [2, 6], 0, True, "", [2, 6])
    with pytest.raises(TypeError, match="must be Tensor"):
        model.infer_predict_layout(whole())


def test_a_mode_of_encryption_without_a_key_is_said_to_encrypt_nothing(tmp_path, capfd):
    path = str(tmp_path / "plain.ckpt")
    for _ in range(2):
        ms.save_checkpoint([{"name": "w", "data": Tensor(whole())}], path, enc_mode="AES-GCM/reference")
    np.testing.assert_array_equal(ms.load_checkpoint(path, dec_mode="AES-CBC")["w"].asnumpy(), whole())
    heard = capfd.readouterr().err
    assert heard.count("For 'save_checkpoint', the argument 'enc_mode' 'AES-GCM/reference' has no effect without enc_key: what is saved is not encrypted") == 1
    assert heard.count("For 'load_checkpoint', the argument 'dec_mode' 'AES-CBC' has no effect without dec_key: nothing is decrypted") == 1
