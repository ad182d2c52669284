#!/bin/sh
# All tests, in two runs at once: those of Spark, which spend much of their time waiting for a JVM, and all others. The
# report of Spark's comes when both are over. Arguments: pytest, and options for both runs.
set -u

report=$(mktemp)
"$@" tests/spark >"$report" 2>&1 &
spark=$!
trap 'kill "$spark" 2>/dev/null; rm -f "$report"' EXIT
trap 'exit 130' INT TERM

echo "tests/spark runs beside the rest and reports at the end"
"$@" tests --ignore tests/spark
rest_code=$?
wait "$spark"
spark_code=$?
trap 'rm -f "$report"' EXIT  # its process is over, and its id may be another's
echo "tests/spark:"
cat "$report"
[ "$rest_code" -eq 0 ] && [ "$spark_code" -eq 0 ]
