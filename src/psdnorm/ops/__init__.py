"""The mathematics of the layer, behind one pair of functions per backend.

Each backend module offers ``row_statistics`` and ``normalize`` with the same signatures, the fused
one ``measure_and_normalize`` besides, which does both where the target does not depend on the rows;
:mod:`psdnorm.ops.reference` also holds the single steps.
"""
