"""Pictures; matplotlib comes with the extra ``plots``."""

from pathlib import Path

import numpy as np

from recollect.errors import RecollectError


def _pyplot():
    try:
        import matplotlib
    except ImportError as error:
        raise RecollectError("drawing needs matplotlib: pip install 'recollect[plots]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def draw_inclusion(folder: Path, capacity: int = 8, length: int = 60, runs: int = 20_000) -> Path:
    """Sample one stream many times and draw how often each item stayed against the exact probability."""
    from recollect import Reservoir
    from recollect.reservoir import law

    plt = _pyplot()
    rng = np.random.default_rng(0)
    weights = rng.lognormal(0, 1.5, length)
    hits = np.zeros(length)
    for seed in range(runs):
        r = Reservoir(capacity, seed=seed)
        r.extend(range(length), weights)
        hits[r.indices] += 1
    exact = law.inclusion_probabilities(np.log(weights), capacity)
    share = hits / runs
    worst = float(np.max(np.abs(share - exact) / np.sqrt(exact * (1 - exact) / runs)))
    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    axes[0].plot([0, 1], [0, 1], color="#666666", linewidth=1)
    axes[0].plot(exact, share, "o", color="#7570b3", markersize=5)
    axes[0].set(xlabel="exact inclusion probability", ylabel=f"share of {runs:,} runs that kept the item")
    axes[0].set_title(f"largest deviation: {worst:.1f} standard errors")
    axes[1].loglog(weights, exact, "o", color="#d95f02", markersize=5, label="exact inclusion")
    axes[1].loglog(weights, np.minimum(1, capacity * weights / weights.sum()), "k_", label="n · w / Σw")
    axes[1].set(xlabel="weight", ylabel="inclusion probability")
    axes[1].set_title("inclusion is not proportional to weight")
    axes[1].legend(frameon=False)
    figure.suptitle(
        f"{capacity} of {length} items, each {capacity}-subset with probability ∝ the product of its weights"
    )
    path = folder / "reservoir.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
