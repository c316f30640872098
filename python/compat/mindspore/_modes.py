"""Which cells scripts have told to run as in training, or not: what is compiled depends on it."""
import weakref

# The flag of cells that are told while they are part of another.
FLAG = "_told_mode"
_told = weakref.WeakKeyDictionary()


def note(cell, mode):
    """The cell and all below run as told from here on, whatever parts of it were told before."""
    if _told:
        _forget_below(cell)
    _told[cell] = bool(mode)
    if cell.__dict__.get("_is_part"):
        # Flags of several cells stand side by side in what a call is known by: the id says whose it is.
        cell.set_flags(**{FLAG: (bool(mode), id(cell))})


def _forget_below(cell):
    for _, child in cell.children():
        if child in _told:
            del _told[child]
            child.__dict__.get("_flags", {}).pop(FLAG, None)
        _forget_below(child)


def told():
    """What all cells have been told, as a value to compare."""
    return tuple(sorted((id(cell), mode) for cell, mode in _told.items()))
