"""Settings: what a part of the pipeline lets one choose, as a frozen dataclass beside what it sets.

`rules` says what a value may be, `reader` turns a tree of plain values into sections, `registry` names the parts.
"""
