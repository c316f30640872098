"""A misspelt keyword: the error names it, and the nearest that there is."""
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
import tessera
from mindspore import Tensor, nn, ops

VECTOR = Tensor([1.0, 2.0])


@pytest.mark.parametrize("call, wrong, near", [
    # Functions, classes and methods of Python.
    (lambda: nn.Dense(2, 3, has_biass=True), "has_biass", "has_bias"), (lambda: ops.interpolate(VECTOR, sizes=3), "sizes", "size"),
    (lambda: ms.Model(nn.Dense(2, 3)).train(1, None, callback=[]), "callback", "callbacks"), (lambda: nn.BatchNorm3d(3, epss=1), "epss", "eps"),
    (lambda: Tensor([1.0], dtpe=ms.float32), "dtpe", "dtype"), (lambda: ms.Parameter([1.0], nme="x"), "nme", "name"), (lambda: nn.LSTM(2, 3, num_layer=2), "num_layer", "num_layers"),
    (lambda: VECTOR.mean(axs=0), "axs", "axis"), (lambda: ops.ReduceSum(keepdims=True), "keepdims", "keep_dims"), (lambda: ops.Range(maxlenn=3), "maxlenn", "maxlen"),
    (lambda: nn.Momentum([], learningrate=0.1, momentum=0.9), "learningrate", "learning_rate"), (lambda: ms.Model(nn.Dense(2, 2), amp_lvl="O2"), "amp_lvl", "amp_level"),
    (lambda: ms.save_checkpoint(nn.Dense(2, 2), "x", async_sav=True), "async_sav", "async_save"),
    (lambda: ds.NumpySlicesDataset([1, 2]).map(abs, input_column="x"), "input_column", "input_columns"),
    (lambda: tessera.nn.CellList(cell=[]), "cell", "cells"),
    # Those of C++.
    (lambda: tessera.ops.matmul(VECTOR, VECTOR, transposeb=True), "transposeb", "transpose_b"), (lambda: tessera.nn.Dense(2, 3, has_biass=True), "has_biass", "has_bias"),
    (lambda: tessera.Model(tessera.nn.Dense(2, 3), optimiser=None), "optimiser", "optimizer"), (lambda: tessera.ops.softmax(VECTOR, axs=0), "axs", "axis"),
    (lambda: tessera.data.tensors({"x": [1.0]}, shufle=True), "shufle", "shuffle"), (lambda: tessera.data.tensors({"x": [1.0]}).batch(1, drop_remain=True), "drop_remain", "drop_remainder"),
    (lambda: tessera.Tensor([1.0], dtyp="int32"), "dtyp", "dtype")])
def test_the_nearest_keyword_is_named(call, wrong, near):
    with pytest.raises((TypeError, ValueError), match=rf"got an unexpected keyword argument '{wrong}'; did you mean '{near}'\?$"):
        call()


@pytest.mark.parametrize("call", [lambda: tessera.Model(tessera.nn.Dense(2, 3), gradient_clip_norm=1.0), lambda: tessera.nn.SGD(0.1, clip_norm=1.0)])
def test_who_wants_to_clip_gradients_is_told_what_does_it(call):
    with pytest.raises(TypeError, match=r"unexpected keyword argument '.*clip_norm': ops.clip_by_global_norm\(gradients, 1.0\) clips the gradients, in a training step"):
        call()


def test_without_a_near_one_all_are_named():
    with pytest.raises(TypeError, match=r"^expand_dims\(\) got an unexpected keyword argument 'zzz'; it takes axes, x$"):
        tessera.ops.expand_dims(VECTOR, zzz=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'batch_size'; it takes "):
        tessera.Model(tessera.nn.Dense(2, 3), batch_size=3)
    with pytest.raises(TypeError, match=r"^Dense.__init__\(\) got an unexpected keyword argument 'zzz'; it takes in_channels, "):
        nn.Dense(1, 1, zzz=1)


@pytest.mark.parametrize("call, near", [(lambda: ms.set_context(mod=1), "mode"), (lambda: ms.set_auto_parallel_context(paralel_mode="x"), "parallel_mode")])
def test_settings_of_the_context_have_near_ones_too(call, near):
    with pytest.raises(ValueError, match=f"is not recognized! Did you mean {near}?"):
        call()


def test_other_errors_stay_as_they_are():
    with pytest.raises(TypeError, match="keep_dims must be a bool, got 'a' of type str"):
        tessera.ops.reduce_sum(VECTOR, keep_dims="a", axes=0)

    def inner():
        return nn.Dense(1, 1, wrong_one=2)

    with pytest.raises(TypeError, match="unexpected keyword argument 'function_that'"):
        tessera._keywords.explained(lambda x: inner(function_that=x))(x=1)


def test_an_array_is_not_to_blame_where_its_items_fit():
    table = np.ones(3)
    assert tessera.nn.with_warmup(table, 1) == [1, 1, 1]
    with pytest.raises(TypeError, match=r"with_warmup\(\): steps must be an int, got 'a' of type str"):
        tessera.nn.with_warmup(table, "a")
    with pytest.raises(TypeError, match=r"with_warmup\(\): table must be a Sequence\[float\], got array\(\['a'\]"):
        tessera.nn.with_warmup(np.array(["a"]), 1)


def test_an_argument_that_cannot_be_shown_leaves_an_error_of_the_call():
    class Silent:
        def __repr__(self):
            raise RuntimeError("no text")

    class Closed:
        @property
        def __index__(self):
            raise RuntimeError("closed")

    with pytest.raises(TypeError, match=r"steps must be an int, got <Silent instance at .* of type Silent"):
        tessera.nn.with_warmup([1.0], Silent())
    with pytest.raises(TypeError, match="incompatible function arguments"):
        tessera.nn.with_warmup([1.0], Closed())
    with pytest.raises(TypeError, match=r"steps must be an int, got \[0, 1, 2, 3, 4, 5, \.\.\.\] of type list"):
        tessera.nn.with_warmup([1.0], list(range(100000)))


def test_subclasses_of_ones_own_are_told_too():
    class Mine(nn.Conv2d):
        def __init__(self):
            super().__init__(1, 1, 3, pad_mod="same")

    with pytest.raises(TypeError, match="did you mean 'pad_mode'"):
        Mine()
