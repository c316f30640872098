"""Functions that are compiled as a whole."""
import functools
import weakref

import tessera
from tessera._branches import traced
from tessera._keywords import unexpected

from mindspore import _check, _modes
from mindspore._function_cell import FunctionCell
from mindspore._missing import missing
from mindspore.common.scripts import JitConfig


class _Function(FunctionCell):
    """A function as a cell; `owner`: the cell whose method it is."""

    def __init__(self, function, owner=None):
        super().__init__()
        if owner is not None:
            self.owner = owner
        self._function = traced(function)

    def __call__(self, *inputs, **kwargs):
        if not tessera.nn.is_tracing():
            # The cells that the function calls are not parts of this one.
            self.set_flags(**{_modes.FLAG: _modes.told()})
        return super().__call__(*inputs, **kwargs)

    def construct(self, *inputs, **kwargs):
        return self._function(*self._with_owner(inputs), **kwargs)

    def _with_owner(self, inputs):
        """The inputs, behind the owner where there is one."""
        return (self.owner, *inputs) if "owner" in self.__dict__ else inputs


def _check_compiling(who, jit_config, compile_once):
    """TypeError for what is no JitConfig, or no bool."""
    if jit_config is not None and not isinstance(jit_config, JitConfig):
        raise TypeError(f"For '{who}', the 'jit_config' must be JitConfig, but got {type(jit_config).__name__}.")
    _check.boolean(who, "compile_once", compile_once)


def ms_function(fn=None, input_signature=None, hash_args=None, jit_config=None, compile_once=False):
    """Decorates a function of tensors, or a method of a cell: called with tensors it is traced and compiled, once for each signature. hash_args,
    jit_config and compile_once have no effect: what is decorated anew is compiled anew, and settings of compilation change no result."""
    _check_compiling("ms_function", jit_config, compile_once)
    if fn is None:
        return functools.partial(ms_function, input_signature=input_signature)
    cells = weakref.WeakKeyDictionary()
    alone = _Function(fn)

    @functools.wraps(fn)
    def run(*inputs, **kwargs):
        if tessera.nn.is_tracing():
            return traced(fn)(*inputs, **kwargs)
        if inputs and isinstance(inputs[0], tessera.nn.Cell):
            owner = inputs[0]
            if owner not in cells:
                cells[owner] = _Function(lambda cell, *rest, **named: traced(fn)(cell, *rest, **named), owner)
            return cells[owner](*inputs[1:], **kwargs)
        return alone(*inputs, **kwargs)

    return run


_CAPTURES = ("ast", "bytecode", "trace")
_MODES = ("PSJit", "PIJit")
# Of the reference's backends.
_OPTIONS = ("disable_format_transform", "exec_order", "ge_options", "infer_boost")


def jit(function=None, input_signature=None, hash_args=None, jit_config=None, compile_once=False, *, capture_mode="ast", jit_level="O0", dynamic=0,
        fullgraph=False, backend="", mode=None, fn=None, **options):
    """ms_function() by its name since 2.0. mode, capture_mode, jit_level, dynamic, fullgraph, backend and options have no effect: a function is
    traced as a whole, and compiled once for each signature. A Cell is given back, whose calls are compiled in PYNATIVE_MODE, too."""
    _check_compiling("jit", jit_config, compile_once)
    if mode is not None:
        _check.one_of("jit", "mode", mode, _MODES)
    _check.one_of("jit", "capture_mode", capture_mode, _CAPTURES)
    if isinstance(dynamic, bool) or dynamic not in (0, 1):
        raise ValueError(f"For 'jit', the 'dynamic' must be 0 or 1, but got {dynamic}.")
    _check.boolean("jit", "fullgraph", fullgraph)
    for name, value in (("jit_level", jit_level), ("backend", backend)):
        if not isinstance(value, str):
            raise TypeError(f"For 'jit', the '{name}' must be str, but got {type(value).__name__}.")
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise TypeError(unexpected("jit()", unknown[0], ["capture_mode", "jit_level", "dynamic", "fullgraph", "backend", "input_signature", *_OPTIONS]))
    function = fn if function is None else function
    if function is None:
        return functools.partial(jit, input_signature=input_signature)
    if isinstance(function, tessera.nn.Cell):
        function.__dict__["_is_always_traced"] = True
        return function
    return ms_function(function, input_signature)


__getattr__ = missing(__name__)
del missing
