"""Cases of the catalogue that do not yet end as they should, by kind: the list may only become shorter.

Most are tables between stages that somebody edits by hand: `pretrain` and `suggest` read them without a check, so the
message does not name the file, or a row too few or twice is accepted. In two, what was to be refused is harmless since
maps have names of their own; whether such a folder should be refused all the same is open.
"""

KNOWN_GAPS = {
    "params.yaml": {"no C", "a bell in a key"},
    "tables of the index": {
        "centers.csv for pretrain: cut off in the middle of a row",
        "centers.csv for pretrain: rows of no split",
        "slides.csv for pretrain: noise",
        "slides.csv for pretrain: a slide twice",
        "slides.csv for suggest: empty",
        "whole_slides.csv for aggregate: cut off in the middle of a row",
    },
    "scores of maps": {"s6.csv for aggregate: a cell twice"},
    "results of stages": {
        "slides.csv for compare: a slide twice",
        "slides.csv for compare: cut off in the middle of a row",
        "folds.csv for heatmap: cut off in the middle of a row",
    },
    "command line": {"a folder of nothing"},
    "outputs over inputs": {
        "a pathologist's outlines in the folder",
        "a map.json of somebody else",
        "maps of another µm/px",
    },
}
