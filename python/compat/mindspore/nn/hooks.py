"""What cells have beside construct(): functions around a call, buffers, and their state by name."""
import collections

import tessera

from mindspore import _check

# What load_state_dict() gives.
_IncompatibleKeys = collections.namedtuple("_IncompatibleKeys", ["missing_keys", "unexpected_keys"])

_NO_BACKWARD = ("{} is not available: gradients are made of the whole graph at once. Differentiate with respect to that value by ops.grad, or give the cell a "
                "bprop(), which sees its gradients")


class HookHandle:
    """What a hook is taken away by."""

    def __init__(self, cell=None, hooks=None, key=None):
        self._cell, self._hooks, self._key = cell, hooks, key

    def remove(self):
        """From here on the hook is not called."""
        if self._hooks is not None and self._hooks.pop(self._key, None) is not None:
            self._cell._note_hooks()


class Hooks:
    """A cell's hooks, buffers and state. A hook is called with each call of the cell in PYNATIVE_MODE, else once, when the network is traced: what it
    gives becomes part of the graph, what it does beside it is not done again."""

    def _add_hook(self, kind, hook_fn, prepend, with_kwargs):
        if not callable(hook_fn):
            raise TypeError(f"Expected a callable hook function, but got {type(hook_fn).__name__}.")
        hooks = self.__dict__.setdefault(kind, collections.OrderedDict())
        key = object()
        hooks[key] = (hook_fn, with_kwargs)
        if prepend:
            hooks.move_to_end(key, last=False)
        self._note_hooks()
        return HookHandle(self, hooks, key)

    def _note_hooks(self):
        """What was compiled without these hooks does not hold any more."""
        self.__dict__["_num_hooks_set"] = self.__dict__.get("_num_hooks_set", 0) + 1
        self.set_flags(**{"_hooks": self.__dict__["_num_hooks_set"]})

    def register_forward_pre_hook(self, hook_fn, *, prepend=False, with_kwargs=False):
        """hook_fn(cell, inputs) before each call; what it gives takes the inputs' place. with_kwargs: hook_fn(cell, inputs, kwargs), which gives both.
        Returns what it is taken away by, handle.remove()."""
        return self._add_hook("_forward_pre_hooks", hook_fn, prepend, with_kwargs)

    def register_forward_hook(self, hook_fn, *, prepend=False, with_kwargs=False, always_call=False):
        """hook_fn(cell, inputs, output) after each call; what it gives takes the output's place. with_kwargs: hook_fn(cell, inputs, kwargs, output).
        Returns what it is taken away by, handle.remove()."""
        if always_call:
            raise NotImplementedError("register_forward_hook: always_call=True is not available: call what is to be done in any case in a try ... finally "
                                      "around the call")
        return self._add_hook("_forward_hooks", hook_fn, prepend, with_kwargs)

    def register_backward_hook(self, hook_fn):
        """Refused."""
        raise NotImplementedError(_NO_BACKWARD.format("Cell.register_backward_hook"))

    def register_backward_pre_hook(self, hook_fn):
        """Refused."""
        raise NotImplementedError(_NO_BACKWARD.format("Cell.register_backward_pre_hook"))

    def _has_hooks(self):
        return bool(self.__dict__.get("_forward_pre_hooks") or self.__dict__.get("_forward_hooks"))

    def _call_with_hooks(self, call, inputs, kwargs):
        """call(*inputs, **kwargs) with the hooks around it."""
        for hook, with_kwargs in list(self.__dict__.get("_forward_pre_hooks", {}).values()):
            made = hook(self, inputs, kwargs) if with_kwargs else hook(self, inputs)
            if made is None:
                continue
            if with_kwargs and not (isinstance(made, tuple) and len(made) == 2):
                raise RuntimeError(f"forward pre hook with kwargs must return None or a tuple of (new_args, new_kwargs), but got {made}")
            inputs, kwargs = made if with_kwargs else (made if isinstance(made, tuple) else (made, ), kwargs)
        output = call(*inputs, **kwargs)
        for hook, with_kwargs in list(self.__dict__.get("_forward_hooks", {}).values()):
            made = hook(self, inputs, kwargs, output) if with_kwargs else hook(self, inputs, output)
            output = output if made is None else made
        return output

    def apply(self, fn):
        """fn(cell) for each cell below and for this one, which comes last. Returns itself."""
        for cell in self.cells():
            if isinstance(cell, Hooks):
                cell.apply(fn)
        fn(self)
        return self

    def register_buffer(self, name, tensor, persistent=True):
        """Makes the tensor, or None, an attribute, which is no parameter; if persistent, a part of state_dict(). KeyError for a name that is taken."""
        if not isinstance(name, str):
            raise TypeError(f"buffer name should be a string, but got {type(name).__name__}")
        if not name or "." in name:
            raise KeyError("buffer name can't be empty or contain '.'")
        buffers = self.__dict__.setdefault("_buffers_kept", {})
        if name not in buffers and (name in self.__dict__ or hasattr(self, name)):
            raise KeyError(f"attribute '{name}' already exists")
        if tensor is not None and (not isinstance(tensor, tessera.Tensor) or isinstance(tensor, tessera.Parameter)):
            raise TypeError(f"cannot assign '{type(tensor)}' object to buffer '{name}' (mindspore Tensor or None required)")
        buffers[name] = bool(persistent)
        setattr(self, name, tensor)

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """(path, tensor) of the buffers here and below."""
        seen = set()
        for path, cell in self.cells_and_names(name_prefix=prefix) if recurse else [(prefix, self)]:
            for name in cell.__dict__.get("_buffers_kept", ()):
                tensor = getattr(cell, name)
                if tensor is not None and not (remove_duplicate and id(tensor) in seen):
                    seen.add(id(tensor))
                    yield f"{path}.{name}" if path else name, tensor

    def buffers(self, recurse=True):
        """The buffers here and below."""
        return (tensor for _, tensor in self.named_buffers(recurse=recurse))

    def get_buffer(self, target):
        """The buffer at that path. AttributeError where there is none."""
        found = dict(self.named_buffers(remove_duplicate=False))
        if target not in found:
            raise AttributeError(f"{type(self).__name__} has no buffer '{target}'; its buffers are {list(found)}")
        return found[target]

    def _state(self):
        """(path, the cell, the name, parameter or tensor) of parameters and buffers that are kept, cell by cell."""
        for path, cell in self.cells_and_names():
            if not isinstance(cell, Hooks):
                continue
            before = path + "." if path else ""
            for name, parameter in cell.parameters_and_names(expand=False):
                yield before + name, cell, name, parameter
            for name, persistent in cell.__dict__.get("_buffers_kept", {}).items():
                if persistent and getattr(cell, name) is not None:
                    yield before + name, cell, name, getattr(cell, name)

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """An OrderedDict of parameters and persistent buffers by their path of attributes, which are the cell's own."""
        _check.only("Cell.state_dict", "keep_vars", keep_vars, (False, ), "copy what is to stay as it is by its copy()")
        if args:
            destination, prefix = args[0], args[1] if len(args) > 1 else prefix
        destination = collections.OrderedDict() if destination is None else destination
        for path, _, _, value in self._state():
            destination[prefix + path] = value
        return destination

    def load_state_dict(self, state_dict, strict=True):
        """Gives parameters and buffers the values of those of the same path. Returns (missing_keys, unexpected_keys), which are a RuntimeError if strict; so
        is another shape in any case."""
        if not isinstance(state_dict, collections.abc.Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, but got {type(state_dict).__name__}.")
        state, faults = {path: (cell, name, value) for path, cell, name, value in self._state()}, []
        missing, unexpected = [path for path in state if path not in state_dict], [path for path in state_dict if path not in state]
        for path, given in state_dict.items():
            if path not in state:
                continue
            cell, name, value = state[path]
            if tuple(given.shape) != tuple(value.shape):
                faults.append(f"size mismatch for {path}: copying a param with shape {tuple(given.shape)} from checkpoint, the shape in current model is "
                              f"{tuple(value.shape)}.")
                continue
            tensor = (given.value() if isinstance(given, tessera.Parameter) else given).astype(value.dtype)
            if isinstance(value, tessera.Parameter):
                value.set_data(tensor)
            else:
                setattr(cell, name, tensor)
        if strict and unexpected:
            faults.insert(0, "Unexpected key(s) in state_dict: " + ", ".join(f'"{path}"' for path in unexpected) + ".")
        if strict and missing:
            faults.insert(0, "Missing key(s) in state_dict: " + ", ".join(f'"{path}"' for path in missing) + ".")
        if faults:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(faults))
        return _IncompatibleKeys(missing, unexpected)
