"""More cases: attention and the layers that are made of it, volumes, places of largest elements, functions made of functions."""
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from function_cases import function
from kinds import cell, exactly, floats, ints, value

LATER = exactly(np.triu(np.ones((4, 4), bool), 1), ms.bool_)
PADDING = exactly([[False, False, False, True, True], [False, False, False, False, True]], ms.bool_)


def joined(result):
    """All that a cell gives as one vector: the suite differentiates one result."""
    parts = [ops.Reshape()(part, (-1, )) for part in (result if isinstance(result, tuple) else (result, ))]
    return ops.Concat()(tuple(ops.Cast()(part, ms.float32) for part in parts))


class Joined(nn.Cell):
    """A cell with several results."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def construct(self, *x):
        return joined(self.cell(*x))


# --- attention
def attention(label, inputs, call=lambda f, *x: f(*x), **settings):
    class Attention(nn.Cell):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, **settings)

        def construct(self, *x):
            return joined(call(self.attention, *x))

    cell(f"nn.MultiheadAttention {label}", Attention, *inputs)


attention("itself", [floats(4, 2, 8), floats(5, 2, 8), floats(5, 2, 8)])
attention("batch first", [floats(2, 4, 8), floats(2, 5, 8), floats(2, 5, 8)], batch_first=True)
attention("one row", [floats(4, 8), floats(5, 8), floats(5, 8)])
attention("without weights", [floats(4, 2, 8), floats(5, 2, 8), floats(5, 2, 8)], lambda f, *x: f(*x, need_weights=False)[0])
attention("of each head", [floats(4, 2, 8), floats(5, 2, 8), floats(5, 2, 8)], lambda f, *x: f(*x, average_attn_weights=False)[1])
attention("other widths", [floats(4, 2, 8), floats(5, 2, 6), floats(5, 2, 3)], kdim=6, vdim=3, has_bias=False)
attention("more keys", [floats(4, 2, 8), floats(5, 2, 8), floats(5, 2, 8), PADDING], lambda f, q, k, v, m: f(q, k, v, key_padding_mask=m),
          add_bias_kv=True, add_zero_attn=True)
attention("later ones hidden", [floats(4, 2, 8), floats(4, 2, 8), floats(4, 2, 8), LATER], lambda f, q, k, v, m: f(q, k, v, attn_mask=m))
attention("numbers added", [floats(4, 2, 8), floats(4, 2, 8), floats(4, 2, 8), floats(4, 4, 4)], lambda f, q, k, v, m: f(q, k, v, attn_mask=ops.stop_gradient(m)))
SETTINGS = {"plain": {}, "norm first": {"norm_first": True, "batch_first": True}, "gelu": {"activation": "gelu"}}
for label, settings in SETTINGS.items():
    cell(f"nn.TransformerEncoderLayer {label}", lambda settings=settings: nn.TransformerEncoderLayer(8, 2, 12, 0.0, **settings), floats(3, 4, 8))
    cell(f"nn.TransformerDecoderLayer {label}", lambda settings=settings: nn.TransformerDecoderLayer(8, 2, 12, 0.0, **settings), floats(3, 3, 8),
         floats(3, 3, 8))
cell("nn.TransformerEncoder", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.0), 2, nn.LayerNorm((8, ))), floats(3, 4, 8))
cell("nn.TransformerDecoder", lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, 0.0), 2), floats(3, 4, 8), floats(5, 4, 8), scale=0.5)


class WithMasks(nn.Cell):
    """A Transformer whose decoder sees earlier tokens only, and whose encoder's last tokens are padding."""

    def __init__(self):
        super().__init__()
        self.transformer = nn.Transformer(8, 2, 1, 2, 12, 0.0, batch_first=True)

    def construct(self, src, tgt, later, padding):
        return self.transformer(src, tgt, tgt_mask=later, src_key_padding_mask=padding, memory_key_padding_mask=padding)


cell("nn.Transformer", lambda: nn.Transformer(8, 2, 2, 1, 12, 0.0), floats(3, 4, 8), floats(5, 4, 8))
cell("nn.Transformer masks", WithMasks, floats(2, 5, 8), floats(2, 4, 8), LATER, PADDING)

# --- volumes
VOLUMES = {"same": {}, "same stride": {"stride": 2}, "valid": {"pad_mode": "valid", "has_bias": True},
           "pad": {"pad_mode": "pad", "padding": 1, "stride": (2, 1, 2)}, "sides": {"pad_mode": "pad", "padding": (1, 0, 2, 1, 0, 1)},
           "dilation": {"dilation": (1, 2, 1), "pad_mode": "valid"}}
for label, settings in VOLUMES.items():
    cell(f"nn.Conv3d {label}", lambda settings=settings: nn.Conv3d(2, 4, (3, 2, 3), **settings), floats(2, 2, 6, 5, 7))
cell("nn.Conv3dTranspose", lambda: nn.Conv3dTranspose(2, 4, 3, stride=2), floats(2, 2, 3, 4, 2))
cell("nn.Conv3dTranspose valid", lambda: nn.Conv3dTranspose(2, 4, (2, 3, 2), pad_mode="valid", has_bias=True), floats(2, 2, 3, 4, 2))
cell("nn.Conv3dTranspose pad", lambda: nn.Conv3dTranspose(2, 4, 3, stride=2, pad_mode="pad", padding=1, output_padding=1), floats(2, 2, 3, 4, 2))
function("ops.conv3d", lambda f, x, w, b: f(x, w, b, (1, 2, 1), "pad", 1), floats(2, 2, 5, 4, 6), floats(3, 2, 3, 3, 3), floats(3))
for name in ("MaxPool3d", "AvgPool3d"):
    cell(f"nn.{name}", lambda name=name: getattr(nn, name)((2, 3, 2), 2), floats(2, 2, 5, 6, 7))
    cell(f"nn.{name} same", lambda name=name: getattr(nn, name)(2, 2, pad_mode="same"), floats(2, 2, 5, 6, 7))
    cell(f"nn.{name} pad", lambda name=name: getattr(nn, name)(3, 2, pad_mode="pad", padding=1), floats(2, 2, 5, 6, 7))
function("ops.max_pool3d", lambda f, x: f(x, 3, 2, 1), floats(2, 2, 5, 6, 7))
function("ops.avg_pool3d", lambda f, x: f(x, 3, 2, 1), floats(2, 2, 5, 6, 7))
function("ops.avg_pool3d without zeros", lambda f, x: f(x, 3, 2, 1, count_include_pad=False), floats(2, 2, 5, 6, 7))

# --- places
PLACES = {"": {}, "dilation": {"dilation": 2}, "ceil": {"ceil_mode": True}}
for label, settings in PLACES.items():
    cell(f"nn.MaxPool2d places {label}".strip(), lambda settings=settings: Joined(nn.MaxPool2d(3, 2, "pad", 1, return_indices=True, **settings)), floats(2, 3, 8, 7))
    function(f"ops.max_pool2d places {label}".strip(), lambda f, x, settings=settings: f(x, 3, 2, 1, return_indices=True, **settings), floats(2, 3, 8, 7))
cell("nn.MaxPool2d ceil", lambda: nn.MaxPool2d(3, 2, "pad", 1, ceil_mode=True), floats(2, 3, 8, 6))
for name, shape in {"Dropout1d": (2, 3, 4), "Dropout2d": (2, 3, 4, 4), "Dropout3d": (2, 3, 2, 4, 4)}.items():
    cell(f"nn.{name} nothing", lambda name=name: getattr(nn, name)(0.0), floats(*shape))
    cell(f"nn.{name} in evaluation", lambda name=name: getattr(nn, name)(0.5), floats(*shape), train=False)

# --- functions of functions
X, Y = Tensor([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]], ms.float32), Tensor([[0.5, 1.0, 2.0], [-1.0, 0.5, 1.5]], ms.float32)


def bent(x, y):
    return ops.sin(x) * y + ops.ReduceSum(True)(y, 1)


def bent_and_sum(x, y):
    return bent(x, y), x + y


def product_of(x, y):
    return ops.ReduceSum()(x * y)


def sum_of(x, y):
    return x + y


for name in ("jacrev", "jacfwd"):
    value(f"ops.{name}", lambda name=name: getattr(ops, name)(bent)(X, Y))
    value(f"ops.{name} of several", lambda name=name: getattr(ops, name)(bent, (0, 1))(X, Y))
    value(f"ops.{name} aux", lambda name=name: getattr(ops, name)(bent_and_sum, 1, has_aux=True)(X, Y))
value("ops.vjp", lambda: ops.vjp(bent, X, Y)[1](Y))
value("ops.vjp value", lambda: ops.vjp(bent, X, Y)[0])
value("ops.jvp", lambda: ops.jvp(bent, (X, Y), (Y, X)))
value("ops.vmap", lambda: ops.vmap(product_of)(X, Y))
value("ops.vmap axes", lambda: ops.vmap(sum_of, in_axes=(1, None), out_axes=1)(X, Tensor([3.0, 4.0], ms.float32)))

# --- which gradient is whose
for dims in ((1, -1), (0, 1), (-2, -1), (0, -1), (2, 2)):
    cell(f"nn.Flatten {dims[0]} to {dims[1]}", lambda dims=dims: nn.Flatten(*dims), floats(2, 3, 4))


def identified(gradients):
    """The numbers and names in it, and the gradients."""
    if isinstance(gradients, tuple) and len(gradients) == 2 and isinstance(gradients[0], (int, str)):
        return [np.array([str(gradients[0])]), gradients[1]]
    return [one for part in gradients for one in identified(part)]


def two_inputs(which, **settings):
    """ops.grad or ops.value_and_grad of a function of two inputs and a parameter, with settings."""
    weight = ms.Parameter(Tensor([2.0, 3.0], ms.float32), name="weight")
    if "weights" in settings:
        settings["weights"] = [weight] if settings["weights"] == "list" else weight

    def f(x, y):
        return (x * x * y * weight).sum(), y

    made = getattr(ops, which)(f, return_ids=True, has_aux=True, **settings)(Tensor([1.0, 4.0], ms.float32), Tensor([5.0, 6.0], ms.float32))
    gradients = made[1] if which == "value_and_grad" else made[0]
    found = identified(gradients)
    if "weights" in settings:
        found.append(ops.get_grad(gradients, weight))
    if settings.get("grad_position") is not None:
        found.append(ops.get_grad(gradients, np.atleast_1d(settings["grad_position"]).tolist()[-1]))
    return tuple(found)


for which in ("grad", "value_and_grad"):
    for label, settings in {"an input": dict(grad_position=0), "inputs": dict(grad_position=(0, 1)), "a weight": dict(grad_position=None, weights="one"),
                            "weights": dict(grad_position=None, weights="list"), "both": dict(grad_position=0, weights="list"),
                            "inputs and weights": dict(grad_position=(0, 1), weights="list")}.items():
        value(f"ops.{which} return_ids of {label}", lambda which=which, s=settings: two_inputs(which, **dict(s)))
    value(f"ops.{which} sens_param", lambda which=which: getattr(ops, which)(lambda x: x * x, sens_param=True)(
        Tensor([1.0, 4.0], ms.float32), Tensor([0.5, 2.0], ms.float32)))
value("ops.get_grad of an input", lambda: two_inputs("grad", grad_position=0))


class Registered(ops.Primitive):
    """An operator of one's own, whose settings are its remarks."""

    @ops.prim_attr_register
    def __init__(self, scale=2, mode="plain"):
        pass


def remarks():
    made = Registered(3)
    return np.array([made.name, made.attrs["mode"], *sorted(made.init_attrs)]), np.array([made.attrs["scale"]])


value("ops.prim_attr_register", remarks)

# --- settings of the reference's later releases
for label, settings in {"pad": dict(padding=1), "dilation": dict(padding=1, dilation=2), "places": dict(padding=1, return_indices=True),
                        "ceiling": dict(padding=1, ceil_mode=True)}.items():
    cell(f"nn.MaxPool1d {label}", lambda s=settings: nn.MaxPool1d(3, 2, "pad", **s), floats(2, 3, 8))
for label, settings in {"pad": dict(padding=1), "without what surrounds it": dict(padding=(1, ), count_include_pad=False)}.items():
    cell(f"nn.AvgPool1d {label}", lambda s=settings: nn.AvgPool1d(3, 2, "pad", **s), floats(2, 3, 8))
cell("nn.ConstantPad1d value", lambda: nn.ConstantPad1d(padding=(1, 2), value=0.5), floats(2, 3, 4))
# Without axes MindSpore's kernels for CPUs sum all, whatever skip_mode says.
value("ops.ReduceSum skip_mode", lambda: ops.ReduceSum(skip_mode=True)(Tensor(np.arange(6.0).reshape(2, 3), ms.float32), 1))
value("ops.Unstack num", lambda: ops.Unstack(axis=1, num=3)(Tensor(np.arange(6.0).reshape(2, 3), ms.float32)))
value("ops.BiasAdd format", lambda: ops.BiasAdd(data_format="NCHW")(Tensor(np.ones((2, 3), np.float32)), Tensor([1.0, 2.0, 3.0], ms.float32)))
value("ops.Gather batch_dims", lambda: ops.Gather(batch_dims=0)(Tensor(np.arange(6.0).reshape(2, 3), ms.float32), Tensor([1, 0], ms.int32), 1))
X1, X2 = Tensor([[1.0, -2.0], [3.0, 4.0]], ms.float32), Tensor([[2.0, 2.0], [0.5, -1.0]], ms.float32)
for name in "add divide equal floor_divide fmod greater less_equal maximum multiply power subtract true_divide remainder heaviside logaddexp".split():
    value(f"numpy.{name} by names", lambda f=name: getattr(ms.numpy, f)(x1=X1, x2=X2))
    value(f"numpy.{name} dtype", lambda f=name: getattr(ms.numpy, f)(X1, x2=X2, dtype=ms.float16))
for name in "abs ceil cosh exp expm1 isnan log1p rint sign sin square tanh trunc deg2rad".split():
    value(f"numpy.{name} by names", lambda f=name: getattr(ms.numpy, f)(x=X2, dtype=ms.float32))
value("numpy.negative by names", lambda: ms.numpy.negative(a=X1))
value("numpy.vstack by names", lambda: ms.numpy.vstack(tup=(X1, X2)))
value("numpy.stack by names", lambda: ms.numpy.stack(arrays=(X1, X2), axis=1))
value("numpy.flipud by names", lambda: ms.numpy.flipud(m=X1))
value("numpy.moveaxis by names", lambda: ms.numpy.moveaxis(a=X1, source=0, destination=1))
value("numpy.where by names", lambda: ms.numpy.where(condition=X1 > 0, x=X1, y=X2))
value("numpy.isclose by names", lambda: ms.numpy.isclose(a=X1, b=X1 + 1e-7))
value("numpy.ones_like by names", lambda: ms.numpy.ones_like(a=X1, dtype=ms.int32, shape=(3, )))
value("numpy.amax by names", lambda: ms.numpy.amax(a=X1, axis=0, keepdims=True))


# --- gradients of several results
def several(name, call):
    """`call` of a function with three results, two of which a number multiplies, and of its input and that number."""
    def results(x, factor):
        return ops.square(x) * factor, (x * 3.0, ops.sin(x) * factor)

    value(f"{name} several results", lambda: joined_tree(call(results, Tensor([[1.0, 2.0], [-0.5, 3.0]], ms.float32), Tensor(2.0, ms.float32))))


def joined_tree(tree):
    """All tensors of tuples of tuples as one vector."""
    flat, waiting = [], [tree]
    while waiting:
        item = waiting.pop(0)
        if isinstance(item, (tuple, list)):
            waiting = [*item, *waiting]
        else:
            flat.append(item)
    return joined(tuple(flat))


several("ops.grad", lambda f, x, factor: ops.grad(f, (0, 1))(x, factor))
several("ops.value_and_grad", lambda f, x, factor: ops.value_and_grad(f, (0, 1))(x, factor))
several("ops.GradOperation", lambda f, x, factor: ops.GradOperation(get_all=True)(f)(x, factor))
value("ops.GradOperation sens of each result", lambda: joined_tree(ops.GradOperation(get_all=True, sens_param=True)(lambda x: (x * 2.0, x * 3.0))(
    Tensor([1.0, 2.0], ms.float32), (Tensor([1.0, 5.0], ms.float32), Tensor([7.0, 0.5], ms.float32)))))

# --- arguments that were without effect
cell("nn.Embedding use_one_hot", lambda: nn.Embedding(7, 3, True), ints(2, 4, high=7))
cell("nn.LayerNorm begin_params_axis", lambda: nn.LayerNorm((3, 4), begin_norm_axis=2, begin_params_axis=1), floats(2, 3, 4))
