"""Methods of callbacks that look as if training called them, and that it does not, are said when their class is made."""
import difflib
import warnings

_WORDS = ("begin", "start", "end", "epoch", "step", "batch", "train", "eval")


def has_only_known_hooks(base, hooks):
    """Has classes that derive from `base` warned of methods that are named much like one of `hooks`, or `on_` and a moment of training,
    and are none."""

    def check(cls, **settings):
        super(base, cls).__init_subclass__(**settings)
        for name, value in vars(cls).items():
            if not callable(value) or name.startswith("_") or hasattr(base, name):
                continue
            close = difflib.get_close_matches(name.removeprefix("on_"), hooks, 1, 0.85)
            if close or name.startswith("on_") and any(word in name for word in _WORDS):
                meant = f"; did you mean {close[0]}?" if close else "."
                warnings.warn(f"{cls.__name__}.{name} is called by nobody{meant} A callback's methods are {', '.join(hooks)}", stacklevel=2)

    base.__init_subclass__ = classmethod(check)
