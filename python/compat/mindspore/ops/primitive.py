"""Primitive: an operator as an object, with a strategy of its own."""
import functools
import inspect
import math

import tessera

from mindspore import _check, _layout, _stand_ins, context
from mindspore._layout import check_strategy

_TENSORS = (tessera.Tensor, tessera.Value, tessera.Parameter)
_FLOATS = (tessera.float16, tessera.bfloat16, tessera.float32, tessera.float64)


def _flat(args):
    """The arguments, and the elements of those that are sequences."""
    return [item for arg in args for item in (arg if isinstance(arg, (tuple, list)) else [arg])]


def _cast(items, dtype):
    """The items, tensors of floats among them in that dtype."""
    return [type(item)(_cast(item, dtype)) if type(item) in (tuple, list) else
            tessera.ops.cast(item, dtype) if isinstance(item, _TENSORS) and item.dtype in _FLOATS else item for item in items]


def _with_operands(args, operands):
    """The arguments with the next of the operands, values of the graph, in place of each tensor; parameters stay what may be assigned."""
    def replaced(item):
        if not isinstance(item, _TENSORS):
            return item
        operand = next(operands)
        return operand if isinstance(item, tessera.Tensor) else item

    return [type(arg)(map(replaced, arg)) if type(arg) in (tuple, list) else list(map(replaced, arg)) if isinstance(arg, (tuple, list))
            else replaced(arg) for arg in args]


def _follows(counts, given, axes):
    """Whether counts of a result split it as these do, which follow from the inputs, or further."""
    if any(isinstance(count, int) and not hasattr(count, "axes") for count in counts) or not axes:
        return all(count % part == 0 for count, part in zip(counts, given))
    return all(list(count.axes[:len(own)]) == list(own) for count, own in zip(counts, axes))


class Primitive:
    """Called with tensors it computes; inside construct() it becomes a node of the graph, split as shard() says. compute_dtype: of floats, computed in
    that dtype, and given in float32; None: in their own."""
    compute_dtype = None

    def __init__(self, name=None):
        self.name = name or type(self).__name__
        self.attrs, self.init_attrs = {}, {}
        self.in_strategy = self.out_strategy = None

    def shard(self, in_strategy=None, out_strategy=None):
        """Fixes how the operator is split: a tuple of counts, or a Layout, per input. out_strategy: likewise the results, each split as follows from
        the inputs or further. Returns itself."""
        if in_strategy is not None:
            check_strategy(self.name, in_strategy)
        elif out_strategy is not None:
            raise ValueError(f"For '{self.name}', the in_strategy None is not valid beside an out_strategy.")
        if out_strategy is not None:
            check_strategy(self.name, out_strategy, "out_strategy")
            if in_strategy and out_strategy and bool(_layout.layouts_in(in_strategy)) != bool(_layout.layouts_in(out_strategy)):
                raise ValueError(f"For '{self.name}', the in_strategy and the out_strategy must both be of tuples or both of Layouts.")
            _layout.check_one_grid(self.name, _layout.layouts_in(in_strategy, out_strategy))
        self.in_strategy, self.out_strategy = in_strategy, out_strategy
        return self

    def set_strategy(self, strategy):
        """The early name of shard(strategy)."""
        return self.shard(strategy)

    def add_prim_attr(self, name, value):
        """Keeps a remark. Returns itself."""
        self.attrs[name] = value
        return self

    def init_prim_io_names(self, inputs, outputs):
        """Keeps the names of the operands and results as remarks."""
        for name, value in (("input_names", inputs), ("output_names", outputs)):
            if not isinstance(value, (tuple, list)) or not all(isinstance(item, str) for item in value):
                raise TypeError(f"For '{self.name}', the '{name}' must be a tuple or list of str, but got {value!r}.")
            self.add_prim_attr(name, list(value))

    def del_prim_attr(self, name):
        """Forgets a remark. Returns itself."""
        self.attrs.pop(name, None)
        return self

    def set_device(self, device_target):
        """Keeps a remark where the device is the CPU; RuntimeError for another device. Returns itself."""
        if device_target not in ("CPU", "GPU", "Ascend"):
            raise ValueError(f"For '{self.name}', the 'device_target' must be one of CPU, GPU, Ascend, but got {device_target}.")
        if device_target != "CPU":
            raise RuntimeError(f"For '{self.name}', set_device({device_target!r}) is not available: all operators run on the CPU")
        return self.add_prim_attr("primitive_target", device_target)

    def place(self, role, rank_id):
        """Accepted for the one worker of a job of one process, this one; RuntimeError for any other place."""
        _check.place("Primitive", role, rank_id)

    def set_stage(self, stage):
        """Keeps the pipeline stage as a remark. Returns itself."""
        return self.add_prim_attr("stage", stage)

    def recompute(self, mode=True):
        """Keeps a remark: a value is computed once more in backward where a cell around it is recomputed. Returns itself."""
        if context.get_context("mode") == context.PYNATIVE_MODE:
            raise TypeError("Recompute is not supported in pynative mode currently.")
        if not isinstance(mode, bool):
            raise TypeError(f"For 'recompute', the type of input 'mode' should be bool, but got {type(mode).__name__}.")
        return self.add_prim_attr("recompute", mode)

    def __call__(self, *args, **kwargs):
        if self.compute_dtype is None:
            return self._split_and_run(*args, **kwargs)
        made = self._split_and_run(*_cast(args, self.compute_dtype), **kwargs)
        return _cast([made], tessera.float32)[0]

    def _split_and_run(self, *args, **kwargs):
        mode = context.parallel_mode_of_trace()
        has_strategy = self.in_strategy is not None and tessera.nn.is_tracing()
        is_split = has_strategy and mode in _layout.SPLITTING
        if has_strategy and not is_split:
            context.warn_once(f"strategies (shard, set_strategy) have no effect in {mode}: only in {', '.join(_layout.SPLITTING)}")
        if is_split and _layout.is_one_rank():
            _layout.say_one_rank(self.name)
            is_split = False
        if not is_split:
            return self.run(*args, **kwargs)
        args, strategy = self.laid_beside(args, self.strategy_for(args))
        call = tessera.ops.ShardedCall([x for x in _flat(args) if isinstance(x, _TENSORS)])
        operands = iter(call.operands)
        result = self.run(*_with_operands(args, operands), **kwargs)
        if strategy and not call.shard([list(map(int, item)) for item in strategy], *self._grid(strategy)):
            raise RuntimeError(f"For '{self.name}', the strategy {self.in_strategy} splits nothing: this call gives back what it was given and "
                               "computes nothing; give the strategy to the operator that reads the result.")
        return result if self.out_strategy is None else self._laid_out(result, call)

    def _grid(self, strategy):
        """Of layouts: the sizes of the grid's axes, and for each operand and dim the axes that split it."""
        layouts = _layout.layouts_in(self.in_strategy)
        return (list(layouts[0].grid()), [_layout.axes_of(counts) for counts in strategy]) if layouts else ()

    def _laid_out(self, result, call):
        """The results, split as the out_strategy says. RuntimeError where it contradicts what follows from the inputs."""
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(self.out_strategy) != len(results):
            raise RuntimeError(f"For '{self.name}', the out_strategy {self.out_strategy} has {len(self.out_strategy)} tuples, but there are {len(results)} "
                               "results.")
        for i, item in enumerate(self.out_strategy):
            counts, split = _layout.counts_of(self.name, item), call.split_of(results[i])
            _layout.check_counts(self.name, counts, tuple(results[i].shape), "out_strategy")
            if split is not None and not _follows(counts, *split):
                raise RuntimeError(f"For '{self.name}', the out_strategy {item} contradicts the in_strategy {self.in_strategy}, by which the result is split "
                                   f"into {tuple(split[0])} parts: it may only split it further.")
            results[i] = _layout.lay_out(self.name, results[i], item, "out_strategy")
        return type(result)(results) if isinstance(result, (tuple, list)) else results[0]

    def strategy_for(self, args):
        """The strategy of this call's tensors, checked: one tuple for each; where a script counts numbers, too, their tuples are ()."""
        counted = [x for x in _flat(args) if isinstance(x, (*_TENSORS, int, float))]
        _layout.check_devices(self.name, _layout.layouts_in(self.in_strategy, self.out_strategy))
        strategy = tuple(_layout.counts_of(self.name, item) for item in self.in_strategy)
        tensors = [x for x in counted if isinstance(x, _TENSORS)]
        if len(strategy) == len(counted) and all(not item for item, x in zip(strategy, counted) if not isinstance(x, _TENSORS)):
            strategy = tuple(item for item, x in zip(strategy, counted) if isinstance(x, _TENSORS))
        strategy = self.of_operands(strategy, [tuple(x.shape) for x in tensors])
        self.check_strategy_fits(strategy, [tuple(x.shape) for x in tensors])
        return strategy

    def of_operands(self, strategy, shapes):
        """The strategy of the tensors of these shapes, where the operator's own counts other dims."""
        return strategy

    def laid_beside(self, args, strategy):
        """The operands and their strategy, where the operator first brings operands to shapes whose dims are split alike."""
        return args, strategy

    def check_strategy_fits(self, strategy, shapes):
        """RuntimeError unless it has one tuple for each of the shapes, one count per dim, and no more parts than there are
        elements or ranks."""
        if len(strategy) != len(shapes):
            raise RuntimeError(f"For '{self.name}', the strategy {strategy} has {len(strategy)} tuples, but there are {len(shapes)} tensor inputs: {shapes}.")
        for counts, shape in zip(strategy, shapes):
            _layout.check_dims(self.name, counts, shape, "strategy")
            self.check_parts(strategy, counts)

    def check_parts(self, strategy, counts):
        """RuntimeError where the product of the counts is more than the ranks, as far as they are known."""
        parts, devices = math.prod(counts), _layout.num_devices()
        if devices is not None and parts > devices:
            raise RuntimeError(f"For '{self.name}', the strategy {strategy} needs {parts} devices, but there are {devices}.")

    def run(self, *args):
        """What the operator computes."""
        raise NotImplementedError(self.name)

    def __repr__(self):
        return f"Prim[{self.name}]{self.attrs or ''}"


_stand_ins.derive_from("mindspore.ops", Primitive)


def _get_cache_prim(cls):
    """The class: operators are small."""
    return cls


def _primexpr(fn=None, get_instance=True, name=None, reuse_result=True):
    """constexpr(), of a function that may be given values, too."""
    from mindspore.ops.functional import constexpr
    return constexpr(fn, get_instance, name, reuse_result)


def prim_attr_register(fn):
    """Decorates the __init__ of an operator of one's own, which derives from Primitive: it begins with Primitive's own, and what it is given are
    remarks of the operator and its init_attrs."""

    @functools.wraps(fn)
    def init(self, *args, **kwargs):
        Primitive.__init__(self, getattr(type(self), "substitute_name", type(self).__name__))
        bound = inspect.signature(fn).bind(self, *args, **kwargs)
        bound.apply_defaults()
        for name, value in list(bound.arguments.items())[1:]:
            self.add_prim_attr(name, value)
            self.init_attrs[name] = value
        fn(self, *args, **kwargs)

    init.decorated_func = fn
    return init
