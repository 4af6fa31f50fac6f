"""The mathematics of the layer, behind one pair of functions per backend.

Each backend module offers ``row_statistics`` and ``normalize`` with the same signatures;
:mod:`psdnorm.ops.reference` also holds the single steps.
"""
