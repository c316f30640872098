"""This process's place in its job."""
from tessera._tessera.cluster import *
