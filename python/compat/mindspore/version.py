"""The version of the API that scripts are written for."""
__version__ = "2.0.0"
