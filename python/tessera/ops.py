"""The operators as functions of tensors, of parameters, and of what construct() computes."""
from tessera._tessera.ops import *
