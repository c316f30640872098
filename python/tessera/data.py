"""Data sets: where samples come from and what is done to them."""
from tessera._tessera.data import *
