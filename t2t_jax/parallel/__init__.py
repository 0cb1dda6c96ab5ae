"""Devices: the mesh, what is divided over it, and what is compiled for it."""
