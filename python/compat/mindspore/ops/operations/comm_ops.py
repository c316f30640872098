"""Collectives: every rank of the group calls the same ones in the same order."""
from tessera import ops as _ops

from mindspore._missing import missing
from mindspore.communication.management import HCCL_WORLD_COMM_GROUP, get_group_size, native_group
from mindspore.ops.primitive import Primitive


class ReduceOp:
    """How elements are combined."""
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PROD = "prod"


class _Collective(Primitive):
    def __init__(self, group):
        super().__init__()
        if not isinstance(group, str):
            raise TypeError(f"For '{self.name}', the 'group' must be str, but got {type(group).__name__}.")
        self.group = group
        self.native = native_group(group)


class _Reduction(_Collective):
    def __init__(self, op, group):
        super().__init__(group)
        if not isinstance(op, str):
            raise TypeError(f"For '{self.name}', the 'op' must be str, but got {type(op).__name__}.")
        if op not in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PROD):
            raise ValueError(f"For '{self.name}', the 'op' must be one of 'sum', 'max', 'min', 'prod', but got {op}.")
        self.op = op


class AllReduce(_Reduction):
    """The reduction of the ranks' x, of one shape, on every rank."""

    def __init__(self, op=ReduceOp.SUM, group=HCCL_WORLD_COMM_GROUP):
        super().__init__(op, group)

    def run(self, x):
        return _ops.all_reduce(x, self.native, self.op)


class AllGather(_Collective):
    """The ranks' x one after the other along dim 0."""

    def __init__(self, group=HCCL_WORLD_COMM_GROUP):
        super().__init__(group)

    def run(self, x):
        return _ops.all_gather(x, self.native)


class ReduceScatter(_Reduction):
    """This rank's piece, along dim 0, of the reduction."""

    def __init__(self, op=ReduceOp.SUM, group=HCCL_WORLD_COMM_GROUP):
        super().__init__(op, group)

    def run(self, x):
        return _ops.reduce_scatter(x, self.native, 0, self.op)


class Broadcast(_Collective):
    """The tensors of the rank root_rank of the group, on every rank."""

    def __init__(self, root_rank, group=HCCL_WORLD_COMM_GROUP):
        super().__init__(group)
        if isinstance(root_rank, bool) or not isinstance(root_rank, int):
            raise TypeError(f"For 'Broadcast', the 'root_rank' must be int, but got {type(root_rank).__name__}.")
        self.root_rank = root_rank

    def run(self, values):
        if isinstance(values, (tuple, list)):
            return tuple(_ops.broadcast(value, self.native, self.root_rank) for value in values)
        return _ops.broadcast(values, self.native, self.root_rank)


class AlltoAll(_Collective):
    """Cut into split_count parts along split_dim, part i for rank i; what arrives is joined along concat_dim."""

    def __init__(self, split_count, split_dim, concat_dim, group=HCCL_WORLD_COMM_GROUP):
        super().__init__(group)
        for what, value in (("split_count", split_count), ("split_dim", split_dim), ("concat_dim", concat_dim)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"For 'AlltoAll', the '{what}' must be int, but got {type(value).__name__}.")
        size = get_group_size(group)
        if split_count != size:
            raise ValueError(f"For 'AlltoAll', the 'split_count' must be equal to the group's size {size}, but got {split_count}.")
        self.split_count, self.split_dim, self.concat_dim = split_count, split_dim, concat_dim

    def run(self, x):
        for what, dim in (("split_dim", self.split_dim), ("concat_dim", self.concat_dim)):
            if not 0 <= dim < x.ndim:
                raise IndexError(f"For 'AlltoAll', the '{what}' {dim} is outside the dims of {x.shape}.")
        if x.shape[self.split_dim] % self.split_count:
            raise ValueError(f"For 'AlltoAll', dim {self.split_dim} of {x.shape} must be a multiple of {self.split_count}.")
        return _ops.all_to_all(x, self.native, self.split_dim, self.concat_dim)


__getattr__ = missing(__name__)
del missing
