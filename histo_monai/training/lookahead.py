"""Lookahead: k steps forward, one step back (Zhang, Lucas, Hinton, Ba 2019, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


class Lookahead(Optimizer):
    """Optimizer around another: after every `steps` iterations the slow weights move towards the fast weights.

    slow <- slow + slow_step * (fast - slow), then fast <- slow. The inner optimizer keeps its momentum. Steps are
    iterations, not epochs. Learning-rate schedules act on the inner optimizer through the shared `param_groups`.

    Args:
        inner: optimizer of the fast weights.
        steps: k, at least 1.
        slow_step: in (0, 1]; at 1 Lookahead has no effect.
    """

    def __init__(self, inner: Optimizer, steps: int, slow_step: float) -> None:
        if steps < 1:
            raise ValueError(f"Lookahead steps: expected at least 1, got {steps}")
        if not 0.0 < slow_step <= 1.0:
            raise ValueError(f"Lookahead slow_step: expected (0, 1], got {slow_step}")
        super().__init__(inner.param_groups, {})
        self.inner = inner
        self.param_groups = inner.param_groups
        self.steps = steps
        self.slow_step = slow_step
        self._taken = 0
        self._slow = [p.detach().clone() for p in self._parameters()]

    def _parameters(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Run the inner optimizer's step, and every k-th time the slow step."""
        loss = self.inner.step(closure)
        self._taken += 1
        if self._taken % self.steps == 0:
            fast = self._parameters()
            torch._foreach_lerp_(self._slow, fast, self.slow_step)
            torch._foreach_copy_(fast, self._slow)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        self.inner.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Inner state, slow weights and number of steps."""
        return {
            "inner": self.inner.state_dict(),
            "slow": [p.clone() for p in self._slow],
            "taken": self._taken,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state from `state_dict`."""
        self.inner.load_state_dict(state_dict["inner"])
        self.param_groups = self.inner.param_groups
        for slow, saved in zip(self._slow, state_dict["slow"], strict=True):
            slow.copy_(saved)
        self._taken = state_dict["taken"]
