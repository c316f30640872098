"""This process's place in its job."""
from tessera._tessera.cluster import *
from tessera._tessera.cluster import _fix_ranks, _srun_place  # noqa: F401
