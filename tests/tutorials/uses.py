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
        Use(page, 9, "load for another strategy", waits="the conversion of checkpoints"),
        Use(page, 10, "auto parallel", (CONTEXT, MODE), check=mode_is("auto_parallel")),
        Use(page, 11, "data parallel", (CONTEXT, MODE), check=mode_is("data_parallel")),
        Use(page, 12, "save SemiAutoParallelNet", (NUMPY, PARAMETER, 4, CHECKPOINT) + ((RANK, INIT) if path is None else ()),
            check="assert isinstance(ckpt_callback, ModelCheckpoint)\n"),
        Use(page, 13, "load SemiAutoParallelNet", (NUMPY, PARAMETER, 4, LOAD, A_SEMI_AUTO_FILE), in_place, LOADED),
        Use(page, 14, "keep one checkpoint", (CONFIG,), check=placed_files(False)),
        Use(page, 15, "save slices", (CONFIG,), check=placed_files(True)),
    ]


# The network and the data that the page on elastic training leaves to its reader: a split matmul, the loss inside.
A_NETWORK = Given("`Net`, `dataset`", """
import glob
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
BUILT = "assert rank_id != 0 or device_num == 1 or glob.glob('../dst_strategy.ckpt')\n"
A_NET_FILE = Given("`ckpt_file`", """
import os
ckpt_file = 'net_{}.ckpt'.format(os.getpid())
ms.save_checkpoint([{'name': 'dense.weight', 'data': ms.Tensor(np.full((8, 16), 0.25, np.float32))},
                    {'name': 'dense.bias', 'data': ms.Tensor(np.zeros(8, np.float32))}], ckpt_file)
""")

USES = [
    *ascend_page("000", None, (OS, DATA_PATH, INIT, 2, 5), (OS, INIT, 2, 5, 6)),
    Use("001", 1, "all_gather", check=ALL_GATHERED),
    Use("001", 2, "create_dataset", check=A_BATCH.format(arguments="os.environ['DATA_PATH']")),
    Use("001", 3, "SoftmaxCrossEntropyExpand", check=A_LOSS),
    Use("001", 4, "train ResNet-50", (DATA_PATH, 2, 3), check=TRAIN),
    Use("001", 5, "ranks without MPI, with TLS", waits="the parameter server"),
    Use("001", 6, "data parallel", (imports("from mindspore import set_auto_parallel_context, ParallelMode"),),
        check="import mindspore\n" + mode_is("data_parallel", "mindspore")),
    Use("001", 7, "save every 100 steps", (CHECKPOINT, RANK, INIT), check="assert isinstance(ckpoint_cb, ModelCheckpoint)\n"),
    Use("002", 1, "set the context, join the job"),
    Use("002", 2, "create_dataset", (DATA_PATH,), check=A_BATCH.format(arguments="")),
    Use("002", 3, "SoftmaxCrossEntropyExpand", check=A_LOSS),
    Use("002", 4, "train ResNet-50", (OS, DATA_PATH, INIT, 2, 3), check=TRAIN),
    *ascend_page("003", "'...'", (OS, DATA_PATH, INIT, 2, 5), (OS, DATA_PATH, INIT, 2, 5, 6)),
    Use("004", 1, "train and save slices and strategy", (A_NETWORK, MOMENTUM), waits="checkpoints of slices",
        says="integrated_save=false is not available yet"),
    Use("004", 2, "compile for training", (A_NETWORK, MOMENTUM), check=BUILT),
    Use("004", 3, "compile for prediction", (A_NETWORK, MOMENTUM), waits="the conversion of checkpoints"),
    Use("004", 4, "transform_checkpoints", waits="the conversion of checkpoints"),
    Use("004", 5, "transform_checkpoint_by_rank", waits="the conversion of checkpoints"),
    Use("004", 6, "load and train on", (A_NETWORK, MOMENTUM, A_NET_FILE), check=BUILT),
    Use("004", 7, "load and predict", (A_NETWORK, MOMENTUM, A_NET_FILE), waits="the conversion of checkpoints"),
    Use("004", 8, "train a pipeline", (A_NETWORK, MOMENTUM, imports("from mindspore.nn import PipelineCell")), waits="pipeline stages"),
    Use("004", 9, "merge a pipeline's strategies", waits="the conversion of checkpoints"),
]
