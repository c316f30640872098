"""Collectives: every rank of the group calls the same ones in the same order."""
import tessera
from tessera import ops as _ops

from mindspore._missing import missing
from mindspore.communication.management import HCCL_WORLD_COMM_GROUP, get_group_size, get_rank, native_group
from mindspore.ops._traced import Traced
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
        who = type(self).__name__
        if not isinstance(op, str):
            raise TypeError(f"For '{who}', the 'op' must be str, but got {type(op).__name__}.")
        if op not in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PROD):
            raise ValueError(f"For '{who}', the 'op' must be one of 'sum', 'max', 'min', 'prod', but got {op}.")
        super().__init__(group)
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
        root_rank = _int("Broadcast", "root_rank", root_rank)
        super().__init__(group)
        self.root_rank = root_rank

    def run(self, values):
        if isinstance(values, (tuple, list)):
            return tuple(_ops.broadcast(value, self.native, self.root_rank) for value in values)
        return _ops.broadcast(values, self.native, self.root_rank)


class AlltoAll(_Collective):
    """Cut into split_count parts along split_dim, part i for rank i; what arrives is joined along concat_dim. Dims below 0 count from the end."""

    def __init__(self, split_count, split_dim, concat_dim, group=HCCL_WORLD_COMM_GROUP):
        for what, value in (("split_count", split_count), ("split_dim", split_dim), ("concat_dim", concat_dim)):
            _int("AlltoAll", what, value)
        super().__init__(group)
        size = get_group_size(group)
        if split_count != size:
            raise ValueError(f"For 'AlltoAll', the 'split_count' must be equal to the group's size {size}, but got {split_count}.")
        self.split_count, self.split_dim, self.concat_dim = split_count, split_dim, concat_dim

    def run(self, x):
        for what, dim in (("split_dim", self.split_dim), ("concat_dim", self.concat_dim)):
            if not -x.ndim <= dim < x.ndim:
                raise IndexError(f"For 'AlltoAll', the '{what}' {dim} is outside the dims of {x.shape}.")
        split_dim, concat_dim = self.split_dim % x.ndim, self.concat_dim % x.ndim
        if x.shape[split_dim] % self.split_count:
            raise ValueError(f"For 'AlltoAll', dim {self.split_dim} of {x.shape} must be a multiple of {self.split_count}.")
        return _ops.all_to_all(x, self.native, split_dim, concat_dim)


def _int(who, what, value):
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"For '{who}', the '{what}' must be int, but got {type(value).__name__}.")
    return value


def _shape(who, what, value):
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"For '{who}', the '{what}' must be tuple or list, but got {type(value).__name__}.")
    return tuple(_int(who, what, size) for size in value)


def _check_group_back(who, group, group_back):
    """NotImplementedError for a gradient that would take another way than the value."""
    if group_back not in (group, HCCL_WORLD_COMM_GROUP):
        raise NotImplementedError(f"For '{who}', group_back={group_back!r} is not available: the gradient goes back within the group {group!r}, leave it out")


class Send(_Collective):
    """Sends x to the rank dest_rank of the group, which calls Receive; gives x. Two ranks' sends and receives are matched in their order, so that
    their tags say nothing more; the gradient goes back within the group."""

    def __init__(self, sr_tag, dest_rank, group=HCCL_WORLD_COMM_GROUP, group_back=HCCL_WORLD_COMM_GROUP):
        _check_group_back("Send", group, group_back)
        super().__init__(group)
        self.sr_tag, self.rank = _int("Send", "sr_tag", sr_tag), _int("Send", "dest_rank", dest_rank)

    def run(self, x):
        return _ops.send(x, self.rank, self.native)


class Receive(_Collective):
    """What the rank src_rank of the group sends, of this shape and dtype."""

    def __init__(self, sr_tag, src_rank, shape, dtype, group=HCCL_WORLD_COMM_GROUP, group_back=HCCL_WORLD_COMM_GROUP):
        _check_group_back("Receive", group, group_back)
        super().__init__(group)
        self.sr_tag, self.rank = _int("Receive", "sr_tag", sr_tag), _int("Receive", "src_rank", src_rank)
        self.shape, self.dtype = _shape("Receive", "shape", shape), dtype

    def run(self, x=None):
        return _ops.receive(self.shape, self.dtype, self.rank, self.native)


class NeighborExchange(_Collective):
    """Sends the i-th tensor to send_rank_ids[i], and gives what recv_rank_ids send, of recv_shapes and recv_type."""

    def __init__(self, send_rank_ids, recv_rank_ids, recv_shapes, send_shapes, recv_type, group=HCCL_WORLD_COMM_GROUP):
        super().__init__(group)
        who = self.name
        self.send_rank_ids, self.recv_rank_ids = _shape(who, "send_rank_ids", send_rank_ids), _shape(who, "recv_rank_ids", recv_rank_ids)
        for what, shapes, ranks in (("send_shapes", send_shapes, send_rank_ids), ("recv_shapes", recv_shapes, recv_rank_ids)):
            if not isinstance(shapes, (tuple, list)):
                raise TypeError(f"For '{who}', the '{what}' must be tuple or list, but got {type(shapes).__name__}.")
            if len(shapes) != len(ranks):
                raise ValueError(f"For '{who}', the '{what}' must have one shape for each of the {len(ranks)} ranks, but got {len(shapes)}.")
        self.send_shapes = tuple(_shape(who, "send_shapes", shape) for shape in send_shapes)
        self.recv_shapes = tuple(_shape(who, "recv_shapes", shape) for shape in recv_shapes)
        self.recv_type = recv_type

    def run(self, values):
        shapes = tuple(tuple(value.shape) for value in values)
        if shapes != self.send_shapes:
            raise ValueError(f"For 'NeighborExchange', the inputs must have the 'send_shapes' {self.send_shapes}, but got {shapes}.")
        # The ranks compare the collectives of a graph: one without the others' would be another graph than theirs.
        return self.exchanged(*values) if tessera.nn.is_tracing() else Traced(self.exchanged, self)(*values)

    def exchanged(self, *values):
        """The messages, inside construct()."""
        own = get_rank(self.group)
        # All ranks take the messages in one order, so that none waits for another that waits for it.
        sends = [((own, peer), number) for number, peer in enumerate(self.send_rank_ids)]
        receives = [((peer, own), number) for number, peer in enumerate(self.recv_rank_ids)]
        found = [None] * len(receives)
        for _, is_receive, number in sorted([(m, False, n) for m, n in sends] + [(m, True, n) for m, n in receives]):
            if is_receive:
                found[number] = _ops.receive(self.recv_shapes[number], self.recv_type, self.recv_rank_ids[number], self.native)
            else:
                _ops.send(values[number], self.send_rank_ids[number], self.native)
        return tuple(found)


class _VirtualDataset(Primitive):
    """Its inputs: how data are split is the context's dataset_strategy."""

    def run(self, *inputs):
        return inputs if len(inputs) > 1 else inputs[0]


__getattr__ = missing(__name__)
del missing
