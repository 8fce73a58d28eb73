"""Text to token ids and back, from a checkpoint's tokenizer.json.

Text is data: whatever a topic brings, `encode` never yields a control token, because it uses a
tokenizer from which all added tokens have been taken out. Control tokens are placed by id only.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import tokenizers

from .config import CheckpointError, ModelConfig, read_json


class Tokenizer:
    """Encodes text without control tokens, and decodes answers."""

    def __init__(self, tokenizer_json: dict, file: Path):
        self._file = file
        inert = dict(tokenizer_json, added_tokens=[], post_processor=None, padding=None)
        inert['truncation'] = None
        try:
            self._full = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json))
            self._inert = tokenizers.Tokenizer.from_str(json.dumps(inert))
        except Exception as error:  # the library raises plain Exception for any malformed file
            raise CheckpointError(f'{file}: not a readable tokenizer: {error}') from None
        added = tokenizer_json.get('added_tokens') or []
        self._added = {token['content']: token['id'] for token in added}
        self._added_ids = frozenset(self._added.values())

    @classmethod
    def load(cls, model_dir: Path, config: ModelConfig) -> 'Tokenizer':
        """Read tokenizer.json; its ids have to fit into the checkpoint's embedding."""
        file = Path(model_dir) / 'tokenizer.json'
        values = read_json(file)
        if not isinstance(values, dict) or 'model' not in values:
            raise CheckpointError(f'{file}: not a tokenizer file')
        tokenizer = cls(values, file)
        highest = max(tokenizer._full.get_vocab(with_added_tokens=True).values(), default=0)
        if highest >= config.text.vocab_size:
            raise CheckpointError(
                f'{file}: token id {highest} lies outside the embedding of '
                f'{config.text.vocab_size} rows'
            )
        for control in config.control_ids:
            word = tokenizer._inert.id_to_token(control)
            if word is not None and control not in tokenizer._added_ids:
                raise CheckpointError(
                    f'{file}: token id {control}, which config.json takes for control, is the '
                    f'ordinary token {word!r}'
                )
        return tokenizer

    def control_id(self, content: str) -> int:
        """Return the id of the control token that is written as `content`."""
        if content not in self._added:
            raise CheckpointError(f'{self._file}: there is no added token {content}')
        return self._added[content]

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, none of which is a control token."""
        # Lone surrogates cannot be written as UTF-8; they come from undecodable bytes.
        ids = self._inert.encode(text.encode('utf-8', 'replace').decode('utf-8')).ids
        forbidden = self._added_ids.intersection(ids)
        if forbidden:
            raise CheckpointError(
                f'{self._file}: plain text was encoded to the control token {min(forbidden)}; '
                'this tokenizer cannot keep text and control tokens apart'
            )
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids` without control tokens."""
        return self._full.decode(list(ids), skip_special_tokens=True)
