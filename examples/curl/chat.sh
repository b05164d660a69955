#!/bin/sh
# Asks a running server and shows the answer as it comes: chat.sh [QUESTION]
#   TEMPO9_URL      where it is, http://127.0.0.1:11435 when not set
#   TEMPO9_API_KEY  its key, if it wants one
url=${TEMPO9_URL:-http://127.0.0.1:11435}
question=${1:-Name three colours.}

# The question as a JSON string.
escaped=$(printf '%s' "$question" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' | awk 'NR > 1 {printf "\\n"} {printf "%s", $0}')

curl -sS -N --fail-with-body "$url/v1/chat/completions" \
    -H 'Content-Type: application/json' ${TEMPO9_API_KEY:+-H "Authorization: Bearer $TEMPO9_API_KEY"} \
    -d "{\"model\": \"default\", \"stream\": true, \"max_tokens\": 60, \"temperature\": 0,
         \"messages\": [{\"role\": \"user\", \"content\": \"$escaped\"}]}"
