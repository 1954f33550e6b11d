"""Files on disk: written whole or not at all, by one process at a time, under safe names, and known again."""

from histo_monai.storage.atomic import whole_file, whole_folder, write_json
from histo_monai.storage.claim import claim
from histo_monai.storage.errors import DiskFullError, OutputError, disk_full_in_words
from histo_monai.storage.identity import FileIdentity, identify
from histo_monai.storage.names import MAX_NAME_BYTES, check_name
from histo_monai.storage.reading import InputFileError, read_bytes, read_json, read_text
from histo_monai.storage.seal import file_sha256, opened, sealed

__all__ = [
    "MAX_NAME_BYTES",
    "DiskFullError",
    "FileIdentity",
    "InputFileError",
    "OutputError",
    "check_name",
    "claim",
    "disk_full_in_words",
    "file_sha256",
    "identify",
    "opened",
    "read_bytes",
    "read_json",
    "read_text",
    "sealed",
    "whole_file",
    "whole_folder",
    "write_json",
]
