# Prometheus' own tool over the alert rules, their tests, and the page of a live gateway with some traffic.
set -euo pipefail
monitoring="$ROOT/docs/monitoring"
promtool check rules "$monitoring/kvasir-alerts.yaml"
(cd "$monitoring" && promtool test rules kvasir-alerts-test.yaml)

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
