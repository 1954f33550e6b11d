"""Settings of the pipeline's modules, as frozen dataclasses beside the code that uses them.

`rules` defines valid values, `reader` reads sections from YAML values, `registry` names the plug-ins.
"""
