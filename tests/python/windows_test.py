"""Filters and windows of three dims, and places of largest elements, judged by plain loops."""
import itertools

import numpy as np
import pytest
from tessera import ops

RNG = np.random.default_rng(0)


def conv3d_by_hand(x, w, stride, sides, dilation):
    x = np.pad(x, [(0, 0), (0, 0), *[(sides[2 * d], sides[2 * d + 1]) for d in range(3)]])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation)]
    counts = [(size - r) // s + 1 for size, r, s in zip(x.shape[2:], reach, stride)]
    made = np.zeros((x.shape[0], w.shape[0], *counts))
    for place in itertools.product(*map(range, counts)):
        window = tuple(slice(p * s, p * s + r, d) for p, s, r, d in zip(place, stride, reach, dilation))
        made[(slice(None), slice(None), *place)] = np.einsum("ncijk,ocijk->no", x[(slice(None), slice(None), *window)], w)
    return made


@pytest.mark.parametrize("stride, sides, dilation", [((1, 1, 1), (0, ) * 6, (1, 1, 1)), ((2, 1, 2), (1, 0, 2, 1, 0, 1), (1, 1, 1)), ((1, 2, 1), (1, ) * 6, (2, 1, 1))])
def test_conv3d_and_its_transpose(stride, sides, dilation):
    x, w = RNG.normal(size=(2, 3, 6, 5, 7)).astype(np.float32), RNG.normal(size=(4, 3, 2, 3, 2)).astype(np.float32)
    wanted = conv3d_by_hand(x, w, stride, sides, dilation)
    made = ops.conv3d(x, w, stride, "pad", sides, dilation)
    np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-4, atol=1e-4)
    # <conv(x), y> = <x, transpose(y)>
    y = RNG.normal(size=wanted.shape).astype(np.float32)
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation)]
    more = [(size + sides[2 * i] + sides[2 * i + 1] - r) % s for i, (size, r, s) in enumerate(zip(x.shape[2:], reach, stride))]
    back = ops.conv3d_transpose(y, w, stride, "pad", sides, dilation, output_padding=more)
    assert back.shape == x.shape
    assert float((wanted * y).sum()) == pytest.approx(float((x * back.numpy()).sum()), rel=1e-4)


@pytest.mark.parametrize("ceil", [False, True])
def test_pools_of_three_dims(ceil):
    x = RNG.normal(size=(2, 3, 5, 6, 7)).astype(np.float32)
    made = ops.max_pool3d(x, (2, 3, 2), 2, ceil_mode=ceil).numpy()
    for place in itertools.product(*map(range, made.shape[2:])):
        d, h, w = (2 * p for p in place)
        assert (made[(slice(None), slice(None), *place)] == x[:, :, d:d + 2, h:h + 3, w:w + 2].max((2, 3, 4))).all()
    assert made.shape[2:] == ((3, 3, 4) if ceil else (2, 2, 3))
    np.testing.assert_allclose(ops.avg_pool3d(x, 2, 2).numpy()[:, :, 1, 2, 0], x[:, :, 2:4, 4:6, 0:2].mean((2, 3, 4)), rtol=1e-5)


def test_places_are_of_the_first_of_equal_ones():
    x = np.zeros((1, 1, 4, 4), np.float32)
    x[0, 0, 2, 1] = x[0, 0, 2, 2] = 5
    values, places = ops.max_pool2d_with_places(x, 3, 2, 1)
    assert values.numpy()[0, 0].tolist() == [[0, 0], [5, 5]] and places.numpy()[0, 0].tolist() == [[0, 1], [9, 9]]


def test_refusals():
    with pytest.raises(ValueError, match="max_pool2d_with_places: a window of .5, 5. does not fit"):
        ops.max_pool2d_with_places(np.zeros((1, 1, 3, 3), np.float32), 5)
    with pytest.raises(ValueError, match="conv3d: padding must be one number or 6"):
        ops.conv3d(np.zeros((1, 1, 3, 3, 3), np.float32), np.zeros((1, 1, 1, 1, 1), np.float32), padding=(1, 2), pad_mode="pad")
    with pytest.raises(ValueError, match="unknown pad_mode 'full'"):
        ops.conv3d(np.zeros((1, 1, 3, 3, 3), np.float32), np.zeros((1, 1, 1, 1, 1), np.float32), pad_mode="full")
