"""Networks: the shared trunk, the heads above it, and how they lie on disk. Import the module that holds a name."""
