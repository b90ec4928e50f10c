#!/bin/bash
# properties = {properties}
# The exit code is left for status.py, which needs it once the server has forgotten the job.
job=${{PBS_JOBID:-$SLURM_JOB_ID}}
cd "${{PBS_O_WORKDIR:-$PWD}}" || exit 97 # PBS starts a job in the home folder
state=$PWD/.snakemake/pbs/${{job%%.*}}
trap 'echo $? > "$state.exit.new" && mv "$state.exit.new" "$state.exit"' EXIT
trap 'exit 143' TERM
. .snakemake/pbs/environment.sh || exit 97
export TRIAGESIM_GAINED=$state.gained # made at the first new answer
[ "${{TRIAGESIM_WALLTIME:-0}}" -gt 0 ] && export TRIAGESIM_JOB_END=$(($(date +%s) + TRIAGESIM_WALLTIME))
echo "job $job on $(hostname), $(date -Is)"
{exec_job}
