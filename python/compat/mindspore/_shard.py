"""shard(): a cell or function whose inputs, results and parameters lie as its caller says, in semi-automatic and automatic parallel. What is inside
follows its neighbours, sharding propagation."""
import difflib
import functools
import inspect

import tessera

from mindspore import _layout, context
from mindspore._layout import Layout

_TENSORS = (tessera.Tensor, tessera.Value, tessera.Parameter)


class _Sharding:
    """What shard() was told, called around a function of tensors while that is traced."""

    def __init__(self, who, in_strategy, out_strategy, plan):
        self.who, self.in_strategy, self.out_strategy = who, in_strategy, out_strategy
        self.plan = plan  # [(parameter, tuple of counts or layout)]

    def __call__(self, _, construct, *args, **kwargs):
        return self.run(construct, args, kwargs)

    def run(self, function, args, kwargs):
        """function(*args), split where it is traced for several ranks that split operators."""
        mode = context.parallel_mode_of_trace()
        if not tessera.nn.is_tracing() or _layout.num_devices() in (1, None) or mode not in _layout.SPLITTING:
            if tessera.nn.is_tracing() and mode in _layout.SPLITTING and _layout.is_one_rank():
                _layout.say_one_rank(self.who)
            if tessera.nn.is_tracing() and mode not in _layout.SPLITTING:
                context.warn_once(f"strategies (shard, set_strategy) have no effect in {mode}: only in {', '.join(_layout.SPLITTING)}")
            return function(*args, **kwargs)
        _layout.check_devices(self.who, _layout.layouts_in(self.in_strategy, self.out_strategy) + [item for _, item in self.plan if isinstance(item, Layout)])
        args = self._laid_out_all(args, self.in_strategy, "in_strategy", "inputs")
        bound = [self._bind(parameter, item) for parameter, item in self.plan]
        try:
            results = function(*args, **kwargs)
        finally:
            for parameter, before, laid_out in reversed(bound):
                parameter.rebind(before, laid_out)
        if self.out_strategy is None:
            return results
        is_one = not isinstance(results, (tuple, list))
        made = self._laid_out_all([results] if is_one else results, self.out_strategy, "out_strategy", "results")
        return made[0] if is_one else type(results)(made)

    def _laid_out_all(self, items, strategy, what, of):
        """The items, tensors among them as the strategy says."""
        tensors = [x for x in items if isinstance(x, _TENSORS)]
        if len(tensors) != len(strategy):
            raise RuntimeError(f"For '{self.who}', the {what} {strategy} is of {len(strategy)} {of}, but there are {len(tensors)} tensors.")
        parts = iter(strategy)
        return [self._laid_out(x, next(parts), what) if isinstance(x, _TENSORS) else x for x in items]

    def _laid_out(self, x, item, what):
        if item is None:  # the batch
            if not x.ndim:
                return x
            count = _layout.num_devices()
            if x.shape[0] < count:
                raise RuntimeError(f"For '{self.who}', the {what} None splits the batch into {count} parts, but the shape {tuple(x.shape)} has {x.shape[0]} rows.")
            item = (count, ) + (1, ) * (x.ndim - 1)
        return _layout.lay_out(self.who, x, item, what) if x.ndim else x

    def _bind(self, parameter, item):
        """Makes reads of the parameter see it laid out. Returns what they see before and now."""
        before = tessera.ops.ShardedCall([parameter]).operands[0]
        laid_out = _layout.lay_out(self.who, before, item, "parameter_plan")
        parameter.rebind(laid_out)
        return parameter, before, laid_out


def _check_plan(who, fn, plan):
    """[(parameter, tuple of counts or layout)] of a parameter_plan. TypeError unless it is a dict of those for a cell."""
    if plan is None:
        return []
    if not isinstance(plan, dict):
        raise TypeError(f"For '{who}', the 'parameter_plan' must be a dict or None, but got {type(plan).__name__}.")
    if not isinstance(fn, tessera.nn.Cell):
        raise TypeError(f"For '{who}', a 'parameter_plan' is of the parameters of a Cell, but fn is {type(fn).__name__}.")
    known = {parameter.name: parameter for parameter in tessera.nn.Cell.trainable_parameters(fn)}
    planned = []
    for name, item in plan.items():
        if not isinstance(name, str) or not (isinstance(item, Layout) or _layout.is_tuple_of_counts(item)):
            raise TypeError(f"For '{who}', the 'parameter_plan' must have strs as keys and tuples of ints or Layouts as values, but got {name!r}: {item!r}.")
        parameter = known.get(name.replace("self.", ""))
        if parameter is None:
            near = difflib.get_close_matches(name.replace("self.", ""), known, 1)
            context.warn_once(f"For '{who}', the parameter_plan names '{name}', which is no parameter of the cell: it has no effect; " +
                              (f"did you mean {near[0]}?" if near else f"its parameters are {', '.join(known) or 'none'}"))
            continue
        _layout.check_counts(who, _layout.counts_of(who, item), tuple(parameter.shape), f"parameter_plan of '{name}'")
        planned.append((parameter, item))
    return planned


def _propagate():
    """Operators without a strategy take over a neighbour's from here on, as the reference says of shard()."""
    if context.get_auto_parallel_context("parallel_mode") in _layout.SPLITTING and not context.get_auto_parallel_context("sharding_propagation"):
        context.set_auto_parallel_context(sharding_propagation=True)


def shard(fn, in_strategy, out_strategy=None, parameter_plan=None, device="Ascend", level=0):
    """A function that calls fn, a cell or a function of tensors, with its inputs split as in_strategy says: for each a tuple of counts, a Layout, or
    None, by the batch; results as out_strategy says, parameters of a cell as parameter_plan says by their names. All else follows its neighbours.
    It has an effect in semi-automatic and automatic parallel, on several ranks. A cell is split so whoever calls it from here on. device and level
    have no effect."""
    is_cell = isinstance(fn, tessera.nn.Cell)
    who = f"shard of {type(fn).__name__ if is_cell else getattr(fn, '__name__', type(fn).__name__)}"
    if not callable(fn):
        raise TypeError(f"For 'shard', the 'fn' must be a Cell or a function, but got {type(fn).__name__}.")
    _layout.check_strategy(who, in_strategy, nones=True)
    if out_strategy is not None:
        _layout.check_strategy(who, out_strategy, "out_strategy", nones=True)
    if not isinstance(device, str):
        raise TypeError(f"For '{who}', the 'device' must be a str, but got {type(device).__name__}.")
    if isinstance(level, bool) or not isinstance(level, int):
        raise TypeError(f"For '{who}', the 'level' must be an int, but got {type(level).__name__}.")
    sharding = _Sharding(who, in_strategy, out_strategy, _check_plan(who, fn, parameter_plan))
    _layout.check_one_grid(who, _layout.layouts_in(in_strategy, out_strategy) + [item for _, item in sharding.plan if isinstance(item, Layout)])
    _propagate()
    if is_cell:
        if "_around_construct" in fn.__dict__:
            context.warn_once(f"For '{who}', shard was called before: what it is told now holds")
        fn.__dict__["_around_construct"] = sharding
        tessera.nn.retrace()

    def sharded(*args, **kwargs):
        return fn(*args, **kwargs) if is_cell else sharding.run(fn, args, kwargs)

    if inspect.isfunction(fn):
        functools.update_wrapper(sharded, fn)
    return sharded


def reshard(tensor, layout):
    """The same tensor, split as the layout says from there on, in semi-automatic and automatic parallel on several ranks. Operators without a strategy
    follow their neighbours."""
    if not isinstance(tensor, _TENSORS):
        raise TypeError(f"For 'reshard', the 'tensor' must be a Tensor, but got {type(tensor).__name__}.")
    if not isinstance(layout, Layout):
        raise TypeError(f"For 'reshard', the 'layout' must be a Layout, but got {type(layout).__name__}.")
    layout.counts("reshard")
    return _Sharding("reshard", (layout, ), None, []).run(lambda x: x, (tensor, ), {})
