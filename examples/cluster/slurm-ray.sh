#!/bin/bash
# Embed photos on four machines, then predict them with a finished run: sbatch examples/cluster/slurm-ray.sh
# The photos, the run and the output are on a file system that all machines see, or at URLs.
#SBATCH --job-name=uniot-ray
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=08:00:00
#SBATCH --requeue
set -euo pipefail

photos=${PHOTOS:-photos/}
run=${RUN:-run/}
embeddings=${EMBEDDINGS:-embeddings/}
predictions=${PREDICTIONS:-predictions/}

export RAY_USAGE_STATS_ENABLED=0
mapfile -t machines < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${machines[0]}
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}'):6379

srun --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --port=6379 --num-cpus="$SLURM_CPUS_PER_TASK" --include-dashboard=false --block &
sleep 30
if ((SLURM_JOB_NUM_NODES > 1)); then
    others=$(IFS=,; echo "${machines[*]:1}")
    srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --nodelist="$others" \
        ray start --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
    sleep 30
fi

# If the job is stopped and queued again, both commands go on with the shards that are missing.
export RAY_ADDRESS=$address
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" uniot embed "$photos" --engine ray --out "$embeddings"
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" uniot predict "$run" "$embeddings" --engine ray --out "$predictions"
