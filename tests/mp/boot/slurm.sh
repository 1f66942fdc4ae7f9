#!/bin/bash
# A Slurm cluster of one node, with namespaces of its own, for as long as a command runs in it.
#
#   slurm.sh FOLDER COMMAND...
#
# FOLDER is empty and gets the cluster's files. All processes of the cluster end with this script.
# Exit status: that of COMMAND; 77: a cluster can't be had here.
if [ "$1" != --inside ]; then
  unshare --uts --net --ipc --mount --pid --fork --kill-child --mount-proc true 2>/dev/null || exit 77
  exec unshare --uts --net --ipc --mount --pid --fork --kill-child --mount-proc bash "$0" --inside "$@"
fi
shift
folder=$1
shift
{
  mkdir "$folder/state" "$folder/spool"
  mount --make-rprivate /
  printf '127.0.0.1 localhost\n10.77.2.1 node0\n' >"$folder/hosts"
  mount --bind "$folder/hosts" /etc/hosts
  hostname node0
  # Slurm asks the resolver for addresses of the kind that an interface other than lo has.
  ip link set lo up
  ip link add node type veth peer name other
  ip addr add 10.77.2.1/24 dev node
  ip link set node up
  ip link set other up
  (umask 077; head -c 128 /dev/urandom >"$folder/munge.key")
  munged --force --key-file "$folder/munge.key" --socket "$folder/munge.socket" --pid-file "$folder/munged.pid" \
    --log-file "$folder/munged.log" --seed-file "$folder/munged.seed"
  cat >"$folder/slurm.conf" <<END
ClusterName=larklane
SlurmctldHost=node0(10.77.2.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=node0 NodeAddr=10.77.2.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=node0 Default=YES State=UP
END
  echo CgroupPlugin=cgroup/v1 >"$folder/cgroup.conf"
  export SLURM_CONF=$folder/slurm.conf
  slurmctld -f "$SLURM_CONF" -i
  slurmd -f "$SLURM_CONF" -N node0
} >"$folder/begin.log" 2>&1 || { cat "$folder"/*.log; exit 77; }
for _ in $(seq 300); do
  sinfo -h -o %T 2>/dev/null | grep -q idle && exec "$@"
  sleep 0.1
done
cat "$folder"/*.log
exit 77
