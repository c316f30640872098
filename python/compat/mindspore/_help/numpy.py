"""What help() of the functions of `mindspore.numpy` says beside their own words, in the form that _help/rows.py reads. Functions that mindspore.ops has, too,
have their words from there."""

ROWS = """
= A tensor of numbers, of any shape; returns it without the dims that are reduced, or with keepdims of size 1 there; means and deviations of ints are
  float32. Raises ValueError for a dim that it does not have.
amax amin max min: f(x, 1) -> [2] || f(x, 2) -> ValueError
mean prod: f(x, 1) -> [2] || f(x, 2) -> ValueError
sum nansum nanmean ptp std var average: f(x, axis=1) -> [2] || f(x, axis=2) -> ValueError

= A tensor of any shape; returns int64 without the axis. Raises ValueError for an axis that it does not have.
argmax: f(x, 1) -> [2] || f(x, 2) -> ValueError

= A tensor of any shape; returns int32 without the axis. Raises ValueError for an axis that it does not have.
argmin: f(x, 1) -> [2] || f(x, 2) -> ValueError

= A tensor of any shape; returns int32 without the axes. Raises ValueError for an axis that it does not have.
count_nonzero: f(x, 1) -> [2] || f(x, 2) -> ValueError

= A tensor of any shape; returns its shape, without an axis all elements in one dim. Raises ValueError for an axis that it does not have.
cumsum cumprod: f(x, 1) -> [2, 3] || f(x, 2) -> ValueError

= A tensor of any shape; returns it, but for n fewer along the axis. Raises ValueError for an axis that there is not.
diff: f(x, axis=1) -> [2, 2] || f(x, axis=2) -> ValueError

= Returns the shape of what it is given. Raises ValueError for what no array is made of.
array asarray: f([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) -> [2, 3] || f([[1.0], [2.0, 3.0]]) -> ValueError
asfarray: f([[1, 2, 3], [4, 5, 6]]) -> [2, 3] || f([[1.0], [2.0, 3.0]]) -> ValueError

= shape: a tuple, or a number of one dim; returns it. Raises TypeError for what is none.
zeros ones empty: f((2, 3)) -> [2, 3] || f("a") -> TypeError
full: f((2, 3), 1.0) -> [2, 3] || f("a", 1.0) -> TypeError

= A tensor of any shape; returns that, or the one given. Raises AttributeError for what is no tensor.
empty_like: f(x) -> [2, 3] || f("a") -> AttributeError
full_like: f(x, 1.0) -> [2, 3] || f("a", 1.0) -> AttributeError

= A tensor or an array of any shape; returns that, or the one given. Raises what an array of it raises.
zeros_like ones_like: f(x) -> [2, 3]

= Returns [n], of int64 for ints and float32 for floats. Raises ValueError for a step of 0.
arange: f(0, 6, 2) -> [3] || f(0, 6, 0) -> ValueError

= Returns [num]. Raises NotImplementedError for another axis than 0.
linspace: f(0.0, 1.0, 5) -> [5] || f(0.0, 1.0, 5, axis=1) -> NotImplementedError

= Returns [N, M], of float32 unless a dtype is given. Raises ValueError for what is no number.
eye: f(2, 3) -> [2, 3] || f("a") -> ValueError

= Returns [N, M], of float32 unless a dtype is given. Raises TypeError for what is no number.
tri: f(2, 3) -> [2, 3] || f("a") -> TypeError

= Returns [n, n], of float32 unless a dtype is given. Raises ValueError for what is no number.
identity: f(3) -> [3, 3] || f("a") -> ValueError

= A vector [a] gives [a, a], a matrix its diagonal. Raises AttributeError for what is no tensor.
diag: f(v) -> [3, 3] || f("a") -> AttributeError

= A tensor of n elements; returns [n, n], larger where k is not 0. Raises TypeError for what is no tensor.
diagflat: f(v) -> [3, 3] || f("a") -> TypeError

= A tensor [a, b, ...] of any dtype; returns [..., the diagonal's length]. Raises ValueError for fewer dims.
diagonal: f(x) -> [2] || f(v) -> ValueError

= A tensor [a, b, ...] of any dtype; returns [...]. Raises ValueError for fewer dims.
trace: f(x) -> [] || f(v) -> ValueError

= A tensor [..., a, b] of any dtype; returns its shape. Raises ValueError for fewer than two dims.
tril triu: f(x) -> [2, 3] || f(v) -> ValueError

= Vectors [a]; each result has one dim for each of them. Raises ValueError for another indexing.
meshgrid: rows, columns = f(v, v) && assert rows.shape == columns.shape == (3, 3) || f(v, v, indexing="ab") -> ValueError

= A tensor of any dtype and shape. Raises ValueError for a dim that it does not have.
expand_dims: f(x, 0) -> [1, 2, 3] || f(x, 4) -> ValueError
squeeze: f(ms.Tensor(np.ones((1, 3), np.float32)), 0) -> [3] || f(x, 2) -> ValueError
flip: f(x, 1) -> [2, 3] || f(x, 2) -> ValueError
roll: f(x, 1, 1) -> [2, 3] || f(x, 1, 2) -> ValueError
rot90: f(x) -> [3, 2] || f(x, 1, (0, 2)) -> ValueError
swapaxes: f(x, 0, 1) -> [3, 2] || f(x, 0, 2) -> ValueError
transpose: f(x) -> [3, 2] || f(x, (0, 2)) -> ValueError
repeat: f(x, 2, 1) -> [2, 6] || f(x, 2, 2) -> ValueError

= A tensor of any dtype and shape; returns a tuple of tensors. Raises ValueError for an axis that it does not have.
split: assert [one.shape for one in f(x, 3, 1)] == 3 * [(2, 1)] || f(x, 2, 1) -> ValueError
array_split: assert [one.shape for one in f(x, 2, 1)] == [(2, 2), (2, 1)] || f(x, 2, 2) -> ValueError

= As many elements as there are, of any dtype. Raises ValueError for another number.
reshape: f(x, (3, 2)) -> [3, 2] || f(x, (4, 2)) -> ValueError

= A tensor of any dtype; dims of size 1, and new ones in front, are repeated. Raises ValueError for a shape that it does not broadcast to.
broadcast_to: f(v, (2, 3)) -> [2, 3] || f(v, (2, 4)) -> ValueError

= A tensor of any dtype and shape; each dim is so many times as long. Raises TypeError for what is no number.
tile: f(x, (1, 2)) -> [2, 6] || f(x, "a") -> TypeError

= Tensors of one shape but for the axis, of any dtype; returns the sum of their sizes there. Raises ValueError for others.
concatenate: f([x, x], 1) -> [2, 6] || f([x, w], 1) -> ValueError
append: f(x, x, 1) -> [2, 6] || f(x, w, 1) -> ValueError

= A tensor of any shape; two numbers for each dim. Raises NotImplementedError for a mode that there is not.
pad: f(x, ((0, 0), (1, 1))) -> [2, 5] || f(x, ((0, 0), (1, 1)), mode="best") -> NotImplementedError

= indices: int32 or int64, of any shape, which stands in the axis's place. Raises ValueError for an axis that there is not.
take: f(x, labels, 1) -> [2, 2] || f(x, labels, 2) -> ValueError

= indices: int32 or int64; returns their shape. Raises ValueError for an axis that there is not.
take_along_axis: f(x, i, 1) -> [2, 3] || f(x, i, 2) -> ValueError

= A tensor of any shape with n different values; returns [n], and with return_inverse the tensor's shape, too. Raises NotImplementedError in a network
  that is compiled, for n depends on the values.
unique: f(i) -> [1]

= Tensors [..., b] and [c, b]; returns [..., c]. Raises ValueError for sizes that do not fit.
inner: f(x, x) -> [2, 2] || f(x, w) -> ValueError

= Matrices [a, b] and [b, c]; returns [a, c]. Raises ValueError for sizes that do not fit.
dot: f(x, w) -> [2, 4] || f(x, x) -> ValueError

= Tensors of a and of b elements; returns [a, b]. Raises TypeError for what is no tensor.
outer: f(v, v) -> [3, 3] || f("a", v) -> TypeError

= Two tensors of one shape; returns it. Raises NotImplementedError for axes of their own.
cross: f(x, x) -> [2, 3] || f(x, x, axisa=0) -> NotImplementedError

= Floats of any shape; returns it without these axes. Raises ValueError for an axis that there is not.
norm: f(x, axis=1) -> [2] || f(x, axis=2) -> ValueError

= A tensor of any shape; returns its shape. Raises ValueError where both bounds are absent.
clip: f(x, 0.0, 0.5) -> [2, 3] || f(x, None, None) -> ValueError

= Of a number, or a tensor of any shape; returns a bool. Raises nothing.
isscalar: assert f(3.0) and not f(x)

= Of a tensor of any shape; returns an int. Raises AttributeError for what is no tensor.
size: assert f(x) == 6 || f("a") -> AttributeError

= Returns that shape, of float32 unless a dtype is given. Raises ValueError for sizes that are no numbers.
rand randn: f(2, 3) -> [2, 3] || f("a") -> ValueError

= Returns that shape, of int32 unless a dtype is given. Raises TypeError for what is no shape.
randint: f(0, 9, (2, 3)) -> [2, 3] || f(0, 9, "a") -> TypeError
"""
