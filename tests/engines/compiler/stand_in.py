"""A processor in the place of a GPU: the same routines, one thread after the other, in the same order of memory."""

import numpy as np

from recollect.engines.compiler.ptx import OnHost


class StandIn:
    """What `cuda_driver.Gpu` has, in this process's memory."""

    name, processors = "a processor", 1

    def __init__(self):
        self._memory = {}

    def allocate(self, size):
        array = np.zeros(max(size, 16), np.uint8)
        self._memory[array.ctypes.data] = array
        return array.ctypes.data

    def release(self, address):
        del self._memory[address]

    def write(self, address, array):
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._memory[address][: data.size] = data

    def read(self, address, array):
        array.reshape(-1).view(np.uint8)[...] = self._memory[address][: array.nbytes]

    def wait(self):
        pass

    def program(self, routines, often=True, **options):
        del often, options
        return OnHost(routines)
