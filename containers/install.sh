#!/bin/sh
# Installs histo_monai from this source into /opt/histo_monai: Debian 12, as root. Dockerfile and apptainer.def call it.
set -eu
cd "$(dirname "$0")/.."
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates git openssh-client python3 python3-venv
rm -rf /var/lib/apt/lists/*
python3 -m venv /opt/histo_monai
/opt/histo_monai/bin/pip install --no-cache-dir --constraint constraints.txt ".[cluster,dicom,export,s3,ssh]"
