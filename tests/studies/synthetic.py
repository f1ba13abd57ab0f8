"""Run folders with made-up curves, so that what reads them can be tested without training."""

import numpy as np

from recollect.store.run_folders import RunFolder
from recollect.studies.reproduce import make_plan

GOOD = {"episodes_done": 100, "return": 0.99, "length": 1.0, "weights": (0.9, 1e-6), "query": (0.9, -0.9, 0.8, -0.8)}


def lines_of(config, name, seeds):
    """One metrics line a bin; ``seeds`` maps a seed to what its curve is, constant from the start or from ``solved``.

    A seed's dict: ``episodes_done`` (percent), ``return``, ``length`` (in shortest episodes), ``weights``, ``query``
    (informative, uninformative, own identifier, other identifier), ``solved`` (percent before which the return is .3).
    """
    agent, env = config["agents"][name], config["environment"]
    size = agent["episodes"] // agent["bins"]
    for seed, curve in seeds.items():
        for b in range(agent["bins"]):
            if (b + 1) * 100 > curve["episodes_done"] * agent["bins"]:
                break
            vectors = np.zeros((env["decisions"], env["observation_size"]))
            for d, own in enumerate(env["identifier_bits"]):
                vectors[d, env["identifier_bits"]] = curve["query"][3]
                vectors[d, [env["informative_bit"], env["uninformative_bit"], own]] = curve["query"][:3]
            early = b * 100 < curve.get("solved", 0) * agent["bins"]
            yield {
                "seed": seed,
                "episodes": (b + 1) * size,
                "return": 0.3 if early else curve["return"],
                "length": curve["length"] * env["shortest_episode"],
                "write_weights": list(curve["weights"]),
                "query_vectors": vectors.tolist(),
            }


def write_run(path, figure, curves, baseline=None, status="finished", episodes=None):
    """A run folder of ``figure`` with one seed a dict in ``curves``; missing keys are those of ``GOOD``."""
    curves = [{**GOOD, **curve} for curve in curves]
    plan = make_plan(figure, "robust", len(curves), episodes, with_baseline=baseline is not None)
    config = plan.config()
    folder = RunFolder(path, config)
    folder.append("episodic", list(lines_of(config, "episodic", dict(enumerate(curves)))))
    if baseline is not None:
        others = {k: {**GOOD, **curve} for k, curve in enumerate(baseline, start=1)}
        folder.append("recurrent", list(lines_of(config, "recurrent", others)))
    folder.set_status(status)
    return path
