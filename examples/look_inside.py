"""What an agent holds in memory, step by step: a T-maze, learned, and one episode of it as a table."""

import sys
import tempfile

import recollect
from recollect.training import inspection


def main(steps):
    agent = recollect.EpisodicActorCritic(memory_size=3, hidden=16)
    learner = recollect.Learner(agent, "recollect/TMaze-v0", seed=0, env_options={"length": 4})
    with tempfile.TemporaryDirectory() as here:
        learner.learn(steps, folder=f"{here}/run")
    moments = inspection.play(learner, seed=1)
    columns, rows = inspection.lines(moments)
    widths = [max(len(row[k]) for row in (columns, *rows)) for k in range(len(columns))]
    for row in (columns, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    junction = moments[-1]
    print(f"\nat the junction it recalled step {junction.since[junction.slot]:.0f}; the cue was shown at step 0")
    print(f"the return is {sum(moment.reward for moment in moments):g}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40_000)
