"""How the network runs: prefix KV cache, attention backends, and the planning session."""
