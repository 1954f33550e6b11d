"""Files on disk: atomic writes by one process at a time, safe names, and identities."""

from histo_monai.utils.storage.atomic import check_replaceable, whole_file, whole_folder, write_json
from histo_monai.utils.storage.claim import claim, claim_users_folder
from histo_monai.utils.storage.errors import DiskFullError, OutputError, disk_full_in_words
from histo_monai.utils.storage.handles import HandlePool
from histo_monai.utils.storage.identity import FileIdentity, file_of, identify, identify_slide
from histo_monai.utils.storage.names import MAX_NAME_BYTES, check_name
from histo_monai.utils.storage.outputs import (
    check_apart,
    check_folder,
    check_outputs,
    check_own_folder,
    own_folder,
    publish,
    read_record,
    written_before,
)
from histo_monai.utils.storage.reading import (
    InputFileError,
    check_regular,
    open_regular,
    parse_json,
    read_bytes,
    read_json,
    read_text,
)
from histo_monai.utils.storage.seal import RECORD_SEAL, file_sha256, opened, sealed
from histo_monai.utils.storage.slide_files import slide_files

__all__ = [
    "MAX_NAME_BYTES",
    "RECORD_SEAL",
    "DiskFullError",
    "FileIdentity",
    "HandlePool",
    "InputFileError",
    "OutputError",
    "check_apart",
    "check_folder",
    "check_name",
    "check_outputs",
    "check_own_folder",
    "check_regular",
    "check_replaceable",
    "claim",
    "claim_users_folder",
    "disk_full_in_words",
    "file_of",
    "file_sha256",
    "identify",
    "identify_slide",
    "open_regular",
    "opened",
    "own_folder",
    "parse_json",
    "publish",
    "read_bytes",
    "read_json",
    "read_record",
    "read_text",
    "sealed",
    "slide_files",
    "whole_file",
    "whole_folder",
    "write_json",
    "written_before",
]
