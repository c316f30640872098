"""More cases: functions and cells that are made of others."""
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from cases import grouped
from kinds import CASES, SINGLE, bools, cell, exactly, floats, grid, ints, metric, operator, optimizer, positive, seeded, value


def function(name, call, *inputs, **settings):
    """ops.NAME as `call` uses it: a function of the function."""
    operator(name, lambda: lambda *given: call(getattr(ops, name.split()[0].split(".")[1]), *given), *inputs, **{"dtypes": SINGLE, **settings})


def plain(names, *inputs, **settings):
    """ops.NAME of these inputs; of several such cases the later ones have other inputs."""
    for name in names.split():
        label = f"ops.{name}"
        while label in CASES:
            label += " also"
        function(label, lambda f, *given: f(*given), *inputs, **settings)


def classes_of_rows(rows, classes):
    """A class number for each row."""
    return ints(rows, high=classes)


def primitive(name, make, *inputs, **settings):
    """An operator as an object."""
    operator(name, make, *inputs, **{"dtypes": SINGLE, **settings})


# --- elementwise
plain("absolute negative exp2 deg2rad rad2deg sinc erf erfc silu celu selu softshrink hardshrink hardsigmoid hardswish hardtanh tanhshrink softmin "
      "leaky_relu fast_gelu logsigmoid frac trunc sgn signbit isneginf isposinf isreal deepcopy identity asinh arcsinh atan arctan", floats(3, 4))
plain("log2 log10 inv", positive(3, 4))
plain("erf erfc atan sinc", floats(3, 40, low=-5, high=5))
plain("asin acos atanh arcsin arccos arctanh", floats(3, 4, low=-0.9, high=0.9))
plain("acosh arccosh", floats(3, 4, low=1.1, high=4))
plain("round", floats(3, 4, low=-5, high=5))
plain("round", grid(4, 6))
plain("positive", floats(3, 4))
function("ops.logit", lambda f, x: f(x), floats(3, 4, low=0.1, high=0.9))
function("ops.logit eps", lambda f, x: f(x, 0.2), floats(3, 4, low=0.05, high=0.95))
plain("multiply subtract logaddexp logaddexp2 hypot copysign heaviside atan2 arctan2", floats(3, 4), floats(3, 4))
plain("eq ne lt le gt ge isclose approximate_equal", grid(4, 6), grid(4, 6))
plain("true_divide divide xlogy floor_divide floor_mod fmod remainder truncate_div truncate_mod", floats(3, 4), positive(3, 4))
plain("float_power", positive(3, 4), floats(3, 4))
plain("lerp addcmul addcdiv", floats(3, 4), floats(3, 4), positive(3, 4))
function("ops.clamp", lambda f, x: f(x, -0.5, 0.5), floats(3, 4))
function("ops.clip", lambda f, x: f(x, None, 0.5), floats(3, 4))
function("ops.threshold", lambda f, x: f(x, 0.1, 7.0), floats(3, 4))
function("ops.prelu", lambda f, x, w: f(x, w), floats(2, 3, 4), positive(3))
function("ops.glu", lambda f, x: f(x), floats(3, 4))
function("ops.soft_shrink", lambda f, x: f(x), floats(3, 4))
function("ops.accumulate_n", lambda f, x, y: f([x, y]), floats(3, 4), floats(3, 4))
function("ops.nan_to_num", lambda f: f(Tensor([np.nan, np.inf, -np.inf, 1.0], ms.float32), 0.5, 7.0, -7.0))

# --- elementwise, where the plain formulas lose digits or leave the range; compared by the largest magnitude, so the small ones stand alone
plain("log1p expm1 sinh asinh atanh tan sin tanh asin atan erf elu selu celu softsign mish gelu silu", floats(3, 4, low=-1e-6, high=1e-6))
plain("log1p expm1", floats(3, 4, low=-3e-4, high=3e-4))
plain("sinh cosh", floats(3, 4, low=80, high=89))
plain("sinh", floats(3, 4, low=-89, high=-80))
plain("asinh", floats(3, 4, low=-1e20, high=1e20))
plain("acosh", floats(3, 4, low=1e19, high=1e20))
plain("acosh", floats(3, 4, low=1.0001, high=1.001))
plain("atanh", floats(3, 4, low=0.999, high=0.9999))
plain("log1p", floats(3, 4, low=1e30, high=1e35))
plain("softplus logsigmoid mish", floats(3, 4, low=-30, high=-20))
plain("softplus logsigmoid", floats(3, 4, low=20, high=90))

# --- reductions
for axis in (None, 1, (0, 2)):
    for name in "amax amin mean sum prod var std".split():
        if axis != (0, 2) or name != "prod":
            function(f"ops.{name} {axis}", lambda f, x, axis=axis: f(x, axis), floats(2, 3, 4))
for name in "reduce_sum reduce_mean reduce_max reduce_min".split():
    function(f"ops.{name}", lambda f, x: f(x), floats(2, 3, 4))
    function(f"ops.{name} axes", lambda f, x: f(x, (0, 2)), floats(2, 3, 4))
for name in "var std var_mean std_mean".split():
    function(f"ops.{name}", lambda f, x: f(x, 1, 1, True), floats(2, 3, 4))
plain("argmax argmin", floats(3, 5), gradient=False)
function("ops.argmax axis", lambda f, x: f(x, 1, True), floats(3, 5), gradient=False)
function("ops.argmin axis", lambda f, x: f(x, 0), floats(3, 5), gradient=False)
for name in "max min".split():
    function(f"ops.{name}", lambda f, x: f(x, 1), floats(3, 5), gradient=False)
function("ops.aminmax", lambda f, x: f(x, axis=1), floats(3, 5), gradient=False)
function("ops.all", lambda f, x: f(x, 1), bools(3, 5), gradient=False)
function("ops.any", lambda f, x: f(x, 1), bools(3, 5), gradient=False)
function("ops.logsumexp", lambda f, x: f(x, 1), floats(3, 5))
primitive("ops.ApplyMomentum", lambda: lambda x, y, dx: ops.ApplyMomentum()(ms.Parameter(x, name="v"), ms.Parameter(y, name="a"), 0.1, dx, 0.9), floats(2, 3), floats(2, 3),
          floats(2, 3), gradient=False)
function("ops.nansum", lambda f, x: f(x, 1), floats(3, 5))
function("ops.nanmean", lambda f, x: f(x, 1), floats(3, 5), gradient=False)
function("ops.count_nonzero", lambda f, x: f(x, 1), grid(3, 5), gradient=False)
for label, settings in {"": {}, "1": dict(ord=1, axis=1), "3": dict(ord=3, axis=1), "inf": dict(ord=float("inf"), axis=1)}.items():
    function(f"ops.vector_norm {label}".strip(), lambda f, x, s=settings: f(x, **s), positive(3, 5), gradient=not label)
function("ops.norm", lambda f, x: f(x), floats(3, 5))
function("ops.norm dim", lambda f, x: f(x, dim=1), floats(3, 5))
function("ops.norm 1", lambda f, x: f(x, ord=1, dim=(0, 1)), floats(3, 5), gradient=False)
function("ops.dist", lambda f, x, y: f(x, y), floats(3, 5), floats(3, 5))
function("ops.clip_by_norm", lambda f, x: f(x, 1.0), floats(3, 5))
function("ops.clip_by_norm several", lambda f, x, y: f([x, y], 0.5), floats(3, 5), floats(2), gradient=False)

# --- products
plain("mm", floats(3, 4), floats(4, 5))
plain("bmm", floats(2, 3, 4), floats(2, 4, 5))
plain("mv", floats(3, 4), floats(4))
plain("dot", floats(3, 4), floats(4, 5))
plain("inner", floats(3, 4), floats(5, 4))
plain("outer ger", floats(3), floats(4))
function("ops.tensor_dot", lambda f, x, y: f(x, y, ((1, 2), (0, 1))), floats(2, 3, 4), floats(3, 4, 5))
plain("addmm", floats(3, 5), floats(3, 4), floats(4, 5))
plain("addmv", floats(3), floats(3, 4), floats(4))
plain("addr", floats(3, 4), floats(3), floats(4))
plain("baddbmm", floats(2, 3, 5), floats(2, 3, 4), floats(2, 4, 5))
plain("addbmm", floats(3, 5), floats(2, 3, 4), floats(2, 4, 5))
plain("kron", floats(2, 3), floats(4, 2))
plain("cross", floats(2, 3), floats(2, 3))
plain("vecdot", floats(3, 4), floats(3, 4))
plain("cosine_similarity", floats(3, 4), floats(3, 4))
function("ops.cumsum", lambda f, x: f(x, 1), floats(3, 5))
function("ops.cumprod", lambda f, x: f(x, 1), positive(3, 5))
function("ops.diff", lambda f, x: f(x, 2), floats(3, 5))
for equation, shapes in {"ij,jk->ik": ((3, 4), (4, 5)), "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)), "ij->j": ((3, 4), ), "ij,ij->i": ((3, 4), (3, 4)), "i,j->ij": ((3, ), (4, ))}.items():
    function(f"ops.einsum {equation}", lambda f, *x, e=equation: f(e, *x), *[floats(*shape) for shape in shapes], gradient=False)

# --- new tensors
function("ops.full", lambda f: f((2, 3), 1.5, dtype=ms.float32))
function("ops.full_like", lambda f, x: f(x, 1.5), floats(2, 3), gradient=False)
function("ops.fills", lambda f, x: f(x, 2.0), floats(2, 3), gradient=False)
function("ops.arange", lambda f: f(1, 7, 2))
function("ops.arange float", lambda f: f(0.0, 2.0, 0.5))
function("ops.range", lambda f: f(1, 7, 2))
function("ops.linspace", lambda f: f(1.0, 2.0, 5))
function("ops.logspace", lambda f: f(0.0, 2.0, 5))
function("ops.eye", lambda f: f(3, 4, ms.float32))
for indexing in ("xy", "ij"):
    function(f"ops.meshgrid {indexing}", lambda f, x, y, i=indexing: f(x, y, indexing=i), floats(3), floats(4), gradient=False)
function("ops.tril_indices", lambda f: f(3, 4))
function("ops.triu_indices", lambda f: f(3, 4, 1))
function("ops.vander", lambda f, x: f(x, 3), floats(4), gradient=False)

# --- shapes
function("ops.cat", lambda f, x, y: f((x, y), 1), floats(2, 3), floats(2, 2))
function("ops.unsqueeze", lambda f, x: f(x, 1), floats(2, 3))
function("ops.permute", lambda f, x: f(x, (2, 0, 1)), floats(2, 3, 4))
function("ops.swapaxes", lambda f, x: f(x, 0, 2), floats(2, 3, 4))
function("ops.swapdims", lambda f, x: f(x, 0, 2), floats(2, 3, 4))
plain("t", floats(2, 3))
plain("adjoint", floats(2, 3, 4))
for name in "moveaxis movedim".split():
    function(f"ops.{name}", lambda f, x: f(x, (0, 1), (2, 0)), floats(2, 3, 4))
plain("ravel flatten", floats(2, 3, 4))
function("ops.flatten dims", lambda f, x: f(x, start_dim=0, end_dim=1), floats(2, 3, 4))
function("ops.expand", lambda f, x: f(x, (3, 4)), floats(1, 4), gradient=False)
plain("expand_as view_as type_as", floats(3, 4), floats(3, 4), gradient=False)
for count in (1, 2, 3):
    plain(f"atleast_{count}d", floats(3), gradient=False)
    plain(f"atleast_{count}d", floats(3, 4), gradient=False)
for name in "vstack hstack dstack column_stack row_stack".split():
    function(f"ops.{name}", lambda f, x, y: f((x, y)), floats(3, 4), floats(3, 4))
    function(f"ops.{name} vectors", lambda f, x, y: f((x, y)), floats(3), floats(3))
function("ops.split", lambda f, x: f(x, 2, 1), floats(2, 5))
function("ops.split sizes", lambda f, x: f(x, [1, 4], 1), floats(2, 5))
function("ops.chunk", lambda f, x: f(x, 2, 1), floats(2, 5))
function("ops.tensor_split", lambda f, x: f(x, 3, 1), floats(2, 7))
function("ops.tensor_split places", lambda f, x: f(x, (2, 5), 1), floats(2, 7))
function("ops.vsplit", lambda f, x: f(x, 2), floats(4, 3))
function("ops.hsplit", lambda f, x: f(x, 2), floats(3, 4))
function("ops.dsplit", lambda f, x: f(x, 2), floats(2, 3, 4))
function("ops.unstack", lambda f, x: f(x, 1), floats(2, 3))
function("ops.unbind", lambda f, x: f(x, 1), floats(2, 3))
function("ops.narrow", lambda f, x: f(x, 1, 1, 2), floats(3, 4))
function("ops.slice", lambda f, x: f(x, (1, 0), (2, 3)), floats(3, 4))
function("ops.strided_slice", lambda f, x: f(x, (0, 1), (3, 4), (2, 1)), floats(3, 4))
function("ops.repeat_elements", lambda f, x: f(x, 2, 1), floats(3, 4))
function("ops.repeat_interleave", lambda f, x: f(x, 2, 1), floats(3, 4))
function("ops.flip", lambda f, x: f(x, (0, 1)), floats(3, 4))
plain("flipud fliplr", floats(3, 4))
function("ops.reverse", lambda f, x: f(x, [0]), floats(3, 4))
function("ops.rot90", lambda f, x: f(x, 1, (0, 1)), floats(3, 4))
function("ops.roll", lambda f, x: f(x, 2, 1), floats(3, 4), gradient=False)
plain("diag", floats(3))
plain("diag", floats(3, 3))
plain("diagflat", floats(3))
function("ops.diagonal", lambda f, x: f(x, 1), floats(3, 4))
plain("trace", floats(3, 3))
for name in "tril triu".split():
    function(f"ops.{name}", lambda f, x: f(x, 1), floats(3, 4))

# --- choosing
function("ops.where", lambda f, c, x, y: f(c, x, y), bools(3, 4), floats(3, 4), floats(3, 4))
function("ops.masked_fill", lambda f, x, m: f(x, m, 0.5), floats(3, 4), bools(3, 4))
function("ops.index_select", lambda f, x, i: f(x, 1, i), floats(3, 5), ints(2))
function("ops.take", lambda f, x, i: f(x, i), floats(3, 5), ints(2), gradient=False)
for name in "gather_d gather_elements".split():
    function(f"ops.{name}", lambda f, x, i: f(x, 1, i), floats(3, 5), ints(3, 2))
function("ops.gather_nd", lambda f, x, i: f(x, i), floats(3, 5), ints(4, 2, high=3))
plain("tensor_scatter_add tensor_scatter_sub", floats(3, 5), ints(4, 2, high=3), floats(4))
function("ops.tensor_scatter_update", lambda f, x, y: f(x, Tensor([[0, 1], [2, 3]], ms.int32), y), floats(3, 5), floats(2))
function("ops.tensor_scatter_elements", lambda f, x, y: f(x, Tensor([[0, 1], [3, 2]], ms.int32), y, 1), floats(2, 5), floats(2, 2), gradient=False)
function("ops.scatter", lambda f, x, y: f(x, 1, Tensor([[0, 1], [3, 2]], ms.int64), y), floats(2, 5), floats(2, 2), gradient=False)
function("ops.scatter_nd", lambda f, y: f(Tensor([[0, 1], [2, 3]], ms.int32), y, (3, 5)), floats(2))
function("ops.index_add", lambda f, y: f(ms.Parameter(Tensor(np.ones((3, 4), np.float32)), name="x"), Tensor([0, 2], ms.int32), y, 0), floats(2, 4), gradient=False)
function("ops.unsorted_segment_sum", lambda f, x: f(x, Tensor([0, 2, 0], ms.int32), 3), floats(3, 4))
function("ops.sequence_mask", lambda f: f(Tensor([1, 3], ms.int32), 4))

# --- order
function("ops.topk", lambda f, x: f(x, 2), floats(3, 5), gradient=False)
function("ops.topk smallest", lambda f, x: f(x, 2, 0, False), floats(3, 5), gradient=False)
function("ops.top_k", lambda f, x: f(x, 2), floats(3, 5), gradient=False)
function("ops.sort", lambda f, x: f(x), floats(3, 5), gradient=False)
function("ops.sort descending", lambda f, x: f(x, 0, True), floats(3, 5), gradient=False)
function("ops.argsort", lambda f, x: f(x), floats(3, 5), gradient=False)
plain("msort", floats(3, 5), gradient=False)
function("ops.median", lambda f, x: f(x, 1), floats(3, 5), gradient=False)
for name in "nonzero argwhere".split():
    function(f"ops.{name}", lambda f, x: f(x), grid(3, 4), gradient=False)
function("ops.masked_select", lambda f, x: f(x, x > 0), grid(3, 4), gradient=False)
function("ops.unique", lambda f: f(Tensor([3, 1, 2, 1], ms.int32)))
function("ops.bincount", lambda f: f(Tensor([3, 1, 2, 1], ms.int32)))
function("ops.searchsorted", lambda f: f(Tensor([1.0, 2.0, 3.0], ms.float32), Tensor([1.5, 3.0], ms.float32)))
for side in ("left", "right"):
    function(f"ops.searchsorted {side}", lambda f, s=side: f(Tensor([1, 2, 2, 3, 3], ms.int32), Tensor([[0, 2], [3, 4]], ms.int32), side=s, out_int32=True))
    function(f"ops.searchsorted of rows {side}", lambda f, s=side: f(Tensor([[1, 2, 2, 3], [2, 3, 3, 9]], ms.int32), Tensor([[2, 3], [3, 1]], ms.int32),
                                                                    right=s == "right"))
for name, given in {"is_tensor": floats(2), "is_floating_point": floats(2), "is_complex": floats(2), "numel": floats(2, 3), "is_nonzero": positive(1)}.items():
    function(f"ops.{name}", lambda f, x: np.array(f(x)), given, gradient=False)

# --- losses and layers
for reduction in ("mean", "sum", "none"):
    for name in "mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss".split():
        function(f"ops.{name} {reduction}", lambda f, x, y, r=reduction: f(x, y, reduction=r), floats(3, 4), floats(3, 4), gradient=name != "soft_margin_loss")
    function(f"ops.kl_div {reduction}", lambda f, x, y, r=reduction: f(x, y, r), floats(3, 4), positive(3, 4), gradient=False)
    function(f"ops.cross_entropy {reduction}", lambda f, x, y, r=reduction: f(x, y, reduction=r), floats(6, 5), classes_of_rows(6, 5))
    function(f"ops.nll_loss {reduction}", lambda f, x, y, r=reduction: f(x, y, reduction=r), floats(6, 5), classes_of_rows(6, 5))
    function(f"ops.binary_cross_entropy {reduction}", lambda f, x, y, r=reduction: f(x, y, reduction=r), floats(3, 4, low=0.1, high=0.9), floats(3, 4, low=0, high=1), gradient=False)
    function(f"ops.binary_cross_entropy_with_logits {reduction}", lambda f, x, y, w, p, r=reduction: f(x, y, w, p, r), floats(3, 4), floats(3, 4, low=0, high=1),
             positive(4), positive(4), gradient=False)
    function(f"ops.cosine_embedding_loss {reduction}", lambda f, x, y, r=reduction: f(x, y, Tensor([1, -1, 1], ms.int32), 0.1, r), floats(3, 4), floats(3, 4))
    function(f"ops.hinge_embedding_loss {reduction}", lambda f, x, r=reduction: f(x, Tensor([[1, -1, 1, -1]], ms.float32), 1.0, r), floats(1, 4))
    function(f"ops.margin_ranking_loss {reduction}", lambda f, x, y, r=reduction: f(x, y, Tensor([1, -1, 1], ms.float32), 0.1, r), floats(3), floats(3))
    function(f"ops.triplet_margin_loss {reduction}", lambda f, x, y, z, r=reduction: f(x, y, z, reduction=r), floats(3, 4), floats(3, 4), floats(3, 4), gradient=False)
    function(f"ops.gaussian_nll_loss {reduction}", lambda f, x, y, v, r=reduction: f(x, y, v, reduction=r), floats(3, 4), floats(3, 4), positive(3, 4), gradient=False)
plain("dense", floats(3, 4), floats(5, 4), floats(5))
function("ops.conv2d", lambda f, x, w, b: f(x, w, b, 2, "pad", 1), floats(2, 3, 6, 6), floats(4, 3, 3, 3), floats(4))
function("ops.conv1d", lambda f, x, w: f(x, w, None, 2, "pad", 1), floats(2, 3, 7), floats(4, 3, 3))
function("ops.max_pool2d", lambda f, x: f(x, 3, 2, 1), floats(2, 3, 7, 7))
function("ops.avg_pool2d", lambda f, x: f(x, 3, 2, 1), floats(2, 3, 7, 7))
for name in "adaptive_avg_pool2d adaptive_max_pool2d".split():
    function(f"ops.{name}", lambda f, x: f(x, (2, 2)), floats(2, 3, 6, 6))
    function(f"ops.{name} uneven", lambda f, x: f(x, (3, 2)), floats(2, 3, 7, 5), gradient=False)
function("ops.adaptive_avg_pool1d", lambda f, x: f(x, 2), floats(2, 3, 6))
function("ops.adaptive_max_pool1d", lambda f, x: f(x, 2), floats(2, 3, 6))
function("ops.layer_norm", lambda f, x, w, b: f(x, (4, ), w, b), floats(3, 4), floats(4), floats(4))
function("ops.group_norm", lambda f, x, w, b: f(x, 2, w, b), floats(2, 4, 3, 3), floats(4), floats(4))
plain("rms_norm", floats(3, 4), positive(4), gradient=False)
plain("batch_norm", floats(3, 4), floats(4), positive(4), floats(4), floats(4), gradient=False)
function("ops.embedding", lambda f, i, w: f(i, w), ints(2, 3, high=5), floats(5, 4), gradient=False)
for label, settings in {"": ((1, 2, 0, 1), ), "value": ((1, 1), "constant", 0.5), "reflect": ((1, 1), "reflect"), "replicate": ((1, 1), "replicate")}.items():
    function(f"ops.pad {label}".strip(), lambda f, x, s=settings: f(x, *s), floats(2, 3, 4))
function("ops.pixel_shuffle", lambda f, x: f(x, 2), floats(2, 8, 3, 3))
function("ops.pixel_unshuffle", lambda f, x: f(x, 2), floats(2, 2, 4, 4))
function("ops.channel_shuffle", lambda f, x: f(x, 2), floats(2, 4, 3, 3))
function("ops.dropout evaluation", lambda f, x: f(x, 0.5, False), floats(3, 4))
for name, shape in {"dropout1d": (3, 4), "dropout2d": (2, 3, 4, 4), "dropout3d": (2, 3, 4, 4, 4)}.items():
    function(f"ops.{name} evaluation", lambda f, x: f(x, 0.5, False), floats(*shape))
for name, call in {"rand": lambda: ops.rand(3, 4), "randn": lambda: ops.randn(3, 4), "rand_like": lambda: ops.rand_like(Tensor(np.ones((3, 4)), ms.float32)),
                   "randn_like": lambda: ops.randn_like(Tensor(np.ones((3, 4)), ms.float32)), "randint": lambda: ops.randint(0, 5, (3, 4)),
                   "randint_like": lambda: ops.randint_like(Tensor(np.ones((3, 4)), ms.int32), 0, 5), "randperm": lambda: ops.randperm(5),
                   "uniform": lambda: ops.uniform((3, 4), Tensor(0.0, ms.float32), Tensor(1.0, ms.float32)),
                   "normal": lambda: ops.normal((3, 4), Tensor(0.0, ms.float32), Tensor(1.0, ms.float32)),
                   "standard_normal": lambda: ops.standard_normal((3, 4)), "bernoulli": lambda: ops.bernoulli(Tensor(np.ones((3, 4)), ms.float32)),
                   "shuffle": lambda: ops.shuffle(Tensor(np.ones((3, 4)), ms.float32)),
                   "multinomial": lambda: ops.multinomial(Tensor([1.0, 2.0, 3.0], ms.float32), 2),
                   "StandardNormal": lambda: ops.StandardNormal(3)((3, 4)), "UniformReal": lambda: ops.UniformReal(3)((3, 4)),
                   "UniformInt": lambda: ops.UniformInt(3)((3, 4), Tensor(1, ms.int32), Tensor(5, ms.int32)),
                   "dropout1d": lambda: ops.dropout1d(Tensor(np.ones((3, 4)), ms.float32)), "dropout2d": lambda: ops.dropout2d(Tensor(np.ones((2, 3, 4, 4)), ms.float32)),
                   "dropout3d": lambda: ops.dropout3d(Tensor(np.ones((2, 3, 4, 4, 4)), ms.float32)),
                   "gumbel_softmax": lambda: ops.gumbel_softmax(Tensor(np.ones((3, 4)), ms.float32), hard=True)}.items():
    # Drawn: only the shape and the dtype are the same.
    value(f"ops.{name}", lambda call=call: ops.zeros_like(call()))

# --- operators as objects
for name in "ACos Asin Atanh".split():
    primitive(f"ops.{name}", getattr(ops, name), floats(3, 4, low=-0.9, high=0.9))
for name in "Asinh Atan Erf Erfc Rint Round Trunc Sinc SeLU FastGeLU FastGelu CeLU HShrink SoftShrink GLU".split():
    if hasattr(ops, name):
        primitive(f"ops.{name}", getattr(ops, name), floats(3, 4))
primitive("ops.Acosh", ops.Acosh, floats(3, 4, low=1.1, high=4))
for name in "Mod FloorMod TruncateDiv TruncateMod Xlogy".split():
    primitive(f"ops.{name}", getattr(ops, name), floats(3, 4), positive(3, 4))
for name in "Atan2 Hypot MulNoNan Heaviside SquareSumAll".split():
    primitive(f"ops.{name}", getattr(ops, name), floats(3, 4), floats(3, 4), gradient=False)
for name in "IsClose ApproximateEqual".split():
    primitive(f"ops.{name}", getattr(ops, name), grid(4, 6), grid(4, 6), gradient=False)
primitive("ops.Lerp", ops.Lerp, floats(3, 4), floats(3, 4), positive(3, 4))
primitive("ops.Ger", ops.Ger, floats(3), floats(4))
primitive("ops.AccumulateNV2", lambda: lambda x, y: ops.AccumulateNV2()([x, y]), floats(3, 4), floats(3, 4), gradient=False)
primitive("ops.Logit", ops.Logit, floats(3, 4, low=0.1, high=0.9))
primitive("ops.NanToNum", lambda: lambda: ops.NanToNum(0.5, 7.0, -7.0)(Tensor([np.nan, np.inf, -np.inf, 1.0], ms.float32)))
primitive("ops.Argmin", lambda: ops.Argmin(1), floats(3, 5), gradient=False)
primitive("ops.L2Normalize", lambda: ops.L2Normalize(axis=1), floats(3, 4))
primitive("ops.CumProd", lambda: lambda x: ops.CumProd()(x, 1), positive(3, 4))
primitive("ops.CumProd exclusive", lambda: lambda x: ops.CumProd(True, True)(x, 1), positive(3, 4), gradient=False)
primitive("ops.ReduceStd", lambda: ops.ReduceStd(axis=1), floats(3, 4), gradient=False)
primitive("ops.LpNorm", lambda: ops.LpNorm(axis=[0, 1]), floats(3, 4), gradient=False)
primitive("ops.CountNonZero", lambda: ops.CountNonZero([1]), grid(3, 4), gradient=False)
primitive("ops.Cross", lambda: ops.Cross(1), floats(2, 3), floats(2, 3), gradient=False)
primitive("ops.Eye", lambda: lambda: ops.Eye()(3, 4, ms.float32))
primitive("ops.LinSpace", lambda: lambda: ops.LinSpace()(Tensor(1.0, ms.float32), Tensor(2.0, ms.float32), 5))
primitive("ops.Range", lambda: lambda: ops.Range()(Tensor(0, ms.int32), Tensor(10, ms.int32), Tensor(4, ms.int32)))
primitive("ops.Fills", lambda: lambda x: ops.Fills()(x, 2.0), floats(2, 3), gradient=False)
primitive("ops.FillV2", lambda: lambda: ops.FillV2()((2, 3), Tensor(1.5, ms.float32)))
primitive("ops.MaskedFill", lambda: lambda x, m: ops.MaskedFill()(x, m, 0.5), floats(3, 4), bools(3, 4))
primitive("ops.GatherD", lambda: lambda x, i: ops.GatherD()(x, 1, i), floats(3, 5), ints(3, 2))
primitive("ops.GatherNd", ops.GatherNd, floats(3, 5), ints(4, 2, high=3))
primitive("ops.ScatterNd", lambda: lambda y: ops.ScatterNd()(Tensor([[0, 1], [2, 3]], ms.int32), y, (3, 5)), floats(2))
for name in "TensorScatterAdd TensorScatterSub".split():
    primitive(f"ops.{name}", getattr(ops, name), floats(3, 5), ints(4, 2, high=3), floats(4))
primitive("ops.TensorScatterUpdate", lambda: lambda x, y: ops.TensorScatterUpdate()(x, Tensor([[0, 1], [2, 3]], ms.int32), y), floats(3, 5), floats(2))
primitive("ops.TensorScatterElements", lambda: lambda x, y: ops.TensorScatterElements(1)(x, Tensor([[0, 1], [3, 2]], ms.int32), y), floats(2, 5), floats(2, 2), gradient=False)
primitive("ops.UnsortedSegmentSum", lambda: lambda x: ops.UnsortedSegmentSum()(x, Tensor([0, 2, 0], ms.int32), 3), floats(3, 4))
primitive("ops.IndexAdd", lambda: lambda y: ops.IndexAdd(0)(ms.Parameter(Tensor(np.ones((3, 4), np.float32)), name="x"), Tensor([0, 2], ms.int32), y), floats(2, 4), gradient=False)
primitive("ops.Slice", lambda: lambda x: ops.Slice()(x, (1, 0), (2, 3)), floats(3, 4))
primitive("ops.Diag", ops.Diag, floats(3))
primitive("ops.DiagPart", ops.DiagPart, floats(3, 3))
primitive("ops.Trace", ops.Trace, floats(3, 3), gradient=False)
primitive("ops.Tril", ops.Tril, floats(3, 4))
primitive("ops.Triu", ops.Triu, floats(3, 4))
primitive("ops.ReverseV2", lambda: ops.ReverseV2([0]), floats(3, 4))
primitive("ops.Roll", lambda: ops.Roll(1, 0), floats(3, 4), gradient=False)
primitive("ops.Sort", ops.Sort, floats(3, 4), gradient=False)
primitive("ops.Meshgrid", lambda: lambda x, y: ops.Meshgrid()((x, y)), floats(3), floats(4), gradient=False)
primitive("ops.Unique", lambda: lambda: ops.Unique()(Tensor([3, 1, 2, 1], ms.int32)))
primitive("ops.NonZero", ops.NonZero, grid(3, 4), gradient=False)
primitive("ops.MaskedSelect", lambda: lambda x: ops.MaskedSelect()(x, x > 0), grid(3, 4), gradient=False)
primitive("ops.TensorShape", ops.TensorShape, floats(3, 4), gradient=False)
primitive("ops.StopGradient", lambda: lambda x: ops.StopGradient()(x) * x, floats(3, 4))
primitive("ops.Expand", lambda: lambda x: ops.Expand()(x, Tensor([3, 4], ms.int64)), floats(1, 4), gradient=False)
primitive("ops.Pack", lambda: lambda x, y: ops.Pack(1)((x, y)), floats(2, 3), floats(2, 3))
primitive("ops.Unpack", lambda: ops.Unpack(1), floats(2, 3))
primitive("ops.PReLU", ops.PReLU, floats(2, 3, 4), positive(3))
primitive("ops.SigmoidCrossEntropyWithLogits", ops.SigmoidCrossEntropyWithLogits, floats(3, 4), floats(3, 4, low=0, high=1), gradient=False)
primitive("ops.SoftmaxCrossEntropyWithLogits", ops.SoftmaxCrossEntropyWithLogits, floats(2, 3), exactly([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]]), gradient=False)
primitive("ops.SparseSoftmaxCrossEntropyWithLogits", ops.SparseSoftmaxCrossEntropyWithLogits, floats(6, 5), classes_of_rows(6, 5))
primitive("ops.SmoothL1Loss", ops.SmoothL1Loss, floats(3, 4), floats(3, 4))
primitive("ops.KLDivLoss", ops.KLDivLoss, floats(3, 4), positive(3, 4), gradient=False)
primitive("ops.SoftMarginLoss", ops.SoftMarginLoss, floats(3, 4), floats(3, 4), gradient=False)
primitive("ops.BinaryCrossEntropy", lambda: lambda x, y: ops.BinaryCrossEntropy()(x, y, ops.ones_like(x)), floats(3, 4, low=0.1, high=0.9), floats(3, 4, low=0, high=1), gradient=False)
primitive("ops.BCEWithLogitsLoss", ops.BCEWithLogitsLoss, floats(3, 4), floats(3, 4, low=0, high=1), positive(3, 4), positive(3, 4), gradient=False)
primitive("ops.NLLLoss", lambda: lambda x, y: ops.NLLLoss()(x, y, Tensor(np.ones(5), ms.float32)), floats(6, 5), classes_of_rows(6, 5), gradient=False)
primitive("ops.AdaptiveAvgPool2D", lambda: ops.AdaptiveAvgPool2D((2, 2)), floats(2, 3, 6, 6), gradient=False)
primitive("ops.LayerNorm", ops.LayerNorm, floats(3, 4), positive(4), floats(4), gradient=False)
primitive("ops.RmsNorm", ops.RmsNorm, floats(3, 4), positive(4), gradient=False)
primitive("ops.BatchNorm", lambda: lambda *x: ops.BatchNorm()(*x)[0], floats(3, 4, 2, 2), positive(4), floats(4), floats(4), positive(4), gradient=False)
primitive("ops.ConfusionMatrix", lambda: lambda: ops.ConfusionMatrix(3)(Tensor([0, 1, 2, 1], ms.int32), Tensor([0, 2, 2, 1], ms.int32)))
primitive("ops.Einsum", lambda: lambda x, y: ops.Einsum("ij,jk->ik")((x, y)), floats(3, 4), floats(4, 5), gradient=False)
primitive("ops.DepthToSpace", lambda: ops.DepthToSpace(2), floats(1, 8, 2, 2), gradient=False)
primitive("ops.SpaceToDepth", lambda: ops.SpaceToDepth(2), floats(1, 2, 4, 4), gradient=False)
primitive("ops.MirrorPad", lambda: lambda x: ops.MirrorPad()(x, Tensor([[0, 0], [1, 1]], ms.int64)), floats(2, 3), gradient=False)
primitive("ops.ChannelShuffle", lambda: ops.ChannelShuffle(2), floats(1, 4, 2, 2), gradient=False)
primitive("ops.EmbeddingLookup", lambda: lambda t, i: ops.EmbeddingLookup()(t, i, 0), floats(5, 3), ints(2, 2), gradient=False)
value("ops.Dropout", lambda: ops.zeros_like(ops.Dropout(0.5)(Tensor(np.ones((3, 4)), ms.float32))[0]))

# --- cells
for name in "CELU SeLU GLU Hardtanh HShrink SoftShrink Softmin Tanhshrink FastGelu".split():
    cell(f"nn.{name}", getattr(nn, name), floats(3, 4))
cell("nn.Threshold", lambda: nn.Threshold(0.1, 7.0), floats(3, 4))
cell("nn.Softmax2d", nn.Softmax2d, floats(2, 3, 4, 4))
cell("nn.PReLU", lambda: nn.PReLU(3), floats(2, 3, 4, 4))
cell("nn.GELU exact", lambda: nn.GELU(approximate=False), floats(3, 4))
cell("nn.Dropout p evaluation", lambda: nn.Dropout(p=0.5), floats(3, 4), train=False)
for name in "MaxPool2d AvgPool2d".split():
    cell(f"nn.{name} padding", lambda name=name: getattr(nn, name)(3, 2, pad_mode="pad", padding=1), floats(2, 3, 7, 7))
for name in "MaxPool1d AvgPool1d".split():
    cell(f"nn.{name}", lambda name=name: getattr(nn, name)(3, 2), floats(2, 3, 7))
for name in "AdaptiveAvgPool2d AdaptiveMaxPool2d".split():
    cell(f"nn.{name}", lambda name=name: getattr(nn, name)(2), floats(2, 3, 6, 6))
for name in "AdaptiveAvgPool1d AdaptiveMaxPool1d".split():
    cell(f"nn.{name}", lambda name=name: getattr(nn, name)(2), floats(2, 3, 6))
cell("nn.BatchNorm1d training", lambda: nn.SequentialCell([nn.BatchNorm1d(4)]), floats(6, 4))
cell("nn.BatchNorm1d evaluation", lambda: nn.SequentialCell([nn.BatchNorm1d(4)]), floats(6, 4), train=False)
cell("nn.BatchNorm3d", lambda: nn.SequentialCell([nn.BatchNorm3d(2)]), floats(3, 2, 3, 3, 3), train=False)
cell("nn.GroupNorm", lambda: nn.GroupNorm(2, 4), floats(2, 4, 3, 3))
cell("nn.OneHot", lambda: nn.OneHot(depth=4), ints(2, 3, high=4))
cell("nn.ClipByNorm", nn.ClipByNorm, floats(3, 4), exactly(1.0))
cell("nn.Norm", lambda: nn.Norm(1), floats(3, 4))
cell("nn.L1Regularizer", lambda: nn.L1Regularizer(0.5), floats(3, 4))
cell("nn.Pad", lambda: nn.Pad(((1, 2), (0, 1))), floats(2, 3))
cell("nn.Pad reflect", lambda: nn.Pad(((1, 1), (0, 1)), mode="REFLECT"), floats(3, 4))
for n, shape in ((1, (2, 3)), (2, (2, 3, 4)), (3, (2, 3, 4, 4))):
    cell(f"nn.ConstantPad{n}d", lambda n=n: getattr(nn, f"ConstantPad{n}d")(1, 0.5), floats(*shape))
    cell(f"nn.ReflectionPad{n}d", lambda n=n: getattr(nn, f"ReflectionPad{n}d")(1), floats(*shape))
    cell(f"nn.ReplicationPad{n}d", lambda n=n: getattr(nn, f"ReplicationPad{n}d")(1), floats(2, *shape))
cell("nn.ZeroPad2d", lambda: nn.ZeroPad2d((1, 2, 0, 1)), floats(2, 3, 4))
cell("nn.PixelShuffle", lambda: nn.PixelShuffle(2), floats(2, 8, 3, 3))
cell("nn.PixelUnshuffle", lambda: nn.PixelUnshuffle(2), floats(2, 2, 4, 4))
cell("nn.ChannelShuffle", lambda: nn.ChannelShuffle(2), floats(2, 4, 3, 3))
cell("nn.Unflatten", lambda: nn.Unflatten(1, (2, 3)), floats(2, 6))
cell("nn.Tril", nn.Tril, floats(3, 4))
cell("nn.Triu", nn.Triu, floats(3, 4))
cell("nn.Roll", lambda: nn.Roll(1, 0), floats(3, 4))
value("nn.Range", lambda: nn.Range(1, 8, 2)())
cell("nn.ReduceLogSumExp", lambda: nn.ReduceLogSumExp(1), floats(3, 4))
value("nn.Moments", lambda: nn.Moments(0)(Tensor(seeded("moments").uniform(-1, 1, (3, 4)).astype(np.float32))))
value("nn.MatMul", lambda: nn.MatMul(transpose_x2=True)(Tensor(np.ones((2, 3)), ms.float32), Tensor(np.ones((4, 3)), ms.float32)))
value("nn.CellDict", lambda: np.array(list(nn.CellDict([["a", nn.ReLU()], ["b", nn.Tanh()]]).keys())))
for reduction in ("mean", "sum", "none"):
    cell(f"nn.CrossEntropyLoss {reduction}", lambda r=reduction: nn.CrossEntropyLoss(reduction=r), floats(6, 5), classes_of_rows(6, 5))
    cell(f"nn.CrossEntropyLoss weight {reduction}", lambda r=reduction: nn.CrossEntropyLoss(Tensor([1.0, 2.0, 0.5, 1.0, 3.0], ms.float32), 2, r, 0.1), floats(6, 5),
         classes_of_rows(6, 5))
    cell(f"nn.NLLLoss {reduction}", lambda r=reduction: nn.NLLLoss(reduction=r), floats(6, 5), classes_of_rows(6, 5))
    for name in "KLDivLoss HuberLoss SoftMarginLoss".split():
        cell(f"nn.{name} {reduction}", lambda name=name, r=reduction: getattr(nn, name)(reduction=r), floats(3, 4), positive(3, 4))
    cell(f"nn.HingeEmbeddingLoss {reduction}", lambda r=reduction: nn.HingeEmbeddingLoss(reduction=r), floats(1, 3), exactly([[1.0, -1.0, 1.0]]))
    cell(f"nn.MarginRankingLoss {reduction}", lambda r=reduction: nn.MarginRankingLoss(0.1, r), floats(3), floats(3), exactly([1.0, -1.0, 1.0]))
    cell(f"nn.CosineEmbeddingLoss {reduction}", lambda r=reduction: nn.CosineEmbeddingLoss(0.1, r), floats(3, 4), floats(3, 4), exactly([1.0, -1.0, 1.0]))
    cell(f"nn.TripletMarginLoss {reduction}", lambda r=reduction: nn.TripletMarginLoss(reduction=r), floats(3, 4), floats(3, 4), floats(3, 4))
    cell(f"nn.PoissonNLLLoss {reduction}", lambda r=reduction: nn.PoissonNLLLoss(reduction=r), floats(3, 4), positive(3, 4))
    cell(f"nn.GaussianNLLLoss {reduction}", lambda r=reduction: nn.GaussianNLLLoss(reduction=r), floats(3, 4), floats(3, 4), positive(3, 4))
cell("nn.DiceLoss", nn.DiceLoss, positive(3, 4), positive(3, 4))
cell("nn.CrossEntropyLoss images", lambda: nn.CrossEntropyLoss(), floats(2, 3, 4, 4), ints(2, 4, 4, high=3))
cell("nn.CrossEntropyLoss distributions", lambda: nn.CrossEntropyLoss(label_smoothing=0.1), floats(2, 3), exactly([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]]))

# --- optimizers
for label, settings in {"": {}, "decay and scale": dict(weight_decay=0.1, loss_scale=8.0), "no slots": dict(update_slots=False), "accum": dict(accum=1.0)}.items():
    optimizer(f"nn.Adagrad {label}".strip(), lambda net, s=settings: nn.Adagrad(net.trainable_params(), learning_rate=0.1, **s))
optimizer("nn.Adagrad groups", lambda net: nn.Adagrad(grouped(net), learning_rate=0.1))
for label, settings in {"": {}, "momentum": dict(momentum=0.9), "centered": dict(centered=True, momentum=0.9), "decay and scale": dict(weight_decay=0.1, loss_scale=8.0),
                        "epsilon": dict(epsilon=1.0)}.items():
    optimizer(f"nn.RMSProp {label}".strip(), lambda net, s=settings: nn.RMSProp(net.trainable_params(), learning_rate=0.01, **s))
optimizer("nn.RMSProp rates", lambda net: nn.RMSProp(net.trainable_params(), learning_rate=[0.1, 0.01, 0.02, 0.03]))
for label, settings in {"": {}, "l1 and l2": dict(l1=0.1, l2=0.05), "power": dict(lr_power=-0.3), "decay and scale": dict(weight_decay=0.1, loss_scale=8.0)}.items():
    optimizer(f"nn.FTRL {label}".strip(), lambda net, s=settings: nn.FTRL(net.trainable_params(), learning_rate=0.1, **s))
for label, settings in {"": {}, "betas": dict(beta1=0.5, beta2=0.7), "decay and scale": dict(weight_decay=0.1, loss_scale=8.0), "eps": dict(eps=1e-2)}.items():
    optimizer(f"nn.AdaMax {label}".strip(), lambda net, s=settings: nn.AdaMax(net.trainable_params(), learning_rate=0.1, **s))
for label, settings in {"": {}, "rho": dict(rho=0.5, epsilon=1e-2), "decay and scale": dict(weight_decay=0.1, loss_scale=8.0)}.items():
    optimizer(f"nn.Adadelta {label}".strip(), lambda net, s=settings: nn.Adadelta(net.trainable_params(), **s))
for label, settings in {"": {}, "betas": dict(beta1=0.5, beta2=0.7), "decay and scale": dict(weight_decay=0.1, loss_scale=8.0), "eps": dict(eps=1e-2),
                        "nesterov": dict(use_nesterov=True)}.items():
    optimizer(f"nn.Adam amsgrad {label}".strip(), lambda net, s=settings: nn.Adam(net.trainable_params(), learning_rate=0.01, use_amsgrad=True, **s))
optimizer("nn.AdaMax groups", lambda net: nn.AdaMax(grouped(net), learning_rate=0.1))
for label, settings in {"": {}, "etas": dict(etas=(0.3, 2.0), step_sizes=(1e-3, 0.2)), "decay": dict(weight_decay=0.1)}.items():
    optimizer(f"nn.Rprop {label}".strip(), lambda net, s=settings: nn.Rprop(net.trainable_params(), learning_rate=0.05, **s))
for label, settings in {"": {}, "early mean": dict(t0=1.0, lambd=0.1, alpha=0.5), "decay": dict(weight_decay=0.1)}.items():
    optimizer(f"nn.ASGD {label}".strip(), lambda net, s=settings: nn.ASGD(net.trainable_params(), learning_rate=0.05, **s))

# --- metrics
ROWS = (floats(6, 3), classes_of_rows(6, 3))
for name in "Precision Recall F1".split():
    metric(f"nn.{name}", getattr(nn, name), ROWS, ROWS)
for name in "Precision Recall".split():
    metric(f"nn.{name} multilabel", lambda name=name: getattr(nn, name)("multilabel"), (exactly([[0.0, 1.0], [1.0, 1.0]]), exactly([[1.0, 1.0], [1.0, 0.0]])))
metric("nn.Fbeta", lambda: nn.Fbeta(2.0), ROWS)
for normalize in ("no_norm", "target", "prediction", "all"):
    metric(f"nn.ConfusionMatrix {normalize}", lambda n=normalize: nn.ConfusionMatrix(3, n), ROWS, ROWS)
metric("nn.Dice", nn.Dice, (floats(3, 4), floats(3, 4)), (floats(3, 4), floats(3, 4)))
metric("nn.Perplexity", nn.Perplexity, (positive(6, 3), classes_of_rows(6, 3)))
metric("nn.CosineSimilarity", nn.CosineSimilarity, (floats(3, 4), ))


def curve(make, *arrays):
    """The curve of a ROC, as one vector."""
    made = make()
    made.clear()
    made.update(*[Tensor(np.array(array)) for array in arrays])
    return np.concatenate([np.ravel(part) for group in made.eval() for part in (group if isinstance(group, list) else [group])]).astype(np.float64)


value("nn.ROC", lambda: curve(lambda: nn.ROC(pos_label=1), np.array([0.3, 0.4, 0.1, 0.9], np.float32), np.array([0, 1, 0, 1])))
value("nn.ROC classes", lambda: curve(lambda: nn.ROC(class_num=3), np.array([[0.2, 0.5, 0.3], [0.3, 0.1, 0.6], [0.9, 0.06, 0.04]], np.float32), np.array([1, 2, 0])))
value("nn.ROC classes of more rows", lambda: curve(lambda: nn.ROC(class_num=3), np.array([[0.28, 0.55, 0.15], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.9, 0.05, 0.05]], np.float32),
                                                   np.array([0, 1, 2, 0])))
value("nn.auc", lambda: np.array(nn.auc(np.array([0.0, 0.3, 0.6, 1.0]), np.array([0.0, 0.5, 0.9, 1.0]))))
value("nn.get_metric_fn", lambda: np.array(type(nn.get_metric_fn("precision", eval_type="classification")).__name__))
value("nn.names", lambda: np.array("accuracy" in nn.names()))

# --- images of another size
SIZES = {"nearest": dict(size=(5, 7)), "nearest smaller": dict(size=2), "nearest-exact": dict(size=(5, 7), mode="nearest-exact"),
         "nearest scale": dict(scale_factor=(1.5, 2.5), recompute_scale_factor=True), "bilinear": dict(size=(5, 7), mode="bilinear"),
         "bilinear smaller": dict(size=(2, 3), mode="bilinear"), "bilinear corners": dict(size=(5, 7), mode="bilinear", align_corners=True),
         "bilinear one": dict(size=(1, 1), mode="bilinear", align_corners=True), "area": dict(size=(2, 3), mode="area"),
         "bilinear scale": dict(scale_factor=1.7, mode="bilinear", recompute_scale_factor=True)}
for label, settings in SIZES.items():
    operator(f"ops.interpolate {label}", lambda settings=settings: lambda x: ops.interpolate(x, **settings), floats(2, 3, 3, 4), dtypes=SINGLE)
    operator(f"ops.upsample {label}", lambda settings=settings: lambda x: ops.upsample(x, **settings), floats(2, 3, 3, 4), dtypes=SINGLE)
    cell(f"nn.Upsample {label}", lambda settings=settings: nn.Upsample(**settings), floats(2, 3, 3, 4))
for label, settings in {"": {}, "corners": dict(align_corners=True)}.items():
    operator(f"ops.interpolate bicubic {label}".strip(), lambda settings=settings: lambda x: ops.interpolate(x, (5, 7), mode="bicubic", **settings),
             floats(2, 3, 3, 4), dtypes=SINGLE)
    operator(f"ops.interpolate linear {label}".strip(), lambda settings=settings: lambda x: ops.interpolate(x, 7, mode="linear", **settings),
             floats(2, 3, 5), dtypes=SINGLE)
    operator(f"ops.interpolate trilinear {label}".strip(), lambda settings=settings: lambda x: ops.interpolate(x, (3, 3, 4), mode="trilinear", **settings),
             floats(1, 2, 2, 2, 3), dtypes=SINGLE)
operator("ops.interpolate rows", lambda: lambda x: ops.interpolate(x, 7), floats(2, 3, 5), dtypes=SINGLE)
operator("ops.interpolate volumes", lambda: lambda x: ops.interpolate(x, (3, 3, 4)), floats(1, 2, 2, 2, 3), dtypes=SINGLE)
operator("ops.interpolate volumes scale", lambda: lambda x: ops.interpolate(x, scale_factor=1.7), floats(1, 2, 2, 2, 3), dtypes=SINGLE)
operator("ops.interpolate trilinear scale", lambda: lambda x: ops.interpolate(x, scale_factor=1.7, mode="trilinear"), floats(1, 2, 2, 2, 3), dtypes=SINGLE)
for label, centers in {"": (False, False), "corners": (True, False), "half pixels": (False, True)}.items():
    for name in "ResizeNearestNeighborV2 ResizeBicubic".split():
        operator(f"ops.{name} {label}".strip(), lambda name=name, centers=centers: lambda x: getattr(ops, name)(*centers)(x, Tensor([5, 7], ms.int32)),
                 floats(2, 3, 3, 4), dtypes=SINGLE)
    operator(f"ops.ResizeBilinearV2 {label}".strip(), lambda centers=centers: lambda x: ops.ResizeBilinearV2(*centers)(x, (5, 7)), floats(2, 3, 3, 4),
             dtypes=SINGLE)
    operator(f"ops.ResizeNearestNeighbor {label}".strip(), lambda centers=centers: ops.ResizeNearestNeighbor((5, 7), *centers), floats(2, 3, 3, 4),
             dtypes=SINGLE)
for mode in ("align_corners", "half_pixel"):
    operator(f"ops.ResizeLinear1D {mode}", lambda mode=mode: lambda x: ops.ResizeLinear1D(mode)(x, (7,)), floats(2, 3, 5), dtypes=SINGLE)
operator("ops.unfold", lambda: lambda x: ops.unfold(x, (2, 3), 1, (1, 0), 2), floats(2, 3, 5, 6), dtypes=SINGLE)
operator("ops.unfold dilation", lambda: lambda x: ops.unfold(x, 2, 2), floats(2, 3, 5, 6), dtypes=SINGLE)
cell("nn.Unfold", lambda: nn.Unfold([1, 2, 2, 1], [1, 2, 3, 1], [1, 1, 1, 1]), floats(2, 2, 5, 6))
for dims, shape in ((1, (2, 3, 5)), (2, (2, 3, 4, 5)), (3, (2, 3, 2, 3, 2))):
    cell(f"nn.InstanceNorm{dims}d", lambda dims=dims: getattr(nn, f"InstanceNorm{dims}d")(3), floats(*shape))
cell("nn.SyncBatchNorm", lambda: nn.SyncBatchNorm(3), floats(4, 3, 5, 5))


def aligned(function):
    """A loss of sequences, of logits."""
    def loss(logits):
        targets = Tensor([[1, 2, 2], [3, 1, 0], [2, 0, 0]], ms.int32)
        return function(ops.log_softmax(logits, -1), targets, Tensor([6, 5, 6], ms.int32), Tensor([3, 2, 1], ms.int32))

    return loss


for reduction in ("mean", "sum", "none"):
    operator(f"ops.ctc_loss {reduction}", lambda reduction=reduction: aligned(lambda *given: ops.ctc_loss(*given, reduction=reduction)[0]), floats(6, 3, 4),
             dtypes=SINGLE)
    operator(f"nn.CTCLoss {reduction}", lambda reduction=reduction: aligned(nn.CTCLoss(reduction=reduction)), floats(6, 3, 4), dtypes=SINGLE)

