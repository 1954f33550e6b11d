"""Tables between stages: columns, writers and strict readers."""
