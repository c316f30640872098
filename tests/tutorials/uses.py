"""How each Python block of the tutorials is run: as it is, with what its text implies, or refused by name."""
from dataclasses import dataclass

import pages


@dataclass(frozen=True)
class Given:
    """What a block uses and another place provides: in words for the table, and as code that is put before it."""
    words: str
    code: str


@dataclass(frozen=True)
class Use:
    """One block. Where `waits` is set it must be refused with a message that says so; otherwise it runs, then `check`.
    `says`: what that message holds, if not `waits for ...`."""
    page: str
    number: int  # of the page's Python blocks, from 1
    title: str
    given: tuple = ()  # Given, or the number of an earlier block of the page
    change: tuple = ()  # (what stands there, what is run, why)
    check: str = ""
    waits: str = ""
    says: str = ""

    @property
    def name(self):
        return f"{self.page}-{self.number:02}"

    def how(self):
        """The table's word for it."""
        if self.waits:
            return f"waits for {self.waits}; refused by name"
        numbers = [str(given) for given in self.given if isinstance(given, int)]
        parts = [given.words for given in self.given if not isinstance(given, int)]
        if numbers:
            parts.append(("block " if len(numbers) == 1 else "blocks ") + ", ".join(numbers))
        if self.change:
            parts.append(f"`{self.change[1]}` for `{self.change[0]}`: {self.change[2]}")
        return "with " + ", ".join(parts) if parts else "as is"

    def refusal(self):
        """What the message holds that the block gets; empty where it runs."""
        return self.says or (f"waits for {self.waits}" if self.waits else "")

    def program(self, image_size):
        """The block as a script, its images `image_size` pixels wide."""
        codes = pages.blocks(self.page)
        code = codes[self.number - 1]
        if self.change:
            assert self.change[0] in code, f"{self.name}: {self.change[0]} is not in the block"
            code = code.replace(self.change[0], self.change[1])
        before = [codes[given - 1] if isinstance(given, int) else given.code for given in self.given]
        return "\n".join([*before, code, self.check]).replace("224", str(image_size))


def imports(line):
    return Given(f"`{line}`", line)


OS = imports("import os")
NUMPY = imports("import numpy as np")
PARAMETER = imports("from mindspore import Parameter")
CONTEXT = imports("from mindspore import context")
MODE = imports("from mindspore.context import ParallelMode")
RANK = imports("from mindspore.communication import get_rank")
CHECKPOINT = imports("from mindspore.train.callback import ModelCheckpoint, CheckpointConfig")
CONFIG = imports("from mindspore.train.callback import CheckpointConfig")
LOAD = imports("from mindspore import load_checkpoint, load_param_into_net")
RESNET = imports("from resnet import resnet50")
INIT = Given("`init()`", "from mindspore.communication import init\ninit()")
DATA_PATH = Given("`data_path`", "import os\ndata_path = os.environ['DATA_PATH']")

A_BATCH = """
import os
from mindspore.communication import init
init()
image, label = next(create_dataset({arguments}).create_tuple_iterator(num_epochs=1, output_numpy=True))
assert image.shape == (32, 3, 224, 224) and image.dtype == 'float32', image.shape
assert label.shape == (32,) and label.dtype == 'int32' and 0 <= label.min() and label.max() <= 9
"""
A_LOSS = """
import numpy as np
logits = np.random.RandomState(0).randn(8, 10).astype(np.float32)
labels = np.arange(8, dtype=np.int32)
found = SoftmaxCrossEntropyExpand(sparse=True)(Tensor(logits), Tensor(labels)).asnumpy()
expected = -np.log(np.exp(logits)[np.arange(8), labels] / np.exp(logits).sum(1)).mean()
np.testing.assert_allclose(found, expected, rtol=1e-5)
dense = SoftmaxCrossEntropyExpand()(Tensor(logits), Tensor(np.eye(10, dtype=np.float32)[labels])).asnumpy()
np.testing.assert_allclose(dense, expected, rtol=1e-5)
"""
# The slices of all ranks together are the weight: the sum over all is an all_reduce.
HYBRID = """
from mindspore import set_auto_parallel_context
from mindspore.communication import init
init()
set_auto_parallel_context(parallel_mode='hybrid_parallel')
net = HybridParallelNet()
assert net.weight.shape == (512, 64) and net.weight.layerwise_parallel
total = ops.AllReduce()(Tensor(net.weight.asnumpy().sum(keepdims=True))).asnumpy()
np.testing.assert_allclose(net(Tensor(np.ones((4, 512), np.float32))).asnumpy(), np.full(4, total.item()), rtol=1e-4)
"""
SEMI_AUTO = """
import mindspore as ms
from mindspore.communication import get_group_size, init
init()
ms.set_auto_parallel_context(parallel_mode='semi_auto_parallel' if get_group_size() > 1 else 'stand_alone', full_batch=get_group_size() > 1)
np.random.seed(1)  # the same whole weight on every rank
net = SemiAutoParallelNet()
x = np.random.RandomState(0).rand(8, 512).astype(np.float32)
data = ms.dataset.NumpySlicesDataset({'x': x, 'y': x.sum(1)}, shuffle=False).batch(8)
expected = ((x @ net.weight.asnumpy()).sum(1) - x.sum(1)).astype(np.float64)
class Keep(ms.Callback):
    losses = []
    def step_end(self, run_context):
        self.losses.append(run_context.original_args().net_outputs.asnumpy().item())
ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 1e-7, 0.9)).train(2, data, Keep())
np.testing.assert_allclose(Keep.losses[0], (expected**2).mean(), rtol=1e-4)
assert Keep.losses[1] < Keep.losses[0]
"""
TRAIN = "test_train_cifar(epoch_size=1)\n"
TRAIN_AND_SAVE = TRAIN + """
from glob import glob
assert glob(f'ckpt_{get_rank()}/auto_parallel-1_*.ckpt')
"""
A_RESNET_FILE = Given("the name of a file", """
import mindspore
from resnet import resnet50
mindspore.save_checkpoint(resnet50(32, 10), 'resnet.ckpt')
pretrain_ckpt_path = 'resnet.ckpt'
""")
A_SEMI_AUTO_FILE = Given("the name of a file", """
import mindspore
mindspore.save_checkpoint(SemiAutoParallelNet(), 'semi_auto.ckpt')
pretrain_ckpt_path = 'semi_auto.ckpt'
""")
LOADED = "assert all((p.asnumpy() == param_dict[p.name].asnumpy()).all() for p in net.get_parameters())\n"
ALL_GATHERED = """
from mindspore.communication import get_group_size
assert (output.asnumpy() == np.arange(get_group_size(), dtype=np.float32)[:, None]).all()
"""


def mode_is(mode, module="context"):
    return f"assert {module}.get_auto_parallel_context('parallel_mode') == '{mode}'\n" \
           f"assert {module}.get_auto_parallel_context('gradients_mean') is True\n"


def placed_files(sliced):
    return f"assert ckpt_config.integrated_save is {not sliced} and ckpt_config.keep_checkpoint_max == 1\n"


# The pages on Ascend, which differ in the way files are named.
def ascend_page(page, path, train_given, save_given):
    in_place = () if path is None else (path, "pretrain_ckpt_path", "it stands for the name of a file")
    return [
        Use(page, 1, "set the context, join the job"),
        Use(page, 2, "create_dataset", check=A_BATCH.format(arguments="os.environ['DATA_PATH']")),
        Use(page, 3, "HybridParallelNet", (NUMPY, PARAMETER), ("128/2", "128//2", "NumPy takes no float as a size"), HYBRID),
        Use(page, 4, "SemiAutoParallelNet", (NUMPY, PARAMETER), check=SEMI_AUTO),
        Use(page, 5, "SoftmaxCrossEntropyExpand", check=A_LOSS),
        Use(page, 6, "train ResNet-50", train_given, check=TRAIN),
        Use(page, 7, "train, with checkpoints", save_given, check=TRAIN_AND_SAVE),
        Use(page, 8, "load a checkpoint", (RESNET, A_RESNET_FILE), in_place, LOADED),
        Use(page, 9, "load for another strategy", (A_RETRAINING,), check=RETRAINED),
        Use(page, 10, "auto parallel", (CONTEXT, MODE), check=mode_is("auto_parallel")),
        Use(page, 11, "data parallel", (CONTEXT, MODE), check=mode_is("data_parallel")),
        Use(page, 12, "save SemiAutoParallelNet", (NUMPY, PARAMETER, 4, CHECKPOINT) + ((RANK, INIT) if path is None else ()),
            check="assert isinstance(ckpt_callback, ModelCheckpoint)\n"),
        Use(page, 13, "load SemiAutoParallelNet", (NUMPY, PARAMETER, 4, LOAD, A_SEMI_AUTO_FILE), in_place, LOADED),
        Use(page, 14, "keep one checkpoint", (CONFIG,), check=placed_files(False)),
        Use(page, 15, "save slices", (CONFIG,), check=placed_files(True)),
    ]


# A training of three ranks, as files: rank r has rows of the weight, all have the bias.
A_TRAINING = """
import json
import os
import numpy as np
import mindspore as ms
WEIGHT = np.arange(8 * 16, dtype=np.float32).reshape(8, 16) / 100
BIAS = np.arange(8, dtype=np.float32)
ROWS = [(0, 3), (3, 6), (6, 8)]
def write_strategy(path, ranks, names=('dense.weight', 'dense.bias'), stage=0):
    tensors = {'dense.weight': ([0, -1], [8, 16]), 'dense.bias': ([-1], [8])}
    layouts = {name: {'dev_matrix': [ranks], 'field': 0, 'opt_weight_shard_size': 0, 'opt_weight_shard_step': 0,
                      'tensor_map': tensors[name][0], 'tensor_shape': tensors[name][1]} for name in names}
    operators = {'Operator_' + name: {'stage': stage, 'parallel_strategy': [[1, 1], [ranks, 1]]} for name in names}
    with open(path, 'w') as file:
        json.dump({'current_stage': 1, 'parallel_strategy_item': operators, 'parallel_layout_item': layouts}, file)
def write_slice(path, first, last, names=('dense.weight', 'dense.bias')):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    values = {'dense.weight': WEIGHT[first:last], 'dense.bias': BIAS}
    ms.save_checkpoint([{'name': name, 'data': ms.Tensor(values[name])} for name in names], path)
"""
A_RETRAINING = Given("`create_custom_dataset`, `ResNet50`, `Momentum`, `SoftmaxCrossEntropyWithLogits`, `create_ckpt_file_list`", A_TRAINING + """
from mindspore import Model, nn
class ResNet50(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(16, 8)
        self.dense.matmul.shard(((1, 1), (ms.communication.get_group_size(), 1)))
    def construct(self, x):
        return self.dense(x)
def Momentum():
    return nn.Momentum(resnet.trainable_params(), 0.0, 0.9)  # what is loaded stays
def SoftmaxCrossEntropyWithLogits():
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction='mean')
def create_custom_dataset():
    return ms.dataset.NumpySlicesDataset({'x': np.ones((16, 16), np.float32), 'y': np.zeros(16, np.int32)}, shuffle=False).batch(8)
def create_ckpt_file_list():
    return ['trained/rank_%d/net-1_2.ckpt' % rank for rank in range(3)]
write_strategy('train_strategy.ckpt', 3)
for file, (first, last) in zip(create_ckpt_file_list(), ROWS):
    write_slice(file, first, last)
""")
RETRAINED = """
from mindspore.communication import get_group_size, get_rank
rows, first = 8 // get_group_size(), 8 // get_group_size() * get_rank()
assert (resnet.dense.weight.asnumpy() == WEIGHT[first:first + rows]).all() and (resnet.dense.bias.asnumpy() == BIAS).all()
"""

# The network and the data that the page on elastic training leaves to its reader: a split matmul, the loss inside.
A_NETWORK = Given("`Net`, `dataset`", """
import glob
import os
import numpy as np
import mindspore as ms
import mindspore.communication
from mindspore import nn, ops
class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(16, 8, weight_init='ones')
        self.dense.matmul.shard(((1, 1), (ms.communication.get_group_size(), 1)))
        self.square, self.mean = ops.Square(), ops.ReduceMean()
    def construct(self, x, y):
        return self.mean(self.square(self.dense(x) - y))
ms.communication.init()
rows = np.random.RandomState(ms.communication.get_rank()).rand(32, 16).astype(np.float32)
dataset = ms.dataset.NumpySlicesDataset({'x': rows, 'y': rows[:, :8]}, shuffle=False).batch(8)
callback_size = 4
callback = [ms.TimeMonitor(callback_size), ms.LossMonitor(callback_size)]
""")
MOMENTUM = imports("from mindspore.nn import Momentum")
SAVED = """
assert rank_id != 0 or device_num == 1 or os.path.exists('../src_strategy.ckpt')
saved = ms.load_checkpoint('../src_checkpoints/rank_{}/src_checkpoint-2_4.ckpt'.format(rank_id))
assert saved['dense.weight'].shape == saved['moments.dense.weight'].shape == (8 // device_num, 16)
assert (saved['dense.weight'].asnumpy() == net.dense.weight.asnumpy()).all()
"""
BUILT = """
assert rank_id != 0 or device_num == 1 or os.path.exists('../dst_strategy.ckpt')
assert net.dense.weight.shape == (8 // device_num, 16)  # a slice
"""
A_STAGED_NETWORK = Given("`full_batch=True`, `Net` with two stages, `dataset`", """
import os
import numpy as np
import mindspore as ms
import mindspore.communication
from mindspore import nn, ops
class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Dense(16, 12), nn.Dense(12, 8)
        self.first.pipeline_stage, self.second.pipeline_stage = 0, 1
        self.square, self.mean = ops.Square(), ops.ReduceMean()
    def construct(self, x, y):
        return self.mean(self.square(self.second(self.first(x)) - y))
ms.communication.init()
ms.set_auto_parallel_context(full_batch=True)
rows = np.random.RandomState(3).rand(32, 16).astype(np.float32)
dataset = ms.dataset.NumpySlicesDataset({'x': rows, 'y': rows[:, :8]}, shuffle=False).batch(8)
callback_size = 4
""")
PIPELINE_TRAINED = """
import glob
# An earlier block of the page has saved under this name: the newer one has a number.
saved = ms.load_checkpoint(max(glob.glob('../src_checkpoints/rank_{}/src_checkpoint*-2_4.ckpt'.format(rank_id)), key=os.path.getmtime))
weights = [name for name in saved if name.endswith('weight') and not name.startswith('moments')]
assert weights == (['first.weight', 'second.weight'] if device_num == 1 else [['first.weight', 'second.weight'][2 * rank_id // device_num]]), weights
assert device_num == 1 or rank_id % (device_num // 2) != 0 or os.path.exists('../src_pipeline_strategys/src_strategy%d.ckpt' % rank_id)
"""
A_PREDICTION = """
import os
import numpy as np
import mindspore as ms
import mindspore.communication
from mindspore import Tensor, nn
class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(16, 8, weight_init='ones')
        self.dense.matmul.shard(((1, 1), (ms.communication.get_group_size(), 1)))
    def construct(self, x):
        return self.dense(x)
ms.communication.init()
"""
A_SHAPE = Given("`Net`, `data_shape`, `import numpy as np`, `from mindspore import Tensor`", A_PREDICTION + "data_shape = (4, 16)\n")
DATA_TO_PREDICT = Given("`Net`, `predict_data`", A_PREDICTION + "predict_data = Tensor(np.ones((4, 16), np.float32))\n")
# This rank's slice.
A_SLICE = Given("`ckpt_file`", """
WHOLE = np.arange(8 * 16, dtype=np.float32).reshape(8, 16) / 100
rows = 8 // ms.communication.get_group_size()
first = rows * ms.communication.get_rank()
ckpt_file = 'slice.ckpt'
ms.save_checkpoint([{'name': 'dense.weight', 'data': ms.Tensor(WHOLE[first:first + rows])},
                    {'name': 'dense.bias', 'data': ms.Tensor(np.zeros(8, np.float32))}], ckpt_file)
""")
PREDICTED = """
found = model.predict(predict_data).asnumpy()
np.testing.assert_allclose(found, np.tile(WHOLE.sum(1), (4, 1)), rtol=1e-6)
"""
SOURCES = Given("`src_checkpoints_dir`, `dst_checkpoints_dir`, the strategy files", A_TRAINING + """
src_checkpoints_dir, dst_checkpoints_dir = 'src_checkpoints', 'dst_checkpoints'
src_strategy_file, dst_strategy_file = 'src_strategy.ckpt', 'dst_strategy.ckpt'
write_strategy(src_strategy_file, 3)
write_strategy(dst_strategy_file, 2)
for rank, (first, last) in enumerate(ROWS):
    write_slice('src_checkpoints/rank_%d/src_checkpoint%d.ckpt' % (rank, rank), first, last)
""")
TRANSFORMED = """
for rank in range(2):
    converted = ms.load_checkpoint('dst_checkpoints/rank_%d/transformed%d.ckpt' % (rank, rank))
    assert (converted['dense.weight'].asnumpy() == WEIGHT[4 * rank:4 * rank + 4]).all() and (converted['dense.bias'].asnumpy() == BIAS).all()
"""
RANK_TO_TRANSFORM = Given("`transform_rank`", "transform_rank = 1")
TRANSFORMED_BY_RANK = """
assert sorted(rank_list) == [1, 2]
converted = ms.load_checkpoint(save_checkpoint_path)
assert (converted['dense.weight'].asnumpy() == WEIGHT[4:]).all() and (converted['dense.bias'].asnumpy() == BIAS).all()
"""
A_PIPELINE = Given("`src_pipeline_strategys_dir`, `src_checkpoints_dir`, `dst_checkpoints_dir`, the strategy files", A_TRAINING + """
src_checkpoints_dir, dst_checkpoints_dir = 'src_checkpoints_pipeline', 'dst_checkpoints_pipeline'
src_pipeline_strategys_dir = 'src_pipeline_strategys'
src_strategy_file, dst_strategy_file = 'merged.json', 'dst_pipeline_strategy.ckpt'
os.makedirs(src_pipeline_strategys_dir, exist_ok=True)
for stage, name in enumerate(('dense.weight', 'dense.bias')):
    write_strategy('src_pipeline_strategys/src_strategy%d.json' % stage, 2, [name], stage)
    for rank in range(2):
        write_slice('src_checkpoints_pipeline/rank_%d/src.ckpt' % (2 * stage + rank), 4 * rank, 4 * rank + 4, [name])
write_strategy(dst_strategy_file, 3)
""")
PIPELINE_TRANSFORMED = """
for rank, (first, last) in enumerate(ROWS):
    converted = ms.load_checkpoint('dst_checkpoints_pipeline/rank_%d/transformed%d.ckpt' % (rank, rank))
    assert (converted['dense.weight'].asnumpy() == WEIGHT[first:last]).all() and (converted['dense.bias'].asnumpy() == BIAS).all()
"""

USES = [
    *ascend_page("000", None, (OS, DATA_PATH, INIT, 2, 5), (OS, INIT, 2, 5, 6)),
    Use("001", 1, "all_gather", check=ALL_GATHERED),
    Use("001", 2, "create_dataset", check=A_BATCH.format(arguments="os.environ['DATA_PATH']")),
    Use("001", 3, "SoftmaxCrossEntropyExpand", check=A_LOSS),
    Use("001", 4, "train ResNet-50", (DATA_PATH, 2, 3), check=TRAIN),
    Use("001", 5, "ranks without MPI, with TLS"),
    Use("001", 6, "data parallel", (imports("from mindspore import set_auto_parallel_context, ParallelMode"),),
        check="import mindspore\n" + mode_is("data_parallel", "mindspore")),
    Use("001", 7, "save every 100 steps", (CHECKPOINT, RANK, INIT), check="assert isinstance(ckpoint_cb, ModelCheckpoint)\n"),
    Use("002", 1, "set the context, join the job"),
    Use("002", 2, "create_dataset", (DATA_PATH,), check=A_BATCH.format(arguments="")),
    Use("002", 3, "SoftmaxCrossEntropyExpand", check=A_LOSS),
    Use("002", 4, "train ResNet-50", (OS, DATA_PATH, INIT, 2, 3), check=TRAIN),
    *ascend_page("003", "'...'", (OS, DATA_PATH, INIT, 2, 5), (OS, DATA_PATH, INIT, 2, 5, 6)),
    Use("004", 1, "train and save slices and strategy", (A_NETWORK, MOMENTUM), check=SAVED),
    Use("004", 2, "compile for training", (A_NETWORK, MOMENTUM), check=BUILT),
    Use("004", 3, "compile for prediction", (A_SHAPE, MOMENTUM), check=BUILT),
    Use("004", 4, "transform_checkpoints", (SOURCES,), check=TRANSFORMED),
    Use("004", 5, "transform_checkpoint_by_rank", (OS, SOURCES, RANK_TO_TRANSFORM), check=TRANSFORMED_BY_RANK),
    Use("004", 6, "load and train on", (A_NETWORK, MOMENTUM, A_SLICE), check=BUILT),
    Use("004", 7, "load and predict", (DATA_TO_PREDICT, MOMENTUM, A_SLICE), ("model.predict(2, predict_data)", "model.predict(predict_data)",
        "prediction has no epochs"), check=BUILT + PREDICTED),
    Use("004", 8, "train a pipeline", (A_STAGED_NETWORK, MOMENTUM, imports("from mindspore.nn import PipelineCell")),
        ('src_strategy{}.ckpt")', 'src_strategy{}.ckpt".format(rank_id))', "stages write one file each"), check=PIPELINE_TRAINED),
    Use("004", 9, "merge a pipeline's strategies", (A_PIPELINE,), check=PIPELINE_TRANSFORMED),
]
