#!/usr/bin/env bash
# Checks and times everything that a GPU does, in one call, on a machine that has one: about five minutes.
#     benchmarks/gpu.sh [folder for the logs]
# Needs pytest and the packages of pyproject.toml, but not DVC.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
logs=${1:-$(mktemp -d)}
mkdir -p "$logs"
export PYTHONUNBUFFERED=1 PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
python=${PYTHON:-python3}

"$python" -c "import torch; assert torch.cuda.is_available(), 'torch finds no GPU'; print(torch.cuda.get_device_name())"

echo "== the GPU gives what the CPU gives"
"$python" -m pytest -q -m gpu tests 2>&1 | tee "$logs/tests.log"

echo "== augmentation"
"$python" benchmarks/augmentation.py --device cuda | tee "$logs/augmentation.log"

echo "== reading, augmentation, network, all: 256 px, 64 triples a step"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp params/paper.yaml "$work/params.yaml"
"$python" - "$work/params.yaml" <<'PY'
import sys, yaml
tree = yaml.safe_load(open(sys.argv[1]))
tree |= {"source": "phantom"}
tree["phantom"] |= {"num_slides": 8, "num_test_slides": 0, "slide_side_px": 8192, "slide_mpp": 0.25}
tree["corpora"]["camelyon16"] |= {"num_normal": 4, "num_tumor": 4, "num_train": 8192, "num_validation": 1024}
tree["pretrain"]["rsp"]["epochs"] = 2
yaml.safe_dump(tree, open(sys.argv[1], "w"))
PY
cd "$work"
"$python" -m histo_monai phantom
"$python" -m histo_monai index
for workers in 4 8 14; do
    "$python" "$root/benchmarks/pretraining.py" --patch-px 256 --batch-size 64 --workers "$workers"
done | tee "$logs/pretraining.log"

echo "== two epochs of the stage itself"
time "$python" -m histo_monai pretrain --method rsp 2>&1 | grep -a "^epoch" | tee "$logs/stage.log"
