"""The generator against the published known answers, and as a JAX key type."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from recollect import prng

ONES = 0xFFFFFFFF
# Random123's file kat_vectors, rows "philox4x32 10"; the third holds digits of pi.
KNOWN_ANSWERS = {
    "zeros": ([0, 0], [0] * 4, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    "ones": ([ONES, ONES], [ONES] * 4, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    "pi": (
        [0xA4093822, 0x299F31D0],
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
}


@pytest.mark.parametrize("key, counter, answer", KNOWN_ANSWERS.values(), ids=KNOWN_ANSWERS)
def test_known_answers(key, counter, answer):
    words = prng.philox(tuple(map(jnp.uint32, key)), tuple(map(jnp.uint32, counter)))
    assert [int(w) for w in words] == answer


def test_words_of_one_key_are_the_cipher_of_their_positions():
    """The counter is (position, use, place, place); a fresh key is at place (0, 0), and ``at`` names another."""
    key = prng.key(7)
    data = jax.random.key_data(key)
    assert data[2:].tolist() == [0, 0]
    for k, place in ((key, (0, 0)), (prng.at(key, jnp.int32(5), 3), (5, 3))):
        words = prng.philox((data[0], data[1]), tuple(jnp.uint32(c) for c in (0, 2, *place)))
        assert jax.random.bits(k, (4,)).tolist() == [int(w) for w in words]


@pytest.fixture(scope="module")
def streams():
    k = prng.key(3)
    return {
        "bits": jax.random.bits(k, (64,)),
        "another seed": jax.random.bits(prng.key(4), (64,)),
        "first of split": jax.random.bits(jax.random.split(k)[0], (64,)),
        "second of split": jax.random.bits(jax.random.split(k)[1], (64,)),
        "fold in 0": jax.random.bits(jax.random.fold_in(k, 0), (64,)),
        "fold in 1": jax.random.bits(jax.random.fold_in(k, 1), (64,)),
        "key data of a split": jax.random.key_data(jax.random.split(k, 32))[:, :2].reshape(-1),
        "key data of a split elsewhere": jax.random.key_data(jax.random.split(prng.at(k, 1, 0), 32))[:, :2].reshape(-1),
        "step 0, purpose 1": jax.random.bits(prng.at(k, 0, 1), (64,)),
        "step 1, purpose 0": jax.random.bits(prng.at(k, 1, 0), (64,)),
        "fold in at step 1": jax.random.bits(jax.random.fold_in(prng.at(k, 1, 0), 0), (64,)),
    }


def test_streams_differ(streams):
    """No word appears twice, within a stream or between any two: by chance one such test in 40,000 would fail."""
    words = np.concatenate([np.asarray(words) for words in streams.values()])
    assert len(set(words.tolist())) == words.size


def test_a_split_does_not_depend_on_how_many_are_asked_for():
    few, many = jax.random.split(prng.key(0), 2), jax.random.split(prng.key(0), (5, 2))
    assert np.array_equal(jax.random.key_data(few), jax.random.key_data(many)[0])


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1, 2**32 - 1])
def test_seeds_as_numbers_and_as_arrays_give_the_same_key(seed):
    as_array = prng.key(jnp.uint32(seed))
    assert np.array_equal(jax.random.key_data(prng.key(np.uint32(seed))), jax.random.key_data(as_array))


def test_uniform_words():
    """Every byte of the words of one key, and of words at one position under many keys: chi-square."""
    words = np.asarray(jax.random.bits(prng.key(11), (1 << 18,)))
    keys = np.asarray(jax.vmap(jax.random.bits)(jax.random.split(prng.key(12), 1 << 16)))
    for stream in (words, keys):
        for byte in range(4):
            counts = np.bincount((stream >> (8 * byte)) & 255, minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-4


def test_neighbouring_words_and_keys_are_not_correlated():
    words = np.asarray(jax.random.uniform(prng.key(5), (4, 1 << 14)), np.float64)
    by_step = jax.vmap(lambda t: jax.random.uniform(jax.random.fold_in(prng.key(6), t), (4,)))(jnp.arange(1 << 14))
    by_place = jax.vmap(lambda t: jax.random.uniform(prng.at(prng.key(6), t, 0), (4,)))(jnp.arange(1 << 14))
    for block in (words, np.asarray(by_step, np.float64).T, np.asarray(by_place, np.float64).T):
        pairs = [*itertools.pairwise(block), (block[0, :-1], block[0, 1:])]
        assert all(abs(np.corrcoef(a, b)[0, 1]) < 4.5 / np.sqrt(1 << 14) for a, b in pairs)


@pytest.mark.parametrize("bits, dtype", [(8, jnp.uint8), (16, jnp.uint16), (32, jnp.uint32)])
def test_widths(bits, dtype):
    words = jax.random.bits(prng.key(1), (3, 5), dtype)
    assert words.shape == (3, 5) and words.dtype == dtype
    assert int(words.max()) > 2 ** (bits - 1), "the leading bit is never set"


def test_64_bits():
    with jax.enable_x64(True):
        words = np.asarray(jax.random.bits(prng.key(1), (1 << 14,), jnp.uint64))
        assert words.dtype == np.uint64
        u = np.asarray(jax.random.uniform(prng.key(1), (1 << 14,), jnp.float64))
    for half in (words >> np.uint64(32), words & np.uint64(ONES)):
        assert len(set(half.tolist())) == words.size
    assert stats.kstest(u, "uniform").pvalue > 1e-4
    assert len(set(u.tolist())) == u.size


def test_empty_and_odd_shapes():
    assert jax.random.bits(prng.key(0), (0,)).shape == (0,)
    assert jax.random.split(prng.key(0), 0).shape == (0,)
    assert jax.random.bits(prng.key(0), ()).shape == ()
    seven, eight = jax.random.bits(prng.key(0), (7,)), jax.random.bits(prng.key(0), (8,))
    assert seven.shape == (7,) and eight.shape == (8,)


def draw(key):
    first, second = jax.random.split(jax.random.fold_in(key, 9))
    return jax.random.normal(first, (3,)), jax.random.categorical(second, jnp.zeros(5)), jax.random.bits(key, (5,))


@pytest.mark.slow
def test_mapped_equals_looped_equals_compiled():
    keys = jax.random.split(prng.key(2), 4)
    looped = [draw(k) for k in keys]
    for many in (jax.vmap(draw)(keys), jax.jit(jax.vmap(draw))(keys)):
        for i, one in enumerate(looped):
            assert np.array_equal(many[1][i], one[1]) and np.array_equal(many[2][i], one[2])
            np.testing.assert_allclose(many[0][i], one[0], rtol=1e-5)  # erfinv may round otherwise
