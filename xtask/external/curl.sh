# curl through the gateway: HTTP/1.1, HTTP/2 by prior knowledge, chunked bodies, Expect, streams.
set -euo pipefail
chat='{"model":"'$MODEL'","messages":[{"role":"user","content":"Say something."}],"max_tokens":8'
json='content-type: application/json'
answer() { curl -sS --fail-with-body --max-time 60 "$@" "$BASE_URL/v1/chat/completions"; }

for version in --http1.1 --http2-prior-knowledge; do
    answer $version -H "$json" -d "$chat}" | grep -q '"finish_reason"'
    streamed=$(answer $version -N -H "$json" -d "$chat,\"stream\":true}")
    grep -q '^data: \[DONE\]' <<<"$streamed"
    test "$(curl -sS $version -o /dev/null -w '%{http_code}' -H "$json" -d '{' "$BASE_URL/v1/chat/completions")" = 400
done
# As h2, it came as h2.
test "$(answer --http2-prior-knowledge -o /dev/null -w '%{http_version}' -H "$json" -d "$chat}")" = 2
answer -H "$json" -H 'transfer-encoding: chunked' -d "$chat}" | grep -q '"usage"'
answer -H "$json" -H 'expect: 100-continue' -d "$chat}" | grep -q '"usage"'
# Several over one connection.
curl -sS --fail-with-body "$BASE_URL/v1/models" "$BASE_URL/health" "$BASE_URL/v1/models" | grep -q "$MODEL"
