"""Primitive: an operator as an object, with a strategy of its own."""
import tessera


def check_strategy(name, strategy):
    """TypeError unless it is a tuple of tuples of ints."""
    if not isinstance(strategy, tuple):
        raise TypeError(f"For '{name}', the in_strategy must be a tuple, but got type: {type(strategy).__name__}.")
    for item in strategy:
        if not isinstance(item, tuple) or any(isinstance(n, bool) or not isinstance(n, int) for n in item):
            raise TypeError(f"For '{name}', the in_strategy must be a tuple of tuples of ints, but got {strategy}.")


class Primitive:
    """Called with tensors it computes; inside construct() it becomes a node of the graph, split as shard() says."""

    def __init__(self, name=None):
        self.name = name or type(self).__name__
        self.attrs = {}
        self.in_strategy = None

    def shard(self, in_strategy=None, out_strategy=None):
        """Fixes how the operator is split: a tuple of counts per input. Returns itself."""
        if in_strategy is not None:
            check_strategy(self.name, in_strategy)
        if out_strategy is not None:
            raise NotImplementedError(f"For '{self.name}', out_strategy is not available: the output's follows from the inputs'")
        self.in_strategy = in_strategy
        return self

    set_strategy = shard

    def add_prim_attr(self, name, value):
        """Keeps a remark. Returns itself."""
        self.attrs[name] = value
        return self

    def recompute(self, mode=True):
        """Refused until this package offers recomputation."""
        if mode:
            raise RuntimeError(f"'{self.name}': recompute is not available in this package yet")
        return self

    def __call__(self, *args, **kwargs):
        result = self.run(*args, **kwargs)
        if self.in_strategy is not None:
            tessera.ops.shard(result, [list(item) for item in self.in_strategy])
        return result

    def run(self, *args):
        """What the operator computes."""
        raise NotImplementedError(self.name)

    def __repr__(self):
        return f"Prim[{self.name}]{self.attrs or ''}"
