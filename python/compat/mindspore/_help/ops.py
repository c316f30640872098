"""What help() of the functions of `mindspore.ops` says beside their own words, in the form that _help/rows.py reads."""

ROWS = """
= input: floating, of any shape; returns its shape and dtype. Raises TypeError for what is no tensor and no number.
acos asin atan atanh asinh cosh sinh tan exp2 expm1 log1p log2 log10 deg2rad rad2deg sinc: f(h) -> [2, 3] || f("a") -> TypeError
logsigmoid mish silu softsign tanhshrink selu hardsigmoid hardswish hsigmoid hswish relu6 fast_gelu logit gelu elu celu: f(h) -> [2, 3] || f("a") -> TypeError
softplus hardshrink softshrink hardtanh leaky_relu softmin acosh ceil relu: f(x) -> [2, 3] || f("a") -> TypeError

= input: of a number type, of any shape; returns its shape and dtype. Raises TypeError for what is no tensor and no number.
sgn: f(x) -> [2, 3] || f("a") -> TypeError

= input: of a number type, of any shape; returns its shape and dtype. Raises AttributeError for what is no tensor.
erf erfc trunc frac round: f(x) -> [2, 3] || f("a") -> AttributeError

= Returns what it is given, of any shape and dtype. Raises nothing.
identity positive: f(x) -> [2, 3]

= input: of any shape; returns bool of its shape. Raises TypeError for what is no tensor and no number.
isfinite isinf isnan isneginf isposinf signbit isreal: f(x) -> [2, 3] || f("a") -> TypeError

= Two tensors, or a tensor and a number, of shapes that broadcast; returns the shape that both broadcast to. Raises ValueError for others.
atan2 copysign fmod floor_mod truncate_div heaviside hypot logaddexp logaddexp2 xlogy floor_div floor_divide div div_no_nan: f(x, v) -> [2, 3] || f(x, w) -> ValueError
squared_difference subtract float_power isclose approximate_equal: f(x, v) -> [2, 3] || f(x, w) -> ValueError

= Tensors of one shape, which it returns. Raises TypeError for what is no list of tensors.
addn accumulate_n: f([x, x]) -> [2, 3] || f(3) -> TypeError

= input: of a number type, of any shape; returns it without the dims that are reduced, or with keepdims of size 1 there; means, deviations and variances
  of ints are float32. Raises ValueError for a dim that it does not have.
mean amax amin nanmean nansum: f(x, 1) -> [2] || f(x, 2) -> ValueError
sum prod: f(x, 1) -> [2] || f(x, 2) -> ValueError
reduce_max reduce_mean reduce_min reduce_sum: f(x, 1) -> [2] || f(x, 2) -> ValueError
std var: f(x, 1) -> [2] || f(x, 2) -> ValueError

= input: floating, of any shape; returns its dtype, without the dims that are reduced, or with keepdims of size 1 there. Raises ValueError for a dim that
  it does not have, and for ints.
logsumexp: f(x, 1) -> [2] || f(x, 2) -> ValueError

= input: of any shape; returns int32 of the shape without these dims. Raises ValueError for a dim that it does not have.
count_nonzero: f(x, 1) -> [2] || f(x, 2) -> ValueError

= input: bool, of any shape; returns bool without the dims that are reduced. Raises ValueError for a dim that it does not have.
all any: f(b, 1) -> [2] || f(b, 2) -> ValueError

= input: of a number type; both have the shape of sum(). Raises ValueError for a dim that it does not have.
std_mean var_mean: spread, mean = f(x, 1) && assert spread.shape == mean.shape == (2, ) || f(x, 2) -> ValueError

= input: of a number type; both have its shape without the axis. Raises ValueError for an axis that it does not have.
aminmax: least, most = f(x, axis=1) && assert least.shape == most.shape == (2, ) || f(x, axis=2) -> ValueError
max min: most, places = f(x, 1) && assert most.shape == places.shape == (2, ) || f(x, 2) -> ValueError
median: middle, places = f(x, 1) && assert middle.shape == places.shape == (2, ) || f(x, 2) -> ValueError

= input: of a number type, of any shape; returns its shape without that dim. Raises ValueError for a dim that it does not have.
argmax argmin: f(x, 1) -> [2] || f(x, 2) -> ValueError

= input: of a number type, of any shape; returns its shape. Raises ValueError for a dim that it does not have.
cumsum cumprod argsort softmax: f(x, 1) -> [2, 3] || f(x, 2) -> ValueError
msort: f(x) -> [2, 3] || f("a") -> AttributeError
sort: values, places = f(x, 1) && assert values.shape == places.shape == (2, 3) || f(x, 2) -> ValueError

= input: of a number type, of any shape; returns its shape, but for n fewer along the axis. Raises ValueError for an axis that it does not have.
diff: f(x, axis=1) -> [2, 2] || f(x, axis=2) -> ValueError

= input: [..., a]; both are [..., k], the places int32. Raises ValueError for a k beyond the size.
topk: values, places = f(x, 2) && assert values.shape == places.shape == (2, 2) || f(x, 4) -> ValueError
top_k: values, places = f(x, 2) && assert values.shape == places.shape == (2, 2) || f(x, 4) -> ValueError

= Matrices [a, b] and [b, c]; returns [a, c]. Raises ValueError for sizes that do not fit.
mm dot: f(x, w) -> [2, 4] || f(x, x) -> ValueError

= Batches [n, a, b] and [n, b, c]; returns [n, a, c]. Raises ValueError for sizes that do not fit.
bmm: f(s, s) -> [2, 3, 3] || f(s, x) -> ValueError

= A matrix [a, b] and a vector [b]; returns [a]. Raises ValueError for sizes that do not fit.
mv: f(x, v) -> [2] || f(x, ms.Tensor(np.ones(4, np.float32))) -> ValueError

= Tensors [..., b] and [c, b]; returns [..., c]. Raises ValueError for sizes that do not fit.
inner: f(x, x) -> [2, 2] || f(x, w) -> ValueError

= input [..., b], weight [c, b], bias [c]; returns [..., c]. Raises ValueError for sizes that do not fit.
dense: f(x, x) -> [2, 2] || f(x, w) -> ValueError

= Vectors [a] and [b], or tensors that count as such; returns [a, b]. Raises TypeError for what is no tensor.
outer: f(v, v) -> [3, 3] || f("a", v) -> TypeError

= input [a, c], batches [n, a, b] and [n, b, c]; returns [a, c]. Raises ValueError for sizes that do not fit.
addbmm: f(m, s, s) -> [3, 3] || f(m, s, x) -> ValueError

= input [n, a, c], batches [n, a, b] and [n, b, c]; returns [n, a, c]. Raises ValueError for sizes that do not fit.
baddbmm: f(s, s, s) -> [2, 3, 3] || f(s, s, x) -> ValueError

= Three tensors of shapes that broadcast; returns the shape that all broadcast to. Raises ValueError for others.
addcdiv addcmul: f(x, x, v) -> [2, 3] || f(x, x, w) -> ValueError
lerp: f(x, x, 0.5) -> [2, 3] || f(x, w, 0.5) -> ValueError

= input and the product of matrices [a, b] and [b, c], of shapes that broadcast; returns [a, c]. Raises ValueError for sizes that do not fit.
addmm: f(x, x, m) -> [2, 3] || f(x, x, x) -> ValueError

= input and the product of a matrix [a, b] with a vector [b], of shapes that broadcast; returns [a]. Raises ValueError for sizes that do not fit.
addmv: f(v, m, v) -> [3] || f(v, m, ms.Tensor(np.ones(4, np.float32))) -> ValueError

= x [a, b] and vectors [a] and [b]; returns [a, b]. Raises ValueError for sizes that do not fit.
addr: f(m, v, v) -> [3, 3] || f(w, v, v) -> ValueError

= Returns the dims that the equation names behind the arrow. Raises ValueError for an equation that does not fit the shapes.
einsum: f("ij,jk->ik", x, w) -> [2, 4] || f("ij,jk->ik", x, x) -> ValueError

= Tensors of any shapes; returns the dims of both that are not summed over. Raises ValueError for sizes that do not fit.
tensor_dot: f(x, w, 1) -> [2, 4] || f(x, x, 1) -> ValueError

= Two tensors of as many dims, [a, b] and [c, d]; returns [a * c, b * d]. Raises AttributeError for what is no tensor.
kron: f(x, x) -> [4, 9] || f("a", x) -> AttributeError

= Two tensors of one shape; returns it. Raises ValueError where no dim has size 3.
cross: f(x, x) -> [2, 3] || f(w, w, 1) -> ValueError

= Two tensors of shapes that broadcast; returns that shape without the axis. Raises ValueError for others.
vecdot: f(x, x) -> [2] || f(x, w) -> ValueError
cosine_similarity: f(x, x) -> [2] || f(x, w) -> ValueError

= Two tensors of one shape; returns a scalar []. Raises ValueError for others.
dist: f(x, x) -> [] || f(x, w) -> ValueError

= Floats of any shape; returns it without these dims. Raises ValueError for a dim that there is not.
norm: f(x, dim=1) -> [2] || f(x, dim=2) -> ValueError
vector_norm: f(x, axis=1) -> [2] || f(x, axis=2) -> ValueError

= x: of any shape; returns a scalar []. Raises TypeError for what is no tensor.
l2_loss: f(x) -> [] || f("a") -> TypeError

= A tensor, or several; returns the same shapes. Raises TypeError for what is no tensor.
clip_by_global_norm: scaled = f([x, x], 1.0) && assert [one.shape for one in scaled] == [(2, 3), (2, 3)] || f(3) -> TypeError

= A tensor of any shape, or several; returns the same shapes. Raises ValueError for a max_norm that is no number.
clip_by_norm: f(x, 1.0) -> [2, 3] || f(x, "a") -> ValueError

= A tensor of any shape; returns its shape and dtype. Raises ValueError where both bounds are absent.
clamp: f(x, 0.0, 0.5) -> [2, 3] || f(x) -> ValueError
clip_by_value: f(x, 0.0, 0.5) -> [2, 3] || f(x) -> ValueError

= input: floats of any shape; returns its shape. Raises AttributeError for what is no tensor.
nan_to_num: f(x) -> [2, 3] || f("a") -> AttributeError

= input: floats of any shape; returns its shape. Raises TypeError for what is no tensor.
threshold: f(x, 0.5, 0.0) -> [2, 3] || f("a", 0.5, 0.0) -> TypeError

= input [n, c, ...], weight [1] or [c]; returns the input's shape. Raises ValueError for another weight.
prelu: f(x, v) -> [2, 3] || f(x, w) -> ValueError

= input: [..., 2 * a, ...], with this dim at the axis; returns [..., a, ...]. Raises ValueError for an odd size.
glu: f(w) -> [3, 2] || f(x) -> ValueError

= Of a tensor of any shape; returns a bool. Raises nothing.
is_complex: assert not f(x)

= Of a tensor of any shape; returns a bool. Raises AttributeError for what is no tensor.
is_floating_point: assert f(x) || f(3) -> AttributeError

= Of a tensor of any shape; returns a bool. Raises ValueError where there is not one element.
is_nonzero: assert f(ms.Tensor([1.0])) || f(x) -> ValueError

= Of a tensor of any shape. Raises AttributeError for what is no tensor.
shape: assert f(x) == (2, 3) || f(3) -> AttributeError
dtype: assert f(x) == ms.float32 || f(3) -> AttributeError
rank: assert f(x) == 2 || f(3) -> AttributeError
size: assert f(x) == 6 || f(3) -> AttributeError
numel: assert f(x) == 6 || f("a") -> AttributeError

= size, shape: a tuple, or a number of one dim; returns that shape. Raises TypeError for what is none.
zeros ones: f((2, 3), ms.float32) -> [2, 3] || f("a") -> TypeError
full: f((2, 3), 1.0) -> [2, 3] || f("a", 1.0) -> TypeError
fill: f(ms.float32, (2, 3), 1.0) -> [2, 3] || f(ms.float32, "a", 1.0) -> TypeError

= A tensor of any shape; returns its shape. Raises TypeError for what is no tensor.
zeros_like ones_like: f(x) -> [2, 3] || f("a") -> TypeError

= A tensor of any shape; returns its shape. Raises AttributeError for what is no tensor.
full_like: f(x, 1.0) -> [2, 3] || f("a", 1.0) -> AttributeError
fills: f(x, 1.0) -> [2, 3] || f("a", 1.0) -> AttributeError
deepcopy: f(x) -> [2, 3] || f("a") -> AttributeError

= Returns [n], of int64 for ints and float32 for floats. Raises ValueError for a step of 0.
arange: f(0, 6, 2) -> [3] || f(0, 6, 0) -> ValueError
range: f(0, 6, 2) -> [3] || f(0, 6, 0) -> ValueError

= Returns float32 [steps]. Raises ValueError for steps that are no number.
linspace logspace: f(0.0, 1.0, 5) -> [5] || f(0.0, 1.0, "a") -> ValueError

= Returns [n, m], of float32 unless a dtype is given. Raises ValueError for what is no number.
eye: f(2, 3) -> [2, 3] || f("a") -> ValueError

= A number; returns a scalar []. Raises TypeError for what is no number.
scalar_to_tensor scalar_to_array: f(2.0) -> [] || f("a") -> TypeError

= A tuple of n numbers; returns [n]. Raises ValueError for what is no tuple of numbers.
tuple_to_array: f((1, 2, 3)) -> [3] || f(("a", )) -> ValueError

= Tensors of any dtype, vectors [a]; each result has one dim for each of them. Raises ValueError for another indexing.
meshgrid: rows, columns = f(v, v) && assert rows.shape == columns.shape == (3, 3) || f(v, v, indexing="ab") -> ValueError

= A tensor of any dtype and shape. Raises ValueError for a dim that it does not have.
flip: f(x, (1, )) -> [2, 3] || f(x, (2, )) -> ValueError
reverse: f(x, [1]) -> [2, 3] || f(x, [2]) -> ValueError
roll: f(x, 1, 1) -> [2, 3] || f(x, 1, 2) -> ValueError
fliplr: f(x) -> [2, 3] || f(v) -> ValueError
flipud: f(x) -> [2, 3] || f(ms.Tensor(1.0)) -> ValueError
rot90: f(x, 1, (0, 1)) -> [3, 2] || f(x, 1, (0, 2)) -> ValueError
swapaxes: f(x, 0, 1) -> [3, 2] || f(x, 0, 2) -> ValueError
moveaxis: f(s, 0, 2) -> [3, 3, 2] || f(x, 0, 2) -> ValueError
permute: f(x, (1, 0)) -> [3, 2] || f(x, (0, 2)) -> ValueError
unsqueeze: f(x, 0) -> [1, 2, 3] || f(x, 4) -> ValueError
flatten: f(s) -> [2, 9] || f(s, start_dim=4) -> ValueError
narrow: f(x, 1, 0, 2) -> [2, 2] || f(x, 2, 0, 2) -> ValueError
repeat_elements: f(x, 2, 1) -> [2, 6] || f(x, 2, 2) -> ValueError
repeat_interleave: f(x, 2, 1) -> [2, 6] || f(x, 2, 2) -> ValueError
adjoint: f(x) -> [3, 2] || f(v) -> ValueError
ravel: f(x) -> [6] || f("a") -> TypeError

= A tensor [a, b]; returns [b, a], and one of other dims as it is. Raises AttributeError for what is no tensor.
t: f(x) -> [3, 2] || f("a") -> AttributeError

= A tensor of any dtype and shape, or several; returns as many. Raises AttributeError for what is no tensor.
atleast_1d: f(ms.Tensor(1.0)) -> [1] || f("a") -> AttributeError
atleast_2d: f(v) -> [1, 3] || f("a") -> AttributeError
atleast_3d: f(v) -> [1, 3, 1] || f("a") -> AttributeError

= A tensor of any dtype; dims of size 1, and new ones in front, are repeated. Raises ValueError for a shape that it does not broadcast to.
broadcast_to: f(v, (2, 3)) -> [2, 3] || f(v, (2, 4)) -> ValueError
expand: f(v, ms.Tensor([2, 3])) -> [2, 3] || f(v, ms.Tensor([2, 4])) -> ValueError
expand_as: f(v, x) -> [2, 3] || f(v, w) -> ValueError

= As many elements as there are, of any dtype. Raises ValueError for another number.
view_as: f(w, ms.Tensor(np.ones((2, 6), np.float32))) -> [2, 6] || f(x, w) -> ValueError

= A tensor of any shape; returns it. Raises AttributeError for another that has no dtype.
type_as: f(x, i) -> [2, 3] || f(x, 3) -> AttributeError

= Tensors of one shape but for the axis, of any dtype; returns the sum of their sizes there. Raises ValueError for others.
cat: f([x, x], 1) -> [2, 6] || f([x, w], 1) -> ValueError
hstack: f([x, x]) -> [2, 6] || f([x, w]) -> ValueError
vstack: f([x, x]) -> [4, 3] || f([x, w]) -> ValueError
dstack: f([x, x]) -> [2, 3, 2] || f([x, w]) -> ValueError
column_stack: f([x, x]) -> [2, 6] || f([x, w]) -> ValueError

= A tensor of any dtype and shape; returns a tuple of tensors. Raises ValueError for an axis that it does not have.
split: assert [one.shape for one in f(x, 2, 1)] == [(2, 2), (2, 1)] || f(x, 2, 2) -> ValueError
tensor_split: assert [one.shape for one in f(x, 2, 1)] == [(2, 2), (2, 1)] || f(x, 2, 2) -> ValueError
chunk: assert [one.shape for one in f(x, 2, 1)] == [(2, 2), (2, 1)] || f(x, 2, 2) -> ValueError
hsplit: assert [one.shape for one in f(x, 3)] == 3 * [(2, 1)] || f(ms.Tensor(1.0), 2) -> ValueError
vsplit: assert [one.shape for one in f(x, 2)] == 2 * [(1, 3)] || f(ms.Tensor(1.0), 2) -> ValueError
dsplit: assert [one.shape for one in f(s, 3)] == 3 * [(2, 3, 1)] || f(x, 2) -> ValueError
unbind: assert [one.shape for one in f(x, 1)] == 3 * [(2, )] || f(x, 2) -> ValueError
unstack: assert [one.shape for one in f(x, 1)] == 3 * [(2, )] || f(x, 2) -> ValueError

= A tensor of any dtype and shape; returns as many dims, shorter ones. Raises ValueError for other numbers of dims, and steps of 0.
slice: f(x, (0, 1), (2, 2)) -> [2, 2] || f(x, (0, 1, 0), (2, 2, 1)) -> ValueError
strided_slice: f(x, (0, 0), (2, 3), (1, 2)) -> [2, 2] || f(x, (0, 0), (2, 3), (1, 0)) -> ValueError

= A tensor [..., a, b] of any dtype; returns its shape. Raises ValueError for fewer than two dims.
tril triu: f(x) -> [2, 3] || f(v) -> ValueError

= Returns int64 [2, n]. Raises TypeError for what is no number.
tril_indices triu_indices: f(2, 2) -> [2, 3] || f("a", 2) -> TypeError

= A vector [a] gives [a, a], a tensor [...] gives [..., ...]. Raises TypeError for what is no tensor.
diag: f(v) -> [3, 3] || f("a") -> TypeError
diagflat: f(v) -> [3, 3] || f("a") -> TypeError

= A tensor [a, b, ...] of any dtype; returns [..., the diagonal's length]. Raises ValueError for fewer dims.
diagonal: f(x) -> [2] || f(v) -> ValueError

= A matrix [a, b]; returns a scalar []. Raises ValueError for other than two dims.
trace: f(x) -> [] || f(v) -> ValueError

= A vector [a]; returns [a, n], n being a unless it is given. Raises AttributeError for what is no tensor.
vander: f(v, 2) -> [3, 2] || f("a") -> AttributeError

= indices: int32 or int64, of any shape, which stands in the axis's place. Raises ValueError for an axis that there is not, and for an index that
  the axis does not have.
gather: f(x, labels, 1) -> [2, 2] || f(x, labels, 2) -> ValueError
index_select: f(x, 1, labels) -> [2, 2] || f(x, 2, labels) -> ValueError

= indices: int32 or int64, of any shape, which stands in the axis's place; one that the axis does not have is the nearest, with mode="wrap" counted on
  from the other end. Raises ValueError for an axis that there is not.
take: f(x, labels, 1) -> [2, 2] || f(x, labels, 2) -> ValueError

= input: int32 or int64, of any shape [...], weight [v, d]; returns [..., d]. Raises ValueError for an index beyond the rows, NotImplementedError for a
  max_norm.
embedding: f(labels, w) -> [2, 4] || f(labels, w, max_norm=1.0) -> NotImplementedError

= index: int32 or int64; returns its shape. Raises ValueError for a dim that there is not.
gather_d gather_elements: f(x, 1, i) -> [2, 3] || f(x, 2, i) -> ValueError

= indices: ints [..., k], each k of them a place in the first k dims; returns [..., the other dims]. Raises ValueError for a k beyond the dims.
gather_nd: f(s, i) -> [2] || f(x, i) -> ValueError

= x of any shape, updates in the shape of the index; returns x's shape. Raises ValueError for others.
tensor_scatter_elements: f(x, i, x, 1, "add") -> [2, 3] || f(x, i, x, 2, "add") -> ValueError
scatter: f(x, 0, ms.Tensor([[0, 0, 0], [1, 1, 1]]), x) -> [2, 3] || f(x, 2, i, x) -> ValueError

= x of any shape, indices of ints [n, k], updates [n, the dims behind the first k]; returns x's shape. Raises ValueError for others.
tensor_scatter_add tensor_scatter_sub tensor_scatter_update: f(x, ms.Tensor([[0]]), row) -> [2, 3] || f(x, ms.Tensor([[0]]), w) -> ValueError
scatter_nd: f(ms.Tensor([[0]]), row, (2, 3)) -> [2, 3] || f(ms.Tensor([[0]]), w, (2, 3)) -> ValueError

= x of any shape, y with as many slices along the axis as there are indices; returns x's shape. Raises ValueError for an axis that there is not.
index_add: f(x, labels, ms.Tensor(np.ones((2, 2), np.float32)), 1) -> [2, 3] || f(x, labels, x, 2) -> ValueError

= input [a, ...], segment_ids of ints [a]; returns [num_segments, ...]. Raises ValueError for other shapes.
unsorted_segment_sum: f(x, labels, 3) -> [3, 3] || f(w, labels, 3) -> ValueError

= condition: bool; all have shapes that broadcast, and that shape is returned. Raises ValueError for others.
where: f(b, x, 0.0) -> [2, 3] || f(b, x, w) -> ValueError
masked_fill: f(x, b, 0.0) -> [2, 3] || f(x, ms.Tensor(np.ones((3, 4), np.bool_)), 0.0) -> ValueError

= mask: bool; returns [how many are true]. Raises ValueError for shapes that do not broadcast.
masked_select: f(x, b) -> [6] || f(x, ms.Tensor(np.ones((3, 4), np.bool_))) -> ValueError

= A tensor of any shape; returns int64 [n, ndim]. Raises NotImplementedError in a network that is compiled, for n depends on the values.
nonzero argwhere: f(x) -> [6, 2]

= A tensor of any shape with n different values; returns [n] and the tensor's shape, int32. Raises NotImplementedError in a network that is compiled,
  for n depends on the values.
unique: values, places = f(i) && assert values.shape == (1, ) and places.shape == (2, 3)

= A vector of ints [n]; returns [1 + the largest]. Raises ValueError for what is no vector.
bincount: f(labels) -> [3] || f(i) -> ValueError

= sorted_sequence [..., a], values [..., b]; returns places of the values' shape, int64 or int32. Raises ValueError for other shapes.
searchsorted: f(v, v) -> [3] || f(x, w) -> ValueError

= lengths: ints of any shape [...]; returns bool [..., maxlen]. Raises AttributeError for what is no tensor.
sequence_mask: f(labels, 3) -> [2, 3] || f("a", 3) -> AttributeError

= indices: ints of any shape [...]; returns [..., depth] of on_value's dtype. Raises ValueError for a negative depth.
one_hot: f(labels, 3, ms.Tensor(1.0), ms.Tensor(0.0)) -> [2, 3] || f(labels, -3, ms.Tensor(1.0), ms.Tensor(0.0)) -> ValueError

= variable: a Parameter; the value, of any shape that it has, is returned. Raises ValueError for another shape.
assign assign_add assign_sub: weight = ms.Parameter(x, name="weight") && f(weight, x) -> [2, 3] || f(weight, w) -> ValueError

= value of any shape; returned as it is. Raises nothing.
depend: f(x, v) -> [2, 3]

= Raises nothing; shapes are those of the function.
core: double = f(lambda z: z * 2) && double(x) -> [2, 3]
add_flags: double = f(lambda z: z * 2, marked=True) && double(x) -> [2, 3]

= Raises what that __init__ raises; shapes are those of the operator.
prim_attr_register: mark = f(lambda self, axis=0: None) && assert callable(mark)

= input [n, c, h, w]; returns [n, c, h', w']. Raises ValueError for other dims, and windows larger than the image.
avg_pool2d max_pool2d: f(images, 2, 2) -> [1, 2, 2, 2] || f(x, 2, 2) -> ValueError

= input [n, c, h, w]; returns [n, c, oh, ow]. Raises TypeError for sizes that are no ints.
adaptive_avg_pool2d adaptive_max_pool2d: f(images, 2) -> [1, 2, 2, 2] || f(images, 2.5) -> TypeError

= input [n, c, l]; returns [n, c, output_size]. Raises TypeError for a size that is no int.
adaptive_avg_pool1d adaptive_max_pool1d: f(lines, 3) -> [1, 2, 3] || f(lines, "a") -> TypeError

= input [n, c, d, h, w]; returns [n, c, d', h', w']. Raises ValueError for other dims.
avg_pool3d max_pool3d: f(volumes, 2, 2) -> [1, 2, 2, 2, 2] || f(x, 2, 2) -> ValueError

= Returns [n, co, l']. Raises ValueError for other dims, and channels that do not fit.
conv1d: f(lines, ms.Tensor(np.ones((3, 2, 3), np.float32))) -> [1, 3, 4] || f(lines, x) -> ValueError

= Returns [n, co, h', w']. Raises ValueError for other dims, and channels that do not fit.
conv2d: f(images, ms.Tensor(np.ones((3, 2, 3, 3), np.float32))) -> [1, 3, 2, 2] || f(images, x) -> ValueError

= Raises ValueError for other dims, and channels that do not fit.
conv3d: f(volumes, ms.Tensor(np.ones((3, 2, 3, 3, 3), np.float32))) -> [1, 3, 2, 2, 2] || f(volumes, ms.Tensor(np.ones((3, 5, 3, 3, 3), np.float32))) -> ValueError

= input [n, c, h, w]; returns [n, c * kh * kw, windows]. Raises ValueError for other dims.
unfold: f(images, 2) -> [1, 8, 9] || f(x, 2) -> ValueError

= Raises ValueError for a number of channels, or sizes, that the factor does not divide.
pixel_shuffle: f(ms.Tensor(np.ones((1, 4, 2, 2), np.float32)), 2) -> [1, 1, 4, 4] || f(images, 2) -> ValueError
pixel_unshuffle: f(images, 2) -> [1, 8, 2, 2] || f(images, 3) -> ValueError

= input [n, c, h, w]; returns its shape. Raises ValueError for a number of groups that does not divide the channels.
channel_shuffle: f(images, 2) -> [1, 2, 4, 4] || f(images, 3) -> ValueError
group_norm: f(images, 2) -> [1, 2, 4, 4] || f(images, 3) -> ValueError

= input: floats; returns its shape. Raises ValueError for a normalized_shape that it does not end in.
layer_norm: f(x, (3, ), v, ms.Tensor(np.zeros(3, np.float32))) -> [2, 3] || f(x, (4, ), v, v) -> ValueError

= Returns x's shape, and with 1 in place of gamma's dims. Raises ValueError for a gamma that x's dims do not end in.
rms_norm: y, factor = f(x, v) && assert y.shape == (2, 3) and factor.shape == (2, 1) || f(x, w) -> ValueError

= input [n, c, ...], the others [c]; returns the input's shape. Raises ValueError for other shapes.
batch_norm: f(x, v, v, v, v) -> [2, 3] || f(w, v, v, v, v) -> ValueError

= input [n, c, ...]; returns that many sizes at the end. Raises ValueError for a mode that there is not.
interpolate: f(images, size=(8, 8)) -> [1, 2, 8, 8] || f(images, size=(8, 8), mode="best") -> ValueError

= input of any shape; two numbers for each dim, the last one first. Raises ValueError for an odd number of them.
pad: f(x, (1, 1)) -> [2, 5] || f(x, (1, )) -> ValueError

= logits [n, c], target [n] of ints or [n, c] of probabilities; returns a scalar [], with reduction="none" [n]. Raises ValueError for other shapes.
cross_entropy: f(x, labels) -> [] || f(w, labels) -> ValueError
nll_loss: f(x, labels) -> [] || f(w, labels) -> ValueError

= Two tensors of floats of one shape; returns a scalar [], with reduction="none" that shape. Raises ValueError for another reduction.
l1_loss mse_loss smooth_l1_loss huber_loss kl_div soft_margin_loss: f(h, h, reduction="sum") -> [] || f(h, h, reduction="best") -> ValueError
binary_cross_entropy binary_cross_entropy_with_logits: f(h, h, reduction="sum") -> [] || f(h, h, reduction="best") -> ValueError
hinge_embedding_loss: f(x, x) -> [] || f(x, x, reduction="best") -> ValueError
gaussian_nll_loss: f(x, x, x) -> [] || f(x, x, x, reduction="best") -> ValueError
margin_ranking_loss: f(x, x, x) -> [] || f(x, x, x, reduction="best") -> ValueError

= Vectors [n, d] and target [n] of 1 and -1; returns a scalar [], with reduction="none" [n]. Raises ValueError for another reduction.
cosine_embedding_loss: f(x, x, ms.Tensor([1, -1])) -> [] || f(x, x, ms.Tensor([1, -1]), reduction="best") -> ValueError

= Vectors [n, d]; returns a scalar [], with reduction="none" [n]. Raises ValueError for another reduction.
triplet_margin_loss: f(x, x, x) -> [] || f(x, x, x, reduction="best") -> ValueError

= The lengths are [n]; the loss is a scalar [], with reduction="none" [n]. Raises ValueError for other shapes.
ctc_loss: loss, alphas = f(steps, classes, ms.Tensor([4]), ms.Tensor([1])) && assert alphas.shape == (1, 4, 3) || f(x, classes, ms.Tensor([4]), ms.Tensor([1])) -> ValueError

= Returns that shape, of float32 unless a dtype is given. Raises ValueError for sizes that are no numbers.
rand randn: f(2, 3) -> [2, 3] || f("a") -> ValueError

= Returns that shape. Raises TypeError for what is no shape.
randint: f(0, 9, (2, 3)) -> [2, 3] || f(0, 9, "a") -> TypeError
standard_normal: f((2, 3)) -> [2, 3] || f("a") -> TypeError
uniform: f((2, 3), ms.Tensor(0.0), ms.Tensor(1.0)) -> [2, 3] || f("a", ms.Tensor(0.0), ms.Tensor(1.0)) -> TypeError
normal: f((2, 3), 0.0, 1.0) -> [2, 3] || f("a", 0.0, 1.0) -> TypeError

= A tensor of any shape; returns its shape. Raises AttributeError for what has none.
rand_like randn_like: f(x) -> [2, 3] || f("a") -> AttributeError
randint_like: f(x, 0, 9) -> [2, 3] || f("a", 0, 9) -> AttributeError
shuffle: f(x) -> [2, 3] || f("a") -> AttributeError

= Returns [n], of int64 unless a dtype is given. Raises ValueError for what is no number.
randperm: f(6) -> [6] || f("a") -> ValueError

= input: floats of any shape; returns its shape. Raises ValueError for a probability outside 0 to 1.
dropout: f(x, 0.5) -> [2, 3] || f(x, 1.5) -> ValueError
bernoulli: f(x, 0.5) -> [2, 3] || f(x, 1.5) -> ValueError

= input [n, c, ...]; returns its shape. Raises ValueError for a probability outside 0 to 1.
dropout1d: f(lines, 0.5) -> [1, 2, 6] || f(lines, 1.5) -> ValueError
dropout2d: f(images, 0.5) -> [1, 2, 4, 4] || f(images, 1.5) -> ValueError
dropout3d: f(volumes, 0.5) -> [1, 2, 4, 4, 4] || f(volumes, 1.5) -> ValueError

= logits: floats of any shape, which is returned. Raises ValueError for a dim that they do not have.
gumbel_softmax: f(x) -> [2, 3] || f(x, dim=2) -> ValueError

= input: probabilities [..., c]; returns places [..., num_samples]. Raises ValueError for more places than there are, where none comes twice.
multinomial: f(x, 2) -> [2, 2] || f(x, 4, replacement=False) -> ValueError

= Gradients have the shapes and dtypes of what they belong to. Raises TypeError for what is no function.
jvp: y, slope = f(lambda z: z * z, x, x) && assert slope.shape == (2, 3) || f(3, x, x) -> TypeError
vjp: y, pull = f(lambda z: z * z, x) && slope, = pull(x) && assert slope.shape == (2, 3) || f(3, x) -> TypeError
"""
