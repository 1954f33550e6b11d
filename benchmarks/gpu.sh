#!/usr/bin/env bash
# Checks and times everything that a GPU does, in one call, on a machine that has one: some ten minutes.
#     benchmarks/gpu.sh [folder for the logs]
# Needs pytest, hypothesis, h5py and the packages of pyproject.toml (ruamel.yaml among them), but not DVC.
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

echo "== one pass of the trunk against three; one trunk for teacher and student against two"
for side in 64 256; do
    "$python" benchmarks/finetuning.py --patch-px "$side" --batch-size 64 --device cuda
done | tee "$logs/finetuning.log"

echo "== reading, augmentation, network, all: 256 px, 64 triples a step"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp params/paper.yaml "$work/params.yaml"
"$python" - "$work/params.yaml" <<'PY'
import sys, yaml
tree = yaml.safe_load(open(sys.argv[1]))
tree |= {"source": "phantom"}
tree["phantom"] |= {"num_slides": 16, "num_test_slides": 4, "slide_side_px": 8192, "slide_mpp": 0.25}
tree["corpora"]["camelyon16"] |= {"num_normal": 4, "num_tumor": 4, "num_train": 8192, "num_validation": 1024}
for method in ("vae", "moco", "rsp"):
    tree["pretrain"][method]["epochs"] = 2
for stage in ("finetune", "consistency"):
    tree[stage]["camelyon16"]["epochs"] = 2
for split, num in (("train", 1024), ("validation", 256), ("test", 256)):
    tree["labels"]["camelyon16"][split] = {"num_tumor": num, "num_normal": num}
yaml.safe_dump(tree, open(sys.argv[1], "w"))
PY
cd "$work"
"$python" -m histo_monai phantom
"$python" -m histo_monai index
for workers in 4 8 14; do
    "$python" "$root/benchmarks/pretraining.py" --patch-px 256 --batch-size 64 --workers "$workers"
done | tee "$logs/pretraining.log"

echo "== two epochs of each stage itself"
for method in rsp moco vae; do
    time "$python" -m histo_monai pretrain --method "$method" 2>&1 | grep -a "^epoch" | tee -a "$logs/stage.log"
done
for stage in finetune consistency evaluate crossfit; do
    time "$python" -m histo_monai "$stage" --method rsp --seed 0 2>&1 | grep -a "^epoch\|accuracy" | tee -a "$logs/stage.log"
done

echo "== maps (the bar tells patches/s of every slide) and diagnosis"
for stage in heatmap aggregate; do
    time "$python" -m histo_monai "$stage" --method rsp --seed 0 2>&1 | tr '\r' '\n' | grep -a "100%.*patch/s\|auc\|written" |
        tee -a "$logs/stage.log"
done
echo "== features of whole slides, and what their labels alone teach"
time "$python" -m histo_monai embed --method rsp 2>&1 | tr '\r' '\n' | grep -a "100%.*patch/s\|written" | tee -a "$logs/stage.log"
time "$python" -m histo_monai mil --method rsp --seed 0 2>&1 | grep -a "auc" | tee -a "$logs/stage.log"
cat data/evaluation/rsp-0-paper-0/summary.json data/diagnosis/rsp-0-paper-0/summary.json
