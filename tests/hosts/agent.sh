#!/bin/sh
# What launchers call instead of ssh: agent.sh [OPTIONS] HOST COMMAND... runs the command on a host of hosts.py.
# HOSTS_OF_TEST: words like host0=PID, a process that lives there.
while case $1 in -*) true ;; *) false ;; esac; do shift; done
host=$1
shift
for word in $HOSTS_OF_TEST; do
  case $word in
    "$host="*) exec nsenter --target "${word#*=}" --net --uts --ipc --mount sh -c 'cd "$0" && eval "$1"' "$PWD" "$*" ;;
  esac
done
echo "agent: no host $host" >&2
exit 255
