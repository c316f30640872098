"""The launcher msrun."""
