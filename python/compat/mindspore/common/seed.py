"""The seed of everything random."""
import numpy as np
import tessera

from mindspore._function_cell import FunctionCell

_seed = None
_draws = {}  # how often was drawn for each purpose since the seed was set


def set_seed(seed):
    """Sets the seed of initial values, dropout, data sets, and NumPy. TypeError or ValueError unless an int >= 0."""
    global _seed
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError("The argument 'seed' must be type of int.")
    if seed < 0:
        raise ValueError("The argument 'seed' must be greater or equal to 0.")
    _seed = seed
    _draws.clear()
    np.random.seed(seed % 2**32)
    tessera.set_seed(seed)
    FunctionCell.restart_random()


def get_seed():
    """What set_seed() set, else None."""
    return _seed


def _get_graph_seed(op_seed, kernel_name):
    """(the seed that was set, the operator's own), what operators of the reference are given as seed and seed2; (0, 0) where neither is set. An operator of
    one seed that is asked for again has another one."""
    seed, own = 87654321 if _seed == 0 else _seed or 0, op_seed or 0
    if seed == own == 0:
        return 0, 0
    return seed % 2**32, (own + draws_before(("_get_graph_seed", own, kernel_name))) % 2**32


def draws_before(purpose):
    """How often this was asked before for that purpose, a hashable object, since the seed was set: what is drawn differs by it. Ranks that
    run one program count alike."""
    count = _draws.get(purpose, 0)
    _draws[purpose] = count + 1
    return count
