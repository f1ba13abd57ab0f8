"""Lives without ends: what is refused before anything is compiled; tests/envs/test_continuing.py lives some."""

import pytest

from recollect import EpisodicActorCritic, SecretInformant
from recollect.envs.continuing import Continuing
from recollect.training.endless import live


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "at least 1, got 0"),
        ({"seeds": (1, 1)}, "seeds must differ"),
        ({"steps": 100, "blocks": 7}, "must be a multiple of bins=7"),
    ],
)
def test_wrong_arguments(arguments, message):
    settings = {"steps": 100, "seeds": (0,), "blocks": 5, **arguments}
    with pytest.raises(ValueError, match=message):
        live(EpisodicActorCritic(), Continuing(SecretInformant(2)), **settings)
