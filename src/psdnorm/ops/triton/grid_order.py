"""How a Triton kernel begins; imported with the kernels only, because it imports triton."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def begin_launch(EARLY: tl.constexpr):
    """Let the next kernel be sent for, and wait for all that the one before has written.

    EARLY kernels are launched before the one before them has ended, and are ready when it has.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
