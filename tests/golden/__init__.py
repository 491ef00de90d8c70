"""Golden tests: numbers that were stored before the redesign, which no rename may change.

``names.py`` maps names of that time to those of today, ``adapter.py`` is the only module that uses vitpos, ``make.py``
is how the numbers were stored.
"""
