"""From the equations of a step to machine code: see docs/compiler.md."""

from recollect.engines.compiler.graph import Unsupported
from recollect.engines.compiler.program import Compiled, Memory, Program, Step, compile

__all__ = ["Compiled", "Memory", "Program", "Step", "Unsupported", "compile"]
