"""The network: configuration, text and vision towers, weights, tokenizer."""
