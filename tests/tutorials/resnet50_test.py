"""The first tutorial's ResNet-50 job, its script put together from the page's blocks, on real images: ten epochs on 2 and 4 ranks."""
import math
import re
import shutil

import numpy as np
import pytest

import job
import pages

EPOCHS = 10
SCRIPT = "resnet50_distributed_training.py"
LINE = re.compile(r"epoch: \d+ step: \d+, loss is \d\.\d+")


def script(mode):
    """The blocks that define data, loss and training, and what the text has before them: init() and the path of the data."""
    blocks = pages.blocks("000")
    if blocks is None:
        pytest.skip("../shared/tutorials/000 is absent")
    data, loss, train = (next(code for code in blocks if part in code)
                         for part in ("def create_dataset", "class SoftmaxCrossEntropyExpand", "def test_train_cifar"))
    join = "import os\nfrom mindspore.communication import init\ninit()\ndata_path = os.getenv('DATA_PATH')"
    return "\n".join([join, data, loss, train.replace("AUTO_PARALLEL", mode)]).replace("224", str(job.IMAGE_SIZE))


def lines(out, ranks, steps_per_epoch, sinks=True):
    """The losses in the order in which they were printed, after a look at form and number of the lines."""
    found = [line for line in out.splitlines() if "loss is" in line]
    found = [line.rpartition("::test_train_cifar ")[2] for line in found]  # pytest names the test in front of the first
    assert all(LINE.fullmatch(line) for line in found), found
    numbers = job.losses(out)
    steps = [steps_per_epoch] if sinks else range(1, steps_per_epoch + 1)
    assert sorted((epoch, step) for epoch, step, _ in numbers) == sorted(ranks * [(e, s) for e in range(1, EPOCHS + 1) for s in steps])
    for _, _, loss in numbers:
        assert loss == str(np.float32(loss))  # the shortest decimal that reads back as the same float32
    return numbers


def mean_of(numbers, epoch):
    return np.mean([float(loss) for e, _, loss in numbers if e == epoch])


# Of the eight ways each pair of a mode, a number of ranks and a way to give batches is in the first four.
WAYS = [("DATA_PARALLEL", 2, True), ("AUTO_PARALLEL", 4, True), ("DATA_PARALLEL", 4, False), ("AUTO_PARALLEL", 2, False),
        ("DATA_PARALLEL", 4, True), ("AUTO_PARALLEL", 2, True), ("DATA_PARALLEL", 2, False), ("AUTO_PARALLEL", 4, False)]


@pytest.mark.parametrize("mode, ranks, sinks", WAYS if job.FULL else WAYS[:4],
                         ids=lambda value: {True: "sink", False: "GRAPH_OP_RUN"}.get(value, str(value)))
def test_resnet50_learns(tmp_path, images, mode, ranks, sinks):
    (tmp_path / SCRIPT).write_text(script(mode))
    shutil.copy(job.EXAMPLES / "python" / "resnet50" / "resnet.py", tmp_path)
    variables = {} if sinks else {"GRAPH_OP_RUN": 1, "HCCL_WHITELIST_DISABLE": 1}
    out, err = job.run(job.python(ranks, "-m", "pytest", "-s", "-v", SCRIPT), tmp_path, timeout=3600, DATA_PATH=images, **variables)
    assert out.count("1 passed") == ranks
    numbers = lines(out, ranks, 144 // ranks // 32, sinks)
    first = [float(loss) for epoch, step, loss in numbers if epoch == 1 and step == min(s for _, s, _ in numbers)]
    if not sinks:  # before the first update: as good as guessing one of ten
        assert first == pytest.approx(ranks * [math.log(10)], abs=0.05)
    assert mean_of(numbers, EPOCHS) < mean_of(numbers, 1) - 0.02
    if mode == "AUTO_PARALLEL":
        assert (out + err).count("auto_parallel: ") == 1  # the plan in one line, by one rank


def test_the_run_script_trains_on_a_rank_table(tmp_path, images):
    """`bash run.sh DATA_PATH 2` as the page has it: a folder and a log for each rank, pytest as the launcher."""
    (tmp_path / SCRIPT).write_text(script("AUTO_PARALLEL").replace("epoch_size=10", "epoch_size=1"))
    shutil.copy(job.EXAMPLES / "python" / "resnet50" / "resnet.py", tmp_path)
    devices = ",".join(f'{{"device_id": "{i}", "device_ip": "192.1.27.{i}", "rank_id": "{i}"}}' for i in range(2))
    (tmp_path / "rank_table_2pcs.json").write_text(
        f'{{"version": "1.0", "server_count": "1", "server_list": [{{"server_id": "10.0.0.1", "device": [{devices}]}}], "status": "completed"}}')
    (tmp_path / "run.sh").write_text(next(code for code in pages.blocks("000", "bash") if "run.sh DATA_PATH RANK_SIZE" in code))
    out, _ = job.run(["bash", "-c", f". ./run.sh {images} 2; wait"], tmp_path, timeout=900)
    assert out.rstrip().endswith("training success")
    logs = [(tmp_path / f"device{rank}" / f"train.log{rank}").read_text() for rank in range(2)]
    assert [len(job.losses(log)) for log in logs] == [1, 1]
    assert all((tmp_path / f"device{rank}" / f"env{rank}.log").exists() for rank in range(2))
