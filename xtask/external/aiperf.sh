# NVIDIA's load generator, unmodified: a short streamed load, without one failed request.
set -euo pipefail
out=$WORK/aiperf-artifacts
rm -rf "$out"
aiperf profile --model "$MODEL" --url "$BASE_URL" --endpoint-type chat --streaming \
    --tokenizer "$TOKENIZER" --concurrency 8 --request-count 64 --ui none \
    --synthetic-input-tokens-mean 200 --output-tokens-mean 16 --output-artifact-dir "$out"
python3 - "$out" <<'PY'
import json, pathlib, sys
(found,) = pathlib.Path(sys.argv[1]).rglob("profile_export_aiperf.json")
report = json.loads(found.read_text())
assert report["request_count"]["avg"] == 64, report["request_count"]
assert not report.get("error_summary"), report["error_summary"]
PY
