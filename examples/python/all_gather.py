"""Every rank's number, on every rank:

    export PYTHONPATH=$(python -m tessera compat-path)
    mpirun -n 4 python all_gather.py
"""
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import get_rank, init


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.all_gather = ops.AllGather()

    def construct(self, x):
        return self.all_gather(x)


if __name__ == "__main__":
    init()
    print(Net()(Tensor(np.array([[get_rank()]], np.float32))))
