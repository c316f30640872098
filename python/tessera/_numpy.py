"""What NumPy's functions do with parameters and with what construct() computes.

NumPy asks `__array_ufunc__` of its operands before it looks at their elements: a number or array on the left of an operator,
np.sqrt(d) * x, is then the operator on x as if it stood on the right. Without it NumPy would take a parameter's present elements,
and the graph a constant in its place, which no training changes.
"""
import operator

import numpy as np

from tessera import _tessera

_TRACED = (_tessera.Value, _tessera.nn.Parameter)
# NumPy's operators: what Python calls for them, and what it calls of the operand on the right.
_OPERATORS = {
    np.add: (operator.add, "__radd__"), np.subtract: (operator.sub, "__rsub__"), np.multiply: (operator.mul, "__rmul__"),
    np.true_divide: (operator.truediv, "__rtruediv__"), np.power: (operator.pow, "__rpow__"),
    np.floor_divide: (operator.floordiv, "__rfloordiv__"), np.remainder: (operator.mod, "__rmod__"),
    np.less: (operator.lt, "__gt__"), np.less_equal: (operator.le, "__ge__"), np.greater: (operator.gt, "__lt__"),
    np.greater_equal: (operator.ge, "__le__"), np.equal: (operator.eq, "__eq__"), np.not_equal: (operator.ne, "__ne__"),
}


def _array_ufunc(self, function, method, *operands, **options):
    if not _tessera.nn.is_tracing():
        if isinstance(self, _tessera.Value):
            raise TypeError("a value of a trace that has ended was used: keep tensors, not what construct() computes")
        return getattr(function, method)(*(np.asarray(o) if isinstance(o, _TRACED) else o for o in operands), **options)
    if method == "__call__" and not options and len(operands) == 2:
        left, right = operands
        if function is np.matmul:
            return (left if isinstance(left, (*_TRACED, _tessera.Tensor)) else _tessera.Tensor(left)) @ right
        if function in _OPERATORS:
            python, reflected = _OPERATORS[function]
            return python(left, right) if isinstance(left, _TRACED) else getattr(right, reflected)(left)
    name = function.__name__
    known = f"ops.{name}" if hasattr(_tessera.ops, name) else "a function of tessera.ops"
    raise TypeError(f"np.{name} needs elements, and construct() is traced: a value has none before the network runs. Use {known}")


for _kind in _TRACED:
    _kind.__array_ufunc__ = _array_ufunc
