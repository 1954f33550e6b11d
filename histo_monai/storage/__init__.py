"""Files on disk: written whole or not at all, by one process at a time, and known again by their content."""

from histo_monai.storage.atomic import check_replaceable, whole_file, whole_folder, write_json
from histo_monai.storage.claim import claim
from histo_monai.storage.errors import DiskFullError, OutputError
from histo_monai.storage.identity import FileIdentity, identify
from histo_monai.storage.outputs import (
    check_apart,
    check_folder,
    check_outputs,
    check_own_folder,
    file_sha256,
    own_folder,
    publish,
    read_record,
    written_before,
)

__all__ = [
    "DiskFullError",
    "FileIdentity",
    "OutputError",
    "check_apart",
    "check_folder",
    "check_outputs",
    "check_own_folder",
    "check_replaceable",
    "claim",
    "file_sha256",
    "identify",
    "own_folder",
    "publish",
    "read_record",
    "whole_file",
    "whole_folder",
    "write_json",
    "written_before",
]
