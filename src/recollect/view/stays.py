"""What a memory of slots held over an episode: one entry for every stay of a stored observation in a slot."""

from typing import Any

import numpy as np

from recollect.view import format as recording


class Stays:
    """The memory at each step, as ``Agent.explain`` tells it, taken in one by one.

    Where the agent tells which slot an observation goes to, ``stored_in``, that is an arrival. Otherwise it is a slot
    that was empty before, that is now newer than it was, or whose marks changed; what can go unseen then is the newest
    observation giving way to one that equals it in every number.
    """

    def __init__(self) -> None:
        self.stays: list[dict[str, Any]] = []
        self._in: dict[int, int] = {}  # which stay each slot has now
        self._before: dict[str, np.ndarray] | None = None
        self._steps: list[dict[str, np.ndarray]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, held: dict[str, Any]) -> None:
        """The next step."""
        t, now = len(self._steps), {name: np.asarray(value) for name, value in held.items()}
        filled = now["filled"]
        for slot in np.flatnonzero(self._arrived(now) | (~filled & self._occupied(len(filled)))):
            slot = int(slot)
            if slot in self._in:
                self.stays[self._in.pop(slot)]["until"] = t
            if filled[slot]:
                self._in[slot] = len(self.stays)
                seen = t - int(now.get("delay", 1))  # −1 for what the episode begins with
                weight = float(now["log_weights"][slot]) if "log_weights" in now else 0.0
                stay = {"slot": slot, "seen": seen, "from": t, "until": t, "log_weight": weight}
                self.stays.append(stay | {"key": np.array(now["keys"][slot], np.float32)})
        now["occupant"] = np.array([self._in.get(slot, -1) for slot in range(len(filled))])
        self._before = now
        self._steps.append(now)

    def _occupied(self, slots: int) -> np.ndarray:
        return np.isin(np.arange(slots), list(self._in))

    def _arrived(self, now: dict[str, np.ndarray]) -> np.ndarray:
        if self._before is None:
            return now["filled"]
        before = self._before
        changed = ~before["filled"] | (now["order"] > before["order"])
        for name in ("marks",) if "marks" in now else ("keys", "log_weights"):
            if name in now:
                changed |= (now[name] != before[name]).reshape(len(changed), -1).any(axis=1)
        changed &= now["filled"]
        if "stored_in" in now and not changed.any():
            # Nothing differs to look at, and yet its equal may have taken an observation's place: the law says.
            told = now if int(now.get("delay", 1)) == 0 else before
            changed |= np.arange(len(changed)) == int(told["stored_in"])
        return changed

    def document(self, observations: np.ndarray, key_names: Any = None) -> dict[str, Any]:
        """The memory of an episode as a recording has it; ``observations``: those that were seen, by step."""
        steps, slots = len(self._steps), len(self._steps[0]["filled"])
        for k in self._in.values():
            self.stays[k]["until"] = steps
        kinds = {"slot": int, "seen": int, "from": int, "until": int, "log_weight": np.float32}
        found: dict[str, Any] = {
            "slots": slots,
            "stays": {name: recording.encode(self._column(name, kind)) for name, kind in kinds.items()},
            "recalled": recording.encode(self._stack("recalled").astype(int)),
            "probability": recording.encode_shares(self._stack("probabilities")),
        }
        for name in ("query", "temperature", "log_write_weight", "write_chance"):
            if name in self._steps[0]:
                found[name] = recording.encode(self._stack(name))
        if "policies" in self._steps[0] and self._stack("policies").size <= recording.MANY:
            found["policies"] = recording.encode(
                np.where(self._stack("filled")[..., None], self._stack("policies"), 0.0)
            )
        found |= self._weights_now() | self._credit() | self._keys(observations)
        if key_names is not None:
            found["key_names"] = [str(name) for name in key_names]
        return found

    def _column(self, name: str, kind: Any) -> np.ndarray:
        return np.array([stay[name] for stay in self.stays], kind)

    def _stack(self, name: str) -> np.ndarray:
        return np.stack([step[name] for step in self._steps])

    def _weights_now(self) -> dict[str, Any]:
        """Only where weights have changed since they were given."""
        if "log_weights_now" not in self._steps[0]:
            return {}
        filled, now, given = self._stack("filled"), self._stack("log_weights_now"), self._stack("log_weights")
        if np.allclose(now[filled], given[filled], rtol=1e-5, atol=1e-5):
            return {}
        return {"log_weight_now": recording.encode(np.where(filled, now, 0.0))}

    def _credit(self) -> dict[str, Any]:
        """One number per step where only what was recalled gets any."""
        if "credit" not in self._steps[0]:
            return {}
        credit, recalled = self._stack("credit"), self._stack("recalled").astype(int)
        own = np.where(recalled >= 0, np.take_along_axis(credit, np.maximum(recalled, 0)[:, None], axis=1)[:, 0], 0.0)
        others = credit.copy()
        np.put_along_axis(others, np.maximum(recalled, 0)[:, None], 0.0, axis=1)
        return {"credit": recording.encode(credit if np.any(others) else own)}

    def _keys(self, observations: np.ndarray) -> dict[str, Any]:
        """What the query is compared with, by stay; those of its elements that change during a stay also by step."""
        if not self.stays:
            return {}
        keys, seen = self._column("key", np.float32), self._column("seen", int)
        occupant, now = self._stack("occupant"), self._stack("keys")
        there = occupant >= 0
        changing = np.flatnonzero((now[there] != keys[occupant[there]]).any(axis=0))
        found: dict[str, Any] = {}
        known = seen.min() >= 0 and keys.shape[1] == observations.shape[1]
        if not known or not np.array_equal(keys, observations[seen]):
            found["keys"] = recording.encode_values(keys)
        if len(changing):
            found["keys_changing"] = {
                "elements": recording.encode(changing),
                "now": recording.encode(np.where(there[..., None], now[..., changing], 0.0)),
            }
        return found
