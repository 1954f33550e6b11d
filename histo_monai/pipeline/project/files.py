"""Files that a new project copies; without imports, because the wheel's build reads it."""

FILES = (
    *("dvc.yaml", "params.yaml", "params", "docs", "data/README.md", "data/.gitignore"),
    "own_methods/README.md",
    *(".gitignore", ".dvcignore", ".dvc/config", ".dvc/.gitignore", ".dvc/plots"),
)
"""Files and folders in the root of a source checkout, and in `project` of a wheel."""

SOURCE_ONLY = ("research_log.md", "real.md", "real.csv", "few_labels.md", "few_labels.csv", "benchmarks.md")
"""Files of docs that no project copies: measurements."""
