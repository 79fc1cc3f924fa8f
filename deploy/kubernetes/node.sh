#!/bin/sh
# Runs a daemon in a pod:
#
#   sh node.sh leave COMMAND...   ends with the daemon's code, and what started the pod goes on from there
#   sh node.sh stay COMMAND...    does so only where another daemon is to take its place
#
# A StatefulSet starts a container again whatever it has ended with. So one whose daemon has done its
# part, or has failed in a way that would come again, stays until it is deleted.
#
# Kubernetes sends SIGTERM to move a pod. Passed on, it would end the job; a daemon that is killed is
# replaced, and the job goes on (docs/recovery.md).
after=$1
shift
daemon=
moved=
# Before the daemon starts, so that no signal is missed.
trap 'caught=1; moved=1; [ -z "$daemon" ] || kill -KILL "$daemon" 2>/dev/null' TERM
trap 'caught=1; [ -z "$daemon" ] || kill -INT "$daemon"' INT
"$@" &
daemon=$!
[ -z "$moved" ] || kill -KILL "$daemon" 2>/dev/null
code=127
while :; do
  caught=
  wait "$daemon"
  now=$?
  # A daemon that has been waited for already is unknown by then.
  [ "$now" -eq 127 ] || code=$now
  # A signal ends the wait with a code of its own.
  [ -n "$caught" ] || break
done
if [ "$after" = leave ] || [ -n "$moved" ]; then exit "$code"; fi
# It was killed, or the job has gone on without it.
if [ "$code" -eq 8 ] || { [ "$code" -gt 128 ] && [ "$code" -ne 130 ]; }; then exit "$code"; fi
echo "the daemon has ended with code $code; the pod stays until it is deleted"
sleeping=
trap '[ -z "$sleeping" ] || kill "$sleeping"; exit 0' TERM INT
while :; do
  sleep 3600 &
  sleeping=$!
  wait "$sleeping"
done
