"""What help() of a class says beside what the class itself says: shapes where it is about tensors, what it raises, and an example.

`# [4, 3]` behind a line is the shape of what the line assigns or is; `# raises InvalidArgument` is what the line does. Examples know np, tessera, nn
and ops. tests/python/documentation_test.py runs them all, one after the other as one program for each class.
"""
import re

_OPTIMIZER = """Parameters of any shape; each state has the shape of its parameter, and rates are numbers, f32[], or f32[steps] where a list is given.
Raises InvalidArgument for {refused}, and for a learning rate that is negative or not finite.

    optimizer = nn.{name}({right})
    model = tessera.Model(nn.Dense(8, 3), nn.CrossEntropy(), optimizer)
    nn.{name}({wrong})  # raises InvalidArgument"""
_OPTIMIZERS = {  # by name: what is refused, a right and a wrong way to make one
    "AMSGrad": ("a beta outside (0,1)", "learning_rate=0.001", "beta2=1.0"),
    "ASGD": ("settings below 0", "learning_rate=0.1", "learning_rate=-0.1"),
    "AdaMax": ("a beta outside (0,1)", "learning_rate=0.001", "beta1=1.0"),
    "Adadelta": ("a rho outside [0,1]", "learning_rate=1.0", "rho=2.0"),
    "Adagrad": ("a negative accum", "learning_rate=0.01", "accum=-1.0"),
    "Adam": ("a beta outside (0,1)", "learning_rate=0.001", "beta1=2.0"),
    "AdamW": ("a beta outside (0,1)", "learning_rate=0.001, weight_decay=0.01", "beta2=1.0"),
    "AdamWeightDecay": ("a beta outside (0,1)", "learning_rate=0.001", "eps=0.0"),
    "FTRL": ("an lr_power above 0", "learning_rate=0.01", "lr_power=1.0"),
    "Lamb": ("a beta outside (0,1)", "learning_rate=0.001", "beta1=1.0"),
    "LazyAdam": ("a beta outside (0,1)", "learning_rate=0.001", "beta1=1.0"),
    "Momentum": ("a negative momentum", "learning_rate=0.1, momentum=0.9", "0.1, momentum=-1.0"),
    "RMSProp": ("an epsilon that is not positive", "learning_rate=0.01", "epsilon=0.0"),
    "Rprop": ("a `smaller` outside (0,1)", "learning_rate=0.01", "smaller=2.0"),
    "SGD": ("a negative momentum, and nesterov without one", "learning_rate=0.1, momentum=0.9", "learning_rate=0.1, nesterov=True"),
}
_ACTIVATION = """x of any shape and floating type -> the same. Raises InvalidArgument for integers.

    y = nn.{name}()(np.ones((4, 8), "float32"))  # [4, 8]
    nn.{name}()(np.ones(3, "int32"))  # raises InvalidArgument"""
_HEADS = """{shapes}Raises InvalidArgument where hidden_size is no multiple of num_heads.

    {right}
    {wrong}  # raises InvalidArgument"""

_TEXTS = """
# nn.ReLU
x of any shape and number type -> the same. Raises TypeError for what is no tensor.

    y = nn.ReLU()(np.ones((4, 8), "float32"))  # [4, 8]
    nn.ReLU()("a")  # raises TypeError

# nn.Softmax
x of any shape and floating type -> the same. Raises InvalidArgument for integers, and for an axis that x does not have.

    y = nn.Softmax()(np.ones((4, 8), "float32"))  # [4, 8]
    nn.Softmax(3)(np.ones((4, 8), "float32"))  # raises InvalidArgument

# nn.AdaptiveAvgPool2d
Raises InvalidArgument for sizes below 1, and for what is no image.

    y = nn.AdaptiveAvgPool2d(2, None)(np.ones((1, 3, 8, 6), "float32"))  # [1, 3, 2, 6]
    nn.AdaptiveAvgPool2d(0, 1)  # raises InvalidArgument

# nn.AttentionMask
Raises InvalidArgument for a mask of another length.

    y = nn.AttentionMask(4)(np.ones((2, 4), "float32"))  # [2, 4, 4]
    nn.AttentionMask(4)(np.ones((2, 5), "float32"))  # raises InvalidArgument

# nn.AvgPool2d
Raises InvalidArgument where the window does not fit into the image.

    y = nn.AvgPool2d(2, 2)(np.ones((1, 3, 8, 8), "float32"))  # [1, 3, 4, 4]
    nn.AvgPool2d(3)(np.ones((1, 3, 2, 2), "float32"))  # raises InvalidArgument

# nn.MaxPool2d
Raises InvalidArgument where the window does not fit into the image.

    y = nn.MaxPool2d(3, 2, pad_mode="same")(np.ones((1, 3, 8, 8), "float32"))  # [1, 3, 4, 4]
    nn.MaxPool2d(3)(np.ones((1, 3, 2, 2), "float32"))  # raises InvalidArgument

# nn.BatchNorm1d
Raises InvalidArgument where x has another number of channels.

    y = nn.BatchNorm1d(8)(np.ones((4, 8), "float32"))  # [4, 8]
    nn.BatchNorm1d(8)(np.ones((4, 7), "float32"))  # raises InvalidArgument

# nn.BatchNorm2d
Raises InvalidArgument where x has another number of channels.

    y = nn.BatchNorm2d(3)(np.ones((4, 3, 5, 5), "float32"))  # [4, 3, 5, 5]
    nn.BatchNorm2d(3)(np.ones((4, 2, 5, 5), "float32"))  # raises InvalidArgument

# nn.Conv1d
Raises InvalidArgument where x has other channels.

    y = nn.Conv1d(3, 4, 3)(np.ones((2, 3, 8), "float32"))  # [2, 4, 8]
    nn.Conv1d(3, 4, 3)(np.ones((2, 2, 8), "float32"))  # raises InvalidArgument

# nn.Conv1dTranspose
Raises InvalidArgument where x has other channels.

    y = nn.Conv1dTranspose(3, 4, 3, stride=2)(np.ones((2, 3, 8), "float32"))  # [2, 4, 16]
    nn.Conv1dTranspose(3, 4, 3)(np.ones((2, 2, 8), "float32"))  # raises InvalidArgument

# nn.Conv2d
Raises InvalidArgument where x has other channels.

    y = nn.Conv2d(3, 4, 3, stride=2)(np.ones((2, 3, 8, 8), "float32"))  # [2, 4, 4, 4]
    nn.Conv2d(3, 4, 3)(np.ones((2, 2, 8, 8), "float32"))  # raises InvalidArgument

# nn.Conv2dTranspose
Raises InvalidArgument where x has other channels.

    y = nn.Conv2dTranspose(3, 4, 3, stride=2)(np.ones((2, 3, 8, 8), "float32"))  # [2, 4, 16, 16]
    nn.Conv2dTranspose(3, 4, 3)(np.ones((2, 2, 8, 8), "float32"))  # raises InvalidArgument

# nn.CrossEntropy
Raises InvalidArgument for labels that do not fit.

    loss = nn.CrossEntropy()(np.ones((4, 3), "float32"), np.zeros(4, "int32"))  # []
    nn.CrossEntropy()(np.ones((4, 3), "float32"), np.zeros(5, "int32"))  # raises InvalidArgument

# nn.CrossEntropyLoss
Raises InvalidArgument for labels that do not fit.

    loss = nn.CrossEntropyLoss()(np.ones((4, 3), "float32"), np.zeros(4, "int32"), np.ones(4, "float32"))  # []
    nn.CrossEntropyLoss()(np.ones((4, 3), "float32"), np.zeros(5, "int32"), np.ones(4, "float32"))  # raises InvalidArgument

# nn.Dense
Raises InvalidArgument for sizes below 1, and where the last dim of x is not in_channels.

    y = nn.Dense(8, 3, activation="relu")(np.ones((4, 8), "float32"))  # [4, 3]
    nn.Dense(8, 3)(np.ones((4, 7), "float32"))  # raises InvalidArgument

# nn.Dropout
x of any shape -> the same. Raises InvalidArgument for a keep_prob outside (0,1].

    y = nn.Dropout(0.9)(np.ones((4, 8), "float32"))  # [4, 8]
    nn.Dropout(0.0)  # raises InvalidArgument

# nn.Embedding
    y = nn.Embedding(10, 4)(np.zeros((2, 3), "int32"))  # [2, 3, 4]
    nn.Embedding(10, 4)(np.full(2, 10, "int32"))  # raises InvalidArgument

# nn.VocabEmbedding
    y = nn.VocabEmbedding(10, 4)(np.zeros((2, 3), "int32"))
    nn.VocabEmbedding(10, 4)(np.ones((2, 3), "float32"))  # raises InvalidArgument

# nn.TokenEmbedding
Raises InvalidArgument for more tokens than max_length.

    y = nn.TokenEmbedding(10, 4, 8)(np.zeros((2, 4), "int32"))  # [2, 4, 8]
    nn.TokenEmbedding(10, 4, 8)(np.zeros((2, 5), "int32"))  # raises InvalidArgument

# nn.ExponentialMovingAverage
Averages have the shapes of their parameters. Raises InvalidArgument for a decay outside [0,1].

    optimizer = nn.ExponentialMovingAverage(nn.Adam(0.001), decay=0.99)
    nn.ExponentialMovingAverage(nn.Adam(0.001), decay=2.0)  # raises InvalidArgument

# nn.FeedForward
Raises InvalidArgument for a hidden_act that is not known.

    y = nn.FeedForward(8, 16)(np.ones((2, 3, 8), "float32"))  # [2, 3, 8]
    nn.FeedForward(8, 16, hidden_act="no")  # raises InvalidArgument

# nn.Flatten
Raises InvalidArgument for a tensor without dims.

    y = nn.Flatten()(np.ones((4, 3, 2), "float32"))  # [4, 6]
    nn.Flatten()(np.float32(1))  # raises InvalidArgument

# nn.L1Loss
logits and label [...] -> [] or, with the reduction none, [...]. Raises InvalidArgument where their shapes differ.

    loss = nn.L1Loss()(np.ones((4, 2), "float32"), np.zeros((4, 2), "float32"))  # []
    nn.L1Loss()(np.ones(3, "float32"), np.ones(4, "float32"))  # raises InvalidArgument

# nn.MSELoss
logits and label [...] -> [] or, with the reduction none, [...]. Raises InvalidArgument where their shapes differ.

    loss = nn.MSELoss("none")(np.ones((4, 2), "float32"), np.zeros((4, 2), "float32"))  # [4, 2]
    nn.MSELoss()(np.ones(3, "float32"), np.ones(4, "float32"))  # raises InvalidArgument

# nn.LayerNorm
Raises InvalidArgument where the last dims of x are others.

    y = nn.LayerNorm((8, ))(np.ones((4, 8), "float32"))  # [4, 8]
    nn.LayerNorm((8, ))(np.ones((4, 7), "float32"))  # raises InvalidArgument

# nn.RmsNorm
Raises InvalidArgument where the last dim of x is another.

    y = nn.RmsNorm(8)(np.ones((4, 8), "float32"))  # [4, 8]
    nn.RmsNorm(8)(np.ones((4, 7), "float32"))  # raises InvalidArgument

# nn.SwiGlu
Raises InvalidArgument where x has other features.

    y = nn.SwiGlu(4, 8)(np.ones((2, 4), "float32"))  # [2, 4]
    nn.SwiGlu(4, 8)(np.ones((2, 3), "float32"))  # raises InvalidArgument

# nn.RecurrentCell
Raises InvalidArgument for a recurrence that is not known.

    cell = nn.RecurrentCell(3, 4, "gru")
    state = cell(np.ones((2, 3), "float32"), np.zeros((2, 4), "float32"))  # [2, 4]
    nn.RecurrentCell(3, 4, "no")  # raises InvalidArgument

# nn.RecurrentLayer
Raises InvalidArgument where x has another size.

    output, state = nn.RecurrentLayer(3, 4, "gru", batch_first=True)(np.ones((2, 5, 3), "float32"))
    output  # [2, 5, 4]
    nn.RecurrentLayer(3, 4)(np.ones((5, 2, 2), "float32"))  # raises InvalidArgument

# nn.SoftmaxCrossEntropyExpand
Raises InvalidArgument for labels that do not fit.

    loss = nn.SoftmaxCrossEntropyExpand(sparse=True)(np.ones((4, 3), "float32"), np.zeros(4, "int32"))  # []
    nn.SoftmaxCrossEntropyExpand(sparse=True)(np.ones((4, 3), "float32"), np.zeros(5, "int32"))  # raises InvalidArgument

# nn.SoftmaxCrossEntropyWithLogits
Raises InvalidArgument for labels that do not fit.

    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True)(np.ones((4, 3), "float32"), np.zeros(4, "int32"))  # [4]
    nn.SoftmaxCrossEntropyWithLogits(sparse=True)(np.ones((4, 3), "float32"), np.zeros(5, "int32"))  # raises InvalidArgument

# nn.Cell
Inputs and results have any shape. Raises InvalidArgument where it is called and has no construct(), and whatever construct() raises.

    class Half(nn.Cell):
        def construct(self, x):
            return x * 0.5

    y = Half()(np.ones((4, 8), "float32"))  # [4, 8]
    nn.Cell().construct(1.0)  # raises InvalidArgument

# nn.CellList
Shapes are those of its cells. Raises TypeError for what is no cell, IndexError for a number that there is not.

    layers = nn.CellList([nn.Dense(8, 8), nn.Dense(8, 3)])
    y = layers[-1](layers[0](np.ones((4, 8), "float32")))  # [4, 3]
    layers[2]  # raises IndexError

# nn.Sequential
Shapes are those of its children: each takes what the one before gives. Raises TypeError for what is no cell.

    y = nn.Sequential(nn.Dense(8, 4), nn.ReLU(), nn.Dense(4, 3))(np.ones((2, 8), "float32"))  # [2, 3]
    nn.Sequential(nn.ReLU)  # raises TypeError

# nn.CentralizedGradients
Gradients have the shapes of their parameters. Raises TypeError for what is no optimizer.

    network = nn.Dense(8, 3)
    optimizer = nn.CentralizedGradients(nn.SGD(0.1), [network.weight])
    nn.CentralizedGradients(0.1, [network.weight])  # raises TypeError

# nn.ChosenParameters
Parameters of any shape. Raises TypeError for what is no optimizer.

    network = nn.Dense(8, 3)
    optimizer = nn.ChosenParameters(nn.SGD(0.1), [network.bias])
    nn.ChosenParameters(0.1, [network.bias])  # raises TypeError

# nn.ScaledGradients
Gradients have the shapes of their parameters. Raises TypeError for what is no optimizer.

    network = nn.Dense(8, 3)
    optimizer = nn.ScaledGradients(nn.SGD(0.1), {network.bias: 2.0})
    nn.ScaledGradients(0.1, {network.bias: 2.0})  # raises TypeError

# nn.Optimizer
Each of nn's optimizers is one: nn.SGD, nn.Adam, ... Parameters of any shape. Raises TypeError where it is made by itself.

    assert isinstance(nn.SGD(0.1), nn.Optimizer)
    nn.Optimizer()  # raises TypeError

# nn.TracedOptimizer
Gradients have the shapes of their parameters. Raises TypeError where it is not given both functions.

    network = nn.Dense(8, 3)

    def update(gradients):
        for parameter in network.parameters():
            parameter.set_data(parameter - 0.1 * gradients[parameter.name])

    optimizer = nn.TracedOptimizer(update, lambda: [])
    nn.TracedOptimizer(update)  # raises TypeError

# nn.TracedPrograms
Tensors of any shape. It raises nothing of its own.

    programs = nn.TracedPrograms()

# nn.LossScale
A number, f32[], that a step whose gradients are finite may raise. Raises InvalidArgument, by the functions that make it, for a scale that is not positive.

    model = tessera.Model(nn.Dense(8, 3), nn.CrossEntropy(), nn.SGD(0.1), precision="float16", loss_scale=nn.dynamic_loss_scale())
    nn.fixed_loss_scale(0.0)  # raises InvalidArgument

# nn.TransformerOpParallelConfig
Raises TypeError for what is no whole number.

    base = nn.Transformer(8, 16, parallel=nn.TransformerOpParallelConfig(data_parallel=2, model_parallel=2))
    nn.TransformerOpParallelConfig("2")  # raises TypeError

# nn.initializers.Initializer
A parameter of any shape. The functions that make one raise InvalidArgument for a setting that makes no sense.

    y = nn.Dense(8, 3, weight_init=nn.initializers.normal(0.1)).weight  # [3, 8]
    nn.initializers.normal(-1.0)  # raises InvalidArgument

# nn.schedules.RateSchedule
A number for each step; table(n) has those of n steps, [n]. Raises InvalidArgument for a step below 0.

    schedule = nn.schedules.warmup(2, nn.schedules.cosine(0.1, 10))
    assert schedule(0) == 0
    schedule(-1)  # raises InvalidArgument

# ops.ShardedCall
Tensors of any shape. Raises InvalidArgument outside of construct().

    class Halves(nn.Cell):
        def construct(self, x):
            call = ops.ShardedCall([x])
            y = x * 0.5
            call.shard(((1, 1), ))
            return y

    ops.ShardedCall([np.ones((4, 8), "float32")])  # raises InvalidArgument

# Tensor
Any shape, [] for one number. Raises InvalidArgument for an unknown dtype, TypeError for what is no number.

    x = tessera.Tensor(np.ones((4, 8), "float32"))  # [4, 8]
    y = (x * 2 + 1)[0]  # [8]
    tessera.Tensor("a")  # raises TypeError

# Parameter
Any shape, which stays. Raises InvalidArgument for data of another shape.

    weight = tessera.Parameter(np.ones((2, 3), "float32"), name="weight")  # [2, 3]
    weight.set_data(np.zeros((2, 3), "float32"))
    weight.set_data(np.zeros(3, "float32"))  # raises InvalidArgument

# Value
It has a shape, a dtype and the operators of a Tensor, of any shape. Raises TypeError where Python needs to know its number.

    class Mean(nn.Cell):
        def construct(self, x):
            assert isinstance(x, tessera.Value)
            return ops.reduce_mean(x)

    y = Mean()(np.ones((4, 8), "float32"))  # []
    tessera.Value()  # raises TypeError

# DType
Raises ValueError for a name that is none.

    assert tessera.Tensor(np.ones(3, "int32")).dtype == tessera.int32
    tessera.DType("no")  # raises ValueError

# Model
    model = tessera.Model(nn.Dense(8, 3), nn.CrossEntropy(), nn.Adam(0.01), metrics=["accuracy"])
    rows = tessera.data.tensors({"x": np.ones((4, 8), "float32"), "label": np.zeros(4, "int32")}).batch(2)
    model.train(2, rows)
    assert model.eval(rows)["accuracy"] == 1
    y = model.predict(np.ones((1, 8), "float32"))  # [1, 3]
    tessera.Model(nn.Dense(8, 3), parallel_mode="no")  # raises InvalidArgument

# Callback
It raises what a method of it raises, out of Model.train().

    class Stop(tessera.Callback):
        def step_end(self, run):
            if run.step == 2:
                run.request_stop()

    model = tessera.Model(nn.Dense(8, 3), nn.CrossEntropy(), nn.SGD(0.1))
    rows = tessera.data.tensors({"x": np.ones((4, 8), "float32"), "label": np.zeros(4, "int32")}).batch(1)
    model.train(9, rows, [Stop()])
    assert model.step == 2
    model.train(9, rows, [Stop])  # raises TypeError

# RunContext
A training makes it and gives it to its callbacks. Raises TypeError where it is made otherwise.

    class Show(tessera.Callback):
        def epoch_end(self, run):
            print(f"epoch {run.epoch} of {run.num_epochs}, step {run.step}: loss {run.loss:.4f}")

    tessera.RunContext()  # raises TypeError

# LoadedParameters
Model.load_parameters() gives it. Raises TypeError where it is made otherwise.

    model = tessera.Model(nn.Dense(8, 3), nn.CrossEntropy(), nn.SGD(0.1))
    model.save_checkpoint("net.ckpt")
    assert model.load_parameters("net.ckpt").missing == []
    tessera.LoadedParameters()  # raises TypeError

# Decoded
Model.translate() and beam_search() give it: tokens, a list of numbers, and how probable they are. Raises TypeError where it is made otherwise.

    tessera.Decoded()  # raises TypeError

# LossMonitor
Raises InvalidArgument for a negative number.

    callbacks = [tessera.LossMonitor(100)]
    tessera.LossMonitor(-1)  # raises InvalidArgument

# TimeMonitor
Raises InvalidArgument for a negative number.

    callbacks = [tessera.TimeMonitor()]
    tessera.TimeMonitor(-1)  # raises InvalidArgument

# EpochSummary
Raises TypeError where `valid` is no data set.

    rows = tessera.data.tensors({"x": np.ones((4, 8), "float32"), "label": np.zeros(4, "int32")}).batch(2)
    callbacks = [tessera.EpochSummary(valid=rows)]
    tessera.EpochSummary(valid=3)  # raises TypeError

# ProgressBar
Raises InvalidArgument for negative seconds.

    callbacks = [tessera.ProgressBar(seconds=30)]
    tessera.ProgressBar(seconds=-1)  # raises InvalidArgument

# TrainingLog
Raises TypeError where it is made by itself.

    assert isinstance(tessera.CsvLog("log.csv"), tessera.TrainingLog)
    tessera.TrainingLog()  # raises TypeError

# CsvLog
Raises InvalidArgument for a negative every_steps; a training raises it where the file has something else, IoError where it cannot be opened.

    callbacks = [tessera.CsvLog("log.csv", every_steps=10)]
    tessera.CsvLog("log.csv", every_steps=-1)  # raises InvalidArgument

# JsonLog
Raises InvalidArgument for a negative every_steps; a training raises it where the file has something else, IoError where it cannot be opened.

    callbacks = [tessera.JsonLog("log.jsonl", every_steps=10)]
    tessera.JsonLog("log.jsonl", every_steps=-1)  # raises InvalidArgument

# TensorBoard
Raises InvalidArgument for a negative every_steps.

    callbacks = [tessera.TensorBoard("logs", histogram_steps=100)]
    tessera.TensorBoard("logs", every_steps=-1)  # raises InvalidArgument

# EventWriter
Histograms are of tensors of any shape. Raises IoError where the directory cannot be made; add_graph() raises InvalidArgument of a model that has not trained.

    writer = tessera.EventWriter("logs")
    writer.add_scalar("loss", 0.5, 1)
    model = tessera.Model(nn.Dense(2, 1), nn.MSELoss(), nn.SGD(learning_rate=0.1))
    writer.add_graph(model)  # raises InvalidArgument
    tessera.EventWriter("")  # raises IoError

# Trace
Raises InvalidArgument for steps that are none.

    callbacks = [tessera.Trace("job.json", first_step=10, last_step=30)]
    tessera.Trace("job.json", first_step=0)  # raises InvalidArgument

# RecordValues
A training raises InvalidArgument for steps that it does not understand, ValuesDiffer where the values are not those of compare_with.

    callbacks = [tessera.RecordValues("records", steps="1-10")]
    model = tessera.Model(nn.Dense(8, 3), nn.CrossEntropy(), nn.SGD(0.1))
    rows = tessera.data.tensors({"x": np.ones((4, 8), "float32"), "label": np.zeros(4, "int32")}).batch(2)
    model.train(1, rows, [tessera.RecordValues("records", steps="x")])  # raises InvalidArgument

# ModelCheckpoint
Raises InvalidArgument for a prefix that cannot be one and for negative numbers; a training raises it where another job saves into the directory.

    callbacks = [tessera.ModelCheckpoint("net", "saved", save_checkpoint_steps=100, keep_checkpoint_max=3)]
    tessera.ModelCheckpoint("net", "saved", keep_checkpoint_max=-1)  # raises InvalidArgument

# BestCheckpoint
Raises InvalidArgument for an unknown mode and a save_top_k below 1; a training raises it for a metric that the model has not, and where a
ModelCheckpoint beside it has the same prefix.

    model = tessera.Model(nn.Dense(8, 3), nn.CrossEntropy(), nn.Adam(0.01), metrics=["accuracy"])
    rows = tessera.data.tensors({"x": np.ones((4, 8), "float32"), "label": np.zeros(4, "int32")}).batch(2)
    best = tessera.BestCheckpoint("saved/best", "accuracy", rows, save_top_k=3)
    model.train(2, rows, [best])
    model.load_parameters(best.path)
    tessera.BestCheckpoint(mode="no")  # raises InvalidArgument

# EarlyStopping
Raises InvalidArgument for a patience below 1; a training raises it for a metric that the model has not.

    callbacks = [tessera.EarlyStopping("train_loss", patience=3)]
    tessera.EarlyStopping(patience=0)  # raises InvalidArgument

# ReduceLROnPlateau
Raises InvalidArgument for a factor outside (0,1); a training raises it for a metric that the model has not.

    callbacks = [tessera.ReduceLROnPlateau("train_loss", factor=0.5, patience=2)]
    tessera.ReduceLROnPlateau(factor=1.0)  # raises InvalidArgument

# Error
The base of NonFiniteLoss and ValuesDiffer, a RuntimeError.

    assert issubclass(tessera.NonFiniteLoss, tessera.Error)
    raise tessera.Error("it does not fit")  # raises Error

# InternalError
Tessera has a fault; a RuntimeError. The text says what it expected and what it found.

    assert issubclass(tessera.InternalError, RuntimeError)
    raise tessera.InternalError("a fault")  # raises InternalError

# InvalidArgument
What a script gave does not fit; a ValueError. The text says what must hold, what was found and the way out.

    nn.Dense(0, 3)  # raises InvalidArgument

# IoError
A disk, a peer or the network failed; an OSError. To start again may help.

    tessera.checkpoint.load("none.ckpt")  # raises IoError

# NoUsableCheckpoint
A directory has checkpoints, and none of them can be used; an InvalidArgument. The text says of each why.

    assert issubclass(tessera.NoUsableCheckpoint, tessera.InvalidArgument)
    raise tessera.NoUsableCheckpoint("saved: none can be used")  # raises NoUsableCheckpoint

# NonFiniteLoss
A training's loss is not finite. The text names the first operator that went wrong.

    model = tessera.Model(nn.Dense(8, 3), nn.CrossEntropy(), nn.SGD(0.1))
    rows = tessera.data.tensors({"x": np.full((4, 8), np.nan, "float32"), "label": np.zeros(4, "int32")}).batch(2)
    model.train(1, rows)  # raises NonFiniteLoss

# StrategyError
A strategy file is wrong, or does not fit; an InvalidArgument and a RuntimeError.

    assert issubclass(tessera.StrategyError, tessera.InvalidArgument) and issubclass(tessera.StrategyError, RuntimeError)
    raise tessera.StrategyError("it does not fit")  # raises StrategyError

# UsageError
A variable of the environment makes no sense; an InvalidArgument. A script that it ends has exit code 2.

    assert issubclass(tessera.UsageError, tessera.InvalidArgument)
    raise tessera.UsageError("TESSERA_RANK is no number")  # raises UsageError

# ValuesDiffer
A training that is compared with an earlier one (RecordValues) has left it. The text names step and operator.

    assert issubclass(tessera.ValuesDiffer, tessera.Error)
    raise tessera.ValuesDiffer("step 3, dense")  # raises ValuesDiffer

# data.Dataset
Columns have a row each for every sample: [rows, ...]; a batch of n has [n, ...]. Raises InvalidArgument where columns differ in their number of rows.

    rows = tessera.data.tensors({"x": np.ones((4, 8)), "label": np.zeros(4, "int32")}).batch(2)
    assert rows.get_dataset_size() == 2 and rows.column_names() == ["x", "label"]
    tessera.data.tensors({"x": np.ones(3), "y": np.ones(4)})  # raises InvalidArgument
    labelled = tessera.data.tensors({"x": np.ones((4, 8), "float32"), "label": np.arange(4, dtype="int32")})
    assert labelled.mixup(0.2, num_classes=4).batch(2).output_shapes() == [(2, 8), (2, 4)]
    labelled.mixup(0.2)  # raises InvalidArgument

# data.Batches
What iterating over a data set gives: for each batch a tuple of tensors [n, ...], in the order of the columns. Raises TypeError where it is made otherwise.

    for x, label in tessera.data.tensors({"x": np.ones((4, 8)), "label": np.zeros(4, "int32")}).batch(2).batches():
        assert tuple(x.shape) == (2, 8) and tuple(label.shape) == (2, )
    tessera.data.Batches()  # raises TypeError

# data.Transform
A column of a sample of any shape. The functions that make one raise InvalidArgument for settings that make no sense.

    scaled = tessera.data.tensors({"x": np.ones((4, 1, 8, 8), "float32")}).map("x", tessera.data.rescale(2.0, 0.5))
    tessera.data.normalize([0.0], [0.0])  # raises InvalidArgument

# data.Vocabulary
Raises InvalidArgument for a number that no word has.

    words = tessera.data.Vocabulary.build(["a b", "b c"])
    assert words.word(words.id("b")) == "b"
    words.word(99)  # raises InvalidArgument

# data.BleuScore
How good translations are, from 0 to 100, as bleu() gives it. Raises TypeError where it is made otherwise.

    score = tessera.data.bleu(["a b c d e"], [["a b c d e"]])
    assert round(score.score) == 100
    tessera.data.BleuScore()  # raises TypeError

# checkpoint.Checkpoint
Tensors have the shapes that they were saved with. Raises KeyError for a name that is not there, IoError for a file that is not.

    tessera.checkpoint.save("x.ckpt", {"x": np.ones((4, 8), "float32")})
    y = tessera.checkpoint.load("x.ckpt")["x"]  # [4, 8]
    tessera.checkpoint.load("x.ckpt")["y"]  # raises KeyError

# checkpoint.ParameterLayout
Raises TypeError for what is no list of numbers.

    layout = tessera.checkpoint.ParameterLayout("up.weight", [2, 2], [[0], []])
    tessera.checkpoint.ParameterLayout("up.weight", "2")  # raises TypeError
"""


def _all():
    """By the name of a class what its help says beside the class's own words."""
    texts = {f"nn.{name}": _OPTIMIZER.format(name=name, refused=refused, right=right, wrong=wrong)
             for name, (refused, right, wrong) in _OPTIMIZERS.items()}
    texts |= {f"nn.{name}": _ACTIVATION.format(name=name) for name in ("GELU", "Sigmoid", "Tanh")}
    x, memory = 'np.ones((2, 3, 8), "float32")', 'np.ones((2, 5, 8), "float32")'
    for name, arguments, call in (("MultiHeadAttention", "8, ", f"({x}, {memory}, {memory})"), ("Transformer", "8, 16, ", f"({memory}, {x})"),
                                  ("TransformerDecoder", "2, 8, 16, ", f"({x}, {memory})"), ("TransformerDecoderLayer", "8, 16, ", f"({x}, {memory})"),
                                  ("TransformerEncoder", "2, 8, 16, ", f"({x})"), ("TransformerEncoderLayer", "8, 16, ", f"({x})")):
        shapes = "(x [n,t,hidden], memory [n,s,hidden], mask?, memory_mask?) -> [n,t,hidden]. " if name == "TransformerDecoder" else ""
        texts[f"nn.{name}"] = _HEADS.format(shapes=shapes, right=f"y = nn.{name}({arguments}num_heads=2){call}  # [2, 3, 8]",
                                            wrong=f"nn.{name}({arguments}num_heads=3)")
    for name, text in re.findall(r"^# (\S+)\n(.*?)(?=^# |\Z)", _TEXTS, re.MULTILINE | re.DOTALL):
        texts[name] = text.strip("\n")
    return texts


def add_to_help(root):
    """Puts the texts behind those that the classes of the module `root` and of its modules have."""
    for name, text in _all().items():
        item = root
        for part in name.split("."):
            item = getattr(item, part)
        words, _, code = ("\n" + text.rstrip()).partition("\n    ")
        parts = [(item.__doc__ or "").strip(), words.strip(), "For example:", f"    {code}"]
        item.__doc__ = "\n\n".join(part for part in parts if part) + "\n"
