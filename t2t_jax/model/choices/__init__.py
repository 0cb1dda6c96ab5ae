"""What may stand in for the paper's sub-layers, one idea a file; `sublayers.py` picks, docs/lineage.md explains."""
