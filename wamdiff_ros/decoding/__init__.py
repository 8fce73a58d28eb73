"""How answers are decoded: algorithms that read like the papers, over any block model."""
