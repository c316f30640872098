"""What help() of the classes of `mindspore.common.initializer` says beside their own words, in the forms of _help/vision.py."""

ROWS = """
= Any shape and dtype. Raises TypeError for an argument.
Zero: weight = ms.initializer(f(), [2, 3]) && assert (weight.asnumpy() == 0).all() || f(1) -> TypeError
One: weight = ms.initializer(f(), [2, 3]) && assert (weight.asnumpy() == 1).all() || f(1) -> TypeError

= Any shape and dtype. Raises TypeError for what is no number.
Constant: weight = ms.initializer(f(0.5), [2, 3]) && assert (weight.asnumpy() == 0.5).all() || f("a") -> TypeError

= Any shape, a floating dtype, else ValueError. Raises TypeError for what is no number, ValueError for a sigma below 0 or not finite.
Normal: weight = ms.initializer(f(0.1, 2.0), [2, 3]) && assert weight.asnumpy().mean() > 1 || f(-1.0) -> ValueError

= Any shape, a floating dtype, else ValueError. Raises TypeError for what is no number, ValueError for a scale below 0 or not finite.
Uniform: weight = ms.initializer(f(0.5), [2, 3]) && assert (abs(weight.asnumpy()) <= 0.5).all() || f(-1.0) -> ValueError

= Any shape, a floating dtype. Raises ValueError for a sigma that is not above 0 and for an a that is not below b, and where hardly a value lies between
  them.
TruncatedNormal: weight = ms.initializer(f(1.0), [2, 3]) && assert (abs(weight.asnumpy()) <= 2).all() || f(0) -> ValueError

= Two dims or more, [fan_out, fan_in, ...], of a floating dtype, else ValueError. Raises TypeError for what is no number, ValueError for a gain below 0 or
  not finite.
XavierUniform: weight = ms.initializer(f(), [2, 3]) && assert (abs(weight.asnumpy()) <= (6 / 5)**0.5).all() || f(-1.0) -> ValueError
XavierNormal: ms.initializer(f(), [2, 3]) -> [2, 3] || f(-1.0) -> ValueError

= Two dims or more, [fan_out, fan_in, ...], of a floating dtype, else ValueError. Raises ValueError for another mode than fan_in and fan_out, and for
  another nonlinearity.
HeUniform: weight = ms.initializer(f(), [2, 3]) && assert (abs(weight.asnumpy()) <= (6 / 3)**0.5).all() || f(mode="fan") -> ValueError
HeNormal: ms.initializer(f(), [2, 3]) -> [2, 3] || f(mode="fan") -> ValueError

= Two dims or more, [fan_out, fan_in, ...], of a floating dtype, else ValueError. Raises ValueError for a scale that is not positive, and for another mode
  or distribution.
VarianceScaling: ms.initializer(f(mode="fan_avg"), [2, 3]) -> [2, 3] || f(0) -> ValueError

= Of shape [rows, columns] and any dtype. Raises ValueError for other dims.
Identity: ms.initializer(f(), [2, 3]) -> [2, 3] || ms.initializer(f(), [3]) -> ValueError

= Of shape [out_channels, in_channels, ...], three to five dims, and any dtype. Raises ValueError for other dims, and where groups does not divide
  out_channels.
Dirac: ms.initializer(f(), [4, 2, 3]) -> [4, 2, 3] || ms.initializer(f(3), [4, 2, 3]) -> ValueError

= Two dims or more, of which [first, product of the others] is the matrix; float32 unless another dtype is given. Raises
  ValueError for fewer dims.
Orthogonal: weight = ms.initializer(f(), [2, 3]).asnumpy() && assert np.allclose(weight @ weight.T, np.eye(2), atol=1e-5) || ms.initializer(f(), [3]) -> ValueError

= The array is float32, of the parameter's shape, and zeros before. Raises what _initialize() raises.
Initializer: counted = type("Counted", (f, ), {"_initialize": lambda self, z: z.__setitem__(..., np.arange(3))}) && assert ms.initializer(counted(), [3]).asnumpy().tolist() == [0, 1, 2]
"""
