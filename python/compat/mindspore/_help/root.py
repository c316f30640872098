"""What help() of the classes of `mindspore` itself says beside their own words, in the forms of _help/vision.py."""

ROWS = """
= Of an epoch's steps it looks at the loss, []. Raises ValueError for a per_print_times that is no int >= 0, and in training where the loss is not finite.
LossMonitor: model.train(1, batches, f(2)) && loss = model.eval(batches)["loss"] && assert loss >= 0 || f(-1) -> ValueError

= Raises TypeError for a data_time that is no bool, ValueError, after the first epoch, for a data_size that is no positive int.
TimeMonitor: model.train(1, batches, f()) || f(data_time=1) -> TypeError

= The monitored number is a scalar. Raises TypeError for arguments of other types, ValueError for another mode and a negative patience, and in training
  for a metric that is no scalar.
EarlyStopping: watcher = f("loss", min_delta=1e9, patience=1) && model.train(5, batches, watcher) && assert watcher.stopped_epoch == 2 || f(mode="best") -> ValueError

= The monitored number and the rate are scalars. Raises TypeError for arguments of other types, a factor that is no float among them, ValueError for one
  outside 0 to 1, another mode and a negative patience, and in training for a rate that is a schedule or one a group.
ReduceLROnPlateau: model.train(2, batches, f("loss", factor=0.5, patience=1, min_delta=1e9)) && assert abs(sgd.learning_rate.asnumpy() - 0.05) < 1e-6 || f(factor=2.0) -> ValueError

= The rate is a float, the number of the step counts from 1. Raises what the function raises, and in training ValueError for a rate that is a schedule or
  one a group.
LearningRateScheduler: model.train(1, batches, f(lambda rate, step: 0.1 / step)) && assert abs(sgd.learning_rate.asnumpy() - 0.05) < 1e-6

= Losses are floats. Raises TypeError for an argument.
History: history = f() && model.train(2, batches, history) && assert history.epoch == {"epoch": [1, 2]} and len(history.history["net_output"]) == 2 || f(1) -> TypeError

= Raises TypeError for a name that it does not have.
LambdaCallback: ended = [] && model.train(2, batches, f(on_train_epoch_end=lambda run_context: ended.append(run_context.original_args().cur_epoch_num))) && assert ended == [1, 2] || f(on_end=print) -> TypeError

= Parameters keep their shapes and dtypes. Raises TypeError for arguments of other types, ValueError for a save_freq that is not positive.
BackupAndRestore: model.train(1, batches, f("kept", delete_checkpoint=False)) && weight = ms.load_checkpoint("kept/backup.ckpt")["weight"] && assert weight.shape == (1, 3) || f("kept", 0) -> ValueError

= Raises ValueError for numbers that are no ints >= 0, and where all are 0, TypeError for other arguments of other types, NotImplementedError for
  saved_network, remove_redundancy and another format.
CheckpointConfig: config = f(save_checkpoint_steps=2, keep_checkpoint_max=1) && assert config.save_checkpoint_steps == 2 || f(-1) -> ValueError

= Parameters keep their shapes and dtypes. Raises ValueError for a prefix that is no text or has a `/`, TypeError for a config that is none, and in
  training tessera.IoError where a file cannot be written.
ModelCheckpoint: saver = f("net", "saved", ms.CheckpointConfig(2)) && model.train(1, batches, saver) && weight = ms.load_checkpoint("saved/net-1_2.ckpt")["weight"] && assert weight.shape == (1, 3) || f("a/net") -> ValueError

= Parameters of any shapes. Raises TypeError for arguments of other types, ValueError for a collect_freq that is not positive, and for a key that
  collect_specified_data does not have.
SummaryCollector: model.train(1, batches, f("summaries", collect_freq=1)) || f(3) -> TypeError

= A scalar has one element, an image is [n, 1 or 3, height, width], of which the first is written, a histogram has any shape. Raises TypeError for a
  log_dir that is no path, ValueError for other values, kinds and file names, RuntimeError for a record() after close().
SummaryRecord: record = f("summaries") && record.add_value("scalar", "loss", ms.Tensor(0.5)) && record.close() || record.record(1) -> RuntimeError

= Tensors of any shapes, those of a batch. Raises RuntimeError for dataset_sink_mode=True, TypeError for what is no data set.
DatasetHelper: assert len(list(f(batches, dataset_sink_mode=False))) == 2 || f(batches) -> RuntimeError

= The scale is a number. Raises ValueError for one below 1.
FixedLossScaleManager: manager = f(8.0) && scaled = ms.Model(network, nn.MSELoss(), sgd, loss_scale_manager=manager) && scaled.train(1, batches) && assert manager.get_loss_scale() == 8 || f(0.5) -> ValueError

= The scale is a number. Raises TypeError for a factor or window that is no int, ValueError for a scale below 1, and for a factor or window that is not
  positive.
DynamicLossScaleManager: manager = f(8.0, 2, 1) && manager.update_loss_scale(False) && assert manager.get_loss_scale() == 16 || f(0.5) -> ValueError

= Derived from: get_loss_scale(), update_loss_scale() and get_update_cell(), which here give None. Raises nothing.
LossScaleManager: assert issubclass(ms.FixedLossScaleManager, (f, )) and f().get_loss_scale() is None

= Raises nothing.
JitConfig: config = f(jit_level="O1") && assert config.jit_config_dict["jit_level"] == "O1"

= Of a tensor's dims. Raises TypeError for what is no tuple of ints, or of texts, ValueError for other numbers of names, names that are there twice, and,
  where it is called, names that there are not, NotImplementedError for a rank_list in another order.
Layout: rows = f((2, 4), ("dp", "mp"))("dp", "None") && assert rows.to_dict()["tensor_map"] == (1, -1) || f((2, 4), ("dp", )) -> ValueError

= Parameters of any shapes; a tuple. Raises TypeError for what is no Parameter.
ParameterTuple: copies = f(learned).clone("copy") && assert [p.name for p in copies] == ["copy.weight", "copy.bias"] || f([x]) -> TypeError
"""

TEXTS = """
# Tensor
input_data: a number, a list or tuple, which may be nested, or an array or tensor, of any shape. dtype: else that of the data, float32 of Python's floats, int64
of its ints. With init, one of common.initializer, the values that it makes in `shape`. Raises TypeError for other data, ValueError without any and for a dtype
that there is not, NotImplementedError for another device.

    x = ms.Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])  # [2, 3]
    assert x.dtype == ms.float32 and isinstance(x * 2, ms.Tensor)
    ones = ms.Tensor(shape=(2, 3), dtype=ms.float16, init="ones")  # [2, 3]
    ms.Tensor("a")  # raises TypeError

# Parameter
default_input: what Tensor() takes, or a tensor that initializer() gives, whose shape and dtype it has; int32 of an int. Raises ValueError for a bool, and for
a name that is no text, TypeError for settings that are no bools.

    weight = ms.Parameter(ms.initializer("ones", [2, 3], ms.float32), name="weight")  # [2, 3]
    assert weight.requires_grad and isinstance(weight, ms.Tensor)
    weight.set_data(ms.Tensor(np.zeros((2, 4), np.float32)))  # raises ValueError

# ParallelMode
Texts; MODE_LIST has them all. Raises AttributeError for another name.

    ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL)
    assert ms.get_auto_parallel_context("parallel_mode") == "data_parallel"
    ms.ParallelMode.MODEL_PARALLEL  # raises AttributeError

# Model
A batch's columns, tensors of any shapes: the last one is the label, the others are the network's inputs; without a loss_fn the network takes all and gives the
loss, []. metrics: names, or a dict of metrics by name. Raises TypeError for what is no cell, ValueError for an amp_level and a keyword that there are not,
KeyError for a metric that there is not; train(), fit() and eval() raise TypeError and ValueError for other arguments, and where shapes do not fit.

    network = nn.Dense(3, 1)
    model = ms.Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.1), metrics={"mae"})
    columns = {"x": np.ones((4, 3), np.float32), "y": np.ones((4, 1), np.float32)}
    batches = ms.dataset.NumpySlicesDataset(columns).batch(2)
    model.train(3, batches)
    assert 0 <= model.eval(batches)["mae"] < 1
    y = model.predict(ms.Tensor(np.ones((2, 3), np.float32)))  # [2, 1]
    model.train(0, batches)  # raises ValueError

# Callback
The loss, net_outputs, is a tensor []. Raises nothing; what its methods raise ends the training.

    class Counts(ms.Callback):
        num_steps = 0

        def on_train_step_end(self, run_context):
            self.num_steps = run_context.original_args().cur_step_num

    network, counts = nn.Dense(3, 1), Counts()
    model = ms.Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.1))
    columns = {"x": np.ones((4, 3), np.float32), "y": np.ones((4, 1), np.float32)}
    model.train(2, ms.dataset.NumpySlicesDataset(columns).batch(2), counts)
    assert counts.num_steps == 4

# RunContext
Raises TypeError for what is no dict; original_args() raises AttributeError for an entry that there is not.

    class EndsEarly(ms.Callback):
        def on_train_step_end(self, run_context):
            self.seen = run_context
            run_context.request_stop()

    network, callback = nn.Dense(3, 1), EndsEarly()
    model = ms.Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.1))
    columns = {"x": np.ones((4, 3), np.float32), "y": np.ones((4, 1), np.float32)}
    model.train(2, ms.dataset.NumpySlicesDataset(columns).batch(2), callback)
    assert callback.seen.get_stop_requested() and callback.seen.original_args().cur_step_num == 1
    assert not ms.RunContext({"cur_epoch_num": 4}).get_stop_requested()
    ms.RunContext(3)  # raises TypeError
"""
