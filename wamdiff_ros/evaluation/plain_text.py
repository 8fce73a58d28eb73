"""Text of recordings and models, made fit for a terminal or a table; HTML escapes it besides."""


def plain(text: str, length: int = 300) -> str:
    """Return text in one line, without control characters, cut at a length."""
    words = ' '.join(''.join(c if c.isprintable() else ' ' for c in text).split())
    return (words[:length] + ' …' if len(words) > length else words) or '(none)'
