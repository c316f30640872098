"""What help() of the functions of `mindspore` itself says beside their own words, in the form of tessera/_function_help.py: examples know ms, nn, ops, np
and tessera, the first three being the package's."""
from tessera._function_help import texts_of, with_text

_TEXTS = """
# dtype_to_nptype
Raises AttributeError for what is no dtype.

    assert ms.dtype_to_nptype(ms.float16) == np.float16

# pytype_to_dtype
Raises NotImplementedError for a type that no dtype has.

    assert ms.pytype_to_dtype(float) == ms.float64 and ms.pytype_to_dtype(np.int32) == ms.int32
    ms.pytype_to_dtype(dict)  # raises NotImplementedError

# initializer
Raises ValueError where a tensor has another shape.

    weight = ms.initializer("ones", [2, 3], ms.float32).init_data()  # [2, 3]
    ms.initializer(ms.Tensor([1.0]), [2, 3])  # raises ValueError

# set_seed

    ms.set_seed(7)
    assert ms.get_seed() == 7
    ms.set_seed(-1)  # raises ValueError

# get_seed
Raises nothing.

    ms.set_seed(7)
    assert ms.get_seed() == 7

# manual_seed
Raises TypeError or ValueError unless it is an int >= 0.

    ms.manual_seed(7)
    assert ms.initial_seed() == 7
    ms.manual_seed("7")  # raises TypeError

# initial_seed
Raises nothing.

    ms.manual_seed(7)
    assert ms.initial_seed() == 7

# jit
The function returns tensors of the shapes and dtypes that it has without. Raises ValueError and TypeError for settings that jit() does not have.

    double = ms.jit(lambda x: x * 2)
    y = double(ms.Tensor(np.ones((2, 3), np.float32)))  # [2, 3]
    ms.jit(lambda x: x, dynamic=2)  # raises ValueError

# ms_function
The function returns tensors of the shapes and dtypes that it has without. Raises TypeError where it is called with what no function takes.

    double = ms.ms_function(lambda x: x * 2)
    y = double(ms.Tensor(np.ones((2, 3), np.float32)))  # [2, 3]

# set_context
Raises TypeError for a value of another type.

    ms.set_context(mode=ms.PYNATIVE_MODE)
    assert ms.get_context("mode") == ms.PYNATIVE_MODE
    ms.set_context(mod=ms.GRAPH_MODE)  # raises ValueError

# get_context
The value of that key of set_context(). Raises it where it is no key.

    assert ms.get_context("device_target") in ("CPU", "GPU", "Ascend")
    ms.get_context("device")  # raises ValueError

# set_auto_parallel_context
Raises both before anything is changed.

    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    assert ms.get_auto_parallel_context("gradients_mean")
    ms.set_auto_parallel_context(parallel_mode="parallel")  # raises ValueError

# get_auto_parallel_context
The value of that key. Raises it where it is no key.

    assert ms.get_auto_parallel_context("parallel_mode") == "stand_alone"
    ms.get_auto_parallel_context("parallel")  # raises ValueError

# reset_auto_parallel_context
Raises nothing.

    ms.set_auto_parallel_context(gradients_mean=True)
    ms.reset_auto_parallel_context()
    assert not ms.get_auto_parallel_context("gradients_mean")

# set_ps_context
Raises ValueError for a setting that there is not, TypeError for a value of another type.

    ms.set_ps_context(enable_ps=False)
    ms.set_ps_context(enable_ps="no")  # raises TypeError

# get_ps_context
Raises ValueError for a setting that there is not.

    assert not ms.get_ps_context("enable_ps")
    ms.get_ps_context("enable")  # raises ValueError

# reset_ps_context
Raises nothing.

    ms.reset_ps_context()
    assert not ms.get_ps_context("enable_ps")

# set_algo_parameters
Raises both before anything is changed.

    ms.set_algo_parameters(tensor_slice_align_enable=True)
    assert ms.get_algo_parameters("tensor_slice_align_enable")
    ms.set_algo_parameters(align=True)  # raises ValueError
    ms.reset_algo_parameters()

# get_algo_parameters
Raises it with the names that there are.

    assert not ms.get_algo_parameters("tensor_slice_align_enable")
    ms.get_algo_parameters("align")  # raises ValueError

# reset_algo_parameters
Raises nothing.

    ms.set_algo_parameters(tensor_slice_align_enable=True)
    ms.reset_algo_parameters()
    assert not ms.get_algo_parameters("tensor_slice_align_enable")

# shard
The function returns what fn does. Raises TypeError for what is no cell and no function, ValueError for a strategy that is none.

    double = ms.shard(lambda x: x * 2, in_strategy=((1, 1), ))
    y = double(ms.Tensor(np.ones((2, 3), np.float32)))  # [2, 3]
    ms.shard(3, in_strategy=((1, 1), ))  # raises TypeError

# reshard
Returns the tensor's shape and dtype. Raises TypeError for what is no tensor, and no Layout.

    y = ms.reshard(ms.Tensor(np.ones((2, 3), np.float32)), ms.Layout((1, 1), ("a", "b"))("a", "b"))  # [2, 3]
    ms.reshard(ms.Tensor([1.0]), (1, ))  # raises TypeError

# build_train_network
A cell (columns) -> the loss, or with a loss scale (the loss, whether it overflowed, the scale). Raises ValueError for a level or an argument that there
is not, TypeError for a cast_model_type that is none.

    network = nn.Dense(3, 1)
    step = ms.build_train_network(network, nn.SGD(network.trainable_params(), 0.1), nn.MSELoss())
    loss = step(ms.Tensor(np.ones((2, 3), np.float32)), ms.Tensor(np.ones((2, 1), np.float32)))  # []
    ms.build_train_network(network, nn.SGD(network.trainable_params(), 0.1), level="O7")  # raises ValueError

# connect_network_with_dataset
Raises TypeError unless it is a DatasetHelper.

    rows = ms.dataset.NumpySlicesDataset({"x": np.ones((4, 3), np.float32)}).batch(2)
    helper = ms.DatasetHelper(rows, dataset_sink_mode=False)
    network = ms.connect_network_with_dataset(nn.Dense(3, 1), helper)
    for x, in helper:
        y = network(x)  # [2, 1]
    ms.connect_network_with_dataset(network, rows)  # raises TypeError

# export
Raises ValueError for another form of file, and for what is no cell, TypeError for a name that is no text.

    ms.export(nn.Dense(3, 1), ms.Tensor(np.ones((2, 3), np.float32)), file_name="dense", file_format="ONNX")
    ms.export(nn.Dense(3, 1), ms.Tensor(np.ones((2, 3), np.float32)), file_name="dense", file_format="MINDIR")  # raises ValueError

# save_checkpoint
Raises TypeError for what is no network and no such list, IsADirectoryError for the name of a directory, tessera.IoError where the file cannot be written.

    network = nn.Dense(3, 1)
    ms.save_checkpoint(network, "dense.ckpt")
    weight = ms.load_checkpoint("dense.ckpt")["weight"]  # [1, 3]
    ms.save_checkpoint(3, "dense.ckpt")  # raises TypeError

# load_checkpoint
Parameters have the shapes and dtypes that they were saved with. Raises TypeError for a name that is no text, ValueError for a file that is not there.

    ms.save_checkpoint(nn.Dense(3, 1), "dense.ckpt")
    weight = ms.load_checkpoint("dense.ckpt")["weight"]  # [1, 3]
    ms.load_checkpoint("absent.ckpt")  # raises ValueError

# load_param_into_net
Raises TypeError for what is no network or no such dict, RuntimeError for a value of another shape.

    network = nn.Dense(3, 1)
    assert ms.load_param_into_net(network, {"weight": ms.Parameter(ms.Tensor(np.ones((1, 3), np.float32)), name="weight")}) == (["bias"], [])
    ms.load_param_into_net(network, [])  # raises TypeError

# load_distributed_checkpoint
Raises ValueError for what is no cell, and for files that are none, TypeError unless they are a list.

    ms.load_distributed_checkpoint(nn.Dense(3, 1), "dense.ckpt")  # raises TypeError

# build_searched_strategy
Raises ValueError for a file that is not there, TypeError for what is no strategy file.

    ms.build_searched_strategy("absent.ckpt")  # raises ValueError

# merge_pipeline_strategys
Raises NotADirectoryError for what is no folder, TypeError for a name that is no text.

    ms.merge_pipeline_strategys("absent", "all.ckpt")  # raises NotADirectoryError

# merge_sliced_parameter
Its shape is [4, 3] of two of [2, 3]. Raises TypeError for what is no list of Parameters, ValueError where they have other names.

    halves = [ms.Parameter(ms.Tensor(np.ones((2, 3), np.float32)), name="w") for _ in range(2)]
    whole = ms.merge_sliced_parameter(halves)  # [4, 3]
    ms.merge_sliced_parameter([])  # raises ValueError

# rank_list_for_transform
Raises TypeError for a number that is no int, ValueError for a strategy file that is not there.

    assert list(ms.rank_list_for_transform(0)) == [0]
    ms.rank_list_for_transform("0")  # raises TypeError

# restore_group_info_list
Raises ValueError for a file that is not there, TypeError for a name that is no text.

    ms.restore_group_info_list("absent.pb")  # raises ValueError

# transform_checkpoint_by_rank
Raises TypeError for arguments of other types, ValueError for a file that is not there.

    ms.save_checkpoint(nn.Dense(3, 1), "dense.ckpt")
    ms.transform_checkpoint_by_rank(0, {0: "dense.ckpt"}, "moved.ckpt")
    weight = ms.load_checkpoint("moved.ckpt")["weight"]  # [1, 3]
    ms.transform_checkpoint_by_rank(0, {0: "absent.ckpt"}, "moved.ckpt")  # raises ValueError

# transform_checkpoints
Raises NotADirectoryError, a ValueError, for what is no folder, TypeError for arguments of other types.

    ms.transform_checkpoints("absent", "moved", "net")  # raises NotADirectoryError

# auc
Raises TypeError unless both are NumPy arrays, ValueError for sizes that differ.

    assert ms.auc(np.array([0.0, 1.0]), np.array([1.0, 1.0])) == 1
    ms.auc([0.0, 1.0], [1.0, 1.0])  # raises TypeError

# get_metric_fn
Raises KeyError for a name that there is not.

    accuracy = ms.get_metric_fn("accuracy")
    ms.get_metric_fn("luck")  # raises KeyError

# names
Raises nothing.

    assert "accuracy" in ms.names()

# rearrange_inputs
Raises what the update() raises.

    class Difference(nn.Metric):
        def clear(self):
            self.value = 0

        @ms.rearrange_inputs
        def update(self, *inputs):
            self.value = inputs[0] - inputs[1]

        def eval(self):
            return self.value

    metric = Difference().set_indexes([1, 0])
    metric.update(1, 3)
    assert metric.eval() == 2

# constexpr
Raises what the function raises.

    @ms.constexpr
    def half(size):
        return size // 2

    assert half(6) == 3

# grad
Gradients have the shapes and dtypes of what they belong to. Raises TypeError for what is no function, ValueError where nothing is asked for.

    slope = ms.grad(lambda x: (x * x).sum())(ms.Tensor(np.ones((2, 3), np.float32)))  # [2, 3]
    ms.grad(3)  # raises TypeError

# value_and_grad
Gradients have the shapes and dtypes of what they belong to. Raises TypeError for what is no function, ValueError where nothing is asked for.

    loss, slope = ms.value_and_grad(lambda x: (x * x).sum())(ms.Tensor(np.ones((2, 3), np.float32)))
    assert slope.shape == (2, 3)
    ms.value_and_grad(3)  # raises TypeError

# get_grad
It has the shape and dtype of what it belongs to. Raises TypeError for another identifier, ValueError where it was not asked for.

    gradients = ms.grad(lambda x: (x * x).sum(), return_ids=True)(ms.Tensor(np.ones((2, 3), np.float32)))
    slope = ms.get_grad(gradients, 0)  # [2, 3]
    ms.get_grad(gradients, 1)  # raises ValueError

# jacrev
Raises TypeError for what is no function.

    jacobian = ms.jacrev(lambda x: x * x)(ms.Tensor(np.ones(3, np.float32)))  # [3, 3]

# jacfwd
[*shape of the result, *shape of the input]. Raises TypeError for what is no function.

    jacobian = ms.jacfwd(lambda x: x * x)(ms.Tensor(np.ones(3, np.float32)))  # [3, 3]

# vmap
Raises ValueError for axes that do not fit the inputs.

    rows = ms.vmap(lambda x: x.sum())(ms.Tensor(np.ones((2, 3), np.float32)))  # [2]
    ms.vmap(lambda x: x, in_axes=(0, 0))(ms.Tensor([1.0]))  # raises ValueError

# is_tensor
Raises nothing.

    assert ms.is_tensor(ms.Tensor([1.0])) and not ms.is_tensor([1.0])

# from_numpy
Of the array's shape and dtype. Raises TypeError unless it is a NumPy array.

    x = ms.from_numpy(np.ones((2, 3), np.float32))  # [2, 3]
    ms.from_numpy([1.0])  # raises TypeError

# tensor
Of any shape and dtype. Raises TypeError and ValueError as Tensor does.

    x = ms.tensor(np.ones((2, 3)), ms.float32)  # [2, 3]
    ms.tensor()  # raises ValueError

# get_current_device
Raises nothing.

    target, number = ms.get_current_device()
    assert target == ms.get_context("device_target") and number == 0

# set_device
Raises ValueError for a device that there is not.

    ms.set_device("CPU")
    ms.set_device("TPU")  # raises ValueError

# set_deterministic
Raises it before anything is changed.

    ms.set_deterministic(True)
    assert ms.get_context("deterministic") == "ON"
    ms.set_deterministic(False)
    ms.set_deterministic("ON")  # raises TypeError

# set_memory
Raises ValueError for sizes that are none.

    ms.set_memory(max_size="1024")  # raises ValueError

# set_recursion_limit
Raises TypeError for what is no number.

    ms.set_recursion_limit(2000)
    ms.set_recursion_limit("2000")  # raises TypeError

# jit_class
Raises nothing.

    @ms.jit_class
    class Scale:
        def __init__(self, factor):
            self.factor = factor

    assert Scale(2).factor == 2

# lazy_inline
Raises ValueError for another policy.

    class Block(nn.Cell):
        @ms.lazy_inline
        def __init__(self):
            super().__init__()

    assert "Block" in Block().cell_init_args
    ms.lazy_inline(policy="back")  # raises ValueError

# mutable
Raises NotImplementedError for dynamic_len.

    assert ms.mutable([1, 2]) == [1, 2]
    ms.mutable([1, 2], dynamic_len=True)  # raises NotImplementedError

# no_inline
Returns the function. Raises nothing.

    @ms.no_inline
    def double(x):
        return x * 2

    assert double(2) == 4

# run_check
Raises RuntimeError where it is not.

    assert ms.run_check() is None

# synchronize
Raises nothing.

    assert ms.synchronize() is None

# get_level
Raises nothing.

    assert ms.get_level() in ("0", "1", "2", "3", "4")

# get_log_config
Raises nothing.

    assert "GLOG_v" in ms.get_log_config()
"""


def add_to_functions(module):
    """Puts the texts behind those of the functions of the module, which others may have, too."""
    for name, text in texts_of(_TEXTS).items():
        function = vars(module)[name]
        function.__doc__ = with_text(function.__doc__ or "", text)
