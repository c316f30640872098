"""Checkpoints as files of named tensors, which are whole or absent."""
from tessera._tessera.checkpoint import *
