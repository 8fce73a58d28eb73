"""How checkpoints are made. Uses the network of `model`; nothing at run time imports this room."""
