"""What help() of the functions and classes of other modules of `mindspore` says beside their own words: of those that take alike in the form that _help/rows.py reads,
of the others in that of tessera/_function_help.py."""

ROWS = """
= A list of total_step floats. Raises TypeError for numbers of other types, ValueError for those that are not positive.
nn.exponential_decay_lr nn.natural_exp_decay_lr nn.inverse_decay_lr: assert f(0.1, 0.9, total_step=6, step_per_epoch=2, decay_epoch=1)[:2] == [0.1, 0.1] || f(0.1, 0.9, total_step=0, step_per_epoch=2, decay_epoch=1) -> ValueError
nn.warmup_lr: assert f(0.1, total_step=6, step_per_epoch=2, warmup_epoch=2)[0] == 0 || f(0.1, total_step=0, step_per_epoch=2, warmup_epoch=2) -> ValueError

= Raises RuntimeError before init(), TypeError for a group that is no text.
communication.get_rank communication.get_local_rank: ms.communication.init() && assert f() == 0 || f(1) -> TypeError
communication.get_group_size communication.get_local_rank_size: ms.communication.init() && assert f() == 1 || f(1) -> TypeError
"""

TEXTS = """
# nn.piecewise_constant_lr
A list of floats, one a step. Raises TypeError for what is no list, ValueError for milestones that do not rise.

    assert nn.piecewise_constant_lr([2, 4], [0.1, 0.01]) == [0.1, 0.1, 0.01, 0.01]
    nn.piecewise_constant_lr([4, 2], [0.1, 0.01])  # raises ValueError

# nn.cosine_decay_lr
A list of total_step floats. Raises TypeError for numbers of other types, ValueError for a max_lr that is not above min_lr.

    assert nn.cosine_decay_lr(0.01, 0.1, total_step=6, step_per_epoch=2, decay_epoch=2)[-1] == 0.01
    nn.cosine_decay_lr(0.1, 0.01, total_step=6, step_per_epoch=2, decay_epoch=2)  # raises ValueError

# nn.polynomial_decay_lr
A list of total_step floats. Raises TypeError for numbers of other types, ValueError for a learning_rate that is not above the last one.

    assert nn.polynomial_decay_lr(0.1, 0.01, total_step=6, step_per_epoch=2, decay_epoch=2, power=0.5)[0] == 0.1
    nn.polynomial_decay_lr(0.01, 0.1, total_step=6, step_per_epoch=2, decay_epoch=2, power=0.5)  # raises ValueError

# nn.get_activation
A cell whose results have the shape of what it is given.

    y = nn.get_activation("relu")(ms.Tensor(np.ones((2, 3), np.float32)))  # [2, 3]
    nn.get_activation("rela")  # raises KeyError

# nn.get_metrics
Raises KeyError for a name that there is not, TypeError for what is no set and no dict.

    assert list(nn.get_metrics({"accuracy"})) == ["accuracy"]
    nn.get_metrics("accuracy")  # raises TypeError

# nn.no_init_parameters
Raises nothing.

    with nn.no_init_parameters():
        network = nn.Dense(3, 1)
    weight = network.weight  # [1, 3]

# amp.LossScaler
scale() and unscale() take tensors of any shapes, adjust() a bool []. Raises NotImplementedError for what is not defined.

    class NoScaler(ms.amp.LossScaler):
        def scale(self, inputs):
            return inputs

    y = NoScaler().scale(ms.Tensor(np.ones((2, 3), np.float32)))  # [2, 3]
    NoScaler().unscale(3)  # raises NotImplementedError

# amp.StaticLossScaler
scale() and unscale() take a tensor of any shape, or tuples, lists and dicts of them, which keep their dtypes; adjust() changes nothing and gives False.
Raises TypeError for what is no number, ValueError for a scale below 1.

    scaler = ms.amp.StaticLossScaler(8)
    y = scaler.scale(ms.Tensor(np.ones((2, 3), np.float32)))  # [2, 3]
    assert (y.asnumpy() == 8).all() and (scaler.unscale(y).asnumpy() == 1).all()
    ms.amp.StaticLossScaler(0.5)  # raises ValueError

# amp.DynamicLossScaler
scale() and unscale() are StaticLossScaler's; adjust() takes a bool [] and gives True; scale_value is float32 []. Raises TypeError for a scale that is no
number, and a factor or window that is no int, ValueError for a scale below 1, and a factor or window that is not positive.

    scaler = ms.amp.DynamicLossScaler(8, scale_factor=2, scale_window=1)
    scaler.adjust(ms.Tensor(True))
    assert scaler.scale_value.asnumpy() == 16
    scaler.adjust(ms.Tensor(False))
    assert scaler.scale_value.asnumpy() == 8
    ms.amp.DynamicLossScaler(8, 2, 0)  # raises ValueError

# boost.GradientAccumulation
The loss is [], a gradient has the shape of its parameter. Raises TypeError for what is no optimizer, and a number that is no int, ValueError for one that is not
positive.

    network = nn.Dense(3, 1)
    accumulate = ms.boost.GradientAccumulation(2, nn.SGD(network.trainable_params(), 0.1))
    step = nn.WithLossCell(network, nn.MSELoss())
    gradients = ms.value_and_grad(step, None, network.trainable_params())
    x, y = ms.Tensor(np.ones((2, 3), np.float32)), ms.Tensor(np.ones((2, 1), np.float32))
    for _ in range(2):
        loss = accumulate(*gradients(x, y))  # []
    ms.boost.GradientAccumulation(0, nn.SGD(network.trainable_params(), 0.1))  # raises ValueError

# amp.all_finite
A scalar []. Raises TypeError for what is no tensor.

    assert ms.amp.all_finite([ms.Tensor([1.0]), ms.Tensor([2.0])])
    ms.amp.all_finite(["a"])  # raises TypeError

# amp.auto_mixed_precision
Raises TypeError for what is no cell, ValueError for another level.

    network = ms.amp.auto_mixed_precision(nn.Dense(3, 1), "O3")
    y = network(ms.Tensor(np.ones((2, 3), np.float32)))  # [2, 1]
    ms.amp.auto_mixed_precision(network, "O7")  # raises ValueError

# amp.custom_mixed_precision
Raises TypeError for what is no cell and no list of classes, ValueError unless there is one of the lists.

    network = ms.amp.custom_mixed_precision(nn.Dense(3, 1), white_list=ms.amp.get_white_list())
    y = network(ms.Tensor(np.ones((2, 3), np.float32)))  # [2, 1]
    ms.amp.custom_mixed_precision(network)  # raises ValueError

# amp.get_white_list
Raises nothing.

    assert nn.Dense in ms.amp.get_white_list()

# amp.get_black_list
Raises nothing.

    assert nn.LayerNorm in ms.amp.get_black_list()

# communication.init
Raises TypeError for what is no text, RuntimeError for another name, and where a launcher has said something that cannot be.

    ms.communication.init()
    assert ms.communication.get_group_size() == 1
    ms.communication.init("tcp")  # raises RuntimeError

# communication.GlobalComm
BACKEND and WORLD_COMM_GROUP are texts, INITED a bool. Raises AttributeError for another name.

    ms.communication.init("mccl")
    assert ms.communication.GlobalComm.INITED and ms.communication.GlobalComm.BACKEND == "mccl"
    ms.communication.GlobalComm.SIZE  # raises AttributeError

# communication.release
Raises nothing.

    ms.communication.init()
    ms.communication.release()
    ms.communication.get_rank()  # raises RuntimeError

# communication.get_world_rank_from_group_rank
Raises TypeError for a place that is no int, ValueError for one that the group does not have.

    ms.communication.init()
    ms.communication.create_group("first", [0])
    assert ms.communication.get_world_rank_from_group_rank("first", 0) == 0
    ms.communication.get_world_rank_from_group_rank("first", 1)  # raises ValueError
    ms.communication.destroy_group("first")

# communication.get_group_rank_from_world_rank
Raises TypeError for a rank that is no int, ValueError for one that is not of the group.

    ms.communication.init()
    ms.communication.create_group("first", [0])
    assert ms.communication.get_group_rank_from_world_rank(0, "first") == 0
    ms.communication.get_group_rank_from_world_rank(1, "first")  # raises ValueError
    ms.communication.destroy_group("first")

# communication.create_group
Raises TypeError for what is no list of ints, ValueError for one that is empty or has a rank twice, RuntimeError before init().

    ms.communication.init()
    ms.communication.create_group("first", [0])
    assert ms.communication.get_group_size("first") == 1
    ms.communication.create_group("second", [])  # raises ValueError
    ms.communication.destroy_group("first")

# communication.destroy_group
Raises RuntimeError before init().

    ms.communication.init()
    ms.communication.create_group("first", [0])
    assert ms.communication.destroy_group("first") is None
    ms.communication.destroy_group("hccl_world_group")  # raises ValueError

# dataset.zip
Raises TypeError for what is no tuple of data sets, RuntimeError for columns of one name.

    x = ms.dataset.NumpySlicesDataset({"x": np.ones((4, 3), np.float32)})
    y = ms.dataset.NumpySlicesDataset({"y": np.ones((4, 1), np.float32)})
    assert ms.dataset.zip((x, y)).get_col_names() == ["x", "y"]
    ms.dataset.zip((x, x))  # raises RuntimeError

# dataset.text.to_bytes
An array of the same shape. Raises ValueError for what is no array.

    words = ms.dataset.text.to_bytes(np.array(["a", "b"]))  # [2]
    ms.dataset.text.to_bytes("a")  # raises ValueError

# dataset.text.to_str
An array of the same shape. Raises TypeError for what is no array.

    words = ms.dataset.text.to_str(np.array([b"a", b"b"]))  # [2]
    ms.dataset.text.to_str(b"a")  # raises TypeError

# dataset.transforms.TypeCast
Rows of any shape keep it. Raises TypeError for what is no dtype, ValueError for a name of none.

    rows = ms.dataset.NumpySlicesDataset({"x": np.ones((4, 3), np.float32)}).map(ms.dataset.transforms.TypeCast(ms.int32), "x")
    for x, in rows.create_tuple_iterator(output_numpy=True):
        assert x.dtype == np.int32
    ms.dataset.transforms.TypeCast("int33")  # raises ValueError

# dataset.vision.HWC2CHW
Raises nothing; the data set refuses what is no image.

    images = ms.dataset.NumpySlicesDataset({"image": np.ones((2, 6, 4, 3), np.uint8)}).map(ms.dataset.vision.HWC2CHW(), "image")
    for image, in images.create_tuple_iterator(output_numpy=True):
        assert image.shape == (3, 6, 4)

# dataset.vision.Normalize
Raises ValueError for deviations of which there are other numbers than means.

    images = ms.dataset.NumpySlicesDataset({"image": np.ones((2, 6, 4, 3), np.uint8)}).map(ms.dataset.vision.Normalize([1.0] * 3, [2.0] * 3), "image")
    for image, in images.create_tuple_iterator(output_numpy=True):
        assert image.shape == (6, 4, 3) and (image == 0).all()
    ms.dataset.vision.Normalize([1.0] * 3, [2.0] * 2)  # raises ValueError

# dataset.vision.Rescale
Images of any shape keep it. Raises TypeError for what is no number.

    images = ms.dataset.NumpySlicesDataset({"image": np.ones((2, 6, 4, 3), np.uint8)}).map(ms.dataset.vision.Rescale(2.0, 1.0), "image")
    for image, in images.create_tuple_iterator(output_numpy=True):
        assert image.shape == (6, 4, 3) and (image == 3).all()
    ms.dataset.vision.Rescale("a", 1.0)  # raises TypeError

# dataset.vision.Resize
Of images [height, width, channels]. Raises TypeError for sizes of other types, ValueError for those that are not positive.

    images = ms.dataset.NumpySlicesDataset({"image": np.ones((2, 6, 4, 3), np.uint8)}).map(ms.dataset.vision.Resize((8, 8)), "image")
    for image, in images.create_tuple_iterator(output_numpy=True):
        assert image.shape == (8, 8, 3)
    ms.dataset.vision.Resize((0, 8))  # raises ValueError

# dataset.vision.RandomCrop
Of images [height, width, channels]. Raises NotImplementedError for what it does not do, TypeError for sizes that are none.

    images = ms.dataset.NumpySlicesDataset({"image": np.ones((2, 6, 4, 3), np.uint8)}).map(ms.dataset.vision.RandomCrop((4, 4)), "image")
    for image, in images.create_tuple_iterator(output_numpy=True):
        assert image.shape == (4, 4, 3)
    ms.dataset.vision.RandomCrop((4, 4), pad_if_needed=True)  # raises NotImplementedError

# dataset.vision.RandomHorizontalFlip
Images keep their shape. Raises TypeError for what is no number, ValueError for one outside 0 to 1.

    images = ms.dataset.NumpySlicesDataset({"image": np.ones((2, 6, 4, 3), np.uint8)}).map(ms.dataset.vision.RandomHorizontalFlip(0.5), "image")
    for image, in images.create_tuple_iterator(output_numpy=True):
        assert image.shape == (6, 4, 3)
    ms.dataset.vision.RandomHorizontalFlip(1.5)  # raises ValueError

# utils.from_dlpack
Of the shape and dtype of what it is made of. Raises TypeError for what is no such capsule.

    x = ms.utils.from_dlpack(np.ones((2, 3), np.float32))  # [2, 3]
    ms.utils.from_dlpack(3)  # raises TypeError

# utils.to_dlpack
Raises TypeError for what is no tensor.

    x = ms.utils.from_dlpack(ms.utils.to_dlpack(ms.Tensor(np.ones((2, 3), np.float32))))  # [2, 3]
    ms.utils.to_dlpack(3)  # raises TypeError
"""
