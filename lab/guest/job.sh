# What every job may use. A job's exit code is that of its last command; what it leaves in /results goes home.

# observe NAME COMMAND...: runs it; NAME.out, NAME.err and NAME.exit are its output, talk and exit code.
observe() {
    local name="$1" code=0
    shift
    # On the console too, so that a guest that hangs has told where.
    echo "LAB-AT $(cut -d' ' -f1 /proc/uptime) $name" >/dev/console
    "$@" >"/results/$name.out" 2>"/results/$name.err" || code=$?
    echo "$code" >"/results/$name.exit"
}

# measure NAME ARGUMENTS...: the same for membound.
measure() {
    local name="$1"
    shift
    observe "$name" membound "$@"
}

# facts: what membound says about the machine, for programs and for people.
facts() {
    measure machine machine --format json
    measure machine-text machine
}

# setting FILE VALUE: writes a setting of the kernel; a refusal ends the job.
setting() {
    echo "$2" >"$1" || exit 90
}
