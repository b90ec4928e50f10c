#!/usr/bin/env bash
# A real scheduler on this one machine, for the tests in this folder: Slurm with its PBS commands (qsub, qstat, qdel),
# without systemd. It says it has 16 cores, 256 GB and two GPUs, whatever the machine has.
#
#   scheduler.sh install   Debian's packages; as root
#   scheduler.sh start     prints "started" or "already up"; then: export SLURM_CONF=$(scheduler.sh conf)
#   scheduler.sh stop      deletes all jobs and ends what `start` started
#   scheduler.sh conf      the path of its configuration
set -euo pipefail

base=${TRIAGESIM_SLURM:-${TMPDIR:-/tmp}/triagesim-slurm}
export SLURM_CONF=$base/slurm.conf
packages=(munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins slurm-wlm-torque)

is_installed() {
  for command in munged slurmctld slurmd qsub qstat qdel; do
    command -v "$command" > /dev/null || return 1
  done
}

install() {
  is_installed && return
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=300 update -qq
  apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${packages[@]}" > /dev/null
}

alive() { # by its file of a process id
  [ -s "$1" ] && kill -0 "$(cat "$1")" 2> /dev/null
}

is_up() { # sinfo waits for a minute where there is nobody
  alive "$base/slurmctld.pid" && alive "$base/slurmd.pid" && sinfo -h -o %T 2> /dev/null | grep -qE '^(idle|mixed|allocated)'
}

configure() {
  mkdir -p "$base"/{state,spool,log}
  for i in 0 1; do # twins of /dev/null stand for the GPUs' devices
    [ -e "$base/gpu$i" ] || mknod "$base/gpu$i" c 1 3
  done
  local host
  host=$(hostname -s)
  echo "NodeName=$host Name=gpu File=$base/gpu[0-1]" > "$base/gres.conf"
  cat > "$SLURM_CONF" << END
ClusterName=tests
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
StateSaveLocation=$base/state
SlurmdSpoolDir=$base/spool
SlurmctldPidFile=$base/slurmctld.pid
SlurmdPidFile=$base/slurmd.pid
SlurmctldLogFile=$base/log/slurmctld.log
SlurmdLogFile=$base/log/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
ReturnToService=2
MinJobAge=3600
KillWait=2
OverTimeLimit=0
InactiveLimit=0
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 RealMemory=262144 Gres=gpu:2 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=24:00:00 DefaultTime=01:00:00 DefMemPerCPU=1024 State=UP
END
}

start_munge() {
  munge -n > /dev/null 2>&1 && return
  mkdir -p /run/munge /var/log/munge /var/lib/munge
  chown munge: /run/munge /var/log/munge /var/lib/munge
  chmod 755 /run/munge
  chmod 700 /var/lib/munge
  if [ ! -s /etc/munge/munge.key ]; then
    (umask 077 && dd if=/dev/urandom of=/etc/munge/munge.key bs=1 count=1024 status=none)
    chown munge: /etc/munge/munge.key
    chmod 400 /etc/munge/munge.key
  fi
  rm -f /run/munge/munge.socket.2*
  runuser -u munge -- /usr/sbin/munged --force
  touch "$base/started-munge"
}

start() {
  if [ -s "$SLURM_CONF" ] && is_up; then
    echo "already up"
    return
  fi
  configure
  start_munge
  alive "$base/slurmctld.pid" || slurmctld
  alive "$base/slurmd.pid" || slurmd
  for _ in $(seq 120); do
    if is_up; then
      echo started
      return
    fi
    sleep 0.25
  done
  tail -n 20 "$base"/log/*.log >&2
  echo "the scheduler did not come up" >&2
  exit 1
}

stop() {
  [ -d "$base" ] || return 0
  alive "$base/slurmctld.pid" && scancel --user=root 2> /dev/null
  for daemon in slurmd slurmctld; do
    alive "$base/$daemon.pid" && end "$base/$daemon.pid"
  done
  [ -e "$base/started-munge" ] && alive /run/munge/munged.pid && end /run/munge/munged.pid
  rm -rf "$base"
}

end() {
  local process
  process=$(cat "$1")
  kill "$process"
  for _ in $(seq 40); do
    kill -0 "$process" 2> /dev/null || return 0
    sleep 0.25
  done
  kill -9 "$process"
}

case ${1:-} in
  install | start | stop) "$1" ;;
  conf) echo "$SLURM_CONF" ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
