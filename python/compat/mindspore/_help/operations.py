"""What help() of the operators of `mindspore.ops`, which are classes, says beside their own words, in the form that _help/rows.py reads."""

ROWS = """
= Called with floats of any shape, it returns that shape. Raises TypeError where it is called with no tensor and no number.
ACos Asin Atan Atanh Asinh Cosh Sinh Tan Expm1 Log1p Elu HSigmoid: f()(h) -> [2, 3] || f()("a") -> TypeError
HSwish Mish ReLU6 SeLU Softplus Softsign FastGeLU FastGelu CeLU HShrink SoftShrink Logit: f()(h) -> [2, 3] || f()("a") -> TypeError
Acosh Softmax LogSoftmax Sinc Ceil: f()(x) -> [2, 3] || f()("a") -> TypeError

= Called with numbers of any shape, it returns that shape. Raises AttributeError where it is called with no tensor.
Erf Erfc Rint Trunc Round NanToNum: f()(x) -> [2, 3] || f()("a") -> AttributeError

= Called with a tensor of any shape, it returns it. Raises nothing.
Identity: f()(x) -> [2, 3]
Depend: f()(x, v) -> [2, 3]

= Called with a tensor of any shape, it returns bool of that shape. Raises TypeError where it is called with no tensor.
IsFinite IsInf IsNan: f()(x) -> [2, 3] || f()("a") -> TypeError

= Called with two tensors, or a tensor and a number, of shapes that broadcast, it returns that shape. Raises ValueError for others.
Atan2 DivNoNan FloorDiv FloorMod Heaviside Hypot Mod: f()(x, v) -> [2, 3] || f()(x, w) -> ValueError
MulNoNan SquaredDifference TruncateDiv TruncateMod Xlogy ApproximateEqual IsClose: f()(x, v) -> [2, 3] || f()(x, w) -> ValueError
Lerp: f()(x, x, 0.5) -> [2, 3] || f()(x, w, 0.5) -> ValueError

= Called with tensors of one shape, it returns it. Raises TypeError where it is called with no list of tensors.
AddN AccumulateNV2: f()([x, x]) -> [2, 3] || f()(3) -> TypeError

= Any shape -> that without the axis, int32. Raises ValueError where it is called for an axis that there is not.
Argmax Argmin: f(1)(x) -> [2] || f(2)(x) -> ValueError

= Any shape -> (places, values), each without the axis. Raises ValueError where it is called for an axis that there is not.
ArgMaxWithValue ArgMinWithValue: places, values = f(1)(x) && assert places.shape == values.shape == (2, ) || f(2)(x) -> ValueError

= A Parameter and a value of its shape, which is returned. Raises ValueError for another shape.
Assign AssignAdd AssignSub: weight = ms.Parameter(x, name="weight") && f()(weight, x) -> [2, 3] || f()(weight, w) -> ValueError

= Called with two Parameters of one shape, a rate, a gradient and a number, it returns the first. Raises TypeError for tensors in their place.
ApplyMomentum: weight, moment = [ms.Parameter(x, name=name) for name in "vm"] && f()(weight, moment, 0.1, x, 0.9) -> [2, 3] || f()(x, x, 0.1, x, 0.9) -> TypeError

= [n, c, h, w] -> [n, c, h', w']. Raises ValueError for other dims.
AvgPool MaxPool: f(2, 2)(images) -> [1, 2, 2, 2] || f(2, 2)(x) -> ValueError
AdaptiveAvgPool2D: f(2)(images) -> [1, 2, 2, 2] || f(2)(v) -> ValueError

= [n, ci, h, w] and weights [out_channel, ci / group, kh, kw] -> [n, out_channel, h', w']. Raises ValueError for other dims.
Conv2D: f(3, 3)(images, ms.Tensor(np.ones((3, 2, 3, 3), np.float32))) -> [1, 3, 2, 2] || f(3, 3)(x, x) -> ValueError

= Gradients [n, co, h', w'], weights [co, ci, kh, kw] and the shape [n, ci, h, w], which is returned. Raises ValueError for other dims.
Conv2DBackpropInput Conv2DTranspose: f(2, 1)(images, ms.Tensor(np.ones((2, 3, 1, 1), np.float32)), (1, 3, 4, 4)) -> [1, 3, 4, 4] || f(2, 1)(x, x, (2, 3)) -> ValueError

= [..., a, b] and [..., b, c] -> [..., a, c]. Raises ValueError for sizes that do not fit.
BatchMatMul: f()(s, s) -> [2, 3, 3] || f()(s, x) -> ValueError
MatMul: f()(x, w) -> [2, 4] || f()(x, x) -> ValueError

= [n, c, ...] and a bias [c] -> the first shape. Raises ValueError for another bias.
BiasAdd: f()(x, v) -> [2, 3] || f()(x, w) -> ValueError

= Dims of size 1, and new ones in front, are repeated up to the shape. Raises ValueError for a shape that is none of these.
BroadcastTo: f((2, 3))(v) -> [2, 3] || f((2, 4))(v) -> ValueError
Expand: f()(v, ms.Tensor([2, 3])) -> [2, 3] || f()(v, ms.Tensor([2, 4])) -> ValueError
ExpandAs: f()(v, x) -> [2, 3] || f()(v, w) -> ValueError

= [n, c, h, w] -> the same shape. Raises ValueError for a number of groups that does not divide the channels.
ChannelShuffle: f(2)(images) -> [1, 2, 4, 4] || f(3)(images) -> ValueError

= Tensors of one shape but for the axis -> the sum of their sizes there. Raises ValueError for others.
Concat: f(1)([x, x]) -> [2, 6] || f(1)([x, w]) -> ValueError

= Tensors of one shape -> a new dim at the axis. Raises ValueError for others.
Pack Stack: f(0)([x, x]) -> [2, 2, 3] || f(0)([x, w]) -> ValueError

= Any shape -> a tuple of tensors without the axis. Raises ValueError for an axis that there is not.
Unpack Unstack: assert [one.shape for one in f(1)(x)] == 3 * [(2, )] || f(2)(x) -> ValueError

= Any shape -> a tuple of output_num tensors. Raises ValueError for a size that this does not divide.
Split: assert [one.shape for one in f(1, 3)(x)] == 3 * [(2, 1)] || f(1, 2)(x) -> ValueError

= Any shape -> that shape. Raises ValueError for an axis that there is not.
CumProd: f()(x, 1) -> [2, 3] || f()(x, 2) -> ValueError
CumSum: f()(x, 1) -> [2, 3] || f()(x, 2) -> ValueError
Roll: f(1, 1)(x) -> [2, 3] || f(1, 2)(x) -> ValueError
ReverseV2: f([1])(x) -> [2, 3] || f([2])(x) -> ValueError
Sort: values, places = f(1)(x) && assert values.shape == places.shape == (2, 3) || f(2)(x) -> ValueError

= [..., a] and a k -> (values, places), each [..., k]. Raises ValueError for a k beyond the size.
TopK: values, places = f()(x, 2) && assert values.shape == places.shape == (2, 2) || f()(x, 4) -> ValueError

= Of a tensor of any shape. Raises AttributeError where it is called with no tensor.
DType: assert f()(x) == ms.float32 || f()(3) -> AttributeError
Rank: assert f()(x) == 2 || f()(3) -> AttributeError
Shape: assert f()(x) == (2, 3) || f()(3) -> AttributeError
Size: assert f()(x) == 6 || f()(3) -> AttributeError
TensorShape: f()(x) -> [2] || f()(3) -> AttributeError

= [..., a, b] -> the same shape. Raises ValueError for fewer than two dims.
Tril Triu: f()(x) -> [2, 3] || f()(v) -> ValueError

= [a, b] -> []. Raises ValueError for other than two dims.
Trace: f()(x) -> [] || f()(v) -> ValueError

= [n] -> [n, n]. Raises TypeError where it is called with no tensor.
Diag: f()(v) -> [3, 3] || f()("a") -> TypeError

= [n, n] -> [n]. Raises AttributeError where it is called with no tensor.
DiagPart: f()(m) -> [3] || f()("a") -> AttributeError

= [a] and [b] -> [a, b]. Raises TypeError where it is called with no tensor.
Ger: f()(v, v) -> [3, 3] || f()("a", v) -> TypeError

= Two tensors of one shape -> that shape. Raises ValueError for a dim whose size is not 3.
Cross: f(1)(x, x) -> [2, 3] || f(0)(x, x) -> ValueError

= Returns the dims that the equation names behind the arrow. Raises ValueError for shapes that do not fit it.
Einsum: f("ij,jk->ik")((x, w)) -> [2, 4] || f("ij,jk->ik")((x, x)) -> ValueError

= A shape -> a tensor of it. Raises TypeError for what is none.
Ones Zeros: f()((2, 3), ms.float32) -> [2, 3] || f()("a", ms.float32) -> TypeError
Fill: f()(ms.float32, (2, 3), 1.0) -> [2, 3] || f()(ms.float32, "a", 1.0) -> TypeError
FillV2: f()((2, 3), ms.Tensor(1.0)) -> [2, 3] || f()("a", ms.Tensor(1.0)) -> TypeError
StandardNormal: f()((2, 3)) -> [2, 3] || f()("a") -> TypeError
UniformReal: f()((2, 3)) -> [2, 3] || f()("a") -> TypeError
UniformInt: f()((2, 3), ms.Tensor(0, ms.int32), ms.Tensor(9, ms.int32)) -> [2, 3] || f()("a", ms.Tensor(0, ms.int32), ms.Tensor(9, ms.int32)) -> TypeError

= Two sizes and a dtype -> a tensor of that shape. Raises ValueError for sizes that are no numbers.
Eye: f()(2, 3, ms.float32) -> [2, 3] || f()("a", 3, ms.float32) -> ValueError

= Any shape -> that shape. Raises AttributeError where it is called with no tensor.
Fills: f()(x, 1.0) -> [2, 3] || f()("a", 1.0) -> AttributeError

= Numbers -> [n]. Raises ValueError for a step of 0.
Range: f()(ms.Tensor(0), ms.Tensor(6), ms.Tensor(2)) -> [3] || f()(ms.Tensor(0), ms.Tensor(6), ms.Tensor(0)) -> ValueError

= Two numbers and how many -> [n]. Raises ValueError for what is no number.
LinSpace: f()(ms.Tensor(0.0), ms.Tensor(1.0), 5) -> [5] || f()(ms.Tensor(0.0), ms.Tensor(1.0), "a") -> ValueError

= A number -> []. Raises TypeError for what is no number.
ScalarToTensor ScalarToArray: f()(2.0) -> [] || f()("a") -> TypeError

= A tuple of n numbers -> [n]. Raises ValueError for what is none.
TupleToArray: f()((1, 2, 3)) -> [3] || f()(("a", )) -> ValueError

= Indices of any shape stand in the axis's place. Raises ValueError for an axis that there is not.
Gather SparseGatherV2: f()(x, labels, 1) -> [2, 2] || f()(x, labels, 2) -> ValueError

= A table [v, d], ints of any shape [...] and an offset -> [..., d]. Raises TypeError for what is no tensor.
EmbeddingLookup: f()(w, labels, 0) -> [2, 4] || f()("a", labels, 0) -> TypeError

= Indices of as many dims -> their shape. Raises ValueError for a dim that there is not.
GatherD: f()(x, 1, i) -> [2, 3] || f()(x, 2, i) -> ValueError

= Indices [..., k] -> [..., the dims behind the first k]. Raises ValueError for a k beyond the dims.
GatherNd: f()(s, i) -> [2] || f()(x, i) -> ValueError

= x of any shape, indices [n, k], updates [n, the dims behind the first k] -> the shape of x. Raises ValueError for others.
TensorScatterAdd TensorScatterSub TensorScatterUpdate: f()(x, ms.Tensor([[0]]), row) -> [2, 3] || f()(x, ms.Tensor([[0]]), w) -> ValueError
ScatterNd: f()(ms.Tensor([[0]]), row, (2, 3)) -> [2, 3] || f()(ms.Tensor([[0]]), w, (2, 3)) -> ValueError

= x of any shape, updates in the shape of the indices -> the shape of x. Raises ValueError for an axis that there is not.
TensorScatterElements: f(1, "add")(x, i, x) -> [2, 3] || f(2, "add")(x, i, x) -> ValueError
IndexAdd: f(1)(x, labels, ms.Tensor(np.ones((2, 2), np.float32))) -> [2, 3] || f(2)(x, labels, x) -> ValueError

= [a, ...] and ints [a] -> [num_segments, ...]. Raises ValueError for other shapes.
UnsortedSegmentSum: f()(x, labels, 3) -> [3, 3] || f()(w, labels, 3) -> ValueError

= A tensor and a mask of shapes that broadcast -> that shape. Raises ValueError for others.
MaskedFill: f()(x, b, 0.0) -> [2, 3] || f()(x, ms.Tensor(np.ones((3, 4), np.bool_)), 0.0) -> ValueError

= A tensor and a mask of shapes that broadcast -> [how many are true]. Raises ValueError for others.
MaskedSelect: f()(x, b) -> [6] || f()(x, ms.Tensor(np.ones((3, 4), np.bool_))) -> ValueError

= Any shape -> int64 [n, ndim]. Raises NotImplementedError in a network that is compiled, for n depends on the values.
NonZero: f()(x) -> [6, 2]

= Any shape -> ([n], that shape). Raises NotImplementedError in a network that is compiled, for n depends on the values.
Unique: values, places = f()(i) && assert values.shape == (1, ) and places.shape == (2, 3)

= Ints of any shape [...] -> [..., depth]. Raises ValueError for a negative depth.
OneHot: f()(labels, 3, ms.Tensor(1.0), ms.Tensor(0.0)) -> [2, 3] || f()(labels, -3, ms.Tensor(1.0), ms.Tensor(0.0)) -> ValueError

= Two numbers for each dim of the shape. Raises ValueError for others.
Pad: f(((0, 0), (1, 1)))(x) -> [2, 5] || f(((0, 0), ))(x) -> ValueError

= Two numbers for each dim of the shape. Raises NotImplementedError for another mode than REFLECT.
MirrorPad: f("REFLECT")(x, ms.Tensor([[0, 0], [1, 1]])) -> [2, 5] || f("SYMMETRIC")(x, ms.Tensor([[0, 0], [1, 1]])) -> NotImplementedError

= [n, c, ...] and weights [1] or [c] -> the first shape. Raises ValueError for other weights.
PReLU: f()(x, v) -> [2, 3] || f()(x, w) -> ValueError

= [..., 2 * a] -> [..., a]. Raises ValueError for an odd size.
GLU: f()(w) -> [3, 2] || f()(x) -> ValueError

= Any shape, from begin on so many -> the sizes. Raises ValueError for other numbers of dims.
Slice: f()(x, (0, 1), (2, 2)) -> [2, 2] || f()(x, (0, 1, 0), (2, 2, 1)) -> ValueError

= Any shape -> as many dims, shorter ones. Raises ValueError for steps of 0.
StridedSlice: f()(x, (0, 0), (2, 3), (1, 2)) -> [2, 2] || f()(x, (0, 0), (2, 3), (1, 0)) -> ValueError

= Any shape -> that without dims of size 1. Raises ValueError for a dim of another size.
Squeeze: f(0)(row) -> [3] || f(1)(row) -> ValueError

= Vectors [a] -> each has one dim for each of them. Raises ValueError for another indexing.
Meshgrid: rows, columns = f()((v, v)) && assert rows.shape == columns.shape == (3, 3) || f("ab")((v, v)) -> ValueError

= Any shape -> []. Raises TypeError where it is called with no tensor.
L2Loss: f()(x) -> [] || f()("a") -> TypeError

= Two tensors -> the sums of their squares, each []. Raises TypeError where it is called with no tensor.
SquareSumAll: first, second = f()(x, x) && assert first.shape == second.shape == () || f()("a", x) -> TypeError

= Any shape -> that without the axes. Raises ValueError for an axis that there is not.
LpNorm: f(1)(x) -> [2] || f(2)(x) -> ValueError
CountNonZero: f()(x) -> []

= Any shape -> that without the axes. Raises ValueError where it is called for an axis that there is not.
ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd: f()(x, 1) -> [2] || f()(x, 2) -> ValueError
ReduceAll ReduceAny: f()(b, 1) -> [2] || f()(b, 2) -> ValueError

= [n, ...] -> [n, the product of the other sizes]. Raises TypeError where it is called with no tensor.
Flatten: f()(images) -> [1, 32] || f()("a") -> TypeError

= Any shape -> (deviation, mean), each without the axes. Raises ValueError for an axis that there is not.
ReduceStd: spread, mean = f(1)(x) && assert spread.shape == mean.shape == (2, ) || f(2)(x) -> ValueError

= Any shape -> that shape. Raises ValueError for an axis that there is not.
L2Normalize: f(1)(x) -> [2, 3] || f(2)(x) -> ValueError

= x, and gamma and beta in the shape of its last dims -> (the shape of x, mean, variance). Raises ValueError for other shapes.
LayerNorm: y, mean, variance = f()(x, v, v) && assert y.shape == (2, 3) || f()(x, w, w) -> ValueError

= x, and gamma in the shape of its last dims -> (the shape of x, factors). Raises ValueError for other shapes.
RmsNorm: y, factor = f()(x, v) && assert y.shape == (2, 3) || f()(x, w) -> ValueError

= [n, c, ...] and four of [c] -> the first shape, first. Raises ValueError for other shapes.
BatchNorm: y = f()(x, v, v, v, v)[0] && assert y.shape == (2, 3) || f()(w, v, v, v, v) -> ValueError

= Any shape -> (that shape, the mask). Raises ValueError for a probability outside 0 to 1.
Dropout: y, mask = f(0.5)(x) && assert y.shape == (2, 3) || f(1.5) -> ValueError

= [n, c, h, w] -> [n, c / b^2, h b, w b]. Raises ValueError for a block that the sizes do not fit.
DepthToSpace: f(2)(ms.Tensor(np.ones((1, 4, 2, 2), np.float32))) -> [1, 1, 4, 4] || f(3)(images) -> ValueError

= [n, c, h b, w b] -> [n, c b^2, h, w]. Raises ValueError for a block that the sizes do not fit.
SpaceToDepth: f(2)(images) -> [1, 8, 2, 2] || f(3)(images) -> ValueError

= [n, c, h, w] -> [n, c, *size]. Raises ValueError for other dims.
ResizeBilinear ResizeNearestNeighbor: f((8, 8))(images) -> [1, 2, 8, 8] || f((8, 8))(x) -> ValueError
ResizeBilinearV2 ResizeBicubic ResizeNearestNeighborV2: f()(images, (8, 8)) -> [1, 2, 8, 8] || f()(x, (8, 8)) -> ValueError

= [n, c, l] -> [n, c, size]. Raises ValueError for other dims.
ResizeLinear1D: f()(lines, (12, )) -> [1, 2, 12] || f()(x, (12, )) -> ValueError

= logits and labels of one shape -> a loss for each. Raises ValueError for others.
SigmoidCrossEntropyWithLogits: f()(x, x) -> [2, 3] || f()(x, w) -> ValueError
SmoothL1Loss: f()(x, x) -> [2, 3] || f()(x, w) -> ValueError

= Two tensors of floats of one shape -> [], with reduction="none" that shape. Raises ValueError for another reduction.
SoftMarginLoss: f()(x, x) -> [] || f("best")(x, x) -> ValueError
KLDivLoss: f()(x, x) -> [] || f("best")(x, x) -> ValueError
BinaryCrossEntropy: f()(h, h) -> [] || f("best")(h, h) -> ValueError
BCEWithLogitsLoss: f()(x, x, x, x) -> [] || f("best")(x, x, x, x) -> ValueError

= logits and labels [n, c] -> (losses [n], gradients [n, c]). Raises ValueError for other shapes.
SoftmaxCrossEntropyWithLogits: loss, slope = f()(x, x) && assert loss.shape == (2, ) and slope.shape == (2, 3) || f()(x, w) -> ValueError

= logits [n, c] and ints [n] -> []. Raises ValueError for other shapes.
SparseSoftmaxCrossEntropyWithLogits: f()(x, labels) -> [] || f()(w, labels) -> ValueError

= Logarithms [n, c], ints [n], weights [c] -> (loss, weight), each []. Raises ValueError for another reduction.
NLLLoss: loss, weight = f()(x, labels, v) && assert loss.shape == () || f("best")(x, labels, v) -> ValueError

= Ints [n] and [n] -> [num_classes, num_classes]. Raises TypeError for a number that is no int.
ConfusionMatrix: f(3)(labels, labels) -> [3, 3] || f("a")(labels, labels) -> TypeError

= Floats of any shape -> [1]: 1 where one of them is not finite. Raises AttributeError where it is called with no tensor.
FloatStatus: f()(x) -> [1] || f()("a") -> AttributeError

= On one rank a tensor of any shape comes back as it is. Raises RuntimeError before init().
AllReduce: ms.communication.init() && f()(x) -> [2, 3]
AllGather ReduceScatter: ms.communication.init() && f()(x) -> [2, 3]
Broadcast: ms.communication.init() && y = f(0)((x, ))[0] && assert y.shape == (2, 3)
AlltoAll: ms.communication.init() && f(1, 0, 1)(x) -> [2, 3]

= A tensor of any shape goes from one rank to another. Raises TypeError for tags and ranks that are no ints.
Send: ms.communication.init() && assert f(0, 1).rank == 1 || f("a", 1) -> TypeError
Receive: ms.communication.init() && assert f(0, 1, [2, 3], ms.float32).shape == (2, 3) || f("a", 1, [2, 3], ms.float32) -> TypeError
NeighborExchange: ms.communication.init() && assert f([1], [1], ([2, 3], ), ([2, 3], ), ms.float32).send_rank_ids == (1, ) || f("a", [1], ([2, 3], ), ([2, 3], ), ms.float32) -> TypeError

= Words for the first argument of AllReduce; a tensor of any shape is reduced so. Raises nothing.
ReduceOp: names = f() && assert names.SUM == "sum" and names.MAX == "max"

= Gradients have the shapes of the inputs. Raises TypeError where it is called with no function.
GradOperation: slope = f()(lambda z: (z * z).sum())(x) && assert slope.shape == (2, 3)

= A function of tensors of any shapes, applied to each of a list. Raises TypeError where it is called with other numbers of arguments.
Map HyperMap: doubled = f()(lambda z: z * 2, [x, x]) && assert [one.shape for one in doubled] == [(2, 3), (2, 3)]

= A function that has one form for each kind of arguments, tensors of any shapes among them. Raises TypeError for a kind that has none.
MultitypeFuncGraph: double = f("double") && double.register("Tensor")(lambda z: z * 2) && double(x) -> [2, 3]

= Derived from: called with tensors of the shapes that its construct takes. Raises what construct raises.
Primitive: assert f("Double").name == "Double"
"""
