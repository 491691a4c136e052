#!/bin/sh
# How long `membound machine` takes from start to end, and how large the program is.
#
#   cargo build --release && crates/membound/benches/startup.sh [PROGRAM] [RUNS]
#
# Prints the median, least and greatest wall time of 50 runs in milliseconds, what starting a program that does nothing
# (`true`) takes when timed the same way, and the program's size. The clock is perl's, or that of GNU date without perl.
set -eu

program=${1:-$(dirname "$0")/../../../target/release/membound}
runs=${2:-50}

if [ ! -x "$program" ]; then
    echo "$program is not there; run \`cargo build --release\`, or name the program: $0 PROGRAM" >&2
    exit 2
fi

# One wall time in nanoseconds a line.
if command -v perl >/dev/null && perl -MTime::HiRes -e 1 2>/dev/null; then
    time_runs() {
        perl -MTime::HiRes=clock_gettime,CLOCK_MONOTONIC -e '
            my $runs = shift @ARGV;
            open STDOUT_KEPT, ">&", \*STDOUT or die;
            open STDOUT, ">", "/dev/null" or die;
            for (1 .. $runs) {
                my $start = clock_gettime(CLOCK_MONOTONIC);
                system { $ARGV[0] } @ARGV and die "$ARGV[0] failed\n";
                printf STDOUT_KEPT "%d\n", 1e9 * (clock_gettime(CLOCK_MONOTONIC) - $start);
            }' "$runs" "$@"
    }
else
    time_runs() {
        run=0
        while [ "$run" -lt "$runs" ]; do
            start=$(date +%s%N)
            "$@" >/dev/null
            echo $(($(date +%s%N) - start))
            run=$((run + 1))
        done
    }
fi

report() {
    name=$1
    shift
    time_runs "$@" | sort -n | awk -v name="$name" '
        { t[NR] = $1 / 1e6 }
        END {
            middle = NR % 2 ? t[(NR + 1) / 2] : (t[NR / 2] + t[NR / 2 + 1]) / 2
            printf "%-18s %7.2f ms  [%.2f, %.2f]  %d runs\n", name, middle, t[1], t[NR], NR
        }'
}

report "membound machine" "$program" machine
report "true" true
size=$(wc -c <"$program")
awk -v size="$size" 'BEGIN { printf "%-18s %7.2f MiB (%d bytes)\n", "program", size / 1048576, size }'
