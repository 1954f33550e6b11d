"""What a project takes over as it is; imports nothing, since the build of a wheel reads it, too."""

FILES = (
    *("dvc.yaml", "params.yaml", "params", "docs", "data/README.md", "data/.gitignore"),
    "own_methods/README.md",
    *(".gitignore", ".dvcignore", ".dvc/config", ".dvc/.gitignore", ".dvc/plots"),
)
"""Files and folders, as they lie at the root of a working copy of the source, and in `project` of a wheel."""
