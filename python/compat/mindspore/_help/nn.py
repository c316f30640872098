"""What help() of the classes of `mindspore.nn` says beside their own words, in the form that _help/rows.py reads."""

ROWS = """
= Called with floats of any shape, it returns that shape. Raises TypeError where it is called with no tensor.
ELU GELU HSigmoid HSwish Mish ReLU6 SeLU SiLU Softsign LogSigmoid FastGelu CELU HShrink Hardtanh LeakyReLU SoftShrink Tanhshrink Softmax: f()(x) -> [2, 3] || f()("a") -> TypeError
LogSoftmax Softmin PReLU: f()(x) -> [2, 3] || f()("a") -> TypeError
Threshold: f(0.5, 0.0)(x) -> [2, 3] || f(0.5, 0.0)("a") -> TypeError

= Called with anything of any shape, it returns it. Raises nothing.
Identity: f()(x) -> [2, 3]

= [..., 2 * a, ...] -> [..., a, ...], the dim being that of the axis. Raises ValueError for an odd size.
GLU: f()(w) -> [3, 2] || f()(x) -> ValueError

= [n, c, h, w] -> the same shape. Raises ValueError for other dims.
Softmax2d: f()(images) -> [1, 2, 4, 4] || f()(v) -> ValueError

= [n, c, h, w] -> [n, c, h', w']. Raises ValueError for sizes that are not positive.
AvgPool2d MaxPool2d: f(2, 2)(images) -> [1, 2, 2, 2] || f(0, 2) -> ValueError

= [n, c, l] -> [n, c, l']. Raises ValueError for sizes that are not positive.
AvgPool1d MaxPool1d: f(2, 2)(lines) -> [1, 2, 3] || f(0, 2) -> ValueError

= [n, c, d, h, w] -> [n, c, d', h', w']. Raises ValueError for sizes that are not positive.
AvgPool3d MaxPool3d: f(2, 2)(volumes) -> [1, 2, 2, 2, 2] || f(0, 2) -> ValueError

= [n, c, l] -> [n, c, output_size]. Raises TypeError for a size that is no int.
AdaptiveAvgPool1d AdaptiveMaxPool1d: f(3)(lines) -> [1, 2, 3] || f("a") -> TypeError

= [n, c, h, w] -> [n, c, *output_size]. Raises TypeError for sizes that are no ints.
AdaptiveAvgPool2d AdaptiveMaxPool2d: f(2)(images) -> [1, 2, 2, 2] || f("a") -> TypeError

= [n, in_channels, l] -> [n, out_channels, l']. Raises ValueError for numbers that are not positive.
Conv1d: f(2, 3, 3)(lines) -> [1, 3, 6] || f(0, 3, 3) -> ValueError
Conv1dTranspose: f(2, 3, 2, 2)(lines) -> [1, 3, 12] || f(0, 3, 2) -> ValueError

= [n, in_channels, h, w] -> [n, out_channels, h', w']. Raises ValueError for numbers that are not positive.
Conv2d: f(2, 3, 3)(images) -> [1, 3, 4, 4] || f(0, 3, 3) -> ValueError
Conv2dTranspose: f(2, 3, 2, 2)(images) -> [1, 3, 8, 8] || f(0, 3, 2) -> ValueError

= [n, in_channels, d, h, w] -> [n, out_channels, d', h', w']. Raises ValueError for numbers that are not positive.
Conv3d: f(2, 3, 3)(volumes) -> [1, 3, 4, 4, 4] || f(0, 3, 3) -> ValueError
Conv3dTranspose: f(2, 3, 2, 2)(volumes) -> [1, 3, 8, 8, 8] || f(0, 3, 2) -> ValueError

= [..., in_channels] -> [..., out_channels]. Raises ValueError for numbers that are not positive.
Dense: f(3, 4)(x) -> [2, 4] || f(0, 4) -> ValueError

= Ints [...] from 0 to vocab_size - 1 -> [..., embedding_size]. Raises ValueError for sizes that are not positive.
Embedding EmbeddingLookup: f(5, 4)(labels) -> [2, 4] || f(0, 4) -> ValueError

= [n, num_features] -> the same shape. Raises ValueError for a number of features that is not positive.
BatchNorm1d: f(3)(x) -> [2, 3] || f(0) -> ValueError

= [n, num_features, h, w] -> the same shape. Raises ValueError for a number of features that is not positive.
BatchNorm2d SyncBatchNorm InstanceNorm2d: f(2)(images) -> [1, 2, 4, 4] || f(0) -> ValueError

= [n, num_features, d, h, w] -> the same shape. Raises ValueError for a number of features that is not positive.
BatchNorm3d InstanceNorm3d: f(2)(volumes) -> [1, 2, 4, 4, 4] || f(0) -> ValueError

= [n, num_features, l] -> the same shape. Raises ValueError for a number of features that is not positive.
InstanceNorm1d: f(2)(lines) -> [1, 2, 6] || f(0) -> ValueError

= [n, num_channels, h, w] -> the same shape. Raises ValueError for a number of groups that does not divide the channels.
GroupNorm: f(2, 2)(images) -> [1, 2, 4, 4] || f(3, 2) -> ValueError

= [..., *normalized_shape] -> the same shape. Raises TypeError for what is no tuple.
LayerNorm: f((3, ))(x) -> [2, 3] || f(3) -> TypeError

= Any shape -> the same shape. Raises ValueError for a probability outside 0 to 1.
Dropout: f(p=0.5)(x) -> [2, 3] || f(p=1.5) -> ValueError
Dropout1d: f(p=0.5)(lines) -> [1, 2, 6] || f(p=1.5) -> ValueError
Dropout2d: f(p=0.5)(images) -> [1, 2, 4, 4] || f(p=1.5) -> ValueError
Dropout3d: f(p=0.5)(volumes) -> [1, 2, 4, 4, 4] || f(p=1.5) -> ValueError

= [n, ...] -> [n, the product of the other sizes]. Raises TypeError for a dim that is no int.
Flatten: f()(images) -> [1, 32] || f("a") -> TypeError

= A dim of the shape becomes several. Raises TypeError for an axis that is no int.
Unflatten: f(1, (3, 1))(x) -> [2, 3, 1] || f("a", (3, 1)) -> TypeError

= Any shape -> the same shape. Raises ValueError where it is called for a dim that there is not.
Roll: f(1, 1)(x) -> [2, 3] || f(1, 2)(x) -> ValueError

= Two numbers for each dim of the shape. Raises ValueError for another mode.
Pad: f(((0, 0), (1, 1)))(x) -> [2, 5] || f(((0, 0), (1, 1)), mode="BEST") -> ValueError

= [n, c, l] -> [n, c, l + paddings]. Raises ValueError for paddings that are no ints.
ConstantPad1d: f(1, 0.0)(lines) -> [1, 2, 8] || f("a", 0.0) -> ValueError
ReflectionPad1d ReplicationPad1d: f(1)(lines) -> [1, 2, 8] || f("a") -> ValueError

= [n, c, h, w] -> [n, c, h + paddings, w + paddings]. Raises ValueError for paddings that are no ints.
ConstantPad2d: f(1, 0.0)(images) -> [1, 2, 6, 6] || f("a", 0.0) -> ValueError
ReflectionPad2d ReplicationPad2d ZeroPad2d: f(1)(images) -> [1, 2, 6, 6] || f("a") -> ValueError

= [n, c, d, h, w] -> the last three sizes with paddings. Raises ValueError for paddings that are no ints.
ConstantPad3d: f(1, 0.0)(volumes) -> [1, 2, 6, 6, 6] || f("a", 0.0) -> ValueError
ReflectionPad3d ReplicationPad3d: f(1)(volumes) -> [1, 2, 6, 6, 6] || f("a") -> ValueError

= [..., c r^2, h, w] -> [..., c, h r, w r]. Raises ValueError for a factor that is not positive.
PixelShuffle: f(2)(ms.Tensor(np.ones((1, 4, 2, 2), np.float32))) -> [1, 1, 4, 4] || f(0) -> ValueError

= [..., c, h r, w r] -> [..., c r^2, h, w]. Raises ValueError for a factor that is not positive.
PixelUnshuffle: f(2)(images) -> [1, 8, 2, 2] || f(0) -> ValueError

= [n, c, h, w] -> the same shape. Raises ValueError for a number of groups that is not positive.
ChannelShuffle: f(2)(images) -> [1, 2, 4, 4] || f(0) -> ValueError

= [n, c, h, w] -> [n, c * kh * kw, rows, columns]. Raises ValueError for lists that are not [1, rows, columns, 1].
Unfold: f([1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1])(images) -> [1, 8, 3, 3] || f([2, 2], [1, 1, 1, 1], [1, 1, 1, 1]) -> ValueError

= [n, c, h, w] -> [n, c, *size]. Raises ValueError where neither size nor factor is given.
ResizeBilinear: f()(images, size=(8, 8)) -> [1, 2, 8, 8] || f()(images) -> ValueError
Upsample: f(size=(8, 8))(images) -> [1, 2, 8, 8] || f()(images) -> ValueError

= Ints [...] -> [..., depth]. Raises TypeError for a depth that is no int.
OneHot: f(depth=3)(labels) -> [2, 3] || f(depth="a") -> TypeError

= Any shape -> that without the axes; all of them without an axis. Raises ValueError where it is called for an axis that there is not.
Norm: f()(x) -> [] || f(2)(x) -> ValueError
ReduceLogSumExp: f(1)(x) -> [2] || f(2)(x) -> ValueError

= Any shape -> (mean, variance), each without the axes. Raises ValueError where it is called for an axis that there is not.
Moments: mean, variance = f(0)(x) && assert mean.shape == variance.shape == (3, ) || f(2)(x) -> ValueError

= Returns [n], int32 of ints. Raises ValueError for a delta of 0.
Range: f(0, 6, 2)() -> [3] || f(0, 6, 0)() -> ValueError

= [..., a, b] and [..., b, c] -> [..., a, c]. Raises ValueError for sizes that do not fit.
MatMul: f()(x, w) -> [2, 4] || f()(x, x) -> ValueError

= A tensor of any shape and a scalar [] -> that shape. Raises TypeError where it is called with no tensor.
ClipByNorm: f()(x, ms.Tensor(1.0)) -> [2, 3] || f()("a", ms.Tensor(1.0)) -> TypeError

= A tensor of any shape -> []. Raises TypeError where it is called with no tensor.
L1Regularizer: f(0.1)(x) -> [] || f(0.1)("a") -> TypeError

= [..., a, b] -> the same shape. Raises ValueError for fewer than two dims.
Tril Triu: f()(x) -> [2, 3] || f()(v) -> ValueError

= Two tensors of floats of one shape -> [], with reduction="none" that shape. Raises ValueError for another reduction.
L1Loss MSELoss MAELoss HuberLoss KLDivLoss SoftMarginLoss: f()(x, x) -> [] || f(reduction="best") -> ValueError
BCELoss: f()(h, h) -> [] || f(reduction="best") -> ValueError
BCEWithLogitsLoss HingeEmbeddingLoss: f()(x, x) -> [] || f(reduction="best") -> ValueError
PoissonNLLLoss: f()(x, x) -> [] || f(reduction="best") -> ValueError
SmoothL1Loss: f(reduction="mean")(x, x) -> [] || f(reduction="best") -> ValueError

= Two tensors of floats of one shape -> []. Raises TypeError for what is no tensor.
RMSELoss: f()(x, x) -> [] || f()("a", x) -> TypeError
DiceLoss: f()(h, h) -> [] || f()("a", h) -> TypeError

= Three tensors of floats of one shape -> [], with reduction="none" that shape. Raises ValueError for another reduction.
MarginRankingLoss GaussianNLLLoss: f()(x, x, x) -> [] || f(reduction="best") -> ValueError

= Vectors [n, d] -> [], with reduction="none" [n]. Raises ValueError for another reduction.
TripletMarginLoss: f()(x, x, x) -> [] || f(reduction="best") -> ValueError
CosineEmbeddingLoss: f()(x, x, ms.Tensor([1, -1])) -> [] || f(reduction="best") -> ValueError

= logits [n, c] and ints [n] -> [], with reduction="none" [n]. Raises ValueError for another reduction.
CrossEntropyLoss NLLLoss: f()(x, labels) -> [] || f(reduction="best") -> ValueError
SoftmaxCrossEntropyWithLogits: f(sparse=True, reduction="mean")(x, labels) -> [] || f(reduction="best") -> ValueError

= log_probs [t, n, c], targets [n, s], the lengths [n] -> [], with reduction="none" [n]. Raises ValueError for another reduction.
CTCLoss: f()(steps, classes, ms.Tensor([4]), ms.Tensor([1])) -> [] || f(reduction="best") -> ValueError

= Derived from: construct() takes what the loss takes and gives get_loss() of it, [], with reduction="none" any shape. Raises ValueError for another
  reduction.
LossBase: half = type("Half", (f, ), {"construct": lambda self, y, z: self.get_loss((y - z) / 2)})() && half(x, x) -> [] || f(reduction="best") -> ValueError

= x [n, input_size] and a state [n, hidden_size] -> the next state. Raises ValueError for sizes that are not positive.
GRUCell RNNCell: f(3, 4)(x, state) -> [2, 4] || f(0, 4) -> ValueError

= x [n, input_size] and (h, c), each [n, hidden_size] -> the next (h, c). Raises ValueError for sizes that are not positive.
LSTMCell: hidden, cell = f(3, 4)(x, (state, state)) && assert hidden.shape == cell.shape == (2, 4) || f(0, 4) -> ValueError

= x [t, n, input_size] -> (what comes out, [t, n, hidden_size], the last state). Raises ValueError for sizes that are not positive.
LSTM GRU RNN: out, last = f(3, 4)(s) && assert out.shape == (2, 3, 4) || f(0, 4) -> ValueError

= Called with a step [] it returns the rate []. Raises ValueError for numbers that are not positive.
CosineDecayLR: f(0.01, 0.1, 10)(ms.Tensor(0)) -> [] || f(0.1, 0.01, 10) -> ValueError
ExponentialDecayLR NaturalExpDecayLR InverseDecayLR: f(0.1, 0.9, 4)(ms.Tensor(0)) -> [] || f(0.1, 0.9, 0) -> ValueError
PolynomialDecayLR: f(0.1, 0.01, 4, 0.5)(ms.Tensor(0)) -> [] || f(0.1, 0.01, 0, 0.5) -> ValueError
WarmUpLR: f(0.1, 4)(ms.Tensor(0)) -> [] || f(0.1, 0) -> ValueError

= Parameters of any shapes, which it updates. Raises ValueError for a rate below 0, and where there are no parameters.
ASGD AdaMax Adadelta Adagrad Adam: optimizer = f(learned, learning_rate=0.1) && nn.TrainOneStepCell(trained, optimizer)(x, target) -> [] || f(learned, learning_rate=-0.1) -> ValueError
AdamWeightDecay FTRL Lamb LazyAdam RMSProp: optimizer = f(learned, learning_rate=0.1) && nn.TrainOneStepCell(trained, optimizer)(x, target) -> [] || f(learned, learning_rate=-0.1) -> ValueError
Rprop SGD: optimizer = f(learned, learning_rate=0.1) && nn.TrainOneStepCell(trained, optimizer)(x, target) -> [] || f(learned, learning_rate=-0.1) -> ValueError
Momentum: step = nn.TrainOneStepCell(trained, f(learned, 0.1, 0.9)) && step(x, target) -> [] || f(learned, -0.1, 0.9) -> ValueError

= Called with a batch's columns, of any shapes, it returns the loss, []. Raises what the network or the loss raises.
WithLossCell: f(network, nn.MSELoss())(x, target) -> [] || f(network, nn.MSELoss())(w, target) -> ValueError

= Called with a batch's columns, of any shapes, it returns the loss, []. Raises AttributeError for what is no cell.
TrainOneStepCell: f(trained, nn.SGD(learned, 0.1))(x, target) -> [] || f(3, nn.SGD(learned, 0.1)) -> AttributeError

= Called with a batch's columns, of any shapes, it returns (the loss, [], whether gradients overflowed, the scale, []). Raises what the network
  raises.
TrainOneStepWithLossScaleCell: loss, overflows, scale = f(trained, nn.SGD(learned, 0.1), ms.Tensor(8.0))(x, target) && assert loss.shape == () and not overflows

= Called with a batch's columns, of any shapes, it returns (the loss, [], what the network gives, the label). Raises what the network or the loss
  raises.
WithEvalCell: loss, given, label = f(network, nn.MSELoss())(x, target) && assert loss.shape == () and given.shape == label.shape == (2, 1) || f(network, nn.MSELoss())(w, target) -> ValueError

= Called with three tensors of the shapes that the cell takes, it returns what the cell returns. Raises what the cell raises.
VirtualDatasetCellTriple: f(nn.TripletMarginLoss())(x, x, x) -> [] || f(nn.TripletMarginLoss())(x, x, w) -> ValueError

= Called with a batch's columns it returns gradients in the shapes of the parameters. Raises AttributeError for what is no cell.
WithGradCell: weight, bias = f(network, nn.MSELoss())(x, target) && assert weight.shape == (1, 3) and bias.shape == (1, ) || f(3, nn.MSELoss()) -> AttributeError

= Its scale is a scalar []. Raises ValueError for numbers that are not positive.
DynamicLossScaleUpdateCell: assert f(1024, 2, 100).get_loss_scale() == 1024 || f(0, 2, 100) -> ValueError

= Its scale is a scalar []. Raises nothing.
FixedLossScaleUpdateCell: assert f(1024).get_loss_scale() == 1024

= Called with a batch's columns it returns the loss, [], of all of its parts. Raises TypeError for a number that is no int.
GradAccumulationCell PipelineCell MicroBatchInterleaved: f(trained, 2)(x, target) -> [] || f(trained, "a") -> TypeError

= Gradients keep their shapes. Raises nothing.
DistributedGradReducer: ms.communication.init() && sums = f(learned)((x, )) && assert sums[0].shape == (2, 3)

= Gradients keep their shapes. Raises TypeError for a scale_sense that is no number and an opt_shard that is no bool, ValueError for a scale of 0, and where
  it is called RuntimeError for gradients of another number of parameters.
PipelineGradReducer: halves = f([network.weight], 2.0)((x, )) && assert halves[0].shape == (2, 3) || f(learned, 0.0) -> ValueError

= Called with a tensor of the parameter's shape, which it becomes. Raises TypeError for what is no Parameter.
ParameterUpdate: f(network.weight)(row) -> [1, 3] || f(3) -> TypeError

= Called with a tensor of any shape, which all of its cells pass on. Raises TypeError for what is no cell.
SequentialCell: f(nn.Dense(3, 4), nn.ReLU())(x) -> [2, 4] || f(3) -> TypeError

= Cells by their places; they take tensors of any shapes. Raises TypeError for what is no cell.
CellList: cells = f([nn.Dense(3, 4), nn.ReLU()]) && cells[0](x) -> [2, 4] || f([3]) -> TypeError

= Cells by names; they take tensors of any shapes. Raises TypeError for what is no cell.
CellDict: cells = f({"up": nn.Dense(3, 4)}) && cells["up"](x) -> [2, 4] || f({"up": 3}) -> TypeError

= Called with tensors of shapes that its construct() takes. Raises what construct() raises.
Cell: double = type("Double", (f, ), {"construct": lambda self, z: z * 2})() && double(x) -> [2, 3]

= Derived from: construct() takes a step, [], and gives a rate, []. Raises what construct() raises.
LearningRateSchedule: halves = type("Halves", (f, ), {"construct": lambda self, z: 0.1 / (z + 1)})() && halves(ms.Tensor(1.0)) -> []

= Parameters of any shapes. Raises ValueError for a rate below 0.
Optimizer: assert f(0.1, learned).get_lr() is not None || f(-0.1, learned) -> ValueError

= query [t, n, embed_dim], key and value [s, n, embed_dim] -> (the shape of the query, the weights [n, t, s]). Raises ValueError for heads that do not
  divide embed_dim.
MultiheadAttention: out, weights = f(4, 2)(words, words, words) && assert out.shape == (5, 1, 4) || f(4, 3) -> ValueError

= src [s, n, d_model] -> the same shape. Raises ValueError for heads that do not divide d_model.
TransformerEncoderLayer: f(4, 2, 8)(words) -> [5, 1, 4] || f(4, 3, 8) -> ValueError

= src [s, n, d_model] -> the same shape. Raises TypeError for what is no layer.
TransformerEncoder: f(nn.TransformerEncoderLayer(4, 2, 8), 2)(words) -> [5, 1, 4]

= tgt [t, n, d_model], memory [s, n, d_model] -> the shape of tgt. Raises ValueError for heads that do not divide d_model.
TransformerDecoderLayer: f(4, 2, 8)(words, words) -> [5, 1, 4] || f(4, 3, 8) -> ValueError

= tgt [t, n, d_model], memory [s, n, d_model] -> the shape of tgt. Raises TypeError for what is no layer.
TransformerDecoder: f(nn.TransformerDecoderLayer(4, 2, 8), 2)(words, words) -> [5, 1, 4]

= src [s, n, d_model], tgt [t, n, d_model] -> the shape of tgt. Raises ValueError for heads that do not divide d_model.
Transformer: f(4, 2, 1, 1, 8)(words, words) -> [5, 1, 4] || f(4, 3, 1, 1, 8) -> ValueError

= Of logits [n, c] and ints [n]: eval() is a float. Raises ValueError where update() is given another number of arguments, RuntimeError for eval() of
  nothing.
Accuracy Top1CategoricalAccuracy Top5CategoricalAccuracy: metric = f() && metric.update(scores, labels) && assert 0 <= np.mean(metric.eval()) <= 1 || metric.update(scores) -> ValueError
Precision Recall F1: metric = f() && metric.update(scores, labels) && assert 0 <= np.mean(metric.eval()) <= 1 || metric.update(scores) -> ValueError
TopKCategoricalAccuracy: metric = f(2) && metric.update(scores, labels) && assert 0 <= metric.eval() <= 1 || metric.update(scores) -> ValueError
Fbeta: metric = f(2.0) && metric.update(scores, labels) && assert 0 <= metric.eval(average=True) <= 1 || metric.update(scores) -> ValueError
Perplexity: metric = f() && metric.update(scores, labels) && assert metric.eval() > 1 || metric.update(scores) -> ValueError

= Of a batch's loss, a scalar []: eval() is a float. Raises ValueError where update() is given another number of arguments.
Loss: metric = f() && metric.update(ms.Tensor(0.5)) && assert metric.eval() == 0.5 || metric.update(x, x) -> ValueError

= Of predictions and labels of one shape [n, ...]: eval() is a float. Raises ValueError where update() is given another number of arguments.
MAE MSE: metric = f() && metric.update(x, x) && assert metric.eval() == 0 || metric.update(x) -> ValueError
Dice: metric = f() && metric.update(m, m) && assert 0 < metric.eval() <= 1 || metric.update(m) -> ValueError

= Of logits [n, num_classes] and ints [n]: eval() is an array [num_classes, num_classes]. Raises ValueError for another way to normalise.
ConfusionMatrix: metric = f(3) && metric.update(scores, labels) && assert metric.eval().shape == (3, 3) || f(3, normalize="best") -> ValueError

= Of predictions and labels [n, c] of 0 and 1: eval() is an array of numbers. Raises ValueError where update() is given another number of arguments.
ConfusionMatrixMetric: metric = f() && metric.update(m, m) && assert np.isfinite(metric.eval()).all() || metric.update(m) -> ValueError

= Of rows [n, d]: eval() is an array [n, n]. Raises ValueError for another similarity.
CosineSimilarity: metric = f() && metric.update(scores.asnumpy()) && assert metric.eval().shape == (2, 2) || f(similarity="best") -> ValueError

= Of two shapes that fill a part of an array of one shape: update(predictions, labels, the label). Raises ValueError for another kind of distance.
HausdorffDistance MeanSurfaceDistance RootMeanSquareDistance: metric = f() && metric.update(m, m, 1) && assert metric.eval() == 0 || f(distance_metric="best") -> ValueError

= Of scores [n] and ints [n]: eval() is three arrays, with several classes lists of them. Raises ValueError where update() is given another number of
  arguments.
ROC: metric = f(pos_label=1) && metric.update(ms.Tensor([0.2, 0.8]), ms.Tensor([0, 1])) && assert len(metric.eval()) == 3 || metric.update(scores) -> ValueError

= Lists of words have no shape: eval() is a float. Raises ValueError for n_gram outside 1 to 4.
BleuScore: metric = f() && metric.update([list("abcd")], [[list("abcd")]]) && assert metric.eval() == 1 || f(n_gram=5) -> ValueError

= Of a network, an image [1, c, h, w] and its label [1]: eval() is an array. Raises TypeError for sizes that are no ints.
OcclusionSensitivity: metric = f() && metric.update(nn.SequentialCell(nn.Flatten(), nn.Dense(32, 3)), images, ms.Tensor([0])) && assert len(metric.eval()) > 0 || f(margin="a") -> TypeError

= Derived from: update() is given what the network gives and labels, of any shapes. Raises NotImplementedError where clear(), update() or eval() is
  not defined.
Metric: metric = type("Count", (f, ), {"clear": lambda self: None, "update": lambda self, *z: None, "eval": lambda self: 7})() && assert metric.eval() == 7
"""
