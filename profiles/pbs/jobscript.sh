#!/bin/bash
# properties = {properties}
# The exit code is left for status.py, which needs it once the server has forgotten the job.
job=${{PBS_JOBID:-$SLURM_JOB_ID}}
cd "${{PBS_O_WORKDIR:-$PWD}}" || exit 97 # PBS starts a job in the home folder
exit_file=$PWD/.snakemake/pbs/${{job%%.*}}.exit
trap 'echo $? > "$exit_file.new" && mv "$exit_file.new" "$exit_file"' EXIT
trap 'exit 143' TERM
echo "job $job on $(hostname), $(date -Is)"
{exec_job}
