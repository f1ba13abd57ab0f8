"""The command ``recollect``: one module a group of commands, whose ``register`` adds its own to the parser."""

import argparse
import sys

from recollect._version import __version__
from recollect.cli import benches, benchmark, learners, reproduce, runs, studies, view
from recollect.errors import RecollectError
from recollect.store.interrupts import EXIT_INTERRUPTED, Interrupted

TOUR = """\
recollect: reinforcement-learning agents that learn online what to remember.

A tour, from a minute to an afternoon:

  recollect train --env CartPole-v1 --steps 20000
                                 an agent with episodic memory in any Gymnasium environment
  recollect evaluate runs/CartPole-v1-episodic-seed0
                                 play the trained agent, without learning
  recollect benchmark memory --tasks t-maze-10,memory_len-10 --seeds 4
                                 agents on tasks that ask for memory, from bsuite, popgym and others
  recollect view runs/CartPole-v1-episodic-seed0
                                 an episode as a page: what it sees, remembers, recalls and does, and why;
                                 --serve follows a run that is training
  recollect inspect runs/CartPole-v1-episodic-seed0
                                 one episode, step by step, with what the agent held in memory
  recollect envs                 every environment that can be named here

  recollect reproduce fig4 --preset robust
                                 train the paper's agent beside its recurrent baseline, draw the
                                 figure, and hold the result against the paper's claims for it
  recollect reproduce all        the same for figures 3 to 6, to the letter of the paper
  recollect plot runs/fig4-robust
                                 draw a run again from its folder, also while it is under way
  recollect runs                 what there is, how far it came; resume RUN goes on with one that
                                 was interrupted or killed, bit for bit; verify RUN checks its files
  recollect study --agents all   many seeds of each figure, beside the control memories and the baseline:
                                 shares solved, with intervals
  recollect atlas                what each choice of the agent does, alone and in pairs, on one page
  recollect lengths              how far back each agent still remembers, and how long it takes to learn
  recollect extensions abstract  states that are more than an observation; continuing: tasks without ends
  recollect tune 1               the paper's grid for the recurrent baseline
  recollect readings             search the choices that the paper leaves open
  recollect looping              why that recipe loops: what is measured, and each link cut alone

  recollect bench estimators     how biased the write gradient is, by enumeration
  recollect bench host           steps a second of the loop around Gymnasium environments
  recollect bench inclusion      an exact weighted sample of a stream, and its picture
  recollect bench reservoir      how fast the sampler is, beside others, in one run
  recollect bench algorithm1     where the paper's Algorithm 1, as printed, silently stops sampling

In Python:

  from recollect import Reservoir
  r = Reservoir(64, seed=0)
  r.extend(items, weights)       # any stream, in any pieces
  r.items, r.inclusion_probabilities()
"""


def parser() -> argparse.ArgumentParser:
    """The command's options; kept apart so that tests and documentation can read them."""
    top = argparse.ArgumentParser(prog="recollect", description=TOUR, formatter_class=argparse.RawTextHelpFormatter)
    top.add_argument("--version", action="version", version=f"recollect {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for subject in (reproduce, learners, view, runs, benchmark, studies, benches):
        subject.register(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run the command; errors that have a cause and a fix come out as one line."""
    args = parser().parse_args(argv)
    try:
        args.run(args)
    except (RecollectError, OSError, ValueError) as error:
        print(f"recollect: {error}", file=sys.stderr)
        return 1
    except Interrupted:
        print("recollect: interrupted; recollect resume goes on with it", file=sys.stderr)
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        print("recollect: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0
