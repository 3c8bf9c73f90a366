# Prometheus' own tool over the alert rules, their tests, and the page of a live gateway with some traffic.
set -euo pipefail
monitoring="$ROOT/docs/monitoring"
promtool check rules "$monitoring/kvasir-alerts.yaml"
(cd "$monitoring" && promtool test rules kvasir-alerts-test.yaml)

# The dashboard's expressions, as rules, so that they are parsed too; Grafana's variables replaced.
python3 - "$monitoring/kvasir-dashboard.json" >"$WORK/dashboard-rules.yaml" <<'PYTHON'
import json, sys

panels = json.load(open(sys.argv[1]))["panels"]
targets = [target["expr"] for panel in panels for target in panel.get("targets", [])]
assert len(targets) > 50, "no expressions were found"
for variable, value in (("$__rate_interval", "5m"), ("$model", ".*")):
    targets = [expr.replace(variable, value) for expr in targets]
rules = [{"record": f"dashboard:{n}", "expr": expr} for n, expr in enumerate(targets)]
print(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
PYTHON
promtool check rules "$WORK/dashboard-rules.yaml"

json='content-type: application/json'
for path in chat/completions completions; do
    for stream in true false; do
        case $path in
        completions) prompt='"prompt":"Say something."' ;;
        *) prompt='"messages":[{"role":"user","content":"Say something."}]' ;;
        esac
        curl -sS --fail-with-body --max-time 60 -o /dev/null -H "$json" \
            -d '{"model":"'"$MODEL"'",'"$prompt"',"max_tokens":8,"stream":'$stream'}' "$BASE_URL/v1/$path"
    done
done
curl -sS -o /dev/null -H "$json" -d '{' "$BASE_URL/v1/completions"
page=$(curl -sS --fail-with-body "$BASE_URL/metrics")
test "$(grep -c '^# TYPE kvasir_' <<<"$page")" -gt 80
# It reads the page with Prometheus' own parser and judges names and HELP texts; it is silent where all is well.
promtool check metrics <<<"$page"
