"""What every method's settings can do, and all that a method without settings has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PretextSettings:
    """What params can set of a method, in the section `pretrain.<method>`; of itself nothing."""

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """Refuse what does not go with the rest of the params; called when they are read, if the method is in use.

        Args:
            corpus: name of the corpus.
            num_train: its training samples.
            weights: file that the encoder starts from, None without.

        Raises:
            ParamsError: one line that begins with the key.
        """
