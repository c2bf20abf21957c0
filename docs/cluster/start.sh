#!/bin/bash
# Start a program on the machines of a host file, over ssh, with the mpiexec that lies beside this Python.
#
#     docs/cluster/start.sh HOSTFILE RANKS python -m minidist.train --model gpt
#
# First every machine is asked whether it can be reached without a password and has the same minidist in the same
# place: what fails here fails with a sentence, and not in the middle of MPI's start. Set SSH to use another ssh.
set -eu
if (($# < 3)); then sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; fi
hostfile=$1 ranks=$2; shift 2
ssh=${SSH:-ssh}
python=$(command -v python)
mpiexec=$(dirname "$python")/mpiexec
[[ -x $mpiexec ]] || mpiexec=$(command -v mpiexec)
ask='import minidist, numpy, sys; print(minidist.__file__, numpy.__version__, *sys.version_info[:2])'

mine=$("$python" -c "$ask")
while read -r host _; do
  host=${host%%:*}
  [[ -z $host || $host == \#* ]] && continue
  if ! theirs=$($ssh -oBatchMode=yes "$host" "cd '$PWD' && PYTHONPATH='${PYTHONPATH:-}' '$python' -c '$ask'" </dev/null 2>&1); then
    echo "$host cannot start '$python' in '$PWD' over ssh without a password:" >&2
    echo "  ${theirs##*$'\n'}" >&2
    exit 2
  fi
  if [[ $theirs != "$mine" ]]; then
    echo "$host has another minidist or NumPy: $theirs; here: $mine" >&2
    exit 2
  fi
done < "$hostfile"

if "$mpiexec" --version 2>&1 | grep -qi 'open mpi\|prrte'; then
  export PRTE_MCA_plm_ssh_agent=$ssh OMPI_MCA_mpi_yield_when_idle=1
  exec "$mpiexec" --hostfile "$hostfile" -n "$ranks" -x PYTHONPATH -x OMPI_MCA_mpi_yield_when_idle "$@"
fi
export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=$(command -v "$ssh")
exec "$mpiexec" -f "$hostfile" -n "$ranks" "$@"
