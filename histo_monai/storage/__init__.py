"""Files on disk: written whole or not at all, by one process at a time, under safe names, and known again."""

from histo_monai.storage.atomic import whole_file, whole_folder, write_json
from histo_monai.storage.claim import claim
from histo_monai.storage.errors import DiskFullError, OutputError
from histo_monai.storage.identity import FileIdentity, identify
from histo_monai.storage.names import MAX_NAME_BYTES, check_name

__all__ = [
    "MAX_NAME_BYTES",
    "DiskFullError",
    "FileIdentity",
    "OutputError",
    "check_name",
    "claim",
    "identify",
    "whole_file",
    "whole_folder",
    "write_json",
]
