#!/bin/bash
# PID 1 of the guest: makes a Soft-RoCE device rxe0, runs what guest.py asks for (/run/guest/commands: a number, a limit in seconds)
# and powers off. Of command N: N.sh is its text, N.out what it prints, N.end its status and how long it took.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
now() { cut -d' ' -f1 /proc/uptime; }
for link in fd: stdin:/0 stdout:/1 stderr:/2; do ln -sf "/proc/self/fd${link#*:}" "/dev/${link%:*}"; done
ulimit -l unlimited -n 65536 -c 0
echo guest > /proc/sys/kernel/hostname
echo "127.0.0.1 localhost guest" > /etc/hosts
ip link set lo up
# MTU 4200: RoCE's largest, 4096, and its headers. The address makes GID 1, RoCE v2 over IPv4.
ip link add eth0 type dummy
ip link set eth0 mtu 4200 address 02:00:00:00:09:01
ip address add 10.9.0.1/24 dev eth0
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0
echo "guest: ready $(now)"
cd "$(cat /run/guest/folder)" || cd /
while read -r number limit_s; do
  began=$(now)
  timeout -k 5 "$limit_s" bash "/run/guest/$number.sh" > "/run/guest/$number.out" 2>&1 < /dev/null
  echo "$? $began $(now)" > "/run/guest/$number.end"
  kill -KILL -- -1 # what it has left: everything but this shell
done < /run/guest/commands
echo "guest: done $(now)"
busybox poweroff -f
